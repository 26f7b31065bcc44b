"""The paged cache of a model, and the description of a step's tokens that every layer reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from msa_ops.cache.page import PAGE_SIZE
from msa_ops.cache.pool import CachePool
from msa_ops.cache.spec import CacheGeometry, CacheSpec
from msa_ops.model.config import ModelConfig


class KVCache:
    """A block-outer pool of pages for one model, and its views a layer.

    kv_format, index_format: fp32, bf16, fp8 or nvfp4. rounding: of dequantised NVFP4 values, "exact" or "e4m3".
    main[layer], index[layer]: uint8 [num_pages, page bytes]; index is None in layers that attend densely.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_pages: int,
        *,
        kv_format: str = "nvfp4",
        index_format: str = "nvfp4",
        rounding: str = "exact",
        device: str | torch.device = "cpu",
    ) -> None:
        if num_pages < 1:
            raise ValueError(f"num_pages: {num_pages}; accepted: 1 or more")
        sparse = tuple(layer for layer, flag in enumerate(config.sparse_layers) if flag)
        geometry = CacheGeometry(config.num_layers, config.num_kv_heads, sparse)
        self.spec = CacheSpec(geometry, kv_format=kv_format, index_format=index_format)
        self.pool = CachePool.allocate(self.spec, num_pages, "block_outer", device=device)
        self.num_pages, self.rounding = num_pages, rounding
        self.kv_format, self.index_format = kv_format, index_format
        self.main = [self.pool.kv_cache(layer) for layer in range(config.num_layers)]
        self.index = [self.pool.index_cache(layer) if layer in sparse else None for layer in range(config.num_layers)]

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token over all layers, index keys included."""
        return self.spec.bytes_per_token()


@dataclass(frozen=True)
class Chunk:
    """The consecutive tokens of one request that a step computes, after `start` tokens that the cache holds.

    pages: page ids of the request, enough for start + len(tokens) tokens.
    """

    tokens: Sequence[int]
    start: int
    pages: Sequence[int]


@dataclass(frozen=True)
class Batch:
    """A ragged step of B requests and T tokens, as the attention ops take it.

    tokens, positions, slot_mapping: int64 [T]. block_table: int32 [B, max_blocks]. seq_lens: int32 [B], the new tokens
    included. cu_seqlens_q: int32 [B + 1]. max_seqlen_q: the longest chunk. last: int64 [B], each request's last token.
    """

    tokens: Tensor
    positions: Tensor
    slot_mapping: Tensor
    block_table: Tensor
    seq_lens: Tensor
    cu_seqlens_q: Tensor
    max_seqlen_q: int
    last: Tensor

    @classmethod
    def of(cls, chunks: Sequence[Chunk], device: str | torch.device = "cpu") -> Batch:
        """The batch of these chunks. Raises ValueError for an empty one, or too few pages."""
        if not chunks or any(not chunk.tokens for chunk in chunks):
            raise ValueError("chunks: empty; accepted: at least one token for each of one or more requests")
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        for chunk in chunks:
            end = chunk.start + len(chunk.tokens)
            if len(chunk.pages) * PAGE_SIZE < end:
                raise ValueError(
                    f"pages: {len(chunk.pages)}; accepted: at least {-(-end // PAGE_SIZE)} for {end} tokens"
                )
            tokens += chunk.tokens
            positions += range(chunk.start, end)
            slots += [chunk.pages[p // PAGE_SIZE] * PAGE_SIZE + p % PAGE_SIZE for p in range(chunk.start, end)]
        widest = max(len(chunk.pages) for chunk in chunks)
        table = torch.full((len(chunks), widest), -1, dtype=torch.int32)
        for row, chunk in enumerate(chunks):
            table[row, : len(chunk.pages)] = torch.tensor(chunk.pages, dtype=torch.int32)
        lengths = torch.tensor([len(chunk.tokens) for chunk in chunks])
        ends = lengths.cumsum(0)
        seq_lens = torch.tensor([chunk.start + len(chunk.tokens) for chunk in chunks], dtype=torch.int32)
        return cls(
            torch.tensor(tokens).to(device),
            torch.tensor(positions).to(device),
            torch.tensor(slots).to(device),
            table.to(device),
            seq_lens.to(device),
            torch.cat((torch.zeros(1), ends)).to(device, torch.int32),
            int(lengths.max()),
            (ends - 1).to(device),
        )
