"""Blocks of a cluster that end while others may still use their shared memory; beside each stands a correct twin.

In order, and under random schedules, whether or not the use comes before the end there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel, line_of
from tests.emulator.test_faults_async import MET, PEER, SHARED, START, WAIT, once

SEEDS = (None, 1, 2, 3, 4, 5)
FIRST = "setp.eq.u32 %p5, %r6, 0;\n"  # %p5: of block 0
RELAXED = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;\n"
FILL = "st.shared.b32 [%r4], %r0;\n" + MET + PEER + FIRST
READ = "@%p5 ld.shared::cluster.b32 %r7, [%r9];"
BYTES = ".shared::cluster.mbarrier::complete_tx::bytes"
EXPECT = "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {n};\n"
TELL = "@%p5 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r10];"
UNLESS_FIRST = "@%p5 bra DONE;\n"


@dataclass(frozen=True)
class Case:
    wrong: str  # the marked line holds "// here"
    right: str


CASES = {
    "read": Case(FILL + READ + " // here\n", FILL + READ + "\n" + MET),
    "write": Case(
        FILL + "@%p5 st.shared::cluster.b32 [%r9], 7; // here\n",
        FILL + "@%p5 st.shared::cluster.b32 [%r9], 7;\n" + MET,
    ),
    "atomic": Case(
        FILL + "@%p5 red.shared::cluster.add.u32 [%r9], 7; // here\n",
        FILL + "@%p5 red.shared::cluster.add.u32 [%r9], 7;\n" + MET,
    ),
    "relaxed_barrier": Case(FILL + READ + " // here\n" + RELAXED, FILL + READ + "\n" + MET),
    "barrier_before": Case(FILL + MET + READ + " // here\n", FILL + READ + "\n" + MET),
    # The reader tells the owner, too early or in time.
    "told_too_early": Case(
        once(32) + FILL + TELL + "\n" + READ + " // here\n" + UNLESS_FIRST + WAIT + "DONE:\n",
        once(32) + FILL + READ + "\n" + TELL + "\n" + UNLESS_FIRST + WAIT + "DONE:\n",
    ),
    "arrival": Case(
        once(32) + FILL + TELL + " // here\n",
        once(32) + FILL + TELL + "\n" + UNLESS_FIRST + WAIT + "DONE:\n",
    ),
    # Who sees the phase complete knows of the arrivals, in whatever order.
    "relaxed_arrival": Case(
        once(33) + FILL + TELL.replace("release", "relaxed") + " // here\n",
        once(32) + FILL + TELL.replace("release", "relaxed") + "\n" + UNLESS_FIRST
        + WAIT.replace("parity", "parity.relaxed.cta") + "DONE:\n",
    ),
    "bytes_expected": Case(
        once(33) + FILL + "@%p5 mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%r10], 16; // here\n",
        once(33) + FILL + "@%p5 mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%r10], 16;\n" + MET,
    ),
    "multicast": Case(
        once() + EXPECT.replace("{n}", "256") + MET + FIRST + "mov.b16 %h1, 3; and.pred %p6, %p5, %p1;\n"
        "@%p6 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%r2], [%rd0], 256, [%r1], %h1; // here\n@!%p5 bra DONE;\n" + WAIT + "DONE:\n",
        once() + EXPECT.replace("{n}", "256") + MET + FIRST + "mov.b16 %h1, 3; and.pred %p6, %p5, %p1;\n"
        "@%p6 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%r2], [%rd0], 256, [%r1], %h1;\n" + WAIT,
    ),
    "store_that_signals": Case(
        once() + EXPECT.replace("{n}", "128") + MET + PEER + FIRST
        + "@%p5 st.async" + BYTES + ".b32 [%r9], %r0, [%r10]; // here\n",
        once() + EXPECT.replace("{n}", "128") + MET + PEER + FIRST
        + "@%p5 st.async" + BYTES + ".b32 [%r9], %r0, [%r10];\n" + UNLESS_FIRST + WAIT + "DONE:\n",
    ),
}  # fmt: skip


def launch(body: str, seed: int | None) -> None:
    memory = [np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)]
    run_ptx(kernel(START + body, 2, SHARED), "k", 2, 32, memory, cluster=2, seed=seed, max_instructions=1_000_000)


@pytest.mark.parametrize("name", CASES)
def test_found_and_twin_passes(name: str) -> None:
    case = CASES[name]
    for seed in SEEDS:
        launch(case.right, seed)
        with pytest.raises(EmulatorFault) as caught:
            launch(case.wrong, seed)
        assert caught.value.kind == "exited block", caught.value
        assert caught.value.line == line_of(kernel(START + case.wrong, 2, SHARED), "// here"), caught.value


def test_one_warp_of_the_block_that_knows_is_enough() -> None:
    """The block ends with its last warp: the first one may leave at once."""
    body = once(64) + "st.shared.b32 [%r4], %r0;\n" + MET + PEER + FIRST + READ + "\n" + TELL + "\n" + UNLESS_FIRST
    body += "@%p2 bra DONE;\n" + WAIT + "DONE:\n"
    memory = [np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)]
    for seed in SEEDS:
        run_ptx(kernel(START + body, 2, SHARED), "k", 2, 64, memory, cluster=2, seed=seed)
