"""Counts as tables and as JSON."""

from __future__ import annotations

import dataclasses
import json

import numpy as np

from msa_ops.emulator import JitLaunch, Report, run_ptx, tables
from tests.emulator.programs import kernel


def report() -> Report:
    body = "mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd0, %rd1;\nst.global.b32 [%rd1], %r0;"
    return run_ptx(kernel(body), "k", 1, 64, [np.zeros(64, np.uint32)])


def test_tables() -> None:
    rows = [line.split() for line in tables(report()).splitlines() if line]
    assert ["-", "argument", "0", "0", "0", "256", "256"] in rows
    assert ["st.global.b32", "2", "14.3%"] in rows
    several = tables([JitLaunch("one", report()), JitLaunch("two", report())]).splitlines()
    assert sum(line.startswith("one ") for line in several) == sum(line.startswith("two ") for line in several) == 3
    assert any(line.split() == ["st.global.b32", "4", "14.3%"] for line in several)


def test_json() -> None:
    made = json.loads(json.dumps(dataclasses.asdict(report())))
    assert made["warp_instructions"]["st.global.b32"] == 2 and made["tensors"]["argument 0"]["written"] == 256
