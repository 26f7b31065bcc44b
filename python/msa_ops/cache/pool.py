"""Pools: one allocation that holds all pages of all layers of one rank, and its views as ops take them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from msa_ops.cache.page import choose
from msa_ops.cache.spec import CacheMember, CacheSpec, MemberKind, Placement, PoolLayout


@dataclass(frozen=True, eq=False)
class CachePool:
    """`memory` (uint8, one-dimensional, contiguous, `num_blocks * spec.block_bytes()` bytes) laid out as `layout`.

    The memory may come from elsewhere, for instance a serving framework; `allocate` makes it. Raises ValueError for
    memory of another dtype, size or stride, or that does not start at a multiple of 16 bytes.
    """

    spec: CacheSpec
    layout: PoolLayout
    num_blocks: int
    memory: Tensor

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", choose(PoolLayout, "layout", self.layout))
        size = self.num_blocks * self.spec.block_bytes()
        memory = self.memory
        if memory.dtype != torch.uint8 or memory.dim() != 1 or not memory.is_contiguous() or memory.numel() != size:
            raise ValueError(
                f"memory: {memory.dtype} {list(memory.shape)} with strides {memory.stride()}; accepted: contiguous "
                f"uint8 [{size}] for {self.num_blocks} blocks of {self.spec.block_bytes()} bytes"
            )
        if memory.device.type != "meta" and memory.data_ptr() % 16:
            raise ValueError(f"memory: starts at address {memory.data_ptr():#x}; accepted: multiples of 16 bytes")

    @classmethod
    def allocate(
        cls,
        spec: CacheSpec,
        num_blocks: int,
        layout: str = PoolLayout.LAYER_OUTER,
        *,
        device: torch.device | str = "cpu",
    ) -> CachePool:
        """A pool of zeros: every format reads zero bytes as 0, so that unwritten tokens are finite."""
        if num_blocks < 0:
            raise ValueError(f"num_blocks: {num_blocks}; accepted: 0 or more")
        memory = torch.zeros(num_blocks * spec.block_bytes(), dtype=torch.uint8, device=device)
        return cls(spec, choose(PoolLayout, "layout", layout), num_blocks, memory)

    @cached_property
    def placements(self) -> dict[CacheMember, Placement]:
        return {place.member: place for place in self.spec.placements(self.layout, self.num_blocks)}

    def view(self, kind: str, layer: int) -> Tensor:
        """uint8 [num_blocks, page bytes] of a member, no copy; the page stride is the row in a block-outer pool."""
        place = self.placements[self.spec.member(kind, layer)]
        return self.memory.as_strided(
            (self.num_blocks, place.member.bytes),
            (place.page_stride, 1),
            self.memory.storage_offset() + place.offset,
        )

    def kv_cache(self, layer: int) -> Tensor:
        """Main K and V of decoder layer `layer`: `kv_cache` of the attention and insert ops."""
        return self.view(MemberKind.KV, layer)

    def index_cache(self, layer: int) -> Tensor:
        """Index keys of decoder layer `layer`: `index_cache` of the indexer and insert ops."""
        return self.view(MemberKind.INDEX, layer)

    def draft_cache(self, layer: int) -> Tensor:
        """K and V of drafter layer `layer`."""
        return self.view(MemberKind.DRAFT, layer)
