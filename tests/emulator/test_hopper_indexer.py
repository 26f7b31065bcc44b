"""The indexer's kernels for Hopper under other divisions of work and other schedules than a chip happens to show."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from msa_ops.cute.indexer import sm90_group_scan_configs as group_scan

import msa_ops
from msa_ops import _C
from msa_ops.ops import indexer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not any(arch == "sm_90a" for _, arch in _C.compiled_kernels()),
        reason="this build of msa_ops holds no kernels for sm_90a",
    ),
]
RAGGED: dict[str, Any] = {"seq_lens": [0, 1, 130, 2049, 900, 5], "q_lens": [1, 1, 3, 16, 2, 5], "num_heads": 2}


def exact(seed: int, *, batch: int = 1, seq_len: int = 0, q_len: int = 1, **dims: Any) -> indexer.Args:
    """Sums are exact in any order, so ids are too."""
    lengths = {"seq_lens": [seq_len] * batch, "q_lens": [q_len] * batch} | dims
    return indexer.generate(seed, variant="integers", **lengths)


def run(args: indexer.Args, multiprocessors: int | None, seed: int | None = None) -> torch.Tensor:
    values = {name: getattr(args, name) for name in args.__dataclass_fields__ if name != "workspace"}
    with msa_ops.emulate("sm_90a", seed=seed, multiprocessors=multiprocessors):
        return msa_ops.indexer(**values, backend="cute_sm90")


@pytest.mark.parametrize("dims", [RAGGED | {"topk": 3}, {"seq_len": 5000, "topk": 4}])
def test_every_schedule_gives_the_same(dims: dict[str, Any]) -> None:
    args = exact(1, **dims)
    (expected,) = indexer.reference(args)
    for seed in (None, *range(10)):
        assert torch.equal(run(args, 5, seed), expected), f"schedule {seed}"


@pytest.mark.parametrize("multiprocessors", [1, 2, 3, 132])
@pytest.mark.parametrize(
    "dims",
    [
        {"batch": 3, "seq_len": 128 * 23, "q_len": 4, "num_heads": 4},
        {"batch": 5, "seq_len": 128 * 50, "q_len": 2, "num_heads": 4},
        {"batch": 32, "seq_len": 900, "q_len": 1, "num_heads": 4},
        {"batch": 33, "seq_len": 900, "q_len": 1, "num_heads": 4},
        {"seq_len": 128 * 300, "num_heads": 1},
        {"batch": 2, "seq_len": 128 * 90, "num_heads": 1, "topk": 40, "init_blocks": 2},
    ],
)
def test_work_divided_among_any_number_of_multiprocessors(dims: dict[str, Any], multiprocessors: int) -> None:
    """Few and many requests, and runs of a few, of a few dozen and of hundreds of blocks."""
    args = exact(2, **dims)
    (expected,) = indexer.reference(args)
    assert torch.equal(run(args, multiprocessors), expected)


@pytest.mark.parametrize("multiprocessors", [1, 2, 132])
@pytest.mark.parametrize("pages", [60, 300])
def test_more_equal_keys_than_are_compared_with_each_other(pages: int, multiprocessors: int) -> None:
    args = exact(3, seq_len=128 * pages, num_heads=1)
    cache = args.index_cache.clone()
    cache[:, : 128 * 64] = 0x22  # every code is 1.0
    ids = run(dataclasses.replace(args, index_cache=cache), multiprocessors)
    assert ids.flatten().tolist() == [*range(15), pages - 1]


@pytest.mark.parametrize("seed", range(4))
def test_the_best_blocks_lie_side_by_side(seed: int) -> None:
    """Then most candidates of a merge come from few lists."""
    args = exact(seed, seq_len=128 * 280, num_heads=1)
    begin = 60 * seed
    cache = args.index_cache.clone()
    for page in args.block_table[0, begin : begin + 20].tolist():
        cache[page, : 128 * 64] = args.index_cache[args.block_table[0, begin].item(), : 128 * 64]
    args = dataclasses.replace(args, index_cache=cache)
    (expected,) = indexer.reference(args)
    assert torch.equal(run(args, 132), expected)


def in_tiles_of_16(seed: int, **dims: Any) -> indexer.Args:
    """Queries of all requests in one tile each, of 16 columns."""
    args = exact(seed, **dims)
    return dataclasses.replace(args, max_seqlen_q=16 // dims["num_heads"])


def products(args: indexer.Args, multiprocessors: int) -> set[str]:
    """Instructions that the scan multiplies with, where ids are the reference's."""
    (expected,) = indexer.reference(args)
    values = {name: getattr(args, name) for name in args.__dataclass_fields__ if name != "workspace"}
    with msa_ops.emulate("sm_90a", multiprocessors=multiprocessors) as chip:
        assert torch.equal(msa_ops.indexer(**values, backend="cute_sm90"), expected)
    scan = chip.launches[0]
    assert scan.kernel == "indexer__scan_nvfp4_16__sm_90a"
    return {name.partition(".")[0] for name in scan.report.warp_instructions if "mma." in name}


