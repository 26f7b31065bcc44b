"""What the attention ops over a paged cache share: their arguments, checks, results, facts and tolerances."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from msa_ops.cache.page import HEAD_DIM, CacheFormat, PageLayout, main_page
from msa_ops.formats.e4m3 import ROUNDINGS
from msa_ops.formats.scale_layout import ScaleLayout
from msa_ops.ops import checks, fact_values
from msa_ops.ops.token_bucket import token_bucket
from msa_ops.registry import Tolerance

Q_DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn)
TOPK_LAYOUTS = ("THK", "HTK")
MAX_TOPK = 64
MAX_SOFTMAX_SCALE = 1024.0
"""A weight is the exponential of a difference of scores, which in fp32 has no digits left if the scores are near 2^24.

Kernels subtract the highest score, rounded, from products that are not: beyond 2^28 a weight can overflow and a row
become NaN. With this limit that takes products q . k of more than 2^18.
"""


class PagedAttention(Protocol):
    """The arguments that the ops have in common."""

    q: Tensor
    kv_cache: Tensor
    block_table: Tensor
    seq_lens: Tensor
    cu_seqlens_q: Tensor | None
    num_kv_heads: int
    kv_format: str
    kv_layout: str
    k_scale_layout: str
    v_scale_layout: str
    k_scale: Tensor | None
    v_scale: Tensor | None
    softmax_scale: float | None
    rounding: str
    max_seqlen_q: int | None


def check_paged(a: PagedAttention) -> None:
    """Raises ValueError naming the argument and what is accepted; looks at metadata only."""
    checks.tensor("q", a.q, (None, None, HEAD_DIM), *Q_DTYPES)
    _check_rows_of_q(a.q)
    checks.between("num_kv_heads", a.num_kv_heads, 1, math.inf)
    heads = a.q.shape[1]
    if heads == 0 or heads % a.num_kv_heads:
        raise ValueError(f"q: {heads} heads; accepted: a multiple of num_kv_heads = {a.num_kv_heads}")
    checks.choice("kv_format", a.kv_format, [fmt.value for fmt in CacheFormat])
    checks.choice("kv_layout", a.kv_layout, [layout.value for layout in PageLayout])
    for name in ("k_scale_layout", "v_scale_layout"):
        checks.choice(name, getattr(a, name), [layout.value for layout in ScaleLayout])
    checks.cache_pages("kv_cache", a.kv_cache, main_page(a.kv_format, a.num_kv_heads, a.kv_layout).bytes)
    checks.ragged(a.q.shape[0], a.block_table, a.seq_lens, a.cu_seqlens_q)
    checks.scalar("k_scale", a.k_scale)
    checks.scalar("v_scale", a.v_scale)
    checks.choice("rounding", a.rounding, ROUNDINGS)
    if a.softmax_scale is not None:
        checks.positive_fp32("softmax_scale", a.softmax_scale, MAX_SOFTMAX_SCALE)
    if a.max_seqlen_q is not None:
        checks.between("max_seqlen_q", a.max_seqlen_q, 0, math.inf)


def check_block_ids(a: PagedAttention, block_ids: Tensor, topk_layout: str) -> None:
    checks.choice("topk_layout", topk_layout, TOPK_LAYOUTS)
    tokens, heads = a.q.shape[0], a.num_kv_heads
    outer = (tokens, heads) if topk_layout == "THK" else (heads, tokens)
    checks.tensor("block_ids", block_ids, (*outer, None), torch.int32)
    checks.contiguous_rows("block_ids", block_ids)
    if not 1 <= block_ids.shape[2] <= MAX_TOPK:
        raise ValueError(f"block_ids: {block_ids.shape[2]} ids a row; accepted: 1 to {MAX_TOPK}")


def _check_rows_of_q(q: Tensor) -> None:
    checks.contiguous_rows("q", q)
    size = q.element_size()
    if any(q.shape[i] > 1 and q.stride(i) * size % checks.ALIGNMENT for i in (0, 1)):
        raise ValueError(
            f"q: strides {q.stride()}; accepted: rows that start {checks.ALIGNMENT} bytes apart or a multiple"
        )
    if not checks.is_fake(q) and q.data_ptr() % checks.ALIGNMENT:
        raise ValueError(f"q: starts at address {q.data_ptr():#x}; accepted: multiples of {checks.ALIGNMENT} bytes")


def result_dtype(q: Tensor) -> torch.dtype:
    """That of q, or bf16 for a q of float8."""
    return torch.bfloat16 if q.dtype == torch.float8_e4m3fn else q.dtype


def empty_results(a: PagedAttention) -> tuple[Tensor, Tensor]:
    tokens, heads = a.q.shape[:2]
    return (
        torch.empty((tokens, heads, HEAD_DIM), dtype=result_dtype(a.q), device=a.q.device),
        torch.empty((tokens, heads), dtype=torch.float32, device=a.q.device),
    )


def results_to_fill(out: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The pair (out, lse) of a call whose `out` argument may be the output alone or the pair."""
    # Asked first, since torch makes isinstance of its type slow.
    if type(out) is tuple or not isinstance(out, Tensor):
        return out
    return out, torch.empty(out.shape[:-1], dtype=torch.float32, device=out.device)


