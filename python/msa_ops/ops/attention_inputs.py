"""Seeded inputs of the attention ops, and the bytes and flops that a call needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from msa_ops.cache.page import HEAD_DIM, PAGE_SIZE, CacheFormat, main_page
from msa_ops.ops import batches, checks
from msa_ops.ops.attention_arguments import PagedAttention, result_dtype
from msa_ops.ops.ragged import num_blocks, token_positions
from msa_ops.registry import Cost

VALUE_VARIANTS = ("scaled", "nan")
"""Besides batches.VARIANTS: k_scale and v_scale that are not powers of two; NaN in tokens that some rows see."""

VARIANTS = (*batches.VARIANTS, *VALUE_VARIANTS)


def paged_inputs(
    seed: int,
    *,
    variant: str,
    device: str,
    batch: int,
    seq_len: int,
    q_len: int,
    num_heads: int,
    num_kv_heads: int,
    kv_format: str,
    kv_layout: str,
    k_scale_layout: str,
    v_scale_layout: str,
    q_dtype: str,
    content: str,
    page_stride: int | None,
    **lengths: Any,
) -> dict[str, Any]:
    """The arguments that the ops have in common. `lengths`: seq_lens, q_lens, max_blocks, spare_pages of a batch."""
    made = batches.ragged_batch(
        seed,
        batch=batch,
        seq_len=seq_len,
        q_len=q_len,
        device=device,
        variant=variant if variant in batches.VARIANTS else "ragged",
        **lengths,
    )
    page = main_page(kv_format, num_kv_heads, kv_layout)
    layouts: dict[str, Any] = {"k_scale_layout": k_scale_layout, "v_scale_layout": v_scale_layout}
    cache = batches.paged_cache(seed + 1, page, made, content=content, page_stride=page_stride, **layouts)
    if variant == "nan":
        generator = torch.Generator().manual_seed(seed + 2)
        bad = torch.rand(made.num_pages, PAGE_SIZE, generator=generator) < 0.001
        batches.poison(cache, page, bad.to(device), **layouts)
    scaled = variant == "scaled"
    return {
        "q": batches.query(seed + 3, made.num_tokens, num_heads, dtype=q_dtype, content=content, device=device),
        "kv_cache": cache,
        "block_table": made.block_table,
        "seq_lens": made.seq_lens,
        "cu_seqlens_q": made.cu_seqlens_q,
        "num_kv_heads": num_kv_heads,
        "kv_format": kv_format,
        "kv_layout": kv_layout,
        **layouts,
        "k_scale": torch.tensor([0.37], device=device) if scaled else None,
        "v_scale": torch.tensor([2.9], device=device) if scaled else None,
    }


def block_choice(
    seed: int,
    seq_lens: Tensor,
    cu_seqlens_q: Tensor | None,
    num_tokens: int,
    *,
    heads: int,
    topk: int,
    max_blocks: int,
    local_blocks: int = 1,
    overlap: float = 0.0,
    neighbours: int = 1,
) -> Tensor:
    """int32 [T, heads, topk]: min(topk, n) distinct ids of each row's n blocks, ascending, -1 behind.

    The blocks are cut into as many runs as ids are wanted, and one is drawn from each. `overlap`: share of the runs
    in which all query tokens of a request draw alike. `neighbours`: so many tokens in a row draw alike in all runs, as
    neighbouring tokens of real text mostly do.
    `local_blocks`: 1 always includes the last block, 0 does not.
    """
    checks.between("local_blocks", local_blocks, 0, 1)
    checks.between("neighbours", neighbours, 1, 2**20)
    generator = torch.Generator().manual_seed(seed)
    request, position = (x.cpu() for x in token_positions(num_tokens, seq_lens, cu_seqlens_q))
    count = num_blocks(position, max_blocks).view(-1, 1, 1)
    run = torch.arange(topk)
    draw = torch.rand(num_tokens, heads, topk, generator=generator, dtype=torch.float64)
    draw = draw[torch.arange(num_tokens) // neighbours * neighbours]
    common = torch.rand(seq_lens.shape[0] + 1, heads, topk, generator=generator, dtype=torch.float64)
    alike = torch.rand(heads, topk, generator=generator) < overlap
    draw = torch.where(alike, common[request], draw)  # request -1, padding, takes the last
    low, high = run * count // topk, (run + 1) * count // topk
    ids = low + (draw * (high - low)).long()
    if local_blocks:
        ids[..., -1:] = count - 1
    ids = torch.where(count <= topk, torch.where(run < count, run, -1), ids)
    return ids.to(seq_lens.device, torch.int32)


def scramble(seed: int, ids: Tensor, *, holes: bool) -> Tensor:
    """The same ids in another order; with `holes`, a fifth of them replaced by ids that name no block."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(ids.shape, generator=generator).argsort(-1)
    device, ids = ids.device, ids.cpu().gather(-1, order)
    if holes:
        useless = torch.tensor([-1, -2, -(2**31), 2**31 - 1, 2**24, 1 << 20], dtype=torch.int32)
        drawn = useless[torch.randint(len(useless), ids.shape, generator=generator)]
        ids = torch.where(torch.rand(ids.shape, generator=generator) < 0.2, drawn, ids)
    return ids.to(device)


