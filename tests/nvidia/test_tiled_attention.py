"""How the Hopper kernels of dense_attention and of sparse_attention of long queries divide their work and memory."""

from __future__ import annotations

import itertools
from dataclasses import astuple

import pytest
from msa_ops.cute.tiled_attention import (
    by_block_layout,
    chosen_layout,
    layout,
    sm90_blocks_configs,
    sm90_chosen_configs,
    sm90_dense_configs,
    sm90_prepare_configs,
    sm90_sparse_configs,
)

from msa_ops.nvidia import sparse_attention_by_block as by_block
from msa_ops.nvidia.tiled_attention import choose_shape, dense_workspace, number_of_tiles
from msa_ops.ops.attention_arguments import Facts
from msa_ops.ops.sparse_attention import Facts as SparseFacts
from msa_ops.ops.token_bucket import token_bucket
from msa_ops.registry import parse_platform

PLATFORM = parse_platform("sm_90a")
LENGTHS = [[1], [8], [9], [0, 0, 5], [1, 2, 3, 4], [16, 1, 0, 7, 33], [1] * 70]


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("padding", [0, 1, 19])
@pytest.mark.parametrize("size", [4, 8])
def test_there_is_a_tile_for_every_token(lengths: list[int], padding: int, size: int) -> None:
    needed = sum(-(-length // size) for length in lengths) + -(-padding // size)
    assert number_of_tiles(sum(lengths) + padding, len(lengths), True, size) >= needed
    if padding == 0 and len(set(lengths)) == 1:
        assert number_of_tiles(sum(lengths), len(lengths), False, size) == needed


@pytest.mark.parametrize("batch", [1, 3, 8, 64, 300])
@pytest.mark.parametrize("q_len", [1, 4, 5, 300])
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("max_blocks", [1, 7, 1024])
def test_parts_of_a_dense_call_fit_its_workspace(batch: int, q_len: int, heads: int, max_blocks: int) -> None:
    tokens = batch * q_len
    shape = choose_shape(tokens, batch, False, heads, max_blocks, PLATFORM.multiprocessors)
    assert shape.splits == 1 or 8 * shape.splits <= max_blocks
    facts = Facts(num_kv_heads=heads, tokens=token_bucket(tokens), batch=token_bucket(batch), max_blocks=max_blocks)
    parts = tokens * heads * shape.parts if shape.parts > 1 else 0
    assert parts * (layout.PART_BYTES + layout.PART_LSE_BYTES) <= dense_workspace(PLATFORM, facts)


def test_few_tokens_share_their_pages_and_many_do_not() -> None:
    assert choose_shape(8, 8, False, 4, 1024, 132).alternate and choose_shape(32, 8, True, 4, 1024, 132).alternate
    assert not choose_shape(8192, 1, False, 1, 1024, 132).alternate
    assert (
        choose_shape(1, 1, False, 1, 1024, 132).splits == 128 and choose_shape(8192, 1, False, 1, 1024, 132).parts == 1
    )


@pytest.mark.parametrize(("tokens", "heads"), [(1, 1), (100, 4), (8192, 1), (8192, 4), (9000, 2), (3000, 8)])
def test_memory_of_all_steps_fits_the_workspace(tokens: int, heads: int) -> None:
    facts = SparseFacts(num_kv_heads=heads, tokens=token_bucket(tokens), batch=4, max_blocks=1000, topk=16)
    space = by_block.divide_workspace(tokens, heads, 16, 3, 1000)
    places = astuple(space)
    assert list(places) == sorted(places) and all(place % 256 == 0 for place in places)
    assert space.bytes <= by_block.workspace(PLATFORM, facts)
    rows = tokens * by_block.heads_at_once(tokens, heads)
    assert space.bytes - space.logs >= 64 * 16 * rows and space.logs - space.parts >= 4096 * 16 * rows
    assert rows <= max(by_block.ROWS_AT_ONCE, tokens)


def test_a_list_of_tiles_holds_all_blocks_of_all_tokens() -> None:
    space = by_block.divide_workspace(801, 2, 7, 5, 64)
    tiles = number_of_tiles(801, 5, True, by_block_layout.TILE) * by_block.heads_at_once(801, 2)
    assert space.lists - space.tiles >= tiles * by_block_layout.TILE_BYTES
    assert space.queries - space.lists >= tiles * by_block_layout.LIST_ENTRY_BYTES * by_block_layout.TILE * 7


@pytest.mark.parametrize(
    "family",
    [sm90_dense_configs.FAMILY, sm90_sparse_configs.FAMILY, sm90_blocks_configs.FAMILY, sm90_prepare_configs.FAMILY],
    ids=lambda family: family.module.rpartition(".")[2],
)
def test_shared_memory_fits_a_multiprocessor(family: object) -> None:
    """A block takes another 1,024 bytes, which the compiler counts as static."""
    for config in family.configs:  # type: ignore[attr-defined]
        assert family.shared_memory(config) + 1024 <= PLATFORM.shared_memory  # type: ignore[attr-defined]
        assert not list(family.supports(config, PLATFORM))  # type: ignore[attr-defined]


def test_operands_begin_where_swizzled_panels_may() -> None:
    for config in (*sm90_dense_configs.CONFIGS, *sm90_sparse_configs.FAMILY.configs):
        places = (layout.QUERIES_AT, config.k_at, config.v_at, config.raw_at)
        assert all(place % 1024 == 0 for place in places) and config.slot_bytes % 16 == 0
        raw_barriers = layout.RAW_BARRIERS_AT + 8 * config.raw_slots * layout.PRODUCERS // 32
        assert layout.FACTORS_AT + 256 * config.groups <= layout.RAW_BARRIERS_AT <= raw_barriers <= layout.QUERIES_AT
    by_block_places = (by_block_layout.QUERIES_AT, by_block_layout.K_AT, by_block_layout.V_AT, by_block_layout.RAW_AT)
    assert all(place % 1024 == 0 for place in by_block_places)


def test_every_call_has_kernels() -> None:
    names = {
        (family.op, config.name)
        for family in (sm90_dense_configs.FAMILY, sm90_sparse_configs.FAMILY, sm90_blocks_configs.FAMILY)
        for config in family.configs
    }
    for kv_format, kind in itertools.product(("nvfp4", "fp8", "bf16"), ("a2", "g2")):
        assert ("dense_attention", f"tiles_{kv_format}_{kind}") in names
        assert ("sparse_attention", f"tiles_{kv_format}_g2") in names
        assert ("sparse_attention", f"blocks_{kv_format}") in names
    assert sm90_prepare_configs.CAPACITIES[-1] == layout.MAX_BLOCKS == 65_536


@pytest.mark.parametrize("config", sm90_chosen_configs.FAMILY.configs, ids=lambda config: config.name)
def test_what_blocks_of_a_cluster_exchange_fits_where_operands_were(config: chosen_layout.Config) -> None:
    assert chosen_layout.shared_memory(config) + 1024 <= 233_472
    assert config.threads == chosen_layout.BRINGERS + 256
    registers = chosen_layout.BRINGERS * chosen_layout.BRINGER_REGISTERS + 256 * chosen_layout.MULTIPLIER_REGISTERS
    assert registers <= 65_536
    received = chosen_layout.TOKENS * chosen_layout.TOKEN_BYTES
    statistics = chosen_layout.TOKENS * chosen_layout.STATISTICS_BYTES
    assert config.received_at + received <= config.statistics_at
    assert config.statistics_at + statistics <= layout.shared_memory(config)
    ids = chosen_layout.COUNTS_IN_IDS + 4 * chosen_layout.TOKENS * chosen_layout.TURNS
    assert ids <= layout.STAGES * layout.OPERAND_BYTES
    assert all(at % 16 == 0 for at in (config.list_at, config.ids_at, config.received_at, config.statistics_at))
    assert chosen_layout.EXCHANGE_AT % 8 == 0 and layout.HEADER_AT + 16 <= chosen_layout.LENGTH_AT
    assert chosen_layout.EXCHANGE_AT + 8 <= layout.RECORDS_AT
