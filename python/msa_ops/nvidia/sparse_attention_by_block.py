"""sparse_attention of long queries on Hopper: each tile of tokens over its blocks, or each block over its tokens.

Tokens that chose mostly alike are worked on tile by tile (msa_ops.nvidia.tiled_attention). Those that did not would
leave most rows of a product empty; their choices are turned around, and every block is multiplied with all tokens that
chose it, wherever they stand. The device decides this for each tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from msa_ops.cute.tiled_attention import by_block_layout as layout  # type: ignore[import-untyped]
from msa_ops.cute.tiled_attention.layout import PART_BYTES, PART_LSE_BYTES  # type: ignore[import-untyped]
from msa_ops.cute.tiled_attention.sm90_prepare_configs import CAPACITIES  # type: ignore[import-untyped]
from msa_ops.nvidia.launch import bits, clear, launch, pointer
from msa_ops.nvidia.tiled_attention import (
    cache_strides,
    merge,
    number_of_tiles,
    require_plain,
)
from msa_ops.ops.attention_arguments import scale_of_softmax
from msa_ops.ops.sparse_attention import Args, Facts
from msa_ops.ops.token_bucket import token_bucket
from msa_ops.registry import platform as platforms
from msa_ops.registry.platform import Platform

ROWS_AT_ONCE = 8192
"""(query token, KV head) rows whose parts are in memory together, unless there are more tokens."""
PAIRS_OF_A_BLOCK = 4
"""A tile goes over its blocks if it has at least so many pairs for each: its products are then as full as that."""


def heads_at_once(tokens: int, num_kv_heads: int) -> int:
    return max(1, min(num_kv_heads, ROWS_AT_ONCE // max(token_bucket(tokens), 1)))


@dataclass(frozen=True)
class Workspace:
    """Byte offsets of what by_block_layout describes. Counters and counts come first: they start as zeros."""

    counts: int
    offsets: int
    ways: int
    keys: int
    ranks: int
    listed: int
    items: int
    tiles: int
    lists: int
    queries: int
    factors: int
    parts: int
    logs: int
    bytes: int


def divide_workspace(tokens: int, num_kv_heads: int, topk: int, batch: int, max_blocks: int) -> Workspace:
    heads = heads_at_once(tokens, num_kv_heads)
    rows, keys = tokens * heads, batch * heads * max_blocks
    pairs = rows * topk
    tiles = min(tokens, tokens // layout.TILE + batch + 2) * heads
    sizes = (
        256,
        layout.COUNT_BYTES * keys,
        4 * keys,
        4 * tokens * num_kv_heads,
        4 * pairs,
        4 * pairs,
        4 * pairs,
        layout.ITEM_BYTES * (pairs // layout.ITEM_PAIRS + min(keys, pairs)),
        layout.TILE_BYTES * tiles,
        layout.LIST_ENTRY_BYTES * layout.TILE * topk * tiles,
        layout.QUERY_ROW_BYTES * rows,
        layout.FACTOR_BYTES * rows,
        PART_BYTES * pairs,
        PART_LSE_BYTES * pairs,
    )
    ends = []
    end = 0
    for size in sizes:
        end += -(-size // 256) * 256
        ends.append(end)
    return Workspace(*ends)


def workspace(platform: Platform, facts: Facts) -> int:
    return divide_workspace(facts.tokens, facts.num_kv_heads, facts.topk, facts.batch, facts.max_blocks).bytes


def sm90(a: Args, outs: tuple[Tensor, ...]) -> None:
    """Target of the backend "cute_sm90_prefill"."""
    if a.block_table.numel() == 0:  # no requests, or none has a block
        outs[0].zero_()
        outs[1].fill_(-torch.inf)
    elif a.q.shape[0]:
        start(a, outs, PAIRS_OF_A_BLOCK)


def start(a: Args, outs: tuple[Tensor, ...], pairs_of_a_block: int) -> None:
    """Launches all steps. With 0 pairs a block every tile goes over its blocks; with 9 none does."""
    require_plain(a, outs)
    tokens, batch, topk = a.q.shape[0], a.seq_lens.shape[0], a.block_ids.shape[2]
    max_blocks = a.block_table.shape[1]
    space = divide_workspace(tokens, a.num_kv_heads, topk, batch, max_blocks)
    if a.workspace is None or a.workspace.numel() < space.bytes:
        raise ValueError(f"workspace: accepted: at least {space.bytes} bytes")
    at = pointer(a.workspace)
    device = a.q.device
    group = a.q.shape[1] // a.num_kv_heads
    tiles = number_of_tiles(tokens, batch, a.cu_seqlens_q is not None, layout.TILE)
    processors = platforms.of_device(device).multiprocessors
    strides = cache_strides(a)
    at_once = heads_at_once(tokens, a.num_kv_heads)
    for head_begin in range(0, a.num_kv_heads, at_once):
        heads = min(at_once, a.num_kv_heads - head_begin)
        clear(a.workspace, space.offsets)
        capacity = next(capacity for capacity in CAPACITIES if capacity >= max_blocks)
        queries = "_e4m3" if a.q.dtype is torch.float8_e4m3fn else ""
        launch(
            f"sparse_attention__prepare_{a.kv_format}_{capacity}{queries}__sm_90a",
            device,
            pointer(a.q),
            pointer(a.block_ids),
            pointer(a.block_table),
            pointer(a.seq_lens),
            pointer(a.cu_seqlens_q),
            pointer(a.k_scale),
            at,
            at + space.counts,
            at + space.ways,
            at + space.keys,
            at + space.ranks,
            at + space.tiles,
            at + space.lists,
            at + space.queries,
            at + space.factors,
            at + space.logs,
            a.q.stride(0),
            a.q.stride(1),
            *strides_of_ids(a),
            a.block_table.stride(0),
            tokens,
            batch,
            heads,
            head_begin,
            a.num_kv_heads,
            group,
            topk,
            a.kv_cache.shape[0],
            max_blocks,
            tiles,
            pairs_of_a_block,
            bits(scale_of_softmax(a)),
        )
        for step in ("plan", "place"):
            launch(
                f"sparse_attention__{step}__sm_90a",
                device,
                pointer(a.block_table),
                pointer(a.seq_lens),
                pointer(a.cu_seqlens_q),
                at,
                at + space.counts,
                at + space.offsets,
                at + space.items,
                at + space.keys,
                at + space.ranks,
                at + space.listed,
                a.block_table.stride(0),
                tokens,
                batch,
                heads,
                max_blocks,
                tokens * heads * topk,
            )
        launch(
            f"sparse_attention__blocks_{a.kv_format}__sm_90a",
            device,
            pointer(a.kv_cache),
            at,
            at + space.items,
            at + space.listed,
            at + space.queries,
            at + space.factors,
            at + space.parts,
            at + space.logs,
            a.kv_cache.stride(0),
            heads,
            head_begin,
            group,
            topk,
            strides.token,
            strides.head,
            strides.scale_head,
            strides.k_scale,
            strides.v,
            strides.v_scale,
            processors,
        )
        merge(a, outs, at + space.parts, at + space.logs, at + space.ways, head_begin, heads, topk)
        launch(
            f"sparse_attention__tiles_{a.kv_format}_g2__sm_90a",
            device,
            pointer(a.kv_cache),
            at,
            at + space.tiles,
            at + space.lists,
            at + space.queries,
            at + space.factors,
            pointer(a.v_scale),
            pointer(outs[0]),
            pointer(outs[1]),
            a.kv_cache.stride(0),
            heads,
            head_begin,
            a.num_kv_heads,
            group,
            topk,
            strides.token,
            strides.head,
            strides.scale_head,
            strides.k_scale,
            strides.v,
            strides.v_scale,
            processors,
        )


def strides_of_ids(a: Args) -> tuple[int, int]:
    """Of block_ids: to the next token, to the next KV head."""
    first, second = a.block_ids.stride()[:2]
    return (first, second) if a.topk_layout == "THK" else (second, first)
