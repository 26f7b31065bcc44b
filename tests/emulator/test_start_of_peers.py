"""Shared memory of another block of the cluster may be used once something says that that block runs."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel, line_of
from tests.emulator.test_faults_async import INIT, MET, PEER, SHARED, START

STORE = "st.shared::cluster.b32 [%r9], %r0;"
END = "\n" + MET + "ld.shared.b32 %r7, [%r4];\nst.global.b32 [%rd4], %r7;\n" + MET
RELAXED = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;\n"
SEEDS = (None, 1, 2, 3, 4, 5)


def launch(body: str, seed: int | None) -> None:
    memory = [np.zeros(64, np.int32), np.zeros(64, np.int32)]
    run_ptx(kernel(START + PEER + body, 2, SHARED), "k", 2, 64, memory, cluster=2, seed=seed, max_instructions=20_000)


@pytest.mark.parametrize("before", [
    MET,
    RELAXED,  # no order of memory is asked for
    "@!%p2 bra J;\n" + MET.replace(".aligned", "") + "J:\n@%p2 bra K;\n" + MET.replace(".aligned", "") + "K:\n",
])  # fmt: skip
def test_after_a_barrier_of_the_cluster(before: str) -> None:
    for seed in SEEDS:
        launch(before + STORE + END, seed)


@pytest.mark.parametrize("use", [
    STORE, "atom.shared::cluster.add.u32 %r7, [%r9], 1;", "ld.shared::cluster.b32 %r7, [%r9];",
    "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r10];",
    "@%p1 st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r9], %r0, [%r10];",
    "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r9], [%rd0], 256, [%r10];",
])  # fmt: skip
def test_before_any(use: str) -> None:
    body = INIT.replace("{n}", "1") + use + " // here" + END
    text = kernel(START + PEER + body, 2, SHARED)
    for seed in SEEDS:
        with pytest.raises(EmulatorFault, match="nothing says that it runs already") as caught:
            launch(body, seed)
        assert (caught.value.kind, caught.value.line) == ("race", line_of(text, "// here"))


def test_an_arrival_alone_says_nothing() -> None:
    body = "barrier.cluster.arrive.aligned;\n" + STORE + " // here\nbarrier.cluster.wait.aligned;" + END
    for seed in SEEDS:
        with pytest.raises(EmulatorFault, match="nothing says that it runs already"):
            launch(body, seed)


def test_another_warp_that_has_waited_says_so_by_a_barrier() -> None:
    # Warp 0 arrives and waits, warp 1 arrives only, and a barrier of the block follows.
    body = (
        "barrier.cluster.arrive.aligned;\n@!%p2 bra J;\nbarrier.cluster.wait.aligned;\nJ:\n{bar}"
        + STORE
        + " // here\n@%p2 bra K;\nbarrier.cluster.wait.aligned;\nK:"
        + END
    )
    for seed in SEEDS:
        launch(body.replace("{bar}", "bar.sync 0;\n"), seed)
        with pytest.raises(EmulatorFault, match="nothing says that it runs already"):
            launch(body.replace("{bar}", ""), seed)
