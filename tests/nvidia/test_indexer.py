"""Which of Hopper's kernels scans for a decode or verification call, and what their configurations need."""

from __future__ import annotations

import pytest
from msa_ops.cute.indexer import sm90_group_scan_configs as group_scan
from msa_ops.cute.indexer import sm90_scan_configs as scan

from msa_ops.nvidia.indexer import COLUMNS, sm90_scan
from msa_ops.registry import parse_platform

PLATFORM = parse_platform("sm_90a")
ALL = (*scan.FAMILY.configs, *group_scan.FAMILY.configs)


@pytest.mark.parametrize(
    ("index_format", "columns", "batch", "name"),
    [
        ("nvfp4", 8, 1, "scan_nvfp4_8"),
        ("nvfp4", 16, 8, "scan_nvfp4_16_few"),
        ("nvfp4", 16, 9, "scan_nvfp4_16"),
        ("nvfp4", 32, 32, "scan_nvfp4_32"),
        ("fp8", 16, 8, "scan_fp8_16"),
        ("bf16", 16, 8, "scan_bf16_16"),
    ],
)
def test_kernels_for_few_requests(index_format: str, columns: int, batch: int, name: str) -> None:
    assert sm90_scan(index_format, columns, batch) == name
    assert name in {config.name for config in ALL}


def test_every_size_of_a_tile_has_one_kernel_for_any_call() -> None:
    names = [config.name for config in ALL]
    assert len(set(names)) == len(names)
    for index_format, sizes in COLUMNS.items():
        assert sizes == sorted(sizes)
        assert {f"scan_{index_format}_{columns}" for columns in sizes} <= set(names)


@pytest.mark.parametrize("config", ALL, ids=lambda config: config.name)
def test_a_block_fits_a_multiprocessor(config: scan.Config) -> None:
    assert config.shared_memory <= PLATFORM.shared_memory
    assert config.ring_bytes % 16 == 0 and config.score_bytes % 16 == 0
    # The lanes of one warp bring the block's pages to the second-level cache.
    assert config.early + config.later <= 32


@pytest.mark.parametrize("config", group_scan.FAMILY.configs, ids=lambda config: config.name)
def test_groups_of_four_warps_that_know_all_pages_of_a_table(config: group_scan.Config) -> None:
    assert config.index_format == "nvfp4" and config.warps % 4 == 0 and config.columns <= 32
    assert config.parts == 2 and config.stages == 2, "a stage for each half of a page"
    assert config.pages <= 32 * config.warps, "each lane knows one page of its warp"
    assert config.tokens % config.turn == 0 and config.turn % 16 == 0
