from __future__ import annotations

import itertools

import numpy as np
import pytest

from msa_ops.cache.spec import M3, M31, CacheGeometry, CacheSpec, heads_of_rank, heads_per_rank


def test_published_bytes_of_a_token() -> None:
    fp8 = CacheSpec(kv_format="fp8", index_format="fp8")
    nvfp4 = CacheSpec()
    assert (fp8.bytes_per_token("kv"), nvfp4.bytes_per_token("kv")) == (61_440, 34_560)
    assert (fp8.bytes_per_token("index"), nvfp4.bytes_per_token("index")) == (7_680, 4_320)
    assert 1 - nvfp4.bytes_per_token("kv") / fp8.bytes_per_token("kv") == 0.4375
    assert nvfp4.bytes_per_token() == 38_880
    assert CacheSpec(kv_format="bf16", index_format="bf16").bytes_per_token() == 60 * (2_048 + 256)


def test_the_tp4_row_with_drafter() -> None:
    spec = CacheSpec(tp=4, drafter=True)
    assert len(spec.members) == 125
    assert spec.block_bytes() == 1_822_720
    places = {place.member.name: place for place in spec.placements("block_outer", 10)}
    assert {place.page_stride for place in places.values()} == {1_822_720}
    starts = {name: places[name].offset for name in ("kv.0", "kv.1", "index.0", "index.1", "draft.0", "draft.4")}
    assert starts == {
        "kv.0": 0,
        "kv.1": 18_432,
        "index.0": 1_105_920,
        "index.1": 1_115_136,
        "draft.0": 1_658_880,
        "draft.4": 1_658_880 + 4 * 32_768,
    }
    assert all(place.offset % 128 == 0 for place in places.values())


def test_layer_outer_places_members_one_behind_another() -> None:
    spec = CacheSpec(tp=4, drafter=True)
    places = {place.member.name: place for place in spec.placements("layer_outer", 10)}
    assert places["kv.59"].offset == 59 * 10 * 18_432
    assert places["kv.59"].address(3) == 59 * 10 * 18_432 + 3 * 18_432
    assert places["index.0"].offset == 60 * 10 * 18_432
    assert places["draft.0"].page_stride == 32_768


@pytest.mark.parametrize("layout", ["layer_outer", "block_outer"])
@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_placements_cover_a_pool_exactly_once(layout: str, tp: int) -> None:
    geometry = CacheGeometry(3, 4, (1, 2), 2, 4)
    spec = CacheSpec(geometry, "nvfp4", "fp8", "bf16", dense_format="fp8", tp=tp, drafter=True)
    counts = np.zeros(3 * spec.block_bytes(), np.uint8)
    for place in spec.placements(layout, 3):
        for block in range(3):
            counts[place.address(block) : place.address(block) + place.member.bytes] += 1
    assert (counts == 1).all()


def test_formats_are_independent() -> None:
    row = {"bf16": 256, "fp8": 128, "nvfp4": 72}
    for kv, dense, index, draft in itertools.product(row, repeat=4):
        spec = CacheSpec(CacheGeometry(4, 4, (2, 3), 2, 4), kv, index, draft, dense_format=dense, drafter=True)
        assert spec.bytes_per_token("kv") == 8 * (2 * row[kv] + 2 * row[dense])
        assert spec.bytes_per_token("index") == 2 * row[index]
        assert spec.bytes_per_token("draft") == 2 * 8 * row[draft]
        assert spec.bytes_per_token() == spec.block_bytes() // 128


def test_m3_has_no_index_keys_in_its_first_three_layers() -> None:
    spec = CacheSpec(M3, "fp8", "fp8")
    assert [member.layer for member in spec.members if member.kind == "index"] == list(range(3, 60))
    assert spec.bytes_per_token("index") == 57 * 128
    with pytest.raises(ValueError, match="layer: 2; accepted for index"):
        spec.member("index", 2)


@pytest.mark.parametrize(("tp", "heads"), [(1, 4), (2, 2), (4, 1), (8, 1), (16, 1)])
def test_heads_of_ranks(tp: int, heads: int) -> None:
    assert heads_per_rank(4, tp) == heads
    stored = [head for rank in range(tp) for head in heads_of_rank(4, tp, rank)]
    assert sorted(stored) == stored
    assert [stored.count(head) for head in range(4)] == [max(1, tp // 4)] * 4


def test_index_keys_are_whole_on_every_rank() -> None:
    assert {CacheSpec(tp=tp).bytes_per_token("index") for tp in (1, 2, 4, 8)} == {4_320}


def test_members_are_equal_exactly_if_their_bytes_mean_the_same() -> None:
    base = CacheSpec(M31)
    assert CacheSpec(M31, v_scale_layout="token_quads").members[0] != base.members[0]
    assert CacheSpec(M31, v_scale_layout="token_quads").members[60] == base.members[60]  # index keys are linear
    assert CacheSpec(M31, "fp8", v_scale_layout="token_quads").members == CacheSpec(M31, "fp8").members


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tp": 3}, "tp: 3; accepted for 4 KV heads: divisors of it, or multiples of it"),
        ({"tp": 6}, "tp: 6"),
        ({"tp": 0}, "tp: 0"),
        ({"kv_format": "fp4"}, "kv_format: 'fp4'; accepted"),
        ({"index_format": "mxfp4"}, "index_format"),
        ({"draft_format": "int8"}, "draft_format"),
        ({"dense_format": "int8"}, "dense_format"),
        ({"kv_layout": "packed"}, "packed pages hold no scales"),
        ({"k_scale_layout": "quads"}, "k_scale_layout: 'quads'; accepted: linear, token_quads, swizzle_128x4"),
        ({"v_scale_layout": ""}, "v_scale_layout"),
        ({"geometry": M3, "drafter": True}, "no drafter layers"),
    ],
)
def test_errors_name_the_field(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CacheSpec(**fields)


def test_errors_of_geometries_and_placements() -> None:
    for arguments in ((0, 4, ()), (2, 0, ()), (2, 4, (1, 0)), (2, 4, (2,)), (2, 4, (0, 0)), (2, 4, (), 1, 0)):
        with pytest.raises(ValueError, match="accepted"):
            CacheGeometry(*arguments)
    with pytest.raises(ValueError, match="layout: 'rows'; accepted: layer_outer, block_outer"):
        CacheSpec().placements("rows", 1)
    with pytest.raises(ValueError, match="num_blocks: -1"):
        CacheSpec().placements("layer_outer", -1)
    with pytest.raises(ValueError, match="rank: 4; accepted: 0 to 3"):
        heads_of_rank(4, 4, 4)


@pytest.mark.parametrize("field", ["draft_layout", "draft_format", "k_scale_layout", "v_scale_layout"])
def test_a_name_is_checked_where_no_member_needs_it(field: str) -> None:
    """An FP8 cache without a drafter has neither scales nor drafter pages; a mistyped option is one all the same."""
    with pytest.raises(ValueError, match=rf"^{field}: 'liner'; accepted: "):
        CacheSpec(kv_format="fp8", index_format="fp8", **{field: "liner"})
