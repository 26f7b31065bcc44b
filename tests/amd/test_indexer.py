"""The CDNA4 indexer on the emulator: its table of values, its shapes, its counts, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor

import msa_ops
from msa_ops import _C
from msa_ops.amd import indexer as amd
from msa_ops.cache.page import index_page
from msa_ops.ops.indexer import Args, Facts, generate
from msa_ops.registry import parse_platform
from tests.contract.oracles.block_scores import block_scores, counts
from tests.contract.oracles.block_selection import assert_valid, choose_all

BUILT = ("indexer__scan_nvfp4_16__gfx950", "gfx950") in _C.code_objects()


def needs_kernels(test: Any) -> Any:
    """Slow: run where a build holds the kernels."""
    skip = pytest.mark.skipif(not BUILT, reason="this build of msa_ops holds no kernels of gfx950")
    return pytest.mark.slow(skip(test))


E4M3: dict[str, Any] = {"q_dtype": "float8_e4m3fn", "rounding": "e4m3"}


def run(args: Args, multiprocessors: int = 8, seed: int | None = None) -> Tensor:
    values = {name: getattr(args, name) for name in args.__dataclass_fields__}
    with msa_ops.emulate("gfx950", multiprocessors=multiprocessors, seed=seed) as chip:
        ids = msa_ops.indexer(**values)
    assert [launch.backend for launch in chip.launches] == ["flydsl_gfx950"] * 2
    return ids


@pytest.fixture(params=["merge", "scan"])
def chooser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who chooses: the merge among all blocks, as in calls of few pages, or the scan first."""
    if request.param == "scan":
        monkeypatch.setattr(amd.merge, "MAX_BLOCKS", -1)


def judge(args: Args, multiprocessors: int = 8) -> Tensor:
    ids = run(args, multiprocessors)
    scores, error = block_scores(args)
    assert_valid(ids, scores, error, counts(args), args.topk, args.init_blocks, args.local_blocks)
    return ids


