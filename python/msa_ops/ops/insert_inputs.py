"""Seeded inputs of the ops that insert into a cache, hostile ones among them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from msa_ops.cache.page import HEAD_DIM, PAGE_SIZE, index_page, main_page
from msa_ops.ops import checks
from msa_ops.ops.norm_rope import cos_sin_table

VARIANTS = (
    "plain",
    "padding",
    "beyond_capacity",
    "bad_positions",
    "nan_row",
    "inf_row",
    "zero_rows",
    "large",
    "tiny",
    "strided",
    "pool",
    "dense",
    "scaled",
)
"""What differs from the plain inputs.

padding: every third slot is -1, and the last row's is the least integer. beyond_capacity: some slots are at or far
behind the end. bad_positions: negative ones, and ones beyond the table. nan_row, inf_row: in row 0. zero_rows: every
other row. large, tiny: magnitudes. strided: rows with a larger stride, and pages with one. pool: both caches are
columns of one pool, between other columns. dense: no index heads. scaled: all three scales, no powers of two.
"""

SCALES = {"k_scale": 0.37, "v_scale": 1.9, "index_k_scale": 0.73}
GAP = 48
"""Bytes between the columns of the pool; pages stay at multiples of 16 bytes."""


def epilogue(
    generator: torch.Generator,
    *,
    variant: str,
    device: str,
    batch: int,
    q_len: int,
    seq_len: int,
    num_heads: int,
    num_kv_heads: int,
    num_index_heads: int,
    rotary_dim: int,
    kv_format: str,
    kv_layout: str,
    k_scale_layout: str,
    v_scale_layout: str,
    index_format: str,
    weight_dtype: str,
    q_dtype: str | None,
    index_dtype: str,
    gemma: bool,
    eps: float,
) -> dict[str, Any]:
    """The arguments that follow the row: the last q_len of seq_len tokens of `batch` requests.

    Only the pages that hold new tokens exist, and two more; their bytes are random. `generator` is a host generator.
    """
    checks.choice("variant", variant, VARIANTS)
    if seq_len < 1 or not 0 <= q_len <= seq_len:
        raise ValueError(f"q_len: {q_len} of {seq_len} tokens; accepted: 0 to seq_len, and seq_len 1 or more")
    if variant == "dense":
        num_index_heads = 0
    position = torch.arange(seq_len - q_len, seq_len)
    first = (seq_len - q_len) // PAGE_SIZE
    blocks = max((seq_len - 1) // PAGE_SIZE - first + 1, 1)
    num_pages = batch * blocks + 2
    table = torch.randperm(num_pages, generator=generator)[: batch * blocks].view(batch, blocks)
    slots = (table[:, position // PAGE_SIZE - first] * PAGE_SIZE + position % PAGE_SIZE).flatten()
    positions = position.repeat(batch)
    if variant == "padding":
        slots[::3] = -1
        slots[-1:] = torch.iinfo(torch.int64 if index_dtype == "int64" else torch.int32).min
    elif variant == "beyond_capacity":
        slots[::3] = num_pages * PAGE_SIZE
        slots[-1:] = torch.iinfo(torch.int64 if index_dtype == "int64" else torch.int32).max
    elif variant == "bad_positions":
        positions[::3] = -7
        positions[-1:] = seq_len + 100_000
    integer, weight_type = checks.dtype_named(index_dtype), checks.dtype_named(weight_dtype)
    kv_cache, index_cache = _caches(
        generator, device, num_pages, main_page(kv_format, num_kv_heads, kv_layout).bytes,
        index_page(index_format).bytes, variant,
    )  # fmt: skip

    def weight() -> Tensor:
        return (torch.randn(HEAD_DIM, generator=generator) * 0.2).to(device, weight_type)

    def scale(name: str) -> Tensor | None:
        return torch.tensor([SCALES[name]], device=device) if variant == "scaled" else None

    return {
        "q_weight": weight(),
        "k_weight": weight(),
        "cos_sin_cache": cos_sin_table(seq_len, rotary_dim, device=device),
        "positions": positions.to(device, integer),
        "slot_mapping": slots.to(device, integer),
        "kv_cache": kv_cache,
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "num_index_heads": num_index_heads,
        "index_q_weight": weight() if num_index_heads else None,
        "index_k_weight": weight() if num_index_heads else None,
        "index_cache": index_cache if num_index_heads else None,
        "kv_format": kv_format,
        "kv_layout": kv_layout,
        "k_scale_layout": k_scale_layout,
        "v_scale_layout": v_scale_layout,
        "index_format": index_format,
        "k_scale": scale("k_scale"),
        "v_scale": scale("v_scale"),
        "index_k_scale": scale("index_k_scale") if num_index_heads else None,
        "q_dtype": None if q_dtype is None else checks.dtype_named(q_dtype),
        "eps": eps,
        "gemma": gemma,
    }


def rows(generator: torch.Generator, tokens: int, width: int, dtype: str, device: str, variant: str) -> Tensor:
    """[tokens, width] of unit normals, changed as the variant says."""
    kind = checks.dtype_named(dtype)
    stride = width + (HEAD_DIM if variant == "strided" else 0)
    x = torch.randn(tokens, stride, generator=generator)
    largest = 1e4 if kind == torch.float16 else 1e15
    x *= {"large": largest, "tiny": 1e-6}.get(variant, 1.0)
    if variant == "zero_rows":
        x[::2] = 0
    elif variant == "nan_row":
        x[:1] = torch.nan
    elif variant == "inf_row":
        x[:1, ::5] = torch.inf
        x[:1, 1::7] = -torch.inf
    return x.to(device, kind)[:, :width]


def _caches(
    generator: torch.Generator, device: str, num_pages: int, main_bytes: int, index_bytes: int, variant: str
) -> tuple[Tensor, Tensor]:
    """Pages of both caches with random bytes."""
    memory_generator = torch.Generator(device).manual_seed(int(torch.randint(2**31, (), generator=generator)))

    def memory(width: int) -> Tensor:
        return torch.empty(num_pages, width, dtype=torch.uint8, device=device).random_(
            0, 256, generator=memory_generator
        )

    if variant == "pool":
        pool = memory(main_bytes + index_bytes + 3 * GAP)
        return pool[:, GAP : GAP + main_bytes], pool[:, 2 * GAP + main_bytes :][:, :index_bytes]
    gap = GAP if variant == "strided" else 0
    return memory(main_bytes + gap)[:, :main_bytes], memory(index_bytes + gap)[:, :index_bytes]
