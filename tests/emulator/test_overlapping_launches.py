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
