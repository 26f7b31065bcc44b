"""What one block of 128 tokens holds over all layers: K and V, index keys and the drafter's K and V, for one rank.

A block has one page a member: main K and V of each decoder layer, index keys of each sparse layer, K and V of each
drafter layer, in this order. The inside of a page is described in `cache.page`; where pages stand in a pool is
decided by the pool's layout:

  layer_outer  all blocks of the first member, then all blocks of the next one
  block_outer  a row a block, with the pages of all members side by side
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import accumulate

from msa_ops.cache.page import PAGE_SIZE, CacheFormat, Page, PageLayout, choose, index_page, main_page
from msa_ops.formats.scale_layout import ScaleLayout


class MemberKind(StrEnum):
    KV = "kv"
    INDEX = "index"
    DRAFT = "draft"


class PoolLayout(StrEnum):
    LAYER_OUTER = "layer_outer"
    BLOCK_OUTER = "block_outer"


@dataclass(frozen=True)
class CacheGeometry:
    """The facts about a model that its caches depend on. Head dimension and page are 128 (`cache.page`).

    `index_layers`: decoder layers with sparse attention, which keep index keys (one head, shared by all index query
    heads); the others attend densely. `draft_layers` and `draft_kv_heads`: the drafter, 0 for none.
    """

    num_layers: int
    num_kv_heads: int
    index_layers: tuple[int, ...]
    draft_layers: int = 0
    draft_kv_heads: int = 0

    def __post_init__(self) -> None:
        if self.num_layers < 1 or self.num_kv_heads < 1:
            raise ValueError(f"geometry: {self.num_layers} layers of {self.num_kv_heads} KV heads; accepted: 1 or more")
        if list(self.index_layers) != sorted({layer for layer in self.index_layers if 0 <= layer < self.num_layers}):
            raise ValueError(
                f"index_layers: {self.index_layers}; accepted: ascending, within 0 to {self.num_layers - 1}"
            )
        if self.draft_layers < 0 or (self.draft_layers > 0) != (self.draft_kv_heads > 0):
            raise ValueError(
                f"draft_layers, draft_kv_heads: {self.draft_layers}, {self.draft_kv_heads}; accepted: both positive, "
                "or both 0"
            )


M31 = CacheGeometry(60, 4, tuple(range(60)), draft_layers=5, draft_kv_heads=4)
"""MiniMax-M3.1 and M3.1-Flash: all 60 layers sparse; a drafter of 5 layers."""

M3 = CacheGeometry(60, 4, tuple(range(3, 60)))
"""MiniMax-M3: the first three layers attend densely and keep no index keys."""


def heads_per_rank(num_kv_heads: int, tp: int) -> int:
    """KV heads that each of `tp` ranks stores.

    Up to one rank a head, heads are divided evenly. Beyond that each rank stores one head, so that a head is stored
    `tp / num_kv_heads` times. Raises ValueError if neither number divides the other.
    """
    if tp < 1 or (num_kv_heads % tp and tp % num_kv_heads):
        raise ValueError(f"tp: {tp}; accepted for {num_kv_heads} KV heads: divisors of it, or multiples of it")
    return max(1, num_kv_heads // tp)


def heads_of_rank(num_kv_heads: int, tp: int, rank: int) -> range:
    """Which KV heads rank `rank` stores: consecutive ones; with more ranks than heads, neighbours share a head."""
    count = heads_per_rank(num_kv_heads, tp)
    if not 0 <= rank < tp:
        raise ValueError(f"rank: {rank}; accepted: 0 to {tp - 1}")
    first = rank * num_kv_heads // tp
    return range(first, first + count)


@dataclass(frozen=True)
class CacheMember:
    """One page of a block: whose it is, and its inside. Scale layouts are None in pages without scales.

    Two members are equal exactly if their bytes mean the same.
    """

    kind: MemberKind
    layer: int
    page: Page
    k_scale_layout: ScaleLayout | None
    v_scale_layout: ScaleLayout | None

    @property
    def name(self) -> str:
        return f"{self.kind}.{self.layer}"

    @property
    def bytes(self) -> int:
        return self.page.bytes

    def scale_layout(self, name: str) -> ScaleLayout | None:
        """Order of the scale bytes of inner member `name`; None if that is not one of scales."""
        return {"k_scale": self.k_scale_layout, "v_scale": self.v_scale_layout}.get(name)


@dataclass(frozen=True)
class Placement:
    """Where a member's pages stand in a pool: block b starts at byte `offset + b * page_stride`."""

    member: CacheMember
    offset: int
    page_stride: int

    def address(self, block: int) -> int:
        return self.offset + block * self.page_stride


