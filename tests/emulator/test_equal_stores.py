"""Stores that leave the bytes as they are: the same verdict under every schedule."""

# ruff: noqa: E501 (programs and messages, a case a line)
from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel

SEEDS = (None, *range(12))
START = """
setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r0, 32; setp.lt.u32 %p3, %r0, 32; mov.b32 %r1, 0; mov.b32 %r5, 5;
mul.wide.u32 %rd2, %r0, 4; add.s64 %rd2, %rd2, %rd1;
"""
PLACES = {"shared": "[buffer]", "global": "[%rd0]"}


def verdicts(space: str, body: str) -> set[str]:
    """What the launches of all schedules say."""
    found = set()
    text = START + body.replace("{st}", f"st.{space}.b32 {PLACES[space]}").replace("{place}", PLACES[space])
    text = text.replace("{ld}", f"ld.{space}.b32")
    for seed in SEEDS:
        memory = [np.full(64, 5, np.int32), np.zeros(64, np.int32)]
        try:
            run_ptx(kernel(text, 2, ".shared .align 16 .b8 buffer[256];"), "k", 1, 64, memory, seed=seed)
            found.add("right")
        except EmulatorFault as fault:
            found.add(fault.kind)
    return found


@pytest.mark.parametrize("space", PLACES)
@pytest.mark.parametrize("body", [
    # After a store that both have seen one warp stores the same again, while the other one reads.
    "@%p1 {st}, 5;\nbar.sync 0;\n@%p2 {st}, 5;\n{ld} %r3, {place};\nst.global.b32 [%rd2], %r3;",
    # The warp that stored first does.
    "@%p1 {st}, 5;\nbar.sync 0;\n@%p1 {st}, 5;\n{ld} %r3, {place};\nst.global.b32 [%rd2], %r3;",
    # Both store, with different values.
    "@%p1 {st}, 5;\n@%p2 {st}, 6;",
    # One of the stores alone changes what stood there.
    "@%p1 {st}, 5;\nbar.sync 0;\n@%p1 {st}, 5;\n@%p2 {st}, 6;",
])  # fmt: skip
def test_races(space: str, body: str) -> None:
    assert verdicts(space, body) == {"race"}


@pytest.mark.parametrize("space", PLACES)
@pytest.mark.parametrize("body", [
    # Every warp stores what is everybody's and reads it back; so do they a second time.
    "{st}, 5;\n{ld} %r3, {place};\nst.global.b32 [%rd2], %r3;",
    "{st}, 5;\n{ld} %r3, {place};\nst.global.b32 [%rd2], %r3;\nbar.sync 0;\n{st}, 7;\n{ld} %r3, {place};\nst.global.b32 [%rd2], %r3;",
    "{st}, 5;\n{ld} %r3, {place};\n{st}, 5;\n{ld} %r4, {place};\nadd.s32 %r3, %r3, %r4;\nst.global.b32 [%rd2], %r3;",
    "{st}, 5;\nbar.sync 0;\n{ld} %r3, {place};\nst.global.b32 [%rd2], %r3;",
    "@%p1 {st}, 5;\nbar.sync 0;\n@%p2 {st}, 5;\nbar.sync 0;\n{ld} %r3, {place};\nst.global.b32 [%rd2], %r3;",
])  # fmt: skip
def test_stores_of_what_is_everybodys(space: str, body: str) -> None:
    assert verdicts(space, body) == {"right"}