@dataclass(frozen=True)
class Reach:
    """Sums over requests and KV heads. `tokens`: cache tokens that some row sees; `pairs`: rows times tokens seen."""

    tokens: int
    pairs: int


def reach_of_ids(a: PagedAttention, ids: Tensor) -> Reach:
    """What ids [T, Hkv, K] select: each page once a request and KV head, up to the last token that a row sees."""
    width = a.block_table.shape[1]
    request, position = token_positions(ids.shape[0], a.seq_lens, a.cu_seqlens_q)
    count = num_blocks(position, width)[:, None, None]
    ordered = ids.long().sort(-1).values
    counted = (ordered >= 0) & (ordered < count)
    counted[..., 1:] &= ordered[..., 1:] != ordered[..., :-1]
    seen = (position[:, None, None] + 1 - ordered * PAGE_SIZE).clamp(0, PAGE_SIZE)
    head = torch.arange(ids.shape[1], device=ids.device)[:, None]
    where = (request[:, None, None] * ids.shape[1] + head) * width + ordered
    distinct, index = where[counted].unique(return_inverse=True)
    most = torch.zeros_like(distinct).scatter_reduce(0, index, seen[counted], "amax")
    return Reach(int(most.sum()), int(seen[counted].sum()))


def reach_of_all(a: PagedAttention) -> Reach:
    """The same if every block is seen."""
    width = a.block_table.shape[1] * PAGE_SIZE
    request, position = token_positions(a.q.shape[0], a.seq_lens, a.cu_seqlens_q)
    seen = (position + 1).clamp(max=width)
    most = torch.zeros(a.seq_lens.shape[0] + 1, dtype=torch.int64, device=seen.device)
    most = most.scatter_reduce(0, request + 1, torch.where(request < 0, 0, seen), "amax")
    return Reach(int(most.sum()) * a.num_kv_heads, int(seen.sum()) * a.num_kv_heads)


def attention_cost(a: PagedAttention, reach: Reach, bytes_of_ids: int) -> Cost:
    """Two products of 2 * 128 flops for each query head and token that it sees; softmax is not counted.

    Read are queries, ids, the cache tokens in reach with their scales, a table entry for each of their pages (taken
    as one for 128 tokens and head) and the lengths; written are out and lse. A page in two requests counts twice.
    """
    fmt = CacheFormat(a.kv_format)
    tokens, heads = a.q.shape[:2]
    lengths = a.seq_lens.numel() + (0 if a.cu_seqlens_q is None else a.cu_seqlens_q.numel())
    read = reach.tokens * 2 * (fmt.row_bytes + fmt.scale_bytes)
    read += a.q.numel() * a.q.element_size() + bytes_of_ids + 4 * lengths + 4 * -(-reach.tokens // PAGE_SIZE)
    written = tokens * heads * (HEAD_DIM * result_dtype(a.q).itemsize + 4)
    return Cost(read, written, 4 * HEAD_DIM * reach.pairs * (heads // a.num_kv_heads))
