"""Page manifests: every byte range of a block, for engines that move or offload caches.

A manifest always lists all members. There is no way to ask for main K and V alone: an engine that sends them without
their index keys or scales seems to work while sequences have no more blocks than the indexer selects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from msa_ops.cache.pool import CachePool
from msa_ops.cache.spec import CacheMember, CacheSpec, Placement, PoolLayout


class Segment(NamedTuple):
    """One member of one block: `bytes` bytes from `offset`, counted from the start of the pool."""

    block: int
    member: CacheMember
    offset: int
    bytes: int


class Descriptor(NamedTuple):
    """A contiguous range of a pool; add the pool's address to `offset`."""

    offset: int
    bytes: int


class Copy(NamedTuple):
    """A contiguous range to move from one pool to another."""

    source: int
    target: int
    bytes: int


@dataclass(frozen=True)
class Manifest:
    """The byte ranges of `blocks` in a pool of `num_blocks` blocks."""

    spec: CacheSpec
    layout: PoolLayout
    num_blocks: int
    blocks: tuple[int, ...]

    def __post_init__(self) -> None:
        for block in self.blocks:
            if not 0 <= block < self.num_blocks:
                raise ValueError(f"blocks: {block}; accepted: 0 to {self.num_blocks - 1}")

    @property
    def bytes(self) -> int:
        return len(self.blocks) * self.spec.block_bytes()

    def placements(self) -> tuple[Placement, ...]:
        return self.spec.placements(self.layout, self.num_blocks)

    def segments(self) -> Iterator[Segment]:
        """All members of all blocks, block by block, in the order of `spec.members`."""
        placements = self.placements()
        for block in self.blocks:
            for place in placements:
                yield Segment(block, place.member, place.address(block), place.member.bytes)

    def descriptors(self) -> list[Descriptor]:
        """Contiguous ranges that cover the segments in their order, adjacent ones merged.

        A block takes one in a block-outer pool and one a member in a layer-outer pool of two or more blocks.
        """
        merged: list[Descriptor] = []
        for _, _, offset, size in self.segments():
            last = merged[-1] if merged else None
            if last and last.offset + last.bytes == offset:
                merged[-1] = Descriptor(last.offset, last.bytes + size)
            else:
                merged.append(Descriptor(offset, size))
        return merged

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a transfer engine: every member with its offset, stride, bytes and meaning."""
        return {
            "layout": str(self.layout),
            "num_blocks": self.num_blocks,
            "block_bytes": self.spec.block_bytes(),
            "blocks": list(self.blocks),
            "members": [_describe(place) for place in self.placements()],
            "descriptors": [list(descriptor) for descriptor in self.descriptors()],
        }


def manifest(pool: CachePool, blocks: Sequence[int]) -> Manifest:
    """The manifest of `blocks` of `pool`. Raises ValueError for a block outside the pool."""
    return Manifest(pool.spec, pool.layout, pool.num_blocks, tuple(blocks))


def copies(source: Manifest, target: Manifest) -> list[Copy]:
    """The moves that bring block i of `source` to block i of `target`, adjacent ones merged; pool layouts may differ.

    Raises ValueError if the numbers of blocks differ, or the members do: pages of another format, number of heads,
    page layout or scale layout have to be converted first (`cache.convert`). That both ranks store the same KV heads
    (`cache.spec.heads_of_rank`) is the caller's to ensure.
    """
    if len(source.blocks) != len(target.blocks):
        raise ValueError(f"target: {len(target.blocks)} blocks; accepted: {len(source.blocks)}, as in source")
    if len(set(target.blocks)) != len(target.blocks):
        raise ValueError("target: a block twice; accepted: each block once")
    ours, theirs = source.spec.members, target.spec.members
    if ours != theirs:
        odd = [member.name for member in ours if member not in theirs] or [m.name for m in theirs if m not in ours]
        raise ValueError(
            f"target: its page of {odd[0]} differs from that of source; accepted: equal pages of all members"
        )
    merged: list[Copy] = []
    for left, right in zip(source.segments(), target.segments(), strict=True):
        last = merged[-1] if merged else None
        if last and last.source + last.bytes == left.offset and last.target + last.bytes == right.offset:
            merged[-1] = Copy(last.source, last.target, last.bytes + left.bytes)
        else:
            merged.append(Copy(left.offset, right.offset, left.bytes))
    return merged


def _describe(place: Placement) -> dict[str, Any]:
    member = place.member
    return {
        "name": member.name,
        "kind": str(member.kind),
        "layer": member.layer,
        "format": str(member.page.format),
        "num_heads": member.page.num_heads,
        "offset": place.offset,
        "page_stride": place.page_stride,
        "bytes": member.bytes,
        "parts": [
            {
                "name": name,
                "offset": part.offset,
                "head_stride": part.head_stride,
                "token_stride": part.token_stride,
                "row_bytes": part.row_bytes,
                "scale_layout": None if (order := member.scale_layout(name)) is None else str(order),
            }
            for name, part in member.page.members
        ],
    }
