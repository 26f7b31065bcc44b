"""dense_attention: causal attention over all tokens of a paged cache, as the first three layers of M3 have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, overload

from torch import Tensor

from msa_ops.ops import attention_arguments as arguments
from msa_ops.ops import attention_inputs as inputs
from msa_ops.ops import checks
from msa_ops.ops.attention_arguments import Facts
from msa_ops.ops.paged_softmax import attend
from msa_ops.registry import Cost, OpSpec, Tolerance
from msa_ops.registry.torch_library import register

VARIANTS = inputs.VARIANTS


@dataclass(slots=True)
class Args:
    q: Tensor
    kv_cache: Tensor
    block_table: Tensor
    seq_lens: Tensor
    cu_seqlens_q: Tensor | None = None
    _: KW_ONLY
    num_kv_heads: int
    kv_format: str = "nvfp4"
    kv_layout: str = "planes"
    k_scale_layout: str = "linear"
    v_scale_layout: str = "linear"
    k_scale: Tensor | None = None
    v_scale: Tensor | None = None
    softmax_scale: float | None = None
    rounding: str = "exact"
    max_seqlen_q: int | None = None
    workspace: Tensor | None = None


def check(a: Args) -> None:
    arguments.check_paged(a)


def meta(a: Args) -> tuple[Tensor, ...]:
    return arguments.empty_results(a)


def reference(a: Args) -> tuple[Tensor, ...]:
    return attend(a, None)


def facts(a: Args) -> Facts:
    return Facts(**arguments.common_facts(a))


def tolerance(a: Args) -> tuple[Tolerance, ...]:
    return arguments.tolerances(a)


def cost(a: Args) -> Cost:
    return inputs.attention_cost(a, inputs.reach_of_all(a), 0)


def generate(
    seed: int,
    *,
    device: str = "cpu",
    batch: int = 3,
    seq_len: int = 600,
    q_len: int = 2,
    num_heads: int = 64,
    num_kv_heads: int = 4,
    kv_format: str = "nvfp4",
    kv_layout: str = "planes",
    k_scale_layout: str = "linear",
    v_scale_layout: str = "linear",
    q_dtype: str = "bfloat16",
    rounding: str = "exact",
    softmax_scale: float | None = None,
    max_seqlen_q: int | None = None,
    content: str = "random",
    page_stride: int | None = None,
    seq_lens: Sequence[int] | None = None,
    q_lens: Sequence[int] | None = None,
    max_blocks: int | None = None,
    spare_pages: int = 3,
    variant: str = "plain",
) -> Args:
    """Seeded inputs. Variants: those of batches.ragged_batch; "scaled" (k_scale, v_scale); "nan" (visible NaN)."""
    checks.choice("variant", variant, VARIANTS)
    common = inputs.paged_inputs(
        seed,
        variant=variant,
        device=device,
        batch=batch,
        seq_len=seq_len,
        q_len=q_len,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        kv_format=kv_format,
        kv_layout=kv_layout,
        k_scale_layout=k_scale_layout,
        v_scale_layout=v_scale_layout,
        q_dtype=q_dtype,
        content=content,
        page_stride=page_stride,
        seq_lens=seq_lens,
        q_lens=q_lens,
        max_blocks=max_blocks,
        spare_pages=spare_pages,
    )
    return Args(**common, rounding=rounding, softmax_scale=softmax_scale, max_seqlen_q=max_seqlen_q)


SPEC = OpSpec(
    name="dense_attention",
    version=1,
    params=(
        "Tensor q, Tensor kv_cache, Tensor block_table, Tensor seq_lens, Tensor? cu_seqlens_q=None, *, "
        'int num_kv_heads, str kv_format="nvfp4", str kv_layout="planes", str k_scale_layout="linear", '
        'str v_scale_layout="linear", Tensor? k_scale=None, Tensor? v_scale=None, float? softmax_scale=None, '
        'str rounding="exact", int? max_seqlen_q=None, Tensor(workspace!)? workspace=None'
    ),
    outputs=("out", "lse"),
    args=Args,
    check=check,
    meta=meta,
    reference=reference,
    facts_type=Facts,
    facts=facts,
    generate=generate,
    tolerance=tolerance,
    cost=cost,
    variants=VARIANTS,
    mutates=("workspace",),
)
OP = register(SPEC)


@overload
def dense_attention(
    q: Tensor,
    kv_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    cu_seqlens_q: Tensor | None = None,
    *,
    num_kv_heads: int,
    kv_format: str = "nvfp4",
    kv_layout: str = "planes",
    k_scale_layout: str = "linear",
    v_scale_layout: str = "linear",
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    softmax_scale: float | None = None,
    rounding: str = "exact",
    max_seqlen_q: int | None = None,
    workspace: Tensor | None = None,
    return_lse: Literal[False] = False,
    out: Tensor | tuple[Tensor, Tensor] | None = None,
    backend: str | None = None,
) -> Tensor: ...
@overload
def dense_attention(
    q: Tensor,
    kv_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    cu_seqlens_q: Tensor | None = None,
    *,
    num_kv_heads: int,
    kv_format: str = "nvfp4",
    kv_layout: str = "planes",
    k_scale_layout: str = "linear",
    v_scale_layout: str = "linear",
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    softmax_scale: float | None = None,
    rounding: str = "exact",
    max_seqlen_q: int | None = None,
    workspace: Tensor | None = None,
    return_lse: Literal[True],
    out: Tensor | tuple[Tensor, Tensor] | None = None,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]: ...
@OP.public
def dense_attention(
    q: Tensor,
    kv_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    cu_seqlens_q: Tensor | None = None,
    *,
    num_kv_heads: int,
    kv_format: str = "nvfp4",
    kv_layout: str = "planes",
    k_scale_layout: str = "linear",
    v_scale_layout: str = "linear",
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    softmax_scale: float | None = None,
    rounding: str = "exact",
    max_seqlen_q: int | None = None,
    workspace: Tensor | None = None,
    return_lse: bool = False,
    out: Tensor | tuple[Tensor, Tensor] | None = None,
    backend: str | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Softmax attention of each query token over all tokens of its request up to itself.

    q: [T, Hq, 128] bf16, fp16, fp32 or float8_e4m3fn (values as they are, no scale); Hq a multiple of num_kv_heads.
        Query head h reads KV head h // (Hq / num_kv_heads). Rows are aligned to 16 bytes.
    kv_cache: uint8 [num_pages, page bytes], pages of 128 tokens with any stride that is a multiple of 16 bytes; what a
        page holds follows from kv_format (fp32, bf16, fp8 = E4M3, nvfp4), kv_layout (planes, slots, or packed for
        formats without scales), num_kv_heads, and for nvfp4 k_scale_layout and v_scale_layout (linear, token_quads,
        swizzle_128x4). See msa_ops.cache.page.
    block_table: int32 [B, max_blocks], any row stride. Entries behind ceil(seq_len / 128) are never read; one in use
        that names no page leaves its block without tokens. Tokens beyond the table's width are not seen.
    seq_lens: int32 [B], the new tokens included. cu_seqlens_q: int32 [B + 1], where each request's query tokens begin;
        None if all have T / B. Query token i of q_len stands at p = seq_len - q_len + i and sees tokens 0 to p. Tokens
        outside cu_seqlens_q are padding.
    k_scale, v_scale: one finite fp32 element each, on the device; multiplies the stored K or V. None is 1.
    softmax_scale: multiplies q . k; 2^-126 to 1,024; None is 128 ** -0.5. Where |softmax_scale * q . k| is above 2^28,
        which leaves a difference of scores no digits in fp32, a row may become NaN.
    rounding: of dequantised nvfp4 values, "exact" or "e4m3" (code x scale rounded once to E4M3, before k_scale).
    max_seqlen_q: upper bound of a request's query tokens if the host knows one; may choose a kernel, not a result.
    workspace: uint8 memory for kernels that need some; made if None.
    backend: name of a backend; see `msa_ops.explain("dense_attention")`.
    out: a tensor for the output, or the pair (output, lse).
    Returns out [T, Hq, 128] in q's dtype (bf16 for float8), or with return_lse the pair (out, lse) where lse is fp32
    [T, Hq], the natural log of the sum of exp(softmax_scale * q . k). A row that sees nothing gives exactly 0 and
    -inf. Not-a-number or infinity in a token reaches only rows and heads that see it.
    Raises ValueError for arguments of another shape, dtype, stride, alignment, page size or layout.
    Source: Vaswani et al., Attention Is All You Need, 2017, equation 1.
    """
    results: tuple[Tensor, Tensor] = OP.call(
        q,
        kv_cache,
        block_table,
        seq_lens,
        cu_seqlens_q,
        num_kv_heads=num_kv_heads,
        kv_format=kv_format,
        kv_layout=kv_layout,
        k_scale_layout=k_scale_layout,
        v_scale_layout=v_scale_layout,
        k_scale=k_scale,
        v_scale=v_scale,
        softmax_scale=softmax_scale,
        rounding=rounding,
        max_seqlen_q=max_seqlen_q,
        workspace=workspace,
        out=None if out is None else arguments.results_to_fill(out),
        backend=backend,
    )
    return results if return_lse else results[0]
