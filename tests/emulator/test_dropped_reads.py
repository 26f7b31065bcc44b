"""Reads of global memory whose value goes nowhere: they race with nothing (Triton lets all warps of a block read what
some lanes store)."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel

SCHEDULES = (None, 1, 2, 3)
DOUBLE = (
    "and.b32 %r1, %r0, 31; mul.wide.u32 %rd5, %r1, 4; add.s64 %rd5, %rd5, %rd0;\n"
    "{late}ld.global.b32 %r2, [%rd5]; {between}add.s32 %r3, %r2, %r2;\n"
    "setp.lt.u32 %p1, %r0, {lanes}; {guard}st.global.b32 [%rd5], %r3;"
)
THREADS = 128


def doubled(seed: int | None, **parts: str) -> np.ndarray:
    numbers = np.arange(32, dtype=np.int32)
    text = kernel(DOUBLE.format(**{"late": "", "between": "", "lanes": "32", "guard": "@%p1 ", **parts}))
    run_ptx(text, "k", 1, THREADS, [numbers], seed=seed)
    return numbers


@pytest.mark.parametrize("seed", SCHEDULES)
def test_what_only_the_warps_that_store_use(seed: int | None) -> None:
    assert (doubled(seed) == 2 * np.arange(32)).all()


@pytest.mark.parametrize("seed", SCHEDULES)
@pytest.mark.parametrize("parts", [{"late": "bar.sync 0; "}, {"guard": "bar.sync 0; @%p1 "}])
def test_orders_before_and_behind(parts: dict[str, str], seed: int | None) -> None:
    assert (doubled(seed, **parts) == 2 * np.arange(32)).all()


ROUNDS = (
    "mov.b32 %r4, 0; and.b32 %r1, %r0, 31; setp.lt.u32 %p1, %r0, 32; setp.ge.u32 %p2, %r0, 32;\n"
    "LOOP: add.u32 %r5, %r1, %r4; mul.wide.u32 %rd5, %r5, 4; add.s64 %rd5, %rd5, %rd0;\n"
    "ld.global.b32 %r2, [%rd5]; add.s32 %r2, %r2, 1; @%p1 st.global.b32 [%rd5], %r2;\n"
    "bar.sync 0; {last}\n"
    "add.u32 %r4, %r4, 32; setp.lt.u32 %p3, %r4, 128; @%p3 bra LOOP;"
)


@pytest.mark.parametrize("seed", SCHEDULES)
def test_rounds_with_a_barrier_between(seed: int | None) -> None:
    """What was dropped in one round does not count in the next, whose stores are other lanes'."""
    numbers = np.zeros(128, np.int32)
    swap = "not.pred %p1, %p1; setp.lt.and.u32 %p1, %r0, 64, %p1;"
    run_ptx(kernel(ROUNDS.format(last=swap)), "k", 1, 64, [numbers], seed=seed)
    assert (numbers == 1).all()


@pytest.mark.parametrize("seed", SCHEDULES)
def test_what_is_stored_behind_a_barrier(seed: int | None) -> None:
    numbers = np.zeros(128, np.int32)
    with pytest.raises(EmulatorFault) as caught:
        run_ptx(kernel(ROUNDS.format(last="@%p2 st.global.b32 [%rd0+508], %r2;")), "k", 1, 64, [numbers], seed=seed)
    assert caught.value.kind == "race"


@pytest.mark.parametrize("seed", SCHEDULES)
@pytest.mark.parametrize(
    "parts",
    [
        {"lanes": "64"},
        {"guard": ""},
        {"between": "setp.eq.u32 %p2, %r2, 5; @%p2 bra OUT; ld.global.b32 %r4, [%rd5]; OUT: "},  # which way a warp goes
        {"between": "shfl.sync.bfly.b32 %r2, %r2, 1, 31, -1; "},
        {
            "between": "add.cc.u32 %r2, %r2, -1; addc.u32 %r5, 0, 0; setp.eq.u32 %p2, %r5, 7; @%p2 bra OUT; "
            "ld.global.b32 %r4, [%rd5]; OUT: "
        },  # a carry
        {"between": "st.shared.b32 [place], %r2; ", "late": ".shared .align 4 .b8 place[4];\n"},
        {"between": "setp.eq.u32 %p2, %r1, 40; @%p2 bar.sync 0; "},  # no lane takes it, but it might order
        {"between": "mul.wide.u32 %rd6, %r2, 4; add.s64 %rd5, %rd0, %rd6; "},  # an address
    ],
)
def test_what_more_lanes_use(parts: dict[str, str], seed: int | None) -> None:
    with pytest.raises(EmulatorFault) as caught:
        doubled(seed, **parts)
    assert caught.value.kind == "race"


def test_the_line_is_the_read() -> None:
    """Warp 0 has stored when warp 1 uses what it read."""
    with pytest.raises(EmulatorFault, match="read of global memory that nothing orders after the write") as caught:
        doubled(None, lanes="64")
    assert caught.value.instruction.startswith("ld.global.b32")


# Warp 1 stores what warp 0 reads in its first turn and keeps, in one way or another, until behind an order.
KEPT = (
    "add.s64 %rd6, %rd0, 256; setp.eq.u32 %p1, %r0, 0; setp.ge.u32 %p2, %r0, 32; setp.eq.u32 %p3, %r0, 32;\n"
    "mov.b32 %r4, 0; mov.b32 %r3, 0; mov.b64 %rd5, %rd6; setp.eq.u32 %p5, %r4, 0; @%p2 bra WRITER;\n"
    "LOOP: {read}ld.global.b32 %r2, [%rd5]; setp.ne.u32 %p4, %r4, 0; and.pred %p4, %p4, %p1;\n"
    "{store}; {order}; mov.b64 %rd5, %rd0;\n"
    "add.u32 %r4, %r4, 1; setp.eq.u32 %p5, %r4, 0; setp.lt.u32 %p6, %r4, 2; @%p6 bra LOOP; bra END;\n"
    "WRITER: @%p3 st.global.b32 [%rd6], 5;\nEND:"
)


@pytest.mark.parametrize("seed", SCHEDULES)
@pytest.mark.parametrize("order", ["bar.sync 1, 32", "fence.acq_rel.gpu"])
@pytest.mark.parametrize(
    ("read", "store"),
    [
        ("", "@%p4 st.global.b32 [%rd0+4], %r3; mov.b32 %r3, %r2"),  # in another register
        ("@%p5 ", "@%p4 st.global.b32 [%rd0+4], %r2"),  # the second turn does not read
    ],
)
def test_what_is_kept_behind_an_order(read: str, store: str, order: str, seed: int | None) -> None:
    with pytest.raises(EmulatorFault) as caught:
        run_ptx(
            kernel(KEPT.format(read=read, store=store, order=order)), "k", 1, 64, [np.zeros(128, np.int32)], seed=seed
        )
    assert caught.value.kind == "race"


@pytest.mark.parametrize("seed", SCHEDULES)
def test_another_reads_store(seed: int | None) -> None:
    """It does not make what was dropped before count."""
    body = (
        "mul.wide.u32 %rd5, %r0, 4; add.s64 %rd5, %rd0, %rd5; setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r0, 32;\n"
        "ld.global.b32 %r2, [%rd0+512]; @%p1 st.global.b32 [%rd0+512], %r2;\n"
        "ld.global.b32 %r3, [%rd5]; @%p2 st.global.b32 [%rd5+256], %r3;"
    )
    run_ptx(kernel(body), "k", 1, 64, [np.zeros(256, np.int32)], seed=seed)
