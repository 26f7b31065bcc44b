"""indexer on Hopper: a scan of the index keys by all multiprocessors, then a merge of what they found."""

from __future__ import annotations

import torch
from torch import Tensor

from msa_ops.cute.indexer import sm90_merge_configs as merge  # type: ignore[import-untyped]
from msa_ops.cute.indexer import sm90_scan_configs as scan
from msa_ops.nvidia.launch import launch, pointer, require_aligned
from msa_ops.ops import ragged
from msa_ops.ops.indexer import Args, Facts
from msa_ops.registry import platform as platforms
from msa_ops.registry.platform import Platform

COLUMNS: tuple[int, ...] = tuple(sorted({config.columns for config in scan.FAMILY.configs}))
CODE_FACTOR = 64
"""A shift by six that the compiler must not know to be one; see msa_ops.cute.indexer.keys."""


def columns_a_tile(num_heads: int, max_seqlen_q: int) -> int:
    """(query token, head) pairs that are scored together: all of a request if they are at most 64."""
    wanted = num_heads * max_seqlen_q
    return next((columns for columns in COLUMNS if columns >= wanted), COLUMNS[-1])


def num_blocks(platform: Platform) -> int:
    return min(platform.multiprocessors, int(merge.MAX_BLOCKS))


def workspace(platform: Platform, facts: Facts) -> int:
    """Two lists of candidates a thread block and column, however large the batch is: a block id and a key each."""
    columns = columns_a_tile(facts.num_heads, facts.max_seqlen_q)
    return num_blocks(platform) * 2 * columns * facts.topk * 8


def sm90(a: Args, outs: tuple[Tensor, ...]) -> None:
    """Target of the backend "cute_sm90"."""
    (block_ids,) = outs
    tokens, heads = a.index_q.shape[:2]
    if block_ids.numel() == 0:
        return
    require_aligned("index_q", a.index_q)
    size = a.index_q.element_size()
    q_strides = [size * stride for stride in a.index_q.stride()[:2]]
    if any(stride % 16 for stride in q_strides):
        raise ValueError(f"index_q: strides {a.index_q.stride()}; accepted: multiples of 16 bytes before the last")
    for name in ("seq_lens", "cu_seqlens_q"):
        value = getattr(a, name)
        if value is not None and not value.is_contiguous():
            raise ValueError(f"{name}: strides {value.stride()}; accepted: contiguous")
    device = a.index_q.device
    platform = platforms.of_device(device)
    batch, max_blocks = a.block_table.shape
    longest = ragged.query_length_bucket(tokens, batch, a.cu_seqlens_q, a.max_seqlen_q)
    columns = columns_a_tile(heads, longest)
    blocks = num_blocks(platform)
    if a.topk_layout == "THK":
        out_strides = (heads * a.topk, a.topk)
    else:
        out_strides = (a.topk, tokens * a.topk)
    launch(
        f"indexer__scan_{a.index_format}_{columns}__sm_90a",
        device,
        pointer(a.index_q),
        pointer(a.index_cache),
        pointer(a.block_table),
        pointer(a.seq_lens),
        pointer(a.cu_seqlens_q),
        pointer(block_ids),
        pointer(a.workspace),
        *q_strides,
        a.index_cache.stride(0),
        a.block_table.stride(0),
        *out_strides,
        a.index_cache.shape[0],
        tokens,
        batch,
        heads,
        max_blocks,
        a.topk,
        min(a.init_blocks, max_blocks),
        min(a.local_blocks, max_blocks),
        int(a.index_q.dtype == torch.float8_e4m3fn),
        blocks,
        CODE_FACTOR,
    )
    launch(
        f"indexer__{merge.config_for(a.topk).name}__sm_90a",
        device,
        pointer(a.seq_lens),
        pointer(a.cu_seqlens_q),
        pointer(block_ids),
        pointer(a.workspace),
        *out_strides,
        tokens,
        batch,
        heads,
        max_blocks,
        a.topk,
        columns,
        blocks,
    )
