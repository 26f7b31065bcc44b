"""indexer and indexer_scores on Hopper with matrix products of warpgroups: tiles of up to 256 (token, head) rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from msa_ops.build.unit import Family
from msa_ops.cute.indexer_prefill import sm90_clear_configs as clear  # type: ignore[import-untyped]
from msa_ops.cute.indexer_prefill import sm90_configs as kernel
from msa_ops.cute.indexer_prefill import sm90_merge_configs as merge
from msa_ops.cute.indexer_prefill import sm90_scores_configs as scores_kernel
from msa_ops.nvidia.launch import bits, launch, pointer, require_aligned
from msa_ops.ops import indexer, indexer_scores, ragged
from msa_ops.registry import platform as platforms
from msa_ops.registry.platform import Platform

Configs = dict[str, list[kernel.Config]]


def _by_format(family: Family) -> Configs:
    """The configurations for each format of keys, those for fewer rows first."""
    found: Configs = {}
    for config in sorted(family.configs, key=lambda config: config.rows):
        found.setdefault(config.index_format, []).append(config)
    return found


CHOOSING = _by_format(kernel.FAMILY)
SCORING = _by_format(scores_kernel.FAMILY)


def config_for(configs: Configs, index_format: str, rows: int) -> kernel.Config:
    """The least that takes all (query token, head) rows of a request at once, else the largest."""
    found = configs[index_format]
    return next((config for config in found if rows <= config.rows), found[-1])


QUERY_DTYPES = {torch.bfloat16: 0, torch.float16: 1, torch.float8_e4m3fn: 2}
"""Their numbers in msa_ops.cute.indexer_prefill.queries."""

CODE_FACTOR = 256
"""A shift by eight that the compiler must not know to be one; see msa_ops.cute.indexer_prefill.keys."""

LIST_BYTES = 8 * int(kernel.MAX_TOPK)


def longest_request(a: Any) -> int:
    """At least the rows of the longest request, as the facts of the call have them."""
    tokens, heads = a.index_q.shape[:2]
    return int(heads) * ragged.query_length_bucket(tokens, a.block_table.shape[0], a.cu_seqlens_q, a.max_seqlen_q)


def num_blocks(platform: Platform) -> int:
    return min(platform.multiprocessors, int(merge.MAX_BLOCKS))


def workspace(platform: Platform, facts: indexer.Facts) -> int:
    """Two lists a thread block and row of its tile, however large the batch is."""
    config = config_for(CHOOSING, facts.index_format, facts.num_heads * facts.max_seqlen_q)
    return num_blocks(platform) * 2 * int(config.rows) * LIST_BYTES


def choose(a: indexer.Args, outs: tuple[Tensor, ...]) -> None:
    """Target of the backend "cute_sm90_prefill" of indexer."""
    (block_ids,) = outs
    if block_ids.numel() == 0:
        return
    config = config_for(CHOOSING, a.index_format, longest_request(a))
    tokens, heads = a.index_q.shape[:2]
    batch, max_blocks = a.block_table.shape
    device = a.index_q.device
    blocks = num_blocks(platforms.of_device(device))
    strides = (heads * a.topk, a.topk) if a.topk_layout == "THK" else (a.topk, tokens * a.topk)
    init_blocks, local_blocks = min(a.init_blocks, max_blocks), min(a.local_blocks, max_blocks)
    start(
        f"indexer__{config.name}__sm_90a",
        config,
        a,
        block_ids,
        strides,
        workspace=pointer(a.workspace),
        selection=(a.topk, init_blocks, local_blocks),
    )
    launch(
        f"indexer__{merge.CONFIG.name}__sm_90a",
        device,
        pointer(a.seq_lens),
        pointer(a.cu_seqlens_q),
        pointer(block_ids),
        pointer(a.workspace),
        *strides,
        tokens,
        batch,
        tokens // max(batch, 1),
        heads,
        max_blocks,
        config.rows // heads,
        config.rows,
        a.topk,
        init_blocks,
        local_blocks,
        blocks,
    )


def score(a: indexer_scores.Args, outs: tuple[Tensor, ...]) -> None:
    """Target of the backend "cute_sm90" of indexer_scores."""
    (scores,) = outs
    if scores.numel() == 0:
        return
    # Blocks that no token of a tile sees are not stored by the kernel that scores.
    tokens, heads, width = scores.shape
    clear_name = f"indexer_scores__{clear.CONFIG.name}__sm_90a"
    launch(clear_name, a.index_q.device, pointer(scores), *scores.stride()[:2], tokens, heads, width)
    config = config_for(SCORING, a.index_format, longest_request(a))
    start(
        f"indexer_scores__{config.name}__sm_90a",
        config,
        a,
        scores,
        scores.stride()[:2],
        k_scale=pointer(a.index_k_scale),
        score_scale=a.score_scale,
    )


def start(
    name: str,
    config: kernel.Config,
    a: Any,
    out: Tensor,
    out_strides: tuple[int, ...],
    *,
    workspace: int = 0,
    k_scale: int = 0,
    selection: tuple[int, int, int] = (0, 0, 0),
    score_scale: float = 1.0,
) -> None:
    """Checks what the kernel cannot take, and launches it."""
    require_aligned("index_q", a.index_q)
    size = a.index_q.element_size()
    q_strides = [size * stride for stride in a.index_q.stride()[:2]]
    if any(stride % 16 for stride in q_strides):
        raise ValueError(f"index_q: strides {a.index_q.stride()}; accepted: multiples of 16 bytes before the last")
    for argument in ("seq_lens", "cu_seqlens_q"):
        value = getattr(a, argument)
        if value is not None and not value.is_contiguous():
            raise ValueError(f"{argument}: strides {value.stride()}; accepted: contiguous")
    device = a.index_q.device
    tokens, heads = a.index_q.shape[:2]
    batch, max_blocks = a.block_table.shape
    launch(
        name,
        device,
        pointer(a.index_q),
        pointer(a.index_cache),
        pointer(a.block_table),
        pointer(a.seq_lens),
        pointer(a.cu_seqlens_q),
        pointer(out),
        workspace,
        k_scale,
        *q_strides,
        a.index_cache.stride(0),
        a.block_table.stride(0),
        *out_strides,
        a.index_cache.shape[0],
        tokens,
        batch,
        tokens // max(batch, 1),
        heads,
        max_blocks,
        config.rows // heads,
        *selection,
        QUERY_DTYPES[a.index_q.dtype],
        num_blocks(platforms.of_device(device)),
        CODE_FACTOR,
        bits(score_scale),
    )
