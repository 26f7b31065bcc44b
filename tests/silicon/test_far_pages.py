from __future__ import annotations

import dataclasses
import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.contract.target import Target, assert_close
from tests.silicon.cases import Case, call, outputs

# Byte offsets at which 32-bit arithmetic on bytes, halves, words and 16-byte units goes wrong, signed or unsigned.
THRESHOLDS = tuple(sorted({2**bits * unit for bits in (31, 32) for unit in (1, 2, 4, 8)}))


def cache_name(args: Any) -> str | None:
    names = [name for name in ("kv_cache", "index_cache") if getattr(args, name, None) is not None]
    return names[0] if len(names) == 1 and hasattr(args, "block_table") else None


SPARE = 1 << 30
"""Bytes for pages behind the last threshold, arguments, results and the reference."""


@pytest.fixture
def far() -> Iterator[Tensor]:
    """Memory that reaches behind the last threshold, lent to one test of this machine at a time and given back then.

    A GPU that is too small for it is no place for these tests; one whose memory others hold is an error of the run.
    """
    needed = THRESHOLDS[-1] + SPARE
    name = torch.cuda.get_device_properties(0).uuid
    with (Path(tempfile.gettempdir()) / f"msa_ops_far_pages_{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        if total < needed + SPARE:
            pytest.skip(f"needs {(needed + SPARE) / 2**30:.0f} GiB of device memory; this GPU has {total / 2**30:.0f}")
        if free < needed + SPARE:
            pytest.fail(
                f"needs {(needed + SPARE) / 2**30:.0f} GiB of free device memory, {free / 2**30:.0f} of "
                f"{total / 2**30:.0f} GiB are free: nothing else may hold much of this GPU's memory meanwhile"
            )
        memory = torch.empty(needed, dtype=torch.uint8, device="cuda")
        try:
            yield memory
        finally:
            torch.cuda.synchronize()
            memory.untyped_storage().resize_(0)  # whoever still refers to it, as the traceback of a failure does
            torch.cuda.empty_cache()


def test_pages_on_both_sides_of_each_threshold(target: Target, case: Case, request: pytest.FixtureRequest) -> None:
    args = case.args(6)
    name = cache_name(args)
    if name is None:
        pytest.skip("reads no pages")
    memory: Tensor = request.getfixturevalue("far")
    near = getattr(args, name)
    pages, page_bytes = near.shape
    assert pages * page_bytes < SPARE
    far = memory[: memory.numel() // page_bytes * page_bytes].view(-1, page_bytes)
    expected = case.spec.reference(args)
    for threshold in THRESHOLDS:
        shift = threshold // page_bytes - pages // 2
        far[shift : shift + pages] = near
        moved = dataclasses.replace(args, **{name: far}, block_table=args.block_table + shift)
        outs = outputs(case, moved)
        call(case, target.backend, moved, outs)
        for output, out, value, bound in zip(case.spec.outputs, outs, expected, case.spec.tolerance(args), strict=True):
            assert_close(out.cpu(), value.cpu(), bound, f"offset {threshold}: {output}")
