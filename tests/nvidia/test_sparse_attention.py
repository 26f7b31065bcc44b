"""How the Hopper kernel of sparse_attention divides its work, what it refuses, and what its configurations need."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from msa_ops.cute.sparse_attention import sm90_configs as configs
from msa_ops.cute.sparse_attention import sm90_merge_configs as merge
from msa_ops.cute.sparse_attention import sm90_pages_configs as pages

from msa_ops.nvidia.sparse_attention import (
    PART_BYTES,
    PROCESSORS,
    choose_cluster,
    choose_shape,
    kernel_name,
    place_parts,
    shares_pages,
    workspace,
)
from msa_ops.nvidia.sparse_attention_limits import prefill_refusals, refusals
from msa_ops.ops.sparse_attention import SPEC, Facts
from msa_ops.registry import parse_platform

PLATFORM = parse_platform("sm_90a")


@pytest.mark.parametrize("topk", [1, 2, 3, 7, 16, 64])
@pytest.mark.parametrize(
    "pairs", [1, 4, 14, 15, 17, 22, 24, 25, 30, 31, 34, 44, 48, 49, 64, 65, 96, 97, 160, 161, 192, 193, 512, 100_000]
)
def test_a_shape_has_a_kernel_and_a_page_for_every_block(pairs: int, topk: int) -> None:
    names = {f"sparse_attention__{c.name}__sm_90a" for c in (*configs.CONFIGS, *pages.FAMILY.configs)}
    for kv_format, layouts in (("nvfp4", ("planes", "slots")), ("fp8", ("planes", "packed")), ("bf16", ("packed",))):
        shape = choose_shape(pairs, topk, kv_format)
        for layout in layouts:
            for bf16_queries in (False, True):
                assert kernel_name(kv_format, layout, shape, bf16_queries) in names
        assert shape.cluster in ((3, 4, 6, 8) if shape.parts else (1, 2, 4, 8)) and shape.cluster <= max(topk, 1)


def test_fewer_pairs_have_more_warps_each() -> None:
    shapes = [choose_shape(pairs, 16, "fp8") for pairs in (4, 32, 64, 128, 512)]
    warps = [shape.warps * shape.cluster for shape in shapes]
    assert warps == sorted(warps, reverse=True) and warps[0] > warps[-1]


def test_many_pairs_of_nvfp4_go_page_by_page() -> None:
    assert choose_shape(512, 16, "nvfp4").paged
    assert not choose_shape(512, 16, "fp8").paged and not choose_shape(4, 16, "nvfp4").paged


def test_pairs_that_clusters_would_place_unevenly_are_divided_into_parts() -> None:
    """Every block then has a multiprocessor of its own, and the merge takes as many parts."""
    shapes = {pairs: choose_shape(pairs, 16, "nvfp4") for pairs in range(1, 600)}
    parted = {pairs: shape.cluster for pairs, shape in shapes.items() if shape.parts}
    assert set(parted) == {*range(15, 23), *range(31, 45)}
    assert all(pairs * parts <= PROCESSORS and 1 < parts <= merge.MAX_PARTS for pairs, parts in parted.items())
    assert not choose_shape(32, 16, "fp8").parts and not choose_shape(32, 3, "nvfp4").parts


def test_workspace_holds_the_parts_of_a_call_and_no_more() -> None:
    """Whatever the number of tokens is that the facts round up."""
    for tokens in (*range(1, 70), 128, 4096):
        for heads, topk in itertools.product((1, 2, 4), (3, 4, 8, 16)):
            rounded = 1 << (tokens - 1).bit_length()
            facts = replace(Facts(), tokens=rounded, num_kv_heads=heads, topk=topk)
            shapes = {n * heads: choose_shape(n * heads, topk, "nvfp4") for n in range(rounded // 2 + 1, rounded + 1)}
            parts = [pairs * shape.cluster for pairs, shape in shapes.items() if shape.parts]
            assert workspace(PLATFORM, facts) == max(parts, default=0) * PART_BYTES
            assert workspace(PLATFORM, replace(facts, kv_format="fp8")) == 0
    wanted = workspace(PLATFORM, replace(Facts(), tokens=8))
    assert wanted == 128 * PART_BYTES
    args = SPEC.generate(0, batch=8, seq_len=300, topk=16, q_len=1)
    shape = choose_shape(32, 16, "nvfp4")
    for given in (None, torch.empty(wanted - 1, dtype=torch.uint8)):
        args.workspace = given
        with pytest.raises(ValueError, match=f"workspace: accepted: at least {wanted} bytes"):
            place_parts(args, shape)
    args.workspace = torch.empty(wanted, dtype=torch.uint8)
    sums, statistics = place_parts(args, shape)
    assert sums == args.workspace.data_ptr()
    assert statistics - sums == 128 * configs.SUMS_BYTES and statistics % 16 == 0


def test_verification_of_many_requests_shares_pages() -> None:
    assert shares_pages(512, 64, 64, "nvfp4", torch.bfloat16)
    assert not shares_pages(512, 64, 64, "fp8", torch.bfloat16)
    assert not shares_pages(512, 64, 64, "nvfp4", torch.float16)
    assert not shares_pages(128, 64, 64, "nvfp4", torch.bfloat16)
    assert not shares_pages(8, 1, 1, "nvfp4", torch.bfloat16)


@pytest.mark.parametrize("topk", [1, 2, 3, 16, 64])
@pytest.mark.parametrize("pairs", [1, 16, 48, 64, 66, 67, 132, 133, 4096])
def test_blocks_that_divide_the_pages_of_a_tile_run_side_by_side(pairs: int, topk: int) -> None:
    cluster = choose_cluster(pairs, topk)
    assert cluster in (1, 2, 4, 8) and cluster <= topk
    assert cluster == 1 or pairs * cluster <= PROCESSORS


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_heads": 64, "num_kv_heads": 2}, "32 query heads"),
        ({"v_scale_layout": "token_quads"}, "token_quads"),
        ({"k_scale_layout": "swizzle_128x4"}, "swizzle_128x4"),
        ({"kv_format": "bf16", "q_dtype": "float16"}, "float16"),
    ],
)
def test_refusals_name_what_is_accepted(changes: dict[str, object], words: str) -> None:
    assert not list(refusals(PLATFORM, Facts()))
    found = list(refusals(PLATFORM, replace(Facts(), **changes)))  # type: ignore[arg-type]
    assert len(found) == 1 and words in str(found[0]) and "accepted" in str(found[0])


def test_the_kernels_of_prefill_leave_short_queries_to_that_of_decode() -> None:
    assert not list(prefill_refusals(PLATFORM, replace(Facts(), max_seqlen_q=128)))
    found = list(prefill_refusals(PLATFORM, replace(Facts(), max_seqlen_q=64)))
    assert len(found) == 1 and "max_seqlen_q is 64" in str(found[0]) and "accepted" in str(found[0])
    wide = replace(Facts(), max_seqlen_q=128, num_heads=64, num_kv_heads=2)
    assert "32 query heads" in str(next(iter(prefill_refusals(PLATFORM, wide))))


def test_formats_without_scales_have_no_scale_layouts() -> None:
    facts = replace(Facts(), kv_format="fp8", k_scale_layout="token_quads")
    assert not list(refusals(PLATFORM, facts))


@pytest.mark.parametrize("config", configs.CONFIGS, ids=lambda config: config.name)
def test_blocks_fit_a_multiprocessor(config: configs.Config) -> None:
    """Each block takes another 1,024 bytes of the 233,472; rings and chunks start where bulk copies can."""
    assert config.blocks * (configs.shared_memory(config) + 1024) <= 233_472
    assert not list(configs.supports(config, PLATFORM))
    assert 8 * config.warps * config.stages <= configs.EXCHANGE_AT
    offsets = (configs.rings_at(config), config.stage_bytes, config.v_at, config.k_scale_at, config.v_scale_at)
    assert all(offset % 16 == 0 for offset in offsets)
    assert configs.LIST_AT % 16 == 0 and configs.QUERIES_AT % 16 == 0 and configs.received_at(config) % 16 == 0
    assert config.chunk % 16 == 0 and configs.PAGE % config.chunk == 0


def test_a_ring_that_cannot_take_the_sums_is_refused() -> None:
    small = replace(configs.CONFIGS[0], chunk=16, stages=3)
    assert small.ring_bytes < configs.SUMS_BYTES and list(configs.supports(small, PLATFORM))


@pytest.mark.parametrize("config", pages.FAMILY.configs, ids=lambda config: config.name)
def test_blocks_that_go_page_by_page_fit_a_multiprocessor(config: pages.Config) -> None:
    """Bulk copies and vectors are aligned."""
    assert config.blocks * (pages.SHARED_MEMORY + 1024) <= 233_472
    for at in (pages.LIST_AT, pages.QUERIES_AT, pages.WEIGHTS_AT, pages.TABLE_AT, pages.RING_AT, pages.WEIGHTS_ROW):
        assert at % 16 == 0
    assert pages.COUNT_AT + 4 <= pages.STATES_AT and pages.TABLE_GROUP % 16 == 0


@pytest.mark.parametrize("tile", range(16))
def test_a_tile_of_a_page_lies_in_different_banks(tile: int) -> None:
    """Eight rows of V of 16 bytes for each warp, in parts with gaps, and the scales of K, 8 bytes a token."""
    in_part = [(q, 2 * (tile ^ q) + second) for q in range(4) for second in (0, 1)]
    assert all(token < 32 for _, token in in_part)
    for warp in range(pages.WARPS):
        rows = {(q * pages.PART_BYTES + 64 * token + 16 * warp) % 128 // 16 for q, token in in_part}
        assert len(rows) == 8
    assert len({8 * (32 * q + token) % 128 for q, token in in_part}) == 8
    tokens = {32 * q + 2 * (other ^ q) + second for other in range(16) for q in range(4) for second in (0, 1)}
    assert tokens == set(range(128)) and pages.PARTS * (pages.PART_BYTES - 16) == pages.KEYS_BYTES
