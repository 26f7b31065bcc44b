"""Lanes that wait where they meet others of their warp go on when those wait for them, as threads of a chip do."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel

LIMIT = 50_000_000
SHARED = ".shared .align 8 .b64 bar;\n.shared .align 8 .b64 other;\n"
FUNCTION = """
.func wait_for(.param .b64 flag)
{
  .reg .pred %q<2>; .reg .b32 %s<2>; .reg .b64 %sd<2>;
  ld.param.b64 %sd0, [flag];
  setp.eq.u64 %q0, %sd0, 0;
  @%q0 ret;
  spin: ld.volatile.global.b32 %s0, [%sd0];
  setp.eq.u32 %q1, %s0, 0;
  @%q1 bra spin;
  ret;
}
"""
INIT = """
setp.eq.u32 %p0, %r0, 0;
@%p0 mbarrier.init.shared.b64 [bar], 1;
@%p0 mbarrier.init.shared.b64 [other], 1;
bar.sync 0;
setp.lt.u32 %p1, %r0, 16;
"""
SPIN = "again: ld.volatile.global.b32 %r3, [%rd0];\nsetp.eq.u32 %p4, %r3, 0;\n@%p4 bra again;"
TRY = "tries: mbarrier.try_wait.parity.shared.b64 %p4, [bar], 0;\n@!%p4 bra tries;"
STORE = "mov.u32 %r4, 1;\n@!%p1 st.volatile.global.b32 [%rd0], %r4;"
ARRIVE = "setp.eq.u32 %p3, %r0, 31;\n@%p3 mbarrier.arrive.shared.b64 %rd1, [bar];"

# Lanes 0 to 15 wait for what RELEASE does, in the others.
PROGRAMS = {
    "both can run": (f"@!%p1 bra first;\n{SPIN}\nbra end;\nfirst: RELEASE\nend:", STORE),
    "an early return": (f"@!%p1 bra first;\n{SPIN}\nret;\nfirst: RELEASE", STORE),
    "where they meet": (f"@!%p1 bra first;\n{SPIN}\nfirst: RELEASE", STORE),
    "meeting twice": (
        f"setp.lt.u32 %p2, %r0, 24;\n@!%p2 bra first;\n@!%p1 bra second;\n{SPIN}\nsecond: mov.u32 %r5, 1;\n"
        "first: RELEASE",
        STORE,
    ),
    "a call": (
        "mov.b64 %rd3, 0;\n@%p1 mov.b64 %rd3, %rd0;\n"
        "{ .param .b64 param0; st.param.b64 [param0], %rd3; call wait_for, (param0); }\nRELEASE",
        STORE,
    ),
    "an mbarrier": (f"@!%p1 bra first;\n{TRY}\nfirst: RELEASE", ARRIVE),
    "tries beside a loop": (
        f"mov.u32 %r5, 0;\n@!%p1 bra first;\n{SPIN}\nbra end;\n"
        "first: mbarrier.try_wait.parity.shared.b64 %p4, [other], 0;\n@%p4 bra end;\nadd.u32 %r5, %r5, 1;\n"
        "setp.lt.u32 %p5, %r5, 1000;\n@%p5 bra first;\nRELEASE\nend:",
        STORE,
    ),
    "tries of others": (
        f"mov.u32 %r5, 0;\n@!%p1 bra first;\n{TRY}\nbra end;\n"
        "first: mbarrier.try_wait.parity.shared.b64 %p4, [other], 0;\n@%p4 bra end;\nadd.u32 %r5, %r5, 1;\n"
        "setp.lt.u32 %p5, %r5, 1000;\n@%p5 bra first;\nRELEASE\nend:",
        ARRIVE,
    ),
}


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_lanes_that_wait_for_others_of_their_warp(name: str, seed: int | None) -> None:
    body, release = PROGRAMS[name]
    for released in (True, False):
        text = kernel(
            INIT + body.replace("RELEASE", release if released else "mov.u32 %r4, 1;"), declarations=SHARED + FUNCTION
        )
        arrays: list[NDArray[np.uint32]] = [np.zeros(4, np.uint32)]
        if released:
            run_ptx(text, "k", 1, 32, arrays, seed=seed, max_instructions=LIMIT)
            continue
        with pytest.raises(EmulatorFault) as caught:
            run_ptx(text, "k", 1, 32, arrays, seed=seed, max_instructions=LIMIT)
        assert caught.value.kind == "deadlock", str(caught.value)


def test_barrier_from_two_places() -> None:
    body = "setp.lt.u32 %p1, %r0, 16;\n@!%p1 bra first;\nbarrier.sync 1, 32;\nfirst: @!%p1 barrier.sync 1, 32;\n"
    run_ptx(kernel(body), "k", 1, 32, [np.zeros(4, np.uint32)], max_instructions=LIMIT)


LOCK = """
again: atom.global.cas.b32 %r3, [%rd0], 0, 1;
setp.ne.u32 %p4, %r3, 0;
@%p4 bra again;
ld.volatile.global.b32 %r4, [%rd0+4];
add.u32 %r4, %r4, 1;
st.volatile.global.b32 [%rd0+4], %r4;
membar.gl;
atom.global.exch.b32 %r3, [%rd0], 0;
"""


@pytest.mark.parametrize(("seed", "threads"), [(None, 1), (5, 1), (None, 2)])
def test_lock_that_lanes_take_in_turn(seed: int | None, threads: int) -> None:
    out = np.zeros(4, np.uint32)
    run_ptx(kernel(LOCK), "k", 2, 64, [out], seed=seed, threads=threads, max_instructions=LIMIT)
    assert out[0] == 0
    assert out[1] == 128


def test_lock_that_is_not_given_back() -> None:
    with pytest.raises(EmulatorFault) as caught:
        run_ptx(kernel(LOCK.replace("atom.global.exch.b32 %r3, [%rd0], 0;", "")), "k", 2, 64, [np.zeros(4, np.uint32)],
                max_instructions=LIMIT)  # fmt: skip
    assert caught.value.kind == "deadlock"


@pytest.mark.slow
def test_others_that_never_rest() -> None:
    """The second block counts until the flag is set, so that something goes on all the time."""
    body = f"""mov.u32 %r1, %ctaid.x;
    setp.eq.u32 %p2, %r1, 1;
    setp.lt.u32 %p1, %r0, 16;
    @%p2 bra counts;
    @!%p1 bra first;
    {SPIN}
    first: {STORE}
    bra end;
    counts: atom.global.add.u32 %r2, [%rd0+4], 1;
    ld.volatile.global.b32 %r3, [%rd0];
    setp.eq.u32 %p4, %r3, 0;
    @%p4 bra counts;
    end:"""
    run_ptx(kernel(body), "k", 2, 32, [np.zeros(4, np.uint32)], max_instructions=200_000_000)
