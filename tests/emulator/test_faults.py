"""Planted mistakes are found with kind and place; beside each stands a correct twin that runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel, line_of

BUFFER = ".shared .align 16 .b8 buffer[256];"


@dataclass(frozen=True)
class Case:
    kind: str
    wrong: str  # the marked line holds "// here"
    right: str
    lane: int | None = None
    warp: int = 0
    offset: int | None = None  # of the address from the start of the output
    threads: int = 64


CASES = {
    "register": Case(
        "uninitialized register",
        wrong="add.s32 %r1, %r2, 1; // here\nst.global.b32 [%rd0], %r1;",
        right="mov.b32 %r2, 1; add.s32 %r1, %r2, 1;",
        lane=0,
    ),
    "register_of_some_lanes": Case(
        "uninitialized register",
        wrong="setp.lt.u32 %p1, %r0, 37;\n@%p1 mov.b32 %r2, 1;\nadd.s32 %r1, %r2, 1; // here\n"
        "st.global.b32 [%rd0], %r1;",
        right="setp.lt.u32 %p1, %r0, 37;\nmov.b32 %r2, 0;\n@%p1 mov.b32 %r2, 1;\nadd.s32 %r1, %r2, 1;",
        lane=5,
        warp=1,
    ),
    "guard": Case(
        "uninitialized register",
        wrong="@%p1 mov.b32 %r2, 1; // here",
        right="setp.eq.b32 %p1, %r0, 0; @%p1 mov.b32 %r2, 1;",
        lane=0,
    ),
    "shared": Case(
        "uninitialized shared memory",
        wrong="ld.shared.b32 %r1, [buffer+8]; // here\nst.global.b32 [%rd0], %r1;",
        right="shl.b32 %r1, %r0, 2; mov.b32 %r2, buffer; add.s32 %r2, %r2, %r1;\n"
        "st.shared.b32 [%r2], %r0;\n"
        "bar.sync 0; ld.shared.b32 %r1, [buffer+8];",
        lane=0,
    ),
    "shared_byte": Case(
        "uninitialized shared memory",
        wrong="mov.b32 %r1, 7; st.shared.b8 [buffer], %r1;\nld.shared.b16 %h1, [buffer]; // here\n"
        "st.global.b16 [%rd0], %h1;",
        right="mov.b32 %r1, 7; st.shared.b16 [buffer], %r1;\nld.shared.b16 %h1, [buffer];",
        lane=0,
        threads=32,
    ),
    "shared_atomic": Case(
        "uninitialized shared memory",
        wrong="red.shared.add.u32 [buffer], 1; // here",
        right="shl.b32 %r1, %r0, 2; mov.b32 %r2, buffer; add.s32 %r2, %r2, %r1;\n"
        "st.shared.b32 [%r2], %r0;\n"
        "bar.sync 0; red.shared.add.u32 [buffer], 1;",
        lane=0,
    ),
    "global_end": Case(
        "out of bounds",
        wrong="shl.b64 %rd2, %rd15, 2; add.s64 %rd2, %rd2, %rd0;\nst.global.b32 [%rd2+4], %r0; // here",
        right="shl.b64 %rd2, %rd15, 2; add.s64 %rd2, %rd2, %rd0;\nst.global.b32 [%rd2], %r0;",
        lane=31,
        warp=1,
        offset=256,
    ),
    "global_start": Case(
        "out of bounds",
        wrong="shl.b64 %rd2, %rd15, 2; add.s64 %rd2, %rd2, %rd0;\nld.global.b32 %r1, [%rd2-4]; // here",
        right="shl.b64 %rd2, %rd15, 2; add.s64 %rd2, %rd2, %rd0;\nld.global.b32 %r1, [%rd2];",
        lane=0,
        offset=-4,
    ),
    "global_null": Case(
        "out of bounds",
        wrong="mov.b64 %rd1, 0; ld.global.b32 %r1, [%rd1]; // here",
        right="ld.global.b32 %r1, [%rd0];",
        lane=0,
    ),
    "global_vector": Case(
        "out of bounds",
        wrong="ld.global.v4.b32 {%r1,%r2,%r3,%r4}, [%rd0+256]; // here",
        right="ld.global.v4.b32 {%r1,%r2,%r3,%r4}, [%rd0+240];",
        lane=0,
        offset=256,
    ),
    "global_alignment": Case(
        "misaligned",
        wrong="ld.global.v2.b32 {%r1,%r2}, [%rd0+4]; // here",
        right="ld.global.v2.b32 {%r1,%r2}, [%rd0+8];",
        lane=0,
        offset=4,
    ),
    "global_atomic": Case(
        "out of bounds",
        wrong="red.global.add.u32 [%rd0+256], 1; // here",
        right="red.global.add.u32 [%rd0+252], 1;",
        lane=0,
        offset=256,
    ),
    "shared_end": Case(
        "out of bounds",
        wrong="shl.b32 %r1, %r0, 2; mov.b32 %r2, buffer; add.s32 %r2, %r2, %r1;\nst.shared.b32 [%r2+4], %r0; // here\n",
        right="shl.b32 %r1, %r0, 2; mov.b32 %r2, buffer; add.s32 %r2, %r2, %r1;\nst.shared.b32 [%r2], %r0;\n",
        lane=31,
        warp=1,
    ),
    "shared_null": Case(
        "out of bounds",
        wrong="mov.b32 %r1, 0; st.shared.b32 [%r1], %r1; // here",
        right="mov.b32 %r1, 0; st.shared.b32 [buffer], %r1;",
        lane=0,
        threads=32,
    ),
    "shared_alignment": Case(
        "misaligned",
        wrong="st.shared.b32 [buffer+2], %r0; // here",
        right="st.shared.b32 [buffer+4], %r0;",
        lane=0,
        threads=32,
    ),
    "divergent_barrier": Case(
        "divergence",
        wrong="setp.lt.u32 %p1, %r0, 40;\n@%p1 bra DONE;\nbar.sync 0; // here\nDONE:\nadd.s32 %r1, %r0, 1;",
        right="setp.lt.u32 %p1, %r0, 40;\n@%p1 bra DONE;\nadd.s32 %r1, %r0, 1;\nDONE:\nbar.sync 0;",
        lane=0,
        warp=1,
    ),
    "guarded_barrier": Case(
        "divergence",
        wrong="setp.lt.u32 %p1, %r0, 3; @%p1 bar.sync 0; // here",
        right="setp.lt.u32 %p1, %r0, 32; @%p1 bar.sync 0, 32;",
        lane=3,
    ),
    "deadlock": Case(
        "deadlock",
        wrong="setp.lt.u32 %p1, %r0, 32;\n@%p1 bra FIRST;\nbar.sync 1; bra DONE;\nFIRST:\nbar.sync 2; // here\nDONE:",
        right="setp.lt.u32 %p1, %r0, 32;\n@%p1 bra FIRST;\nbar.sync 1; bra DONE;\nFIRST:\nbar.sync 1;\nDONE:",
    ),
    "producer_missing": Case(
        "deadlock",
        wrong="bar.sync 3, 96; // here",
        right="bar.sync 3, 64;",
    ),
    "barrier_count": Case(
        "barrier",
        wrong="setp.lt.u32 %p1, %r0, 32;\n@%p1 bar.arrive 1, 64;\n@!%p1 bar.sync 1, 96; // here",
        right="setp.lt.u32 %p1, %r0, 32;\n@%p1 bar.arrive 1, 64;\n@!%p1 bar.sync 1, 64;",
        warp=1,
    ),
    "reduction_with_sync": Case(
        "barrier",
        wrong="setp.lt.u32 %p1, %r0, 32;\n@%p1 bar.sync 1, 64;\n@!%p1 bar.red.popc.u32 %r1, 1, 64, %p1; // here",
        right="setp.lt.u32 %p1, %r0, 32;\n@%p1 bar.sync 1, 64;\n@!%p1 bar.sync 1, 64;\n"
        "bar.red.popc.u32 %r1, 1, 64, %p1;",
        warp=1,
    ),
    "reduction_with_arrive": Case(
        "barrier",
        wrong="setp.lt.u32 %p1, %r0, 32;\n@%p1 bar.arrive 1, 64;\n@!%p1 bar.red.or.pred %p2, 1, 64, %p1; // here",
        right="setp.lt.u32 %p1, %r0, 32;\n@%p1 bar.arrive 1, 64;\n@!%p1 bar.sync 1, 64;\n"
        "bar.red.or.pred %p2, 2, 64, %p1;",
        warp=1,
    ),
    "two_reductions": Case(
        "barrier",
        wrong="setp.lt.u32 %p1, %r0, 32;\n@%p1 bar.red.and.pred %p2, 1, 64, %p1;\n"
        "@!%p1 bar.red.popc.u32 %r1, 1, 64, %p1; // here",
        right="setp.lt.u32 %p1, %r0, 32;\n@%p1 bar.red.and.pred %p2, 1, 64, %p1;\n"
        "@!%p1 bar.red.and.pred %p2, 1, 64, %p1;",
        warp=1,
    ),
    "barrier_number": Case(
        "barrier",
        wrong="bar.sync 16; // here",
        right="bar.sync 15;",
    ),
    "barrier_threads": Case(
        "barrier",
        wrong="bar.sync 0, 40; // here",
        right="bar.sync 0, 64;",
    ),
    "shuffle_apart": Case(
        "divergence",
        wrong="and.b32 %r1, %r0, 1; setp.eq.b32 %p1, %r1, 0;\n"
        "@%p1 bra DONE;\n"
        "shfl.sync.idx.b32 %r2, %r0, 0, 31, -1; // here\n"
        "DONE:\n"
        "add.s32 %r1, %r0, 1;",
        right="and.b32 %r1, %r0, 1; setp.eq.b32 %p1, %r1, 0;\n"
        "@%p1 bra DONE;\n"
        "shfl.sync.idx.b32 %r2, %r0, 1, 31, 0xaaaaaaaa;\n"
        "DONE:",
        lane=0,
    ),
    "two_barriers": Case(
        "divergence",
        wrong="setp.lt.u32 %p1, %r0, 40;\n@%p1 bra LOW;\nbar.sync 0; // here\nret;\nLOW:\nbar.sync 0;",
        right="setp.lt.u32 %p1, %r0, 32;\n@%p1 bra LOW;\nbar.sync 0; ret;\nLOW:\nbar.sync 0;",
        lane=0,
        warp=1,
    ),
    "shuffle_stranger": Case(
        "divergence",
        wrong="shfl.sync.idx.b32 %r2, %r0, 0, 31, 0x7fffffff; // here",
        right="shfl.sync.idx.b32 %r2, %r0, 0, 31, -1;",
        lane=31,
    ),
    "shuffle_from_outside": Case(
        "uninitialized register",
        wrong="setp.lt.u32 %p1, %r0, 16;\n"
        "@!%p1 bra DONE;\n"
        "shfl.sync.down.b32 %r2, %r0, 4, 31, 0xffff;\n"
        "add.s32 %r3, %r2, 1; // here\n"
        "st.global.b32 [%rd0], %r3;\nDONE:",
        right="setp.lt.u32 %p1, %r0, 12; setp.lt.u32 %p2, %r0, 16;\n"
        "@!%p2 bra DONE;\n"
        "shfl.sync.down.b32 %r2, %r0, 4, 31, 0xffff;\n"
        "@%p1 add.s32 %r3, %r2, 1;\n"
        "DONE:",
        lane=12,
    ),
    "uniform_branch": Case(
        "divergence",
        wrong="setp.lt.u32 %p1, %r0, 3;\n@%p1 bra.uni DONE; // here\nDONE:",
        right="setp.lt.u32 %p1, %r0, 3;\n@%p1 bra DONE;\nDONE:",
        lane=3,
    ),
    "endless": Case(
        "deadlock",
        wrong="AGAIN:\nbra AGAIN; // here",
        right="mov.b32 %r1, 9;\nAGAIN:\nsub.s32 %r1, %r1, 1; setp.ne.b32 %p1, %r1, 0;\n@%p1 bra AGAIN;",
        threads=32,
    ),
    "too long": Case(
        "limit",
        wrong="mov.b32 %r1, 9;\nAGAIN:\nadd.s32 %r1, %r1, 1;\nbra AGAIN; // here",
        right="mov.b32 %r1, 9;\nAGAIN:\nsub.s32 %r1, %r1, 1; setp.ne.b32 %p1, %r1, 0;\n@%p1 bra AGAIN;",
        threads=32,
    ),
}


def launch(body: str, case: Case, out: np.ndarray) -> None:
    run_ptx(kernel(body, declarations=BUFFER), "k", 1, case.threads, [out], max_instructions=10_000)


@pytest.mark.parametrize("name", CASES)
def test_found_and_twin_passes(name: str) -> None:
    case = CASES[name]
    out = np.zeros(64, np.uint32)
    launch(case.right, case, out)
    with pytest.raises(EmulatorFault) as caught:
        launch(case.wrong, case, out)
    fault = caught.value
    assert fault.kind == case.kind
    assert fault.kernel == "k" and fault.block == (0, 0, 0)
    assert fault.line == line_of(kernel(case.wrong, declarations=BUFFER), "// here")
    assert fault.lane == case.lane
    assert fault.warp == case.warp
    if case.offset is not None:
        assert fault.address == out.ctypes.data + case.offset
    assert f"line {fault.line}" in str(fault) and "kernel k" in str(fault)


@pytest.mark.parametrize(
    "body",
    [
        "add.s32 %r1, %r2, 1; selp.b32 %r3, %r1, 7, %p1; st.global.b32 [%rd0], %r3;",
        "setp.eq.b32 %p2, %r2, 0; and.pred %p3, %p2, %p1; selp.b32 %r3, 1, 7, %p3; st.global.b32 [%rd0], %r3;",
        "setp.eq.b32 %p2, %r2, 0; not.pred %p3, %p1; or.pred %p3, %p2, %p3; selp.b32 %r3, 7, 1, %p3;\n"
        "st.global.b32 [%rd0], %r3;",
        "st.shared.b32 [buffer], %r2; mov.b32 %r3, 7; st.shared.b32 [buffer], %r3; ld.shared.b32 %r3, [buffer];\n"
        "st.global.b32 [%rd0], %r3;",
        "ld.shared.b32 %r2, [buffer]; mov.b32 %r2, 7; st.global.b32 [%rd0], %r2;",
        "shfl.sync.idx.b32 %r2, %r2, 3, 31, -1; mov.b32 %r2, 7; st.global.b32 [%rd0], %r2;",
    ],
)
def test_values_that_are_missing_and_not_used(body: str) -> None:
    """Compilers leave registers without a value where none matters."""
    out = np.zeros(64, np.uint32)
    run_ptx(kernel(f"setp.gt.u32 %p1, %r0, 99;\n{body}", declarations=BUFFER), "k", 1, 32, [out])
    assert out[0] == 7


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("mov.b32 %r1, %r2; // here\nselp.b32 %r3, %r1, 7, %p1; st.global.b32 [%rd0], %r3;", "uninitialized register"),
        ("setp.eq.b32 %p2, %r2, 0; // here\nand.pred %p3, %p2, %p1;\n@%p3 mov.b32 %r1, 1;", "uninitialized register"),
        ("cvt.u64.u32 %rd1, %r2; // here\nadd.s64 %rd1, %rd1, %rd0; ld.global.b32 %r1, [%rd1];",
         "uninitialized register"),
        ("mov.b32 %r1, %r2; // here\nst.shared.b32 [%r1], 0;", "uninitialized register"),
        ("st.shared.b32 [buffer], %r2; ld.shared.b32 %r3, [buffer]; // here\nst.global.b32 [%rd0], %r3;",
         "uninitialized shared memory"),
        ("mov.b32 %r4, 0; st.shared.b32 [buffer], %r4; red.shared.max.u32 [buffer], %r2;\n"
         "ld.shared.b32 %r3, [buffer]; // here\nst.global.b32 [%rd0], %r3;", "uninitialized shared memory"),
        ("add.s32 %r1, %r2, 1; // here\nshfl.sync.idx.b32 %r3, %r1, 3, 31, -1; st.global.b32 [%rd0], %r3;",
         "uninitialized register"),
    ],
)  # fmt: skip
def test_values_that_are_missing_and_used(body: str, kind: str) -> None:
    """The place is where the missing value was read first; the message says who used it."""
    text = kernel(f"setp.lt.u32 %p1, %r0, 99;\n{body}", declarations=BUFFER)
    with pytest.raises(EmulatorFault, match="uses what came of it") as caught:
        run_ptx(text, "k", 1, 32, [np.zeros(64, np.uint32)])
    assert caught.value.kind == kind
    assert caught.value.line == line_of(text, "// here")


def test_block_is_named() -> None:
    text = kernel("mov.u32 %r1, %ctaid.y;\nsetp.eq.b32 %p1, %r1, 2;\n@%p1 st.global.b32 [%rd0], %r3;")
    with pytest.raises(EmulatorFault) as caught:
        run_ptx(text, "k", (2, 3), 32, [np.zeros(1, np.uint32)])
    assert caught.value.block == (0, 2, 0)


def test_memory_of_the_last_block_is_not_initialized() -> None:
    body = "mov.u32 %r1, %ctaid.x; setp.eq.b32 %p1, %r1, 0;\n@%p1 st.shared.b32 [buffer], %r0;\n"
    body += "ld.shared.b32 %r2, [buffer]; st.global.b32 [%rd0], %r2;"
    run_ptx(kernel(body, declarations=BUFFER), "k", 1, 32, [np.zeros(1, np.uint32)])
    with pytest.raises(EmulatorFault, match=r"uninitialized shared memory.*block \(1, 0, 0\)"):
        run_ptx(kernel(body, declarations=BUFFER), "k", 2, 32, [np.zeros(1, np.uint32)])


def test_a_turn_may_begin_with_the_last_vote() -> None:
    """A warp stops at each barrier, so all begin their next turn with the reduction."""
    out = np.zeros(1, np.uint32)
    run_ptx(kernel("setp.lt.u32 %p1, %r0, 40; bar.sync 0; bar.red.popc.u32 %r1, 0, %p1; st.global.b32 [%rd0], %r1;"),
            "k", 1, 64, [out])  # fmt: skip
    assert out[0] == 40


def test_a_read_that_comes_too_early_may_lack_a_barrier() -> None:
    with pytest.raises(EmulatorFault, match=r"nothing has written so far .*a barrier or wait is missing"):
        launch(CASES["shared"].wrong, CASES["shared"], np.zeros(64, np.uint32))


def test_read_only_array() -> None:
    out = np.zeros(4, np.uint32)
    out.flags.writeable = False
    run_ptx(kernel("ld.global.b32 %r1, [%rd0];"), "k", 1, 32, [out])
    with pytest.raises(EmulatorFault) as caught:
        run_ptx(kernel("st.global.b32 [%rd0], %r0;"), "k", 1, 32, [out])
    assert caught.value.kind == "read only"
    assert caught.value.address == out.ctypes.data


def test_deadlock_tells_what_each_warp_waits_for() -> None:
    with pytest.raises(EmulatorFault) as caught:
        launch(CASES["deadlock"].wrong, CASES["deadlock"], np.zeros(64, np.uint32))
    assert "warp 0 at line" in str(caught.value) and "barrier 2 (1 of 2 warps have arrived)" in str(caught.value)
    assert "warp 1 at line" in str(caught.value) and "barrier 1 (1 of 2 warps have arrived)" in str(caught.value)


def test_line_is_that_of_the_text() -> None:
    text = kernel("\n\n/* a\ncomment */ add.s32 %r1, %r2, 1; // here\nst.global.b32 [%rd0], %r1;")
    with pytest.raises(EmulatorFault) as caught:
        run_ptx(text, "k", 1, 32, [np.zeros(1, np.uint32)])
    assert caught.value.line == line_of(text, "// here")
