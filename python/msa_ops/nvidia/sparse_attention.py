"""sparse_attention on Hopper."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from msa_ops.cache.page import main_page
from msa_ops.cute.sparse_attention import sm90_configs as kernel  # type: ignore[import-untyped]
from msa_ops.cute.tiled_attention import chosen_layout  # type: ignore[import-untyped]
from msa_ops.nvidia.launch import bits, launch, pointer
from msa_ops.nvidia.tiled_attention import cache_strides, number_of_tiles, require_plain
from msa_ops.ops.attention_arguments import scale_of_softmax
from msa_ops.ops.sparse_attention import Args, Facts
from msa_ops.registry.platform import Platform

# Cache policies as createpolicy makes them, for the whole of an access.
EVICT_NORMAL = 0x1000000000000000
EVICT_FIRST = 0x12F0000000000000

CODE_FACTOR = 256
"""A shift by eight that the compiler must not know to be one; see msa_ops.cute.common.half_pairs."""

Q_DTYPES = {torch.bfloat16: kernel.BF16, torch.float16: kernel.FP16, torch.float8_e4m3fn: kernel.E4M3}
"""Their numbers in the kernels."""


@dataclass(frozen=True)
class Shape:
    """How the work is divided. warps: of a block. cluster: blocks that share a KV head's pages.

    paged: the warps of a block go from page to page together (NVFP4 only, no clusters); else each has chunks of pages
    of its own.
    parts: these blocks are no cluster, and another kernel merges what they write (NVFP4 only).
    """

    warps: int
    cluster: int
    paged: bool = False
    parts: bool = False


def sm90(a: Args, outs: tuple[Tensor, ...]) -> None:
    """Target of the backend "cute_sm90"."""
    require_plain(a, outs)
    tokens = a.q.shape[0]
    batch = a.seq_lens.shape[0]
    tiles = number_of_tiles(tokens, batch, a.cu_seqlens_q is not None, chosen_layout.TOKENS)
    pairs = tiles * a.num_kv_heads
    if tokens and shares_pages(tokens, batch, pairs, a.kv_format, a.q.dtype):
        start_chosen(a, outs, tiles, choose_cluster(pairs, a.block_ids.shape[2]))
    elif tokens:
        shape = choose_shape(tokens * a.num_kv_heads, a.block_ids.shape[2], a.kv_format)
        start(a, outs, shape, evict_first=tokens <= batch)


def workspace(platform: Platform, facts: Facts) -> int:
    """Parts of the sums, and their statistics. Facts hold the number of tokens rounded up to a power of two."""
    most = 0
    for tokens in range(facts.tokens // 2 + 1, min(facts.tokens, PARTS[-1][1]) + 1):
        shape = choose_shape(tokens * facts.num_kv_heads, facts.topk, facts.kv_format)
        if shape.parts:
            most = max(most, tokens * facts.num_kv_heads * shape.cluster)
    return most * PART_BYTES


PARTS = ((15, 16, 8), (17, 22, 6), (31, 33, 4), (34, 44, 3))
"""Least and most pairs, and the parts of a pair, where clusters do not find multiprocessors of their own: 14 clusters
of eight blocks do, and 30 of four. Single blocks do up to the number of multiprocessors; that is worth a second launch.
"""
PART_BYTES = kernel.SUMS_BYTES + kernel.STATE_BYTES
"""What a block that shares a pair with others writes, if they are no cluster."""

SHARING_TOKENS = 6
"""Query tokens a request, on average, from which on a block works on eight of them."""
SHARING_PAIRS = 48
"""Tiles and KV heads from which on that is faster."""
PROCESSORS = 132
"""Thread blocks of that kernel that run side by side: one on each multiprocessor."""


def shares_pages(tokens: int, batch: int, pairs: int, kv_format: str, q_dtype: torch.dtype) -> bool:
    """Whether pages may be brought in once for eight neighbouring tokens, as in the verification of drafts.

    The host cannot know what tokens chose: the device then decides tile by tile. pairs: of a tile of tokens and a KV
    head.
    """
    many = tokens >= SHARING_TOKENS * batch and pairs >= SHARING_PAIRS
    return many and kv_format == "nvfp4" and q_dtype is torch.bfloat16


@functools.cache
def choose_cluster(pairs: int, topk: int) -> int:
    """Blocks that divide the pages of a tile of tokens and a KV head, as long as all find a multiprocessor."""
    cluster = chosen_layout.MAX_CLUSTER
    while cluster > topk or (cluster > 1 and pairs * cluster > PROCESSORS):
        cluster //= 2
    return cluster


@functools.cache
def choose_shape(pairs: int, topk: int, kv_format: str) -> Shape:
    """For a number of pairs of a query token and a KV head: what was fastest on an H200 with 16 pages a pair.

    The fewer pairs, the more warps and then blocks for each. Clusters of large blocks find no place: two blocks of
    four warps are better than one of eight.
    """
    scaled = kv_format == "nvfp4"
    parts = next((parts for least, most, parts in PARTS if least <= pairs <= most), 0)
    if scaled and 0 < parts <= topk:
        return Shape(4, parts, parts=True)
    if pairs > (160 if scaled else 192):
        return Shape(4, 1, paged=scaled)
    if pairs > (64 if scaled else 96):
        return Shape(4, min(2, topk)) if scaled else Shape(8, 1)
    if pairs > 48:
        return Shape(8, min(2, topk))
    cluster = 4 if pairs > 24 else 8
    while cluster > topk:
        cluster //= 2
    return Shape(4, cluster)


@functools.cache
def kernel_name(kv_format: str, kv_layout: str, shape: Shape, bf16_queries: bool) -> str:
    layout = "pages" if shape.paged else "packed" if kv_layout == "packed" else "planes"
    kind = ("_parts" if shape.parts else "") + ("" if bf16_queries else "_any_q")
    return f"sparse_attention__{kv_format}_{layout}_w{shape.warps}{kind}__sm_90a"


def start(a: Args, outs: tuple[Tensor, ...], shape: Shape, *, evict_first: bool) -> None:
    """Launches one configuration, and the merge of parts if it makes some."""
    out, lse = outs
    results = pointer(out), pointer(lse)
    if shape.parts:
        results = place_parts(a, shape)
    page = main_page(a.kv_format, a.num_kv_heads, a.kv_layout)
    k, v = page.member("k"), page.member("v")
    scaled = a.kv_format == "nvfp4"
    token_major = a.topk_layout == "THK"
    ids_strides = a.block_ids.stride()
    size = a.q.element_size()
    launch(
        kernel_name(a.kv_format, a.kv_layout, shape, a.q.dtype is torch.bfloat16),
        a.q.device,
        pointer(a.q),
        pointer(a.kv_cache),
        pointer(a.block_ids),
        pointer(a.block_table),
        pointer(a.seq_lens),
        pointer(a.cu_seqlens_q),
        pointer(a.k_scale),
        pointer(a.v_scale),
        *results,
        size * a.q.stride(0),
        size * a.q.stride(1),
        a.kv_cache.stride(0),
        ids_strides[0 if token_major else 1],
        ids_strides[1 if token_major else 0],
        a.block_table.stride(0),
        EVICT_FIRST if evict_first else EVICT_NORMAL,
        a.q.shape[0],
        a.seq_lens.shape[0],
        a.num_kv_heads,
        a.q.shape[1] // a.num_kv_heads,
        a.block_ids.shape[2],
        a.kv_cache.shape[0],
        a.block_table.shape[1],
        k.head_stride,
        page.member("k_scale").head_stride if scaled else 0,
        page.member("k_scale").offset if scaled else 0,
        v.offset,
        page.member("v_scale").offset if scaled else 0,
        *(() if shape.paged else (shape.cluster,)),
        Q_DTYPES[a.q.dtype],
        CODE_FACTOR,
        bits(scale_of_softmax(a)),
    )
    if shape.parts:
        launch(
            f"sparse_attention__merge_parts_{a.kv_format}__sm_90a",
            a.q.device,
            *results,
            pointer(a.v_scale),
            pointer(out),
            pointer(lse),
            a.q.shape[0] * a.num_kv_heads,
            shape.cluster,
            a.q.shape[1] // a.num_kv_heads,
            Q_DTYPES[a.q.dtype],
        )


def place_parts(a: Args, shape: Shape) -> tuple[int, int]:
    """Addresses of the sums and of the statistics of all parts. Raises ValueError if the workspace is too small."""
    parts = a.q.shape[0] * a.num_kv_heads * shape.cluster
    if a.workspace is None or a.workspace.numel() < parts * PART_BYTES:
        raise ValueError(f"workspace: accepted: at least {parts * PART_BYTES} bytes")
    sums = pointer(a.workspace)
    return sums, sums + parts * kernel.SUMS_BYTES


def start_chosen(a: Args, outs: tuple[Tensor, ...], tiles: int, cluster: int) -> None:
    """Launches the kernel that brings in once what neighbouring tokens chose."""
    out, lse = outs
    strides = cache_strides(a)
    token_major = a.topk_layout == "THK"
    ids_strides = a.block_ids.stride()
    launch(
        "sparse_attention__chosen_nvfp4__sm_90a",
        a.q.device,
        pointer(a.q),
        pointer(a.kv_cache),
        pointer(a.block_ids),
        pointer(a.block_table),
        pointer(a.seq_lens),
        pointer(a.cu_seqlens_q),
        pointer(a.k_scale),
        pointer(a.v_scale),
        pointer(out),
        pointer(lse),
        a.q.stride(0),
        a.q.stride(1),
        a.kv_cache.stride(0),
        ids_strides[0 if token_major else 1],
        ids_strides[1 if token_major else 0],
        a.block_table.stride(0),
        a.q.shape[0],
        a.seq_lens.shape[0],
        a.num_kv_heads,
        a.q.shape[1] // a.num_kv_heads,
        a.block_ids.shape[2],
        a.kv_cache.shape[0],
        a.block_table.shape[1],
        strides.head,
        strides.scale_head,
        strides.k_scale,
        strides.v,
        strides.v_scale,
        tiles,
        cluster,
        EVICT_NORMAL,
        CODE_FACTOR,
        bits(scale_of_softmax(a)),
    )
