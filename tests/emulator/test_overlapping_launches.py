"""A launch that may begin before an earlier one has ended must wait before it uses what that one writes."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel, line_of

WAIT = "griddepcontrol.wait;"
USES = {
    "load": "ld.global.b32 %r1, [%rd0+4];",
    "store": "st.global.b32 [%rd0+4], %r0;",
    "atomic": "atom.global.add.u32 %r1, [%rd0+4], 1;",
    "generic load": "ld.b32 %r1, [%rd0+4];",
    "bulk copy": "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [buffer], [%rd0], 16, [bar];",
}
BUFFER = ".shared .align 16 .b8 buffer[16]; .shared .align 8 .b64 bar;"
START = "mbarrier.init.shared.b64 [bar], 1; fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 %rd9, [bar], 16;"


def launch(body: str, *, threads: int = 1, blocks: int = 1, is_pending: bool = True) -> str:
    written, own = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    text = kernel(body, 2, BUFFER)
    run_ptx(text, "k", blocks, threads, [written, own], pending=[written] if is_pending else [])
    return text


def body_of(use: str, before: str) -> str:
    if use != "bulk copy":
        return f"{before}\n{USES[use]} // here"
    return (
        f"{START}{before}\n{USES[use]} // here\n"
        "AGAIN: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra AGAIN;"
    )


@pytest.mark.parametrize("use", USES)
def test_use_before_the_wait(use: str) -> None:
    with pytest.raises(EmulatorFault) as caught:
        launch(body_of(use, ""))
    assert caught.value.kind == "missing grid wait"
    assert caught.value.line == line_of(kernel(body_of(use, ""), 2, BUFFER), "// here")
    launch(body_of(use, WAIT))
    launch(body_of(use, ""), is_pending=False)


def test_other_memory_needs_no_wait() -> None:
    launch("ld.global.b32 %r1, [%rd1]; st.global.b32 [%rd1], %r1;")
    launch("prefetch.global.L2 [%rd0]; cp.async.bulk.prefetch.L2.global [%rd0], 16;")


def test_each_block_waits_for_itself() -> None:
    first_alone = f"mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 0; @%p1 {WAIT}\n{USES['load']} // here"
    with pytest.raises(EmulatorFault, match="missing grid wait") as caught:
        launch(first_alone, blocks=2)
    assert caught.value.block == (1, 0, 0)


def test_one_warp_waits_for_its_block() -> None:
    launch(f"setp.lt.u32 %p1, %r0, 32; @%p1 {WAIT} bar.sync 0;\n{USES['load']}", threads=64)


RACING = """
{order} %r1, [%rd0];
mov.u32 %r2, %tid.x; mul.wide.u32 %rd5, %r2, 8; add.u64 %rd5, %rd5, %rd1;
st.global.b32 [%rd5], %r1;
griddepcontrol.wait;
{order} %r1, [%rd0];
st.global.b32 [%rd5+4], %r1;
"""


@pytest.mark.parametrize("order", ["ld.relaxed.gpu.global.b32", "ld.acquire.gpu.global.b32", "ld.volatile.global.b32"])
def test_a_load_that_races_gives_what_stood_there_before(order: str) -> None:
    """Also in a warp that comes to its wait later than another of the block."""
    text = kernel(RACING.format(order=order), 2)
    seen = set()
    for seed in (None, *range(20)):
        written, before, found = np.full(4, 7, np.uint32), np.full(4, 3, np.uint32), np.zeros(128, np.uint32)
        run_ptx(text, "k", 1, 64, [written, found], pending=[(written, before)], seed=seed)
        early, late = found[0::2], found[1::2]
        assert (late == 7).all() and (written == 7).all()
        assert seed is not None or (early == 3).all()
        seen |= {*early.tolist()}
    assert seen == {3, 7}


def test_what_stood_there_before_must_be_known() -> None:
    text = kernel(RACING.format(order="ld.relaxed.gpu.global.b32"), 2)
    written, found = np.zeros(4, np.uint32), np.zeros(128, np.uint32)
    with pytest.raises(EmulatorFault, match="missing grid wait"):
        run_ptx(text, "k", 1, 64, [written, found], pending=[written])
    with pytest.raises(ValueError, match="pending 0: 16 bytes, of which 4 are given as they were before"):
        run_ptx(text, "k", 1, 64, [written, found], pending=[(written, written[:1])])
    weak = kernel("ld.global.b32 %r1, [%rd0]; // here", 2)
    with pytest.raises(EmulatorFault, match="missing grid wait"):
        run_ptx(weak, "k", 1, 64, [written, found], pending=[(written, written)])