@needs_kernels
def test_every_code_with_every_scale(chooser: None) -> None:
    """4,096 products, each equal to the one that ml_dtypes rounds: it ties with it in both orders of the blocks.

    Page s holds in every key the codes 0 to 15 with scale byte s; the last page 1.0 in the next group. Head h asks
    for code h, and for the last page as much as the product should be, so both blocks score the same.
    """
    pages = torch.zeros(257, index_page("nvfp4").bytes, dtype=torch.uint8)
    codes, scales = pages[:, :8192].view(257, 128, 64), pages[:, 8192:].view(257, 128, 8)
    codes[:256, :, :8] = torch.arange(0, 16, 2, dtype=torch.uint8) | torch.arange(1, 16, 2, dtype=torch.uint8) << 4
    scales[:256, :, 0] = torch.arange(256, dtype=torch.uint8)[:, None]
    codes[256, :, 8] = 0x02
    scales[256, :, 1] = 0x38
    values = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    factors = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    products = np.clip(factors[:, None] * values, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    query = np.zeros((256, 16, 128), ml_dtypes.float8_e4m3fn)
    query[:, range(16), range(16)] = 1
    query[:, :, 16] = np.nan_to_num(products.astype(np.float32)).astype(ml_dtypes.float8_e4m3fn)
    args = Args(
        torch.from_numpy(query.view(np.uint8)).view(torch.float8_e4m3fn),
        pages,
        torch.tensor([[s, 256] for s in range(256)], dtype=torch.int32),
        torch.full((256,), 256, dtype=torch.int32),
        topk=1,
        local_blocks=0,
        rounding="e4m3",
    )
    at_least = run(args)[:, :, 0] == 0
    at_most = run(dataclasses.replace(args, block_table=args.block_table.flip(1)))[:, :, 0] == 0
    number = torch.from_numpy(~np.isnan(products.astype(np.float32)))
    assert (number.sum(), at_least[number].all(), at_most[number].all()) == (254 * 16, True, True)
    # NaN is never a score: the other block is chosen even if it comes second.
    assert not at_least[~number].any()


@needs_kernels
@pytest.mark.parametrize("num_heads", [1, 2, 4])
@pytest.mark.parametrize("q_len", [1, 2, 3, 4, 7, 8, 16])
def test_decode_and_verification(chooser: None, num_heads: int, q_len: int) -> None:
    judge(generate(71, num_heads=num_heads, q_len=q_len, seq_lens=[q_len, 1000, 2304 + q_len // 2], topk=5, **E4M3))


@needs_kernels
@pytest.mark.parametrize("multiprocessors", [1, 2, 3, 7, 64, 256])
def test_any_number_of_compute_units(chooser: None, multiprocessors: int) -> None:
    """The same choice however the pages are divided: also runs of several chunks, and requests of several runs."""
    args = generate(
        72, variant="integers", seq_lens=[70_000, 0, 300, 5000, 128, 900], q_lens=[2, 1, 1, 4, 0, 1], topk=9, **E4M3
    )
    scores, _ = block_scores(args)
    assert torch.equal(run(args, multiprocessors), choose_all(scores, counts(args), args.topk))


@needs_kernels
@pytest.mark.parametrize(("topk", "blocks"), [(16, 257), (16, 8192), (32, 4097), (64, 8192), (16, 8193)])
def test_rows_of_many_blocks(topk: int, blocks: int) -> None:
    """As many as one wave, some waves and all waves of the merge take; and one more than it takes."""
    args = generate(78, variant="integers", seq_lens=[128 * blocks - 5, 700], q_len=1, num_heads=1, topk=topk, **E4M3)
    scores, _ = block_scores(args)
    assert torch.equal(run(args, 32), choose_all(scores, counts(args), topk))


@needs_kernels
def test_more_requests_than_threads(chooser: None) -> None:
    """A workgroup sees 512 requests at a time."""
    lengths = [(37 * i) % 300 for i in range(1100)]
    args = generate(73, variant="integers", seq_lens=lengths, q_len=1, num_heads=1, topk=2, local_blocks=0, **E4M3)
    scores, _ = block_scores(args)
    assert torch.equal(run(args), choose_all(scores, counts(args), 2, 0, 0))


@needs_kernels
def test_random_schedules(chooser: None) -> None:
    args = generate(
        74, variant="padding", seq_lens=[2500, 2400, 333, 0, 3], q_lens=[1, 8, 40, 1, 5], num_heads=2, topk=5, **E4M3
    )
    expected = judge(args)
    for seed in range(20):
        assert torch.equal(run(args, seed=seed), expected), f"seed {seed}"


@needs_kernels
def test_bytes_and_instructions() -> None:
    """Of a long context: bytes against the 72 of a key, instructions against its 128 values.

    Besides the main loop (perf/budgets) there are the division of the work, the table and the masks of the last pages.
    """
    pages = 2560
    args = generate(75, batch=1, seq_len=128 * pages, q_len=4, **E4M3)
    values = {name: getattr(args, name) for name in args.__dataclass_fields__}
    with msa_ops.emulate("gfx950", multiprocessors=8) as chip:
        msa_ops.indexer(**values)
    scan, merge = (launch.report for launch in chip.launches)
    assert scan.global_bytes_read + merge.global_bytes_read <= 1.02 * 72 * 128 * pages
    opcodes = scan.warp_instructions
    lanes_of_values = pages * 128 * 128 / 64
    vector = sum(n for name, n in opcodes.items() if name.startswith("v_") and not name.startswith("v_mfma"))
    assert vector <= 1.04 * lanes_of_values
    # A row of the table for 16 values, and the queries.
    assert sum(n for name, n in opcodes.items() if name.startswith("ds_read")) <= 1.005 / 16 * lanes_of_values
    # 4 heads x 4 query tokens fill the 16 columns of the products: one for 16 keys.
    assert sum(n for name, n in opcodes.items() if name.startswith("v_mfma")) == 8 * pages


@pytest.mark.parametrize(("columns", "pages"), [(16, 2), (32, 2), (64, 1)])
def test_budget_of_the_main_loop(columns: int, pages: int) -> None:
    """With 16 columns 1.02 vector instructions a value; with more also those per column."""
    budgets = json.loads((Path(__file__).parents[2] / "perf" / "budgets" / "gfx950.json").read_text())
    found = budgets[f"indexer__scan_nvfp4_{columns}__gfx950"]["main_loop_vector"]
    a_page = 128 * 128 / 64
    assert a_page < found / pages <= {16: 1.03, 32: 1.07, 64: 1.42}[columns] * a_page


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"index_q": torch.zeros(6, 4, 128).to(torch.float8_e4m3fnuz)}, "index_q: dtype float8_e4m3fnuz; accepted:"),
        ({"index_cache": torch.zeros(9, 64 * 72, dtype=torch.uint8)}, "index_cache: .*9216"),
        ({"topk": 65}, "topk: 65; accepted: 1 to 64"),
    ],
)
def test_bad_input_is_refused(change: dict[str, object], message: str) -> None:
    args = dataclasses.replace(generate(76, **E4M3), **change)
    values = {name: getattr(args, name) for name in args.__dataclass_fields__}
    with msa_ops.emulate("gfx950"), pytest.raises(ValueError, match=message):
        msa_ops.indexer(**values)


def test_addresses_and_strides_that_vector_loads_cannot_take() -> None:
    args = generate(77, num_heads=1, **E4M3)
    outs = (torch.empty(6, 1, 16, dtype=torch.int32),)
    workspace = torch.empty(1 << 20, dtype=torch.uint8)
    whole = torch.zeros(6 * 136 + 8, dtype=torch.uint8).view(torch.float8_e4m3fn)
    for query, message in (
        (whole[8 : 8 + 6 * 128].view(6, 1, 128), "index_q: starts at address .*; accepted: multiples of 16 bytes"),
        (whole[: 6 * 136].view(6, 1, 136)[..., :128], "index_q: strides .*; accepted: multiples of 16 bytes"),
    ):
        with pytest.raises(ValueError, match=message):
            amd.gfx950(dataclasses.replace(args, index_q=query, workspace=workspace), outs)
    lengths = torch.ones(6, dtype=torch.int32)[::2]
    with pytest.raises(ValueError, match=r"seq_lens: strides \(2,\); accepted: contiguous"):
        amd.gfx950(dataclasses.replace(args, seq_lens=lengths, workspace=workspace), outs)


def test_workspace_does_not_grow_with_the_batch() -> None:
    chip = parse_platform("gfx950")
    assert amd.workspace(chip, Facts(num_heads=4, max_seqlen_q=4, topk=16)) == 256 * 512 * 16 * 4
    assert amd.workspace(chip, Facts(num_heads=4, max_seqlen_q=4096, topk=64)) == 256 * 2 * 64 * 64 * 8


def test_importing_the_backend_needs_neither_the_language_nor_a_runtime() -> None:
    code = "import sys, msa_ops.amd.indexer, msa_ops.amd.quantize_nvfp4; assert 'flydsl' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
