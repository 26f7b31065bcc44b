"""How the blocks of a cluster begin: mbarriers are initialised, fenced, and known to the others after a barrier."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel

BODY = (
    "setp.eq.u32 %p1, %r0, 0; mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p2, %r1, 1;\n"
    "@%p1 mbarrier.init.shared.b64 [place], 1;\nFENCE\n"
    "barrier.cluster.arrive.ORDER.aligned; barrier.cluster.wait.acquire.aligned;\n"
    "mov.u32 %r2, place; mapa.shared::cluster.u32 %r3, %r2, 0; and.pred %p3, %p1, %p2;\n"
    "@%p3 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3];\n"
    "setp.eq.u32 %p4, %r1, 0; @!%p4 bra DONE;\n"
    "AGAIN: mbarrier.try_wait.parity.shared.b64 %p5, [place], 0; @!%p5 bra AGAIN;\nDONE:\n"
    "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
)


def launch(fence: str, order: str) -> None:
    text = kernel(BODY.replace("FENCE", fence).replace("ORDER", order), 1, ".shared .align 8 .b8 place[8];")
    run_ptx(text, "k", 2, 32, [np.zeros(1, np.uint32)], cluster=2)


def test_fence_before_a_relaxed_arrival() -> None:
    launch("fence.mbarrier_init.release.cluster;", "relaxed")
    launch("fence.acq_rel.cluster;", "relaxed")
    launch("", "release")


def test_relaxed_arrival_alone() -> None:
    with pytest.raises(EmulatorFault, match="race"):
        launch("", "relaxed")


def test_address_in_a_block_that_the_cluster_has_not() -> None:
    """May be made, as kernels do in lanes that then do nothing."""
    meet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    body = f"{meet} mov.u32 %r1, place; mapa.shared::cluster.u32 %r2, %r1, %r0; setp.lt.u32 %p1, %r0, LANES;\n"
    body += f"@%p1 st.shared::cluster.b32 [%r2], %r0;\n{meet}"
    declaration = ".shared .align 8 .b8 place[8];"
    start = "mov.u32 %r5, %cluster_ctarank; setp.eq.u32 %p2, %r5, 0; @!%p2 bra OTHER;\n"
    for lanes, good in (("2", True), ("3", False)):
        text = kernel(start + body.replace("LANES", lanes) + f"ret;\nOTHER:\n{meet} {meet}", 1, declaration)
        if good:
            run_ptx(text, "k", 2, 32, [np.zeros(1, np.uint32)], cluster=2)
        else:
            with pytest.raises(EmulatorFault, match="block 2 of a cluster of 2"):
                run_ptx(text, "k", 2, 32, [np.zeros(1, np.uint32)], cluster=2)
