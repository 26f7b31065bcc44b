"""The cases in the emulator.

What cases_on_gpu.py needs: `python -m tests.emulator.silicon.emulated_cases FOLDER`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from msa_ops import _C
from msa_ops.emulator import im2col_map, run_ptx, tensor_map
from tests.emulator.silicon import all_cases
from tests.emulator.silicon.cases import Bytes, Case, Map, digest, module

PREFIXES = ("mma.", "wgmma.mma_async.", "ld.", "ldu.", "st.", "atom.", "red.", "cp.", "ldmatrix.", "stmatrix.")


def forms() -> list[tuple[str, str]]:
    """Opcodes and operands of the instructions that cases are made of."""
    return [form for form in _C.emulated_forms() if form[0].startswith(PREFIXES) and _C.target_has("sm_90a", form[0])]


def aligned(data: Bytes) -> Bytes:
    """At a multiple of 256, as on a GPU."""
    memory = np.zeros(data.size + 256, np.uint8)
    start = -memory.ctypes.data % 256
    memory[start : start + data.size] = data
    return memory[start : start + data.size]


def encoded(map_: Map, memory: Bytes) -> bytes:
    if map_.lower:
        return im2col_map(
            memory, map_.element, map_.sizes, map_.strides, map_.lower, map_.upper, map_.channels, map_.pixels,
            steps=map_.steps, swizzle=map_.swizzle, nan_outside=map_.nan_outside,
        )  # fmt: skip
    return tensor_map(
        memory, map_.element, map_.sizes, map_.strides, map_.box, steps=map_.steps or None, swizzle=map_.swizzle,
        nan_outside=map_.nan_outside,
    )  # fmt: skip


def run(case: Case) -> Bytes:
    """What the kernel leaves."""
    given, out = aligned(case.given), aligned(case.out)
    map_ = bytes(128) if case.map is None else encoded(case.map, out if case.map.in_out else given)
    run_ptx(
        module([case]), case.entry, case.blocks, case.threads, [given, out, map_], shared_memory=case.shared,
        cluster=case.cluster,
    )  # fmt: skip
    return out


def main(folder: str) -> None:
    to = Path(folder)
    used = forms()
    made = list(all_cases.cases(used))
    (to / "cases.ptx").write_text(module(made))
    (to / "forms.json").write_text(json.dumps(used))
    (to / "expected.json").write_text(json.dumps({case.name: digest(run(case)) for case in made}))
    print(f"{len(made)} cases")


if __name__ == "__main__":
    main(*sys.argv[1:])
