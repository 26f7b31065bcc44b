"""Which request a query token belongs to, where it stands, and how many blocks it may see.

A ragged batch has B requests. `seq_lens` [B] counts all tokens of a request, the new ones included. The query tokens
stand one request after the other; `cu_seqlens_q` [B + 1] holds where each begins, or is None if all have T // B.
Query token i of a request with q_len of them has position seq_len - q_len + i.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from msa_ops.cache.page import PAGE_SIZE


def token_positions(num_tokens: int, seq_lens: Tensor, cu_seqlens_q: Tensor | None) -> tuple[Tensor, Tensor]:
    """Request and position of each of T query tokens: two int64 [T] on the device of `seq_lens`.

    Request is -1 for a token that belongs to none (padding). Position is -1 if the token sees nothing: padding, or
    more query tokens than seq_len. Positions are not limited by the width of a block table; `num_blocks` is.
    """
    batch = seq_lens.shape[0]
    token = torch.arange(num_tokens, device=seq_lens.device)
    if cu_seqlens_q is None:
        start = torch.arange(batch + 1, device=seq_lens.device) * (num_tokens // max(batch, 1))
    else:
        start = cu_seqlens_q.long()
    # A request without query tokens starts where its successor does; right=True passes over it.
    request = torch.searchsorted(start[1:].contiguous(), token, right=True)
    inside = (request < batch) & (token >= start[0])
    if batch == 0:
        return torch.full_like(token, -1), torch.full_like(token, -1)
    safe = request.clamp(max=batch - 1)
    position = seq_lens.long()[safe] - (start[safe + 1] - token)
    return torch.where(inside, request, -1), torch.where(inside, position, -1).clamp(min=-1)


def num_blocks(position: Tensor, max_blocks: int) -> Tensor:
    """Number of blocks that tokens at `position` [T] see: p // 128 + 1, at most max_blocks. Dtype of `position`."""
    return (position.div(PAGE_SIZE, rounding_mode="floor") + 1).clamp(0, max_blocks)


def query_spans(num_tokens: int, batch: int, cu_seqlens_q: Tensor | None) -> list[tuple[int, int]]:
    """First query token and one past the last of each request, on the host (waits for the device)."""
    if cu_seqlens_q is None:
        each = num_tokens // max(batch, 1)
        return [(each * b, each * (b + 1)) for b in range(batch)]
    start = [min(max(value, 0), num_tokens) for value in cu_seqlens_q.tolist()]
    return list(itertools.pairwise(start))


def request_pages(block_table: Tensor, request: int, count: int, num_pages: int) -> tuple[Tensor, Tensor]:
    """The first `count` entries of a request's row: page ids int64 [count], and which of them are in [0, num_pages).

    Entries outside hold bad data; they come back as 0 and must not be read.
    """
    pages = block_table[request, :count].long()
    valid = (pages >= 0) & (pages < num_pages)
    return torch.where(valid, pages, 0), valid


def query_length_bucket(num_tokens: int, batch: int, cu_seqlens_q: Tensor | None, max_seqlen_q: int | None) -> int:
    """An upper bound of the query tokens of a request, rounded up to a power of two; for the facts of a call.

    Known without the device: max_seqlen_q if given, else T // B for a uniform batch, else T.
    """
    if max_seqlen_q is None:
        max_seqlen_q = num_tokens // max(batch, 1) if cu_seqlens_q is None else num_tokens
    return bucket(max_seqlen_q)


def bucket(size: int) -> int:
    """The size rounded up to a power of two, at least 1; keeps the number of different facts small."""
    return 1 << max(size - 1, 0).bit_length()
