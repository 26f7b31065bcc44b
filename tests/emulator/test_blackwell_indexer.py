"""The indexer's kernels for chips that are not at hand: right under every schedule, in both ways to decode its keys."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import msa_ops
from msa_ops import _C
from msa_ops.emulator import VirtualChip
from msa_ops.ops import indexer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not any(arch == "sm_100a" for _, arch in _C.compiled_kernels()),
        reason="this build of msa_ops holds no kernels for sm_100a",
    ),
]
ARCHS = ("sm_100a", "sm_103a")
SCHEDULES = 20
BYTES_A_KEY = 72
RAGGED: dict[str, Any] = {
    "seq_lens": [0, 1, 130, 2049, 900, 5],
    "q_lens": [1, 1, 3, 16, 2, 5],
    "num_heads": 2,
    "topk": 3,
    "variant": "integers",  # sums are exact in any order, so ids are too
}


def make(seed: int, **dims: Any) -> indexer.Args:
    return indexer.generate(seed, q_dtype="float8_e4m3fn", rounding="e4m3", **dims)


def run(
    args: indexer.Args, arch: str, backend: str = "cute_sm100", seed: int | None = None, multiprocessors: int = 5
) -> tuple[torch.Tensor, VirtualChip]:
    values = {name: getattr(args, name) for name in args.__dataclass_fields__ if name != "workspace"}
    with msa_ops.emulate(arch, seed=seed, multiprocessors=multiprocessors) as chip:
        return msa_ops.indexer(**values, backend=backend), chip


@pytest.mark.parametrize("arch", ARCHS)
def test_every_schedule_gives_the_same(arch: str) -> None:
    args = make(1, **RAGGED)
    (expected,) = indexer.reference(args)
    for seed in (None, *range(SCHEDULES)):
        assert torch.equal(run(args, arch, seed=seed)[0], expected), f"schedule {seed}"


@pytest.mark.parametrize("num_heads", [1, 2, 4])
@pytest.mark.parametrize("q_len", [1, 4, 16])
def test_both_ways_to_decode_give_the_same_ids(num_heads: int, q_len: int) -> None:
    args = make(2, batch=2, seq_len=2600, q_len=q_len, num_heads=num_heads, topk=4)
    by_product, _ = run(args, "sm_103a")
    by_fp16, _ = run(args, "sm_103a", "cute_sm100_fp16")
    assert torch.equal(by_product, by_fp16)


@pytest.mark.parametrize("multiprocessors", [1, 3, 148])
def test_work_divided_among_any_number_of_multiprocessors(multiprocessors: int) -> None:
    args = make(3, **RAGGED)
    (expected,) = indexer.reference(args)
    assert torch.equal(run(args, "sm_100a", multiprocessors=multiprocessors)[0], expected)


def test_keys_are_read_once() -> None:
    """Bytes of the scan: the keys, and little else."""
    args = make(4, batch=1, seq_len=128 * 64, q_len=1, num_heads=4)
    _, chip = run(args, "sm_100a")
    scan = next(launch for launch in chip.launches if "scan" in launch.kernel)
    keys = 128 * 64 * BYTES_A_KEY
    assert keys <= scan.report.global_bytes_read <= 1.02 * keys


def test_the_registry_chooses_it() -> None:
    dims = {"q_dtype": "float8_e4m3fn", "rounding": "e4m3"}
    for arch in ARCHS:
        assert msa_ops.explain("indexer", arch, dims).choice == "cute_sm100"
