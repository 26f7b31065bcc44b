from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
import torch

from msa_ops.cache.manifest import copies, manifest
from msa_ops.cache.pool import CachePool
from msa_ops.cache.spec import CacheGeometry, CacheSpec

M31_TP4 = CacheSpec(tp=4, drafter=True)
SMALL = CacheSpec(CacheGeometry(3, 4, (1, 2), 2, 4), tp=2, drafter=True)
LAYOUTS = ["layer_outer", "block_outer"]


def pool_of(spec: CacheSpec, layout: str, blocks: int, seed: int | None = None) -> CachePool:
    pool = CachePool.allocate(spec, blocks, layout)
    if seed is not None:
        pool.memory.random_(0, 256, generator=torch.Generator().manual_seed(seed))
    return pool


def unbacked(spec: CacheSpec, layout: str, blocks: int) -> CachePool:
    memory = torch.empty(blocks * spec.block_bytes(), dtype=torch.uint8, device="meta")
    return CachePool(spec, layout, blocks, memory)


@pytest.mark.parametrize(("layout", "count"), [("layer_outer", 125), ("block_outer", 1)])
def test_descriptors_of_a_block(layout: str, count: int) -> None:
    found = manifest(unbacked(M31_TP4, layout, 100), [42])
    assert len(found.descriptors()) == count
    assert sum(size for _, size in found.descriptors()) == found.bytes == 1_822_720
    assert len(list(found.segments())) == 125


@pytest.mark.parametrize(("layout", "count"), [("layer_outer", 64 * 125), ("block_outer", 64)])
def test_descriptors_of_scattered_blocks(layout: str, count: int) -> None:
    assert len(manifest(unbacked(M31_TP4, layout, 200), range(0, 128, 2)).descriptors()) == count


def test_neighbouring_rows_merge() -> None:
    pool = unbacked(M31_TP4, "block_outer", 200)
    assert manifest(pool, [7, 8, 9, 20]).descriptors() == [(7 * 1_822_720, 3 * 1_822_720), (20 * 1_822_720, 1_822_720)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_segments_name_the_bytes_of_every_member(layout: str) -> None:
    pool = pool_of(SMALL, layout, 4, seed=0)
    segments = list(manifest(pool, [3, 1]).segments())
    assert [(s.block, s.member) for s in segments] == [(b, m) for b in (3, 1) for m in SMALL.members]
    for block, member, offset, size in segments:
        page = pool.view(member.kind, member.layer)[block]
        assert torch.equal(pool.memory[offset : offset + size], page)


@pytest.mark.parametrize(("source_layout", "target_layout"), list(itertools.product(LAYOUTS, LAYOUTS)))
def test_a_transfer_by_copies_is_exact_and_touches_no_other_block(source_layout: str, target_layout: str) -> None:
    source, target = pool_of(SMALL, source_layout, 6, seed=1), pool_of(SMALL, target_layout, 5, seed=2)
    before = target.memory.clone()
    ours, theirs = [5, 0, 3], [1, 4, 2]
    moves = copies(manifest(source, ours), manifest(target, theirs))
    for start, goal, size in moves:
        target.memory[goal : goal + size] = source.memory[start : start + size]
    assert len(moves) == (3 if source_layout == target_layout == "block_outer" else 3 * len(SMALL.members))
    old = CachePool(SMALL, target_layout, 5, before)
    for member in SMALL.members:
        found, wanted = target.view(member.kind, member.layer), source.view(member.kind, member.layer)
        assert torch.equal(found[theirs], wanted[ours])
        assert torch.equal(found[[0, 3]], old.view(member.kind, member.layer)[[0, 3]])


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"v_scale_layout": "token_quads"}, "kv.0"),
        ({"kv_layout": "slots"}, "kv.0"),
        ({"index_format": "fp8"}, "index.1"),
        ({"drafter": False}, "draft.0"),
        ({"tp": 4}, "kv.0"),
    ],
)
def test_pools_whose_pages_differ_are_refused(fields: dict, name: str) -> None:
    one, other = pool_of(SMALL, "block_outer", 2), pool_of(replace(SMALL, **fields), "block_outer", 2)
    for left, right in ((one, other), (other, one)):
        with pytest.raises(ValueError, match=f"target: its page of {name} differs"):
            copies(manifest(left, [0]), manifest(right, [0]))


def test_other_errors() -> None:
    pool = pool_of(SMALL, "block_outer", 2)
    for block in (-1, 2):
        with pytest.raises(ValueError, match=f"blocks: {block}; accepted: 0 to 1"):
            manifest(pool, [block])
    with pytest.raises(ValueError, match="target: 1 blocks; accepted: 2"):
        copies(manifest(pool, [0, 1]), manifest(pool, [0]))
    with pytest.raises(ValueError, match="target: a block twice"):
        copies(manifest(pool, [0, 1]), manifest(pool, [0, 0]))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_plain_data_is_enough_to_find_every_byte(layout: str) -> None:
    pool = pool_of(SMALL, layout, 3, seed=3)
    data = json.loads(json.dumps(manifest(pool, [2]).to_dict()))
    assert [member["name"] for member in data["members"]] == [member.name for member in SMALL.members]
    counts = torch.zeros_like(pool.memory)
    for member in data["members"]:
        start = member["offset"] + 2 * member["page_stride"]
        for part in member["parts"]:
            for head, token in itertools.product(range(member["num_heads"]), range(128)):
                at = start + part["offset"] + head * part["head_stride"] + token * part["token_stride"]
                counts[at : at + part["row_bytes"]] += 1
    for offset, size in data["descriptors"]:
        counts[offset : offset + size] -= 1
    assert not counts.any()
    scales = {part["scale_layout"] for member in data["members"] for part in member["parts"]}
    assert scales == {None, "linear"}