@dataclass(frozen=True)
class CacheSpec:
    """All that decides how many bytes a block takes on one rank, and what they mean.

    geometry: `M31`, `M3` or another. kv_format, dense_format, index_format, draft_format: fp32, bf16, fp8 or nvfp4,
    each on its own; dense_format is that of layers without index keys (None: kv_format). kv_layout, draft_layout:
    inside of pages (`cache.page.PageLayout`). k_scale_layout, v_scale_layout: orders of the scales of K and V of main
    and drafter pages; index keys have linear ones. tp: ranks that divide the KV heads (`heads_per_rank`; every rank
    stores all index keys). drafter: whether blocks hold the drafter's K and V.
    Raises ValueError naming the field that is not accepted.
    """

    geometry: CacheGeometry = M31
    kv_format: str = "nvfp4"
    index_format: str = "nvfp4"
    draft_format: str = "fp8"
    dense_format: str | None = None
    kv_layout: str = "planes"
    draft_layout: str = "planes"
    k_scale_layout: str = "linear"
    v_scale_layout: str = "linear"
    tp: int = 1
    drafter: bool = False

    def __post_init__(self) -> None:
        # Also what no member of this cache needs, so that a wrong name never waits for another format to be found.
        for argument in ("draft_format", "dense_format"):
            value = getattr(self, argument)
            if value is not None:
                choose(CacheFormat, argument, value)
        choose(PageLayout, "draft_layout", self.draft_layout)
        for argument in ("k_scale_layout", "v_scale_layout"):
            choose(ScaleLayout, argument, getattr(self, argument))
        if self.drafter and not self.geometry.draft_layers:
            raise ValueError("drafter: True; accepted: False, because this geometry has no drafter layers")
        _ = self.members  # raises here rather than at first use

    @cached_property
    def members(self) -> tuple[CacheMember, ...]:
        """The members of a block in the order in which pools store them."""
        geometry = self.geometry
        heads = heads_per_rank(geometry.num_kv_heads, self.tp)
        sparse = main_page(self.kv_format, heads, self.kv_layout)
        dense = main_page(self.dense_format or self.kv_format, heads, self.kv_layout)
        index = index_page(self.index_format)
        members = [
            self._member(MemberKind.KV, layer, sparse if layer in geometry.index_layers else dense)
            for layer in range(geometry.num_layers)
        ]
        members += [self._member(MemberKind.INDEX, layer, index) for layer in geometry.index_layers]
        if self.drafter:
            page = main_page(self.draft_format, heads_per_rank(geometry.draft_kv_heads, self.tp), self.draft_layout)
            members += [self._member(MemberKind.DRAFT, layer, page) for layer in range(geometry.draft_layers)]
        return tuple(members)

    def _member(self, kind: MemberKind, layer: int, page: Page) -> CacheMember:
        if not page.format.scale_bytes:
            return CacheMember(kind, layer, page, None, None)
        if kind is MemberKind.INDEX:
            return CacheMember(kind, layer, page, ScaleLayout.LINEAR, None)
        k_scales = choose(ScaleLayout, "k_scale_layout", self.k_scale_layout)
        return CacheMember(kind, layer, page, k_scales, choose(ScaleLayout, "v_scale_layout", self.v_scale_layout))

    def member(self, kind: str, layer: int) -> CacheMember:
        wanted = choose(MemberKind, "kind", kind)
        for member in self.members:
            if member.kind is wanted and member.layer == layer:
                return member
        layers = [member.layer for member in self.members if member.kind is wanted]
        raise ValueError(f"layer: {layer}; accepted for {wanted}: {layers or 'none, this cache has no such members'}")

    def block_bytes(self, kind: str | None = None) -> int:
        """Bytes of a block on one rank: of members of one kind, or of all."""
        wanted = None if kind is None else choose(MemberKind, "kind", kind)
        return sum(member.bytes for member in self.members if wanted in (None, member.kind))

    def bytes_per_token(self, kind: str | None = None) -> int:
        """Bytes of a token on one rank; exact, since each page is 128 equal shares."""
        return self.block_bytes(kind) // PAGE_SIZE

    def placements(self, layout: str, num_blocks: int) -> tuple[Placement, ...]:
        """Where each member stands in a pool of `num_blocks` blocks, in bytes from the start of the pool."""
        if num_blocks < 0:
            raise ValueError(f"num_blocks: {num_blocks}; accepted: 0 or more")
        starts = accumulate((member.bytes for member in self.members), initial=0)
        pairs = zip(self.members, starts, strict=False)
        if choose(PoolLayout, "layout", layout) is PoolLayout.BLOCK_OUTER:
            row = self.block_bytes()
            return tuple(Placement(member, start, row) for member, start in pairs)
        return tuple(Placement(member, start * num_blocks, member.bytes) for member, start in pairs)
