"""barrier without .aligned: lanes of one warp may come to it from several places; the warp arrives when all have."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel

SEEDS = (None, 1, 2, 3)
SHARED = ".shared .align 8 .b8 buffer[1024];"
# %p1: lanes below 16, %p2: the first warp; %r4: own word, %r5: that of another warp.
START = """
and.b32 %r1, %r0, 31; setp.lt.u32 %p1, %r1, 16; setp.lt.u32 %p2, %r0, 32; mov.b32 %r2, buffer; shl.b32 %r3, %r0, 2;
add.s32 %r4, %r2, %r3; xor.b32 %r5, %r3, 128; add.s32 %r5, %r5, %r2; cvt.u64.u32 %rd3, %r3; add.s64 %rd4, %rd0, %rd3;
st.shared.b32 [%r4], %r0;
"""
KEEP = "ld.shared.b32 %r7, [%r5]; st.global.b32 [%rd4], %r7;\n"


def launch(body: str, seed: int | None = None, threads: int = 64) -> list[int]:
    out = np.zeros(64, np.uint32)
    run_ptx(kernel(START + body, 1, SHARED), "k", 1, threads, [out], seed=seed, max_instructions=100_000)
    return out.tolist()  # type: ignore[no-any-return]


OTHERS = [i ^ 32 for i in range(64)]


@pytest.mark.parametrize("seed", SEEDS)
def test_both_sides_of_a_branch(seed: int | None) -> None:
    body = "@%p1 bra LOW;\nbarrier.sync 0;\nadd.s32 %r5, %r5, 0;\nbra DONE;\nLOW: barrier.sync 0;\nDONE:\n" + KEEP
    assert launch(body, seed) == OTHERS
    with pytest.raises(EmulatorFault, match="divergence"):
        launch(body.replace("barrier.sync 0", "barrier.sync.aligned 0"), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_warp_parted_and_the_other_not(seed: int | None) -> None:
    body = "@!%p2 bra LOW;\n@%p1 bra LOW;\nbarrier.sync 1, 64;\nbra DONE;\nLOW: barrier.sync 1, 64;\nDONE:\n" + KEEP
    assert launch(body, seed) == OTHERS


@pytest.mark.parametrize("seed", SEEDS)
def test_several_rounds(seed: int | None) -> None:
    """The sides go round loops of their own; a warp counts once a round."""
    body = (
        "mov.b32 %r8, 0;\n@%p1 bra LOW;\n"
        "HIGH: barrier.sync 0; ld.shared.b32 %r7, [%r5]; barrier.sync 0; st.shared.b32 [%r4], %r7;\n"
        "add.s32 %r8, %r8, 1; setp.lt.u32 %p3, %r8, 5; @%p3 bra HIGH;\nbra DONE;\n"
        "LOW: barrier.sync 0; ld.shared.b32 %r7, [%r5]; barrier.sync 0; st.shared.b32 [%r4], %r7;\n"
        "add.s32 %r8, %r8, 1; setp.lt.u32 %p3, %r8, 5; @%p3 bra LOW;\nDONE: barrier.sync 0;\n" + KEEP
    )
    assert launch(body, seed) == list(range(64))


@pytest.mark.parametrize("seed", SEEDS)
def test_lanes_that_have_ended_are_not_waited_for(seed: int | None) -> None:
    body = "@%p1 bra LOW;\nbarrier.sync 0;\n" + KEEP + "bra DONE;\nLOW: exit;\nDONE:\n"
    assert launch(body, seed) == [i ^ 32 if i % 32 >= 16 else 0 for i in range(64)]


@pytest.mark.parametrize("seed", SEEDS)
def test_some_lanes_arrive_and_others_wait(seed: int | None) -> None:
    """The warp arrives once; its lanes that only arrive go on, which cannot be seen from outside here."""
    body = "@%p1 bra LOW;\nbarrier.sync 1, 64;\n" + KEEP + "bra DONE;\nLOW: barrier.arrive 1, 64;\nDONE:\n"
    assert launch(body, seed) == [i ^ 32 if i % 32 >= 16 else 0 for i in range(64)]


@pytest.mark.parametrize("seed", SEEDS)
def test_votes_of_all_sides_count(seed: int | None) -> None:
    body = (
        "setp.lt.u32 %p3, %r1, 20; mov.pred %p4, -1;\n@%p1 bra LOW;\nbarrier.red.popc.u32 %r7, 0, %p3; bra DONE;\n"
        "LOW: barrier.red.popc.u32 %r7, 0, %p4;\nDONE: st.global.b32 [%rd4], %r7;\n"
    )
    assert launch(body, seed) == [40] * 64


@pytest.mark.parametrize("seed", SEEDS)
def test_a_side_that_does_not_come(seed: int | None) -> None:
    body = "@%p1 bra LOW;\nbarrier.sync 0;\nbra DONE;\nLOW: barrier.sync 1;\nDONE:\n"
    with pytest.raises(
        EmulatorFault, match=r"barrier: barrier [01] .* while other lanes of the warp are at barrier [01]"
    ):
        launch(body, seed)
    body = "@%p1 bra LOW;\nbarrier.sync 0;\nbra DONE;\nLOW: @%p2 exit; barrier.sync 0, 32;\nDONE:\n"
    with pytest.raises(EmulatorFault, match=r"barrier 0 of [01] warps"):
        launch(body, seed)


def test_what_the_lanes_did_before_is_handed_on() -> None:
    """A race where one side stores behind its barrier."""
    body = "@%p1 bra LOW;\nbarrier.sync 0;\nst.shared.b32 [%r4], %r1;\nbra DONE;\nLOW: barrier.sync 0;\nDONE:\n" + KEEP
    with pytest.raises(EmulatorFault, match="race"):
        launch(body)
