"""Softmax attention over a paged cache, all blocks of a request or chosen ones: the reference of the attention ops.

For one request the pages that any of its query tokens may see are dequantised once; then rows of queries multiply them
under a mask. What a row may not see never enters its arithmetic: scores are replaced, not multiplied by zero, and
values that are not finite are added only to rows that see them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from msa_ops.cache.access import read_pages
from msa_ops.cache.page import HEAD_DIM, PAGE_SIZE, main_page
from msa_ops.ops.attention_arguments import PagedAttention, result_dtype, scale_of_softmax
from msa_ops.ops.ragged import query_spans, request_pages, token_positions

SCORES_AT_ONCE = 2**22
"""Upper bound of the scores (fp32) that are in memory together, unless a single query token has more."""


def attend(a: PagedAttention, ids: Tensor | None) -> tuple[Tensor, Tensor]:
    """out [T, Hq, 128] and lse fp32 [T, Hq]. `ids`: block ids [T, Hkv, K] as in sparse_attention, or None for all."""
    tokens, heads = a.q.shape[:2]
    out = torch.zeros(tokens, heads, HEAD_DIM, dtype=result_dtype(a.q), device=a.q.device)
    lse = torch.full((tokens, heads), -torch.inf, dtype=torch.float32, device=a.q.device)
    _, position = token_positions(tokens, a.seq_lens, a.cu_seqlens_q)
    for request, (start, stop) in enumerate(query_spans(tokens, a.seq_lens.shape[0], a.cu_seqlens_q)):
        if start < stop:
            span = slice(start, stop)
            _attend_request(
                a, request, a.q[span], position[span], None if ids is None else ids[span], out[span], lse[span]
            )
    return out, lse


def _attend_request(
    a: PagedAttention, request: int, q: Tensor, position: Tensor, ids: Tensor | None, out: Tensor, lse: Tensor
) -> None:
    """Fills out [t, Hq, 128] and lse [t, Hq] of one request. Rows that see nothing are left as they are."""
    last = int(position[-1])
    blocks, pages = _blocks_to_read(a, request, last, ids)
    if len(blocks) == 0:
        return
    key_position = (blocks.unsqueeze(1) * PAGE_SIZE + torch.arange(PAGE_SIZE, device=q.device)).flatten()
    k, v = (_read_heads(a, member, pages) for member in ("k", "v"))
    v = v.masked_fill((key_position > last).unsqueeze(1), 0.0)  # unwritten: may hold anything
    rows = _rows_at_once(q.shape[1], len(blocks), 0 if ids is None else ids.shape[1] * ids.shape[2])
    for first in range(0, len(q), rows):
        part = slice(first, first + rows)
        if ids is None:
            used = int((blocks * PAGE_SIZE <= position[part][-1]).sum())  # later blocks are hidden from all these rows
            keys: slice | Tensor = slice(0, used * PAGE_SIZE)
        else:
            chosen = (ids[part].unsqueeze(-1) == blocks).any(2)  # [t, Hkv, blocks]
            near = chosen.any(0).any(0).nonzero().squeeze(1)  # other blocks are hidden from all these rows
            used = len(near)
            keys = (near.unsqueeze(1) * PAGE_SIZE + torch.arange(PAGE_SIZE, device=q.device)).flatten()
        seen = key_position[keys] <= position[part].unsqueeze(1)  # [t, keys]
        seen = seen.expand(a.num_kv_heads, -1, -1)
        if ids is not None:
            seen = seen & chosen[:, :, near].transpose(0, 1).repeat_interleave(PAGE_SIZE, dim=-1)
        if used:
            out[part], lse[part] = _softmax_rows(q[part], k[:, keys], v[:, keys], seen, scale_of_softmax(a))


def _rows_at_once(heads: int, blocks: int, ids: int) -> int:
    """Query tokens whose scores are in memory together. ids: blocks that one of them can name, 0 if all are seen."""
    most = SCORES_AT_ONCE // (heads * PAGE_SIZE)  # pairs of a token and a block
    rows = most // blocks
    if ids:
        rows = max(rows, math.isqrt(most // ids))  # that many tokens name at most `ids` times as many blocks
    return max(1, rows)


def _blocks_to_read(a: PagedAttention, request: int, last: int, ids: Tensor | None) -> tuple[Tensor, Tensor]:
    """Ascending block numbers that a query up to position `last` can see and that have a page, and those pages."""
    count = min(last // PAGE_SIZE + 1, a.block_table.shape[1])
    pages, valid = request_pages(a.block_table, request, count, a.kv_cache.shape[0])
    if ids is not None:
        named = torch.zeros_like(valid)
        named[ids[(ids >= 0) & (ids < count)].long()] = True
        valid = valid & named
    blocks = valid.nonzero().squeeze(1)
    return blocks, pages[blocks]


def _read_heads(a: PagedAttention, member: str, pages: Tensor) -> Tensor:
    """fp32 [Hkv, len(pages) * 128, 128]: K or V of the pages, one after the other."""
    values = read_pages(
        a.kv_cache,
        main_page(a.kv_format, a.num_kv_heads, a.kv_layout),
        member,
        pages,
        scale=a.k_scale if member == "k" else a.v_scale,
        scale_layout=a.k_scale_layout if member == "k" else a.v_scale_layout,
        rounding=a.rounding,
    )
    return values.transpose(0, 1).flatten(1, 2)


def _softmax_rows(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, softmax_scale: float) -> tuple[Tensor, Tensor]:
    """q [t, Hq, 128], k and v [Hkv, keys, 128], seen [Hkv, t, keys] -> fp32 out [t, Hq, 128], lse [t, Hq]."""
    heads, keys = k.shape[:2]
    grouped = q.float().unflatten(1, (heads, -1)).transpose(0, 1)  # [Hkv, t, G, 128]
    shape = grouped.shape[:3]
    scores = (grouped.flatten(1, 2) @ k.mT * softmax_scale).view(*shape, keys)
    scores.masked_fill_(~seen.unsqueeze(2), -torch.inf)
    top = scores.amax(-1, keepdim=True)
    top = torch.where(top == -torch.inf, 0.0, top)  # a row that sees nothing: exp(-inf - 0) = 0, not exp(-inf + inf)
    weight = scores.sub_(top).exp_()
    total = weight.sum(-1, keepdim=True)
    mixed = _mix(weight, v, seen)
    out = mixed / torch.where(total == 0, 1.0, total)
    result = (total.log() + top).squeeze(-1)
    return out.transpose(0, 1).flatten(1, 2), result.transpose(0, 1).flatten(1, 2)


def _mix(weight: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """weight [Hkv, t, G, keys] times v [Hkv, keys, 128]; values that are not finite reach only rows that see them."""
    finite = v.isfinite().all(-1)
    clean = v.masked_fill(~finite.unsqueeze(-1), 0.0)
    mixed = (weight.flatten(1, 2) @ clean).view(*weight.shape[:3], -1)
    for key in (~finite).any(0).nonzero().flatten().tolist():
        reaches = (seen[:, :, key] & ~finite[:, key].unsqueeze(1))[..., None, None]
        mixed += torch.where(reaches, weight[..., key, None] * v[:, None, None, key], 0.0)
    return mixed
