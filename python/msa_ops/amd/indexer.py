"""indexer on CDNA4: a scan of the index keys by all compute units, then a merge of what they found."""

from __future__ import annotations

from torch import Tensor

from msa_ops.amd.launch import launch
from msa_ops.flydsl.indexer import gfx950_merge_configs as merge  # type: ignore[import-untyped]
from msa_ops.flydsl.indexer import gfx950_scan_configs as scan
from msa_ops.launch_arguments import pointer, require_aligned
from msa_ops.ops import ragged
from msa_ops.ops.indexer import Args, Facts
from msa_ops.registry import platform as platforms
from msa_ops.registry.platform import Platform

SCANS = {config.columns: config for config in scan.FAMILY.configs}
COLUMNS = sorted(SCANS)
"""Sizes of a tile of (query token, head) pairs."""


def columns_a_tile(num_heads: int, max_seqlen_q: int) -> int:
    """Pairs that are scored together: all of a request's if there is such a tile."""
    return next((columns for columns in COLUMNS if columns >= num_heads * max_seqlen_q), COLUMNS[-1])


def num_groups(platform: Platform) -> int:
    return min(platform.multiprocessors, int(merge.MAX_GROUPS))


def most_pieces(platform: Platform, columns: int) -> int:
    """Pieces of work (a page for a tile) of a call whose keys all go to the merge."""
    return num_groups(platform) * int(SCANS[columns].pieces)


def workspace(platform: Platform, facts: Facts) -> int:
    """Bytes, however large the batch is: a key for each piece and column, or, of a call with more pieces, two lists of
    candidates a workgroup and column with a block id and a key each.
    """
    columns = columns_a_tile(facts.num_heads, facts.max_seqlen_q)
    return columns * max(4 * most_pieces(platform, columns), num_groups(platform) * 2 * facts.topk * 8)


def gfx950(a: Args, outs: tuple[Tensor, ...]) -> None:
    """Target of the backend "flydsl_gfx950"."""
    (block_ids,) = outs
    tokens, heads = a.index_q.shape[:2]
    if block_ids.numel() == 0:
        return
    assert a.workspace is not None
    require_aligned("index_q", a.index_q)
    require_aligned("index_cache", a.index_cache)
    require_aligned("workspace", a.workspace)
    if any(stride % 16 for stride in a.index_q.stride()[:2]):
        raise ValueError(f"index_q: strides {a.index_q.stride()}; accepted: multiples of 16 bytes before the last")
    for name in ("seq_lens", "cu_seqlens_q"):
        value = getattr(a, name)
        if value is not None and not value.is_contiguous():
            raise ValueError(f"{name}: strides {value.stride()}; accepted: contiguous")
    device = a.index_q.device
    batch, max_blocks = a.block_table.shape
    columns = columns_a_tile(heads, ragged.query_length_bucket(tokens, batch, a.cu_seqlens_q, a.max_seqlen_q))
    platform = platforms.of_device(device)
    groups = num_groups(platform)
    each = tokens // max(batch, 1)
    out_strides = (heads * a.topk, a.topk) if a.topk_layout == "THK" else (a.topk, tokens * a.topk)
    # What both kernels divide the work by.
    reciprocals = scan.reciprocal_of(heads), scan.reciprocal_of(groups)
    most = most_pieces(platform, columns) if max_blocks <= merge.MAX_BLOCKS else 0
    forced = min(a.init_blocks, max_blocks), min(a.local_blocks, max_blocks)
    launch(
        f"indexer__scan_nvfp4_{columns}__gfx950",
        device,
        groups,
        pointer(a.index_q),
        pointer(a.index_cache),
        pointer(a.block_table),
        pointer(a.seq_lens),
        pointer(a.cu_seqlens_q),
        pointer(block_ids),
        pointer(a.workspace),
        *a.index_q.stride()[:2],
        a.index_cache.stride(0),
        a.block_table.stride(0),
        *out_strides,
        a.index_cache.shape[0],
        tokens,
        batch,
        each,
        heads,
        reciprocals[0],
        max_blocks,
        a.topk,
        *forced,
        groups,
        reciprocals[1],
        most,
    )
    launch(
        f"indexer__{merge.config_for(a.topk).name}__gfx950",
        device,
        tokens * heads,
        pointer(a.seq_lens),
        pointer(a.cu_seqlens_q),
        pointer(block_ids),
        pointer(a.workspace),
        *out_strides,
        tokens,
        batch,
        each,
        heads,
        reciprocals[0],
        max_blocks,
        a.topk,
        *forced,
        SCANS[columns].columns_log2,
        groups,
        reciprocals[1],
        most,
    )