@pytest.fixture
def groups_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warpgroups, of however few pages."""
    monkeypatch.setattr(group_scan, "BLOCK_PAGES", 0)
    monkeypatch.setattr(group_scan, "REQUEST_PAGES", 0)


@pytest.mark.usefixtures("groups_multiply")
@pytest.mark.parametrize("multiprocessors", [1, 2, 3, 132])
@pytest.mark.parametrize(
    "dims",
    [
        {"batch": 9, "seq_len": 128 * 7 + 5, "q_len": 4, "num_heads": 4, "topk": 4},
        {"batch": 9, "seq_len": 900, "q_len": 3, "num_heads": 4, "topk": 4},  # fewer columns than a tile has
        {"batch": 33, "seq_len": 300, "q_len": 8, "num_heads": 2, "topk": 2},
        {
            "seq_lens": [0, 1, 130, 2049, 900, 5, 128, 129, 1300, 700, 128 * 20],
            "q_lens": [1, 1, 3, 4, 2, 4, 0, 4, 1, 4, 4],
            "num_heads": 4,
            "topk": 3,
        },
    ],
)
def test_warpgroups_of_pages_of_one_request_and_of_several(dims: dict[str, Any], multiprocessors: int) -> None:
    assert products(in_tiles_of_16(4, **dims), multiprocessors) == {"wgmma"}


@pytest.mark.usefixtures("groups_multiply")
def test_warpgroups_give_the_same_under_every_schedule() -> None:
    args = in_tiles_of_16(5, batch=9, seq_len=128 * 6 + 77, q_len=4, num_heads=4, topk=3)
    (expected,) = indexer.reference(args)
    for seed in (None, *range(10)):
        assert torch.equal(run(args, 3, seed), expected), f"schedule {seed}"


@pytest.mark.usefixtures("groups_multiply")
def test_warpgroups_skip_pages_that_do_not_exist() -> None:
    args = in_tiles_of_16(6, batch=9, seq_len=128 * 9, q_len=4, num_heads=4, topk=3)
    args.block_table[:, 2:7:2] = -1
    args.block_table[3, 4] = args.index_cache.shape[0]
    assert products(args, 2) == {"wgmma"}


@pytest.mark.parametrize(
    ("batch", "pages", "multiprocessors", "groups"),
    [(9, 5, 3, False), (9, 6, 3, True), (9, 11, 3, True), (9, 11, 17, False), (40, 2, 3, False)],
)
def test_lengths_decide_whether_warpgroups_multiply(
    batch: int, pages: int, multiprocessors: int, groups: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the width of the table: a graph may be replayed with other lengths."""
    monkeypatch.setattr(group_scan, "BLOCK_PAGES", 6)
    monkeypatch.setattr(group_scan, "REQUEST_PAGES", 6)
    args = in_tiles_of_16(7, batch=batch, seq_len=128 * pages, q_len=4, num_heads=4, topk=3)
    table = args.block_table.new_full((batch, 12), -1)
    table[:, :pages] = args.block_table[:, :pages]
    args = dataclasses.replace(args, block_table=table)
    assert products(args, multiprocessors) == ({"wgmma"} if groups else {"mma"})
