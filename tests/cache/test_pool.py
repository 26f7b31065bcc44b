from __future__ import annotations

import pytest
import torch

from msa_ops.cache.access import read_pages, write_tokens
from msa_ops.cache.pool import CachePool
from msa_ops.cache.spec import CacheGeometry, CacheSpec
from msa_ops.ops import checks

SMALL = CacheSpec(CacheGeometry(2, 4, (1,), 1, 4), tp=2, drafter=True)
LAYOUTS = ["layer_outer", "block_outer"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_views_are_caches_as_ops_take_them(layout: str) -> None:
    pool = CachePool.allocate(SMALL, 5, layout)
    for view, member in (
        (pool.kv_cache(1), SMALL.member("kv", 1)),
        (pool.index_cache(1), SMALL.member("index", 1)),
        (pool.draft_cache(0), SMALL.member("draft", 0)),
    ):
        checks.cache_pages("cache", view, member.bytes)
        assert view.shape[0] == 5
        assert view.stride(0) == (SMALL.block_bytes() if layout == "block_outer" else member.bytes)
        assert view.data_ptr() - pool.memory.data_ptr() == pool.placements[member].offset


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_member_keeps_its_own_values(layout: str) -> None:
    pool = CachePool.allocate(SMALL, 3, layout)
    generator = torch.Generator().manual_seed(0)
    slots, pages = torch.arange(3 * 128), torch.arange(3)
    written = {}
    for member in SMALL.members:
        for side in ("k",) if member.kind == "index" else ("k", "v"):
            values = torch.randn(len(slots), member.page.num_heads, 128, generator=generator)
            write_tokens(pool.view(member.kind, member.layer), member.page, side, slots, values)
            lone = torch.zeros(3, member.bytes, dtype=torch.uint8)
            write_tokens(lone, member.page, side, slots, values)
            written[member, side] = read_pages(lone, member.page, side, pages)
    for (member, side), expected in written.items():
        assert torch.equal(read_pages(pool.view(member.kind, member.layer), member.page, side, pages), expected)


def test_memory_may_come_from_elsewhere() -> None:
    size = 2 * SMALL.block_bytes()
    outer = torch.zeros(size + 64, dtype=torch.uint8)
    start = -outer.data_ptr() % 16 + 16
    pool = CachePool(SMALL, "block_outer", 2, outer[start : start + size])
    pool.draft_cache(0).fill_(7)
    last = SMALL.member("draft", 0).bytes
    rows = outer[start : start + size].view(2, -1)
    assert bool((rows[:, -last:] == 7).all())
    assert int(outer.sum()) == 7 * 2 * last


@pytest.mark.parametrize(
    "memory",
    [
        torch.zeros(2 * SMALL.block_bytes() - 1, dtype=torch.uint8),
        torch.zeros(2 * SMALL.block_bytes(), dtype=torch.int8),
        torch.zeros(2, SMALL.block_bytes(), dtype=torch.uint8),
        torch.zeros(4 * SMALL.block_bytes(), dtype=torch.uint8)[::2],
    ],
)
def test_unfit_memory_is_refused(memory: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"memory: .*; accepted: contiguous uint8 \["):
        CachePool(SMALL, "layer_outer", 2, memory)


def test_other_errors() -> None:
    memory = torch.zeros(SMALL.block_bytes() + 1, dtype=torch.uint8)[1:]
    with pytest.raises(ValueError, match="accepted: multiples of 16 bytes"):
        CachePool(SMALL, "layer_outer", 1, memory)
    with pytest.raises(ValueError, match="layout: 'rows'"):
        CachePool.allocate(SMALL, 1, "rows")
    with pytest.raises(ValueError, match="num_blocks: -1"):
        CachePool.allocate(SMALL, -1)
    with pytest.raises(ValueError, match="layer: 0; accepted for index: \\[1\\]"):
        CachePool.allocate(SMALL, 1).index_cache(0)
    with pytest.raises(ValueError, match="this cache has no such members"):
        CachePool.allocate(CacheSpec(CacheGeometry(1, 1, (0,))), 1).draft_cache(0)


def test_an_empty_pool() -> None:
    assert CachePool.allocate(SMALL, 0).kv_cache(0).shape == (0, SMALL.member("kv", 0).bytes)
