"""indexer in decode and verification: all multiprocessors scan the index keys, then a merge of what they found."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from msa_ops.cute.indexer import sm90_group_scan_configs as group_scan  # type: ignore[import-untyped]
from msa_ops.cute.indexer import sm90_merge_configs as merge
from msa_ops.cute.indexer import sm90_scan_configs as scan
from msa_ops.cute.indexer import sm100_scan_configs as scan100
from msa_ops.nvidia.launch import launch, pointer, require_aligned
from msa_ops.ops import ragged
from msa_ops.ops.indexer import Args, Facts
from msa_ops.registry import platform as platforms
from msa_ops.registry.platform import Platform

COLUMNS: dict[str, list[int]] = {}
"""Sizes of a tile for each format of keys, ascending."""
for _config in (*scan.FAMILY.configs, *group_scan.FAMILY.configs):
    if not _config.few:
        COLUMNS.setdefault(_config.index_format, []).append(_config.columns)
for _sizes in COLUMNS.values():
    _sizes.sort()

FEW = {(config.index_format, config.columns) for config in scan.FAMILY.configs if config.few}
"""Formats and sizes of a tile with a configuration of their own for few requests."""

SM100_COLUMNS = sorted({config.columns for config in scan100.FAMILY.configs})

CODE_FACTOR = 256
"""A shift by eight that the compiler must not know to be one; see msa_ops.cute.indexer.keys."""

QUERY_DTYPES = {torch.bfloat16: 0, torch.float16: 1, torch.float8_e4m3fn: 2}
"""Their numbers in msa_ops.cute.indexer.queries."""


@functools.cache
def magic_divisor(divisor: int) -> int:
    """m + 2^32 s with v // divisor == v m >> (32 + s) for 0 <= v < 2^31; 0 for the divisor 1."""
    if divisor == 1:
        return 0
    shift = (divisor - 1).bit_length() - 1
    return -(-(1 << (32 + shift)) // divisor) | shift << 32


def columns_a_tile(sizes: list[int], num_heads: int, max_seqlen_q: int) -> int:
    """(query token, head) pairs that are scored together: all of a request's if there is such a tile."""
    return next((columns for columns in sizes if columns >= num_heads * max_seqlen_q), sizes[-1])


def num_blocks(platform: Platform) -> int:
    return min(platform.multiprocessors, int(merge.MAX_BLOCKS))


def workspace(platform: Platform, facts: Facts) -> int:
    """Two lists of candidates a thread block and column, however large the batch is: a block id and a key each."""
    return _workspace(platform, facts, COLUMNS[facts.index_format])


def sm100_workspace(platform: Platform, facts: Facts) -> int:
    return _workspace(platform, facts, SM100_COLUMNS)


def _workspace(platform: Platform, facts: Facts, sizes: list[int]) -> int:
    return num_blocks(platform) * 2 * columns_a_tile(sizes, facts.num_heads, facts.max_seqlen_q) * facts.topk * 8


def sm90_scan(index_format: str, columns: int, batch: int) -> str:
    """The configuration that scans for `batch` requests. What lengths decide, the kernel decides."""
    few = batch <= scan.FEW_REQUESTS and (index_format, columns) in FEW
    return f"scan_{index_format}_{columns}" + ("_few" if few else "")


def sm90(a: Args, outs: tuple[Tensor, ...]) -> None:
    """Target of the backend "cute_sm90"."""
    batch = a.block_table.shape[0]

    def name(columns: int) -> str:
        return sm90_scan(a.index_format, columns, batch)

    _start(a, outs, COLUMNS[a.index_format], name)


def sm100(a: Args, outs: tuple[Tensor, ...]) -> None:
    """Target of the backend "cute_sm100"."""
    _start(a, outs, SM100_COLUMNS, "scan_nvfp4_{}_qmul4".format)


def sm100_fp16(a: Args, outs: tuple[Tensor, ...]) -> None:
    """Target of the backend "cute_sm100_fp16"."""
    _start(a, outs, SM100_COLUMNS, "scan_nvfp4_{}_fp16".format)


def _start(a: Args, outs: tuple[Tensor, ...], sizes: list[int], scan_name: Callable[[int], str]) -> None:
    """sizes: of a tile, ascending. scan_name: of the scan's configuration, for a size."""
    (block_ids,) = outs
    tokens, heads = a.index_q.shape[:2]
    if block_ids.numel() == 0:
        return
    if a.seq_lens.numel() == 0:  # tokens of no request; the kernels look for one
        block_ids.fill_(-1)
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
    columns = columns_a_tile(sizes, heads, longest)
    blocks = num_blocks(platform)
    magic = (magic_divisor(heads), magic_divisor(blocks))
    each = tokens // max(batch, 1)
    if a.topk_layout == "THK":
        out_strides = (heads * a.topk, a.topk)
    else:
        out_strides = (a.topk, tokens * a.topk)
    launch(
        f"indexer__{scan_name(columns)}__{platform.arch}",
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
        *magic,
        a.index_cache.shape[0],
        tokens,
        batch,
        each,
        heads,
        max_blocks,
        a.topk,
        min(a.init_blocks, max_blocks),
        min(a.local_blocks, max_blocks),
        QUERY_DTYPES[a.index_q.dtype],
        blocks,
        CODE_FACTOR,
        group_scan.BLOCK_PAGES,
        group_scan.REQUEST_PAGES,
    )
    launch(
        f"indexer__{merge.config_for(a.topk).name}__{platform.arch}",
        device,
        pointer(a.seq_lens),
        pointer(a.cu_seqlens_q),
        pointer(block_ids),
        pointer(a.workspace),
        *out_strides,
        *magic,
        tokens,
        batch,
        each,
        heads,
        max_blocks,
        a.topk,
        columns.bit_length() - 1,
        blocks,
    )
