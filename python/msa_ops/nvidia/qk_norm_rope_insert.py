"""qk_norm_rope_insert on Hopper."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from msa_ops.cache.page import CacheFormat, main_page
from msa_ops.cute.qk_norm_rope_insert import sm90_configs as kernel  # type: ignore[import-untyped]
from msa_ops.nvidia.launch import bits, launch, pointer, require_aligned
from msa_ops.ops.qk_norm_rope_insert import Args

STORED = {
    dtype: kernel.STORED.index(name)
    for dtype, name in (
        (torch.float32, "fp32"),
        (torch.bfloat16, "bf16"),
        (torch.float16, "fp16"),
        (torch.float8_e4m3fn, "fp8"),
    )
}
DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
THREAD_BLOCKS = 4 * 132
"""Fewer than these do not fill the chip, so the heads of a token are dealt out to several."""


def sm90(a: Args, outs: tuple[Tensor, ...]) -> None:
    """Target of the backend "cute_sm90"."""
    tokens, width = a.qkv.shape
    if tokens == 0:
        return
    require_aligned("q", outs[0])
    require_aligned("index_q", outs[1])
    scaled = not (a.k_scale is None and a.v_scale is None and a.index_k_scale is None)
    config = kernel.CONFIG_OF[DTYPES[a.qkv.dtype], scaled]
    quads = -(-tokens // kernel.TOKENS)
    most = -(-(width // kernel.HEAD_DIM) // config.warps)
    start(a, outs, config, min(-(-THREAD_BLOCKS // quads), most))


def start(a: Args, outs: tuple[Tensor, ...], config: kernel.Config, parts: int) -> None:
    """Launches one configuration with the heads of each token dealt out to `parts` thread blocks."""
    q, index_q = outs
    table = a.cos_sin_cache
    table_at, table_stride = pointer(table), table.stride(0)
    flags = (
        kernel.WIDE_WEIGHTS * (a.q_weight.dtype is torch.float32)
        + kernel.WIDE_POSITIONS * (a.positions.dtype is torch.int64)
        + kernel.WIDE_SLOTS * (a.slot_mapping.dtype is torch.int64)
        + kernel.GEMMA * a.gemma
        + kernel.ALIGNED_TABLE * (table_at % 16 == 0 and table_stride % 4 == 0)
    )
    launch(
        _kernel(config),
        a.qkv.device,
        pointer(a.qkv),
        pointer(q),
        pointer(index_q),
        pointer(a.kv_cache),
        pointer(a.index_cache),
        _weight(a.q_weight),
        _weight(a.k_weight),
        _weight(a.index_q_weight),
        _weight(a.index_k_weight),
        table_at,
        pointer(a.positions),
        pointer(a.slot_mapping),
        pointer(a.k_scale),
        pointer(a.v_scale),
        pointer(a.index_k_scale),
        a.qkv.stride(0),
        a.kv_cache.stride(0),
        0 if a.index_cache is None else a.index_cache.stride(0),
        table_stride,
        a.kv_cache.shape[0] * 128,
        a.qkv.shape[0],
        table.shape[0],
        a.num_heads,
        a.num_kv_heads,
        a.num_index_heads,
        *_places(a.kv_format, a.num_kv_heads, a.kv_layout),
        STORED[q.dtype],
        *_formats(a.kv_format, a.index_format, a.k_scale_layout, a.v_scale_layout),
        flags,
        _bits(a.eps),
        parts,
    )


_bits = functools.cache(bits)


@functools.cache
def _kernel(config: kernel.Config) -> str:
    return f"qk_norm_rope_insert__{config.name}__sm_90a"


@functools.cache
def _places(kv_format: str, num_kv_heads: int, kv_layout: str) -> tuple[int, ...]:
    """Offsets of V, K scales and V scales in a page, and strides of heads, tokens and heads of scales."""
    page = main_page(kv_format, num_kv_heads, kv_layout)
    k, v = page.member("k"), page.member("v")
    if page.format is not CacheFormat.NVFP4:
        return v.offset, 0, 0, k.head_stride, k.token_stride, 0
    k_scale, v_scale = page.member("k_scale"), page.member("v_scale")
    return v.offset, k_scale.offset, v_scale.offset, k.head_stride, k.token_stride, k_scale.head_stride


@functools.cache
def _formats(kv_format: str, index_format: str, k_scale_layout: str, v_scale_layout: str) -> tuple[int, ...]:
    return (
        kernel.STORED.index(kv_format),
        kernel.STORED.index(index_format),
        kernel.SCALE_LAYOUTS.index(k_scale_layout),
        kernel.SCALE_LAYOUTS.index(v_scale_layout),
    )


def _weight(value: Tensor | None) -> int:
    if value is None:
        return 0
    if value.stride(0) != 1:
        raise ValueError(f"norm weights: stride {value.stride(0)}; accepted: 1")
    return pointer(value)