def scale_of_softmax(a: PagedAttention) -> float:
    return HEAD_DIM**-0.5 if a.softmax_scale is None else a.softmax_scale


def token_major(block_ids: Tensor, topk_layout: str) -> Tensor:
    """block_ids as [T, Hkv, K], whatever the layout is."""
    return block_ids.transpose(0, 1) if topk_layout == "HTK" else block_ids


@dataclass(frozen=True)
class Facts(fact_values.Checked):
    """What a backend's predicate may look at. Defaults: a decode step of M3.1-Flash on one GPU.

    `batch`, `tokens` and `max_seqlen_q` (query tokens of a request, as far as the host knows) are rounded up to a power
    of two, so that few different facts exist and a workspace sized from them is large enough.
    """

    ACCEPTED = fact_values.accepted(num_heads=fact_values.AT_LEAST_1)

    q_dtype: str = "bfloat16"
    num_heads: int = 64
    num_kv_heads: int = 4
    kv_format: str = "nvfp4"
    kv_layout: str = "planes"
    k_scale_layout: str = "linear"
    v_scale_layout: str = "linear"
    k_scale: bool = False
    v_scale: bool = False
    rounding: str = "exact"
    max_blocks: int = 1024
    batch: int = 32
    tokens: int = 32
    max_seqlen_q: int = 1
    ragged: bool = False

    def check(self) -> None:
        super().check()
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads: {self.num_heads}; accepted: a multiple of num_kv_heads = {self.num_kv_heads}")
        main_page(self.kv_format, self.num_kv_heads, self.kv_layout)


def common_facts(a: PagedAttention) -> dict[str, Any]:
    tokens, batch = a.q.shape[0], a.seq_lens.shape[0]
    return {
        "q_dtype": str(a.q.dtype).removeprefix("torch."),
        "num_heads": a.q.shape[1],
        "num_kv_heads": a.num_kv_heads,
        "kv_format": a.kv_format,
        "kv_layout": a.kv_layout,
        "k_scale_layout": a.k_scale_layout,
        "v_scale_layout": a.v_scale_layout,
        "k_scale": a.k_scale is not None,
        "v_scale": a.v_scale is not None,
        "rounding": a.rounding,
        "max_blocks": a.block_table.shape[1],
        "batch": token_bucket(batch),
        "tokens": token_bucket(tokens),
        "max_seqlen_q": token_bucket(_most_queries(tokens, batch, a.cu_seqlens_q is not None, a.max_seqlen_q)),
        "ragged": a.cu_seqlens_q is not None,
    }


def _most_queries(tokens: int, batch: int, ragged: bool, max_seqlen_q: int | None) -> int:
    """Query tokens that a request may have, as far as the host knows."""
    if not ragged:
        return tokens // max(batch, 1)
    return tokens if max_seqlen_q is None else min(tokens, max_seqlen_q)


def tolerances(a: PagedAttention) -> tuple[Tolerance, Tolerance]:
    """How far out and lse of a kernel may be from the reference, for values of V of about unit size times v_scale.

    Kernels on FP8 tensor cores (rounding "e4m3", or a q of float8) round the unnormalised weights to E4M3, which is up
    to 1/16 of each, and Hopper's FP8 sums keep about 14 bits. Others round them to the dtype of q, in bf16 by
    up to 2^-9 of each: out is off by 2^-9 of the weighted mean of |v|, up to 3 where few tokens of a row count. The
    denominator is summed unrounded by all. The worst of the contract suites on an H200 is 0.43 of the bounds in bf16,
    0.06 of those of FP8.
    """
    unit = 1.0 if a.v_scale is None else max(1.0, abs(float(a.v_scale)))
    if a.rounding == "e4m3" or a.q.dtype == torch.float8_e4m3fn:
        return Tolerance(rtol=0.05, atol=0.05 * unit), Tolerance(rtol=1e-3, atol=1e-2)
    if a.q.dtype == torch.float32:
        return Tolerance(rtol=1e-4, atol=1e-5 * unit), Tolerance(rtol=1e-5, atol=1e-4)
    return Tolerance(rtol=2**-7, atol=3 * 2**-9 * unit), Tolerance(rtol=1e-4, atol=2e-3)
