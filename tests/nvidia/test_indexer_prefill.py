"""When the registry takes the kernel of long queries on Hopper, and what its configurations need."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msa_ops.cute.indexer_prefill import sm90_configs as configs
from msa_ops.cute.indexer_prefill import sm90_merge_configs as merge
from msa_ops.cute.indexer_prefill import sm90_scores_configs as scores

from msa_ops.nvidia.backends import BACKENDS
from msa_ops.nvidia.indexer_prefill import CHOOSING, SCORING, config_for, num_blocks, workspace
from msa_ops.ops.indexer import Facts
from msa_ops.registry import parse_platform

PLATFORM = parse_platform("sm_90a")
ALL = (*configs.FAMILY.configs, *scores.FAMILY.configs)


def chosen(facts: Facts) -> str:
    """The backend of indexer that comes first among those that take the call, were all of them built."""
    ours = sorted((b for b in BACKENDS if b.op == "indexer"), key=lambda b: b.sort_key)
    return next((b.name for b in ours if not b.call_refusals(PLATFORM, facts)), "none")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "cute_sm90"),
        ({"max_seqlen_q": 8}, "cute_sm90"),
        ({"max_seqlen_q": 16}, "cute_sm90_prefill"),
        ({"max_seqlen_q": 8192, "num_heads": 1}, "cute_sm90_prefill"),
        ({"max_seqlen_q": 8192, "q_dtype": "float8_e4m3fn", "index_format": "bf16"}, "cute_sm90_prefill"),
        ({"max_seqlen_q": 8192, "topk": 17}, "cute_sm90"),
        ({"max_seqlen_q": 8192, "num_heads": 257}, "cute_sm90"),
        ({"max_seqlen_q": 8192, "q_dtype": "float16", "index_format": "bf16"}, "none"),
        ({"max_seqlen_q": 8192, "rounding": "e4m3"}, "none"),
    ],
)
def test_long_queries_go_to_the_prefill_kernel(changes: dict[str, object], name: str) -> None:
    assert chosen(replace(Facts(), **changes)) == name  # type: ignore[arg-type]


@pytest.mark.parametrize("config", ALL, ids=lambda config: config.name)
def test_a_block_fits_a_multiprocessor(config: configs.Config) -> None:
    assert not list(configs.supports(config, PLATFORM))
    assert config.shared_memory <= PLATFORM.shared_memory
    assert config.table_bytes % 16 == 0 and config.list_bytes % 8 == 0
    # Registers change hands only: what each thread starts with is a multiple of eight.
    at_start = 65_536 // config.threads // 8 * 8
    multiplying, others = config.registers
    assert 128 * (config.groups * multiplying + config.loaders * others) <= at_start * config.threads
    assert multiplying % 8 == 0 and others % 8 == 0


@pytest.mark.parametrize("changes", [{"loaders": 3}, {"alternate": True, "stages": 3}])
def test_stages_keep_their_warpgroups(changes: dict[str, object]) -> None:
    found = list(configs.supports(replace(ALL[0], **{"loaders": 1, "stages": 4} | changes), PLATFORM))
    assert len(found) == 1 and "accepted" in str(found[0])


@pytest.mark.parametrize(("rows", "taken"), [(1, 64), (64, 64), (65, 256), (256, 256), (100_000, 256)])
def test_short_requests_fit_one_tile(rows: int, taken: int) -> None:
    for of_op in (CHOOSING, SCORING):
        for index_format in ("nvfp4", "fp8", "bf16"):
            assert config_for(of_op, index_format, rows).rows == taken


def test_lists_of_all_thread_blocks_can_be_merged() -> None:
    assert 32 * merge.CONFIG.lists >= num_blocks(PLATFORM) == 132
    assert workspace(PLATFORM, Facts()) == 132 * 2 * 64 * 16 * 8
    assert workspace(PLATFORM, replace(Facts(), max_seqlen_q=8192)) == 132 * 2 * 256 * 16 * 8
