from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from msa_ops.cache.access import read_pages
from msa_ops.cache.convert import convert_pool
from msa_ops.cache.pool import CachePool
from msa_ops.cache.spec import CacheGeometry, CacheSpec

GEOMETRY = CacheGeometry(3, 4, (1, 2), 2, 4)
NVFP4 = CacheSpec(GEOMETRY, "nvfp4", "nvfp4", "fp8", dense_format="fp8", tp=2, drafter=True)
LAYOUTS = ["layer_outer", "block_outer"]


def filled(spec: CacheSpec, layout: str, blocks: int = 3) -> CachePool:
    pool = CachePool.allocate(spec, blocks, layout)
    pool.memory.random_(0, 256, generator=torch.Generator().manual_seed(0))
    return pool


@pytest.mark.parametrize(("before", "after"), list(itertools.product(LAYOUTS, LAYOUTS)))
def test_pool_layouts_convert_exactly_and_back(before: str, after: str) -> None:
    pool = filled(NVFP4, before)
    other = convert_pool(pool, layout=after)
    assert other.memory.data_ptr() != pool.memory.data_ptr()
    assert torch.equal(other.memory, pool.memory) == (before == after)
    for member in NVFP4.members:
        assert torch.equal(other.view(member.kind, member.layer), pool.view(member.kind, member.layer))
    assert torch.equal(convert_pool(other, layout=before).memory, pool.memory)


def test_block_outer_rows_are_the_members_side_by_side() -> None:
    pool = filled(NVFP4, "layer_outer")
    rows = convert_pool(pool, layout="block_outer").memory.view(3, -1)
    joined = torch.cat([pool.view(member.kind, member.layer) for member in NVFP4.members], dim=1)
    assert torch.equal(rows, joined)


@pytest.mark.parametrize("kv_layout", ["planes", "slots"])
@pytest.mark.parametrize("draft_layout", ["planes", "slots", "packed"])
@pytest.mark.parametrize("orders", [("linear", "token_quads"), ("swizzle_128x4", "swizzle_128x4")])
def test_page_and_scale_layouts_convert_exactly(kv_layout: str, draft_layout: str, orders: tuple[str, str]) -> None:
    pool = filled(NVFP4, "layer_outer")
    spec = replace(
        NVFP4, kv_layout=kv_layout, draft_layout=draft_layout, k_scale_layout=orders[0], v_scale_layout=orders[1]
    )
    other = convert_pool(pool, layout="block_outer", spec=spec)
    pages = torch.arange(3)
    for old, new in zip(NVFP4.members, spec.members, strict=True):
        for side in ("k",) if old.kind == "index" else ("k", "v"):
            values = read_pages(pool.view(old.kind, old.layer), old.page, side, pages)
            order = str(new.scale_layout(f"{side}_scale") or "linear")
            found = read_pages(other.view(new.kind, new.layer), new.page, side, pages, scale_layout=order)
            assert torch.equal(found.nan_to_num(nan=1e30), values.nan_to_num(nan=1e30))
    assert torch.equal(convert_pool(other, layout="layer_outer", spec=NVFP4).memory, pool.memory)


def test_more_pages_than_a_chunk() -> None:
    spec = CacheSpec(CacheGeometry(1, 1, (0,)))
    pool = filled(spec, "block_outer", blocks=300)
    quads = replace(spec, v_scale_layout="token_quads")
    other = convert_pool(pool, spec=quads)
    old, new = spec.member("kv", 0).page, quads.member("kv", 0).page
    codes = [page.view(cache.kv_cache(0), "v") for page, cache in ((old, pool), (new, other))]
    assert torch.equal(*codes)
    # Within four tokens the eight scales of each become eight runs of one scale of each token.
    linear, stored = (page.view(p.kv_cache(0), "v_scale") for page, p in ((old, pool), (new, other)))
    wanted = linear.reshape(300, 1, 32, 4, 8).transpose(-1, -2).reshape(300, 1, 128, 8)
    assert torch.equal(stored, wanted)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"kv_format": "fp8"}, "kv.1"),
        ({"dense_format": "bf16"}, "kv.0"),
        ({"index_format": "fp8"}, "index.1"),
        ({"draft_format": "bf16"}, "draft.0"),
        ({"drafter": False}, "draft.0"),
        ({"tp": 4}, "kv.0"),
        ({"geometry": CacheGeometry(3, 4, (2,), 2, 4)}, "kv.1|index.1"),
    ],
)
def test_other_contents_are_refused(fields: dict, name: str) -> None:
    with pytest.raises(
        ValueError, match=f"spec: ({name}) is .*; accepted: specs that differ in page and scale layouts"
    ):
        convert_pool(CachePool.allocate(NVFP4, 1), spec=replace(NVFP4, **fields))
