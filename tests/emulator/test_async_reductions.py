"""Asynchronous reductions into shared memory of the cluster: red.async and cp.reduce.async.bulk."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel

SEEDS = [None, 1, 2, 3]
SHARED = ".shared .align 128 .b8 buffer[512];\n.shared .align 8 .b64 bar;"
ALL_MET = "barrier.cluster.arrive; barrier.cluster.wait;\n"
# Both blocks add 32 numbers to what block 0 has in the upper half of its buffer, block 0 waits and stores.
START = (
    "mov.u32 %r1, %cluster_ctarank; mov.b32 %r2, buffer; mov.b32 %r3, bar;\n"
    "shl.b32 %r4, %r0, 2; add.s32 %r5, %r2, %r4;\n"
    "mapa.shared::cluster.u32 %r6, %r2, 0; mapa.shared::cluster.u32 %r7, %r3, 0; add.s32 %r8, %r6, %r4;\n"
    "setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r1, 0; and.pred %p3, %p1, %p2;\n"
    "@%p1 mbarrier.init.shared::cta.b64 [%r3], 1; fence.mbarrier_init.release.cluster;\n"
    "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], {bytes};\n"
    "st.shared.b32 [%r5], %r0; {before} fence.proxy.async.shared::cta;\n"
) + ALL_MET
END = (
    "@!%p2 bra OUT;\n"
    "LOOP: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r3], 0; @!%p4 bra LOOP;\n"
    "ld.shared.b32 %r9, [%r5+256]; add.s64 %rd1, %rd0, %rd2; st.global.b32 [%rd1], %r9;\n"
    "OUT:\n"
) + ALL_MET
BULK = (
    "@%p1 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{operation} "
    "[%r6+256], [%r2], 128, [%r7];\n"
)
SINGLE = "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{operation} [%r8+256], %r0, [%r7];\n"
KINDS = [BULK, SINGLE]


def reduced(
    kind: str,
    seed: int | None,
    operation: str = "add.u32",
    before: str = "st.shared.b32 [%r5+256], 7;",
    times: int = 1,
) -> np.ndarray:
    out = np.zeros(32, np.uint32)
    start = START.format(bytes=256 * times, before=before)
    body = "mul.wide.u32 %rd2, %r0, 4;\n" + start + kind.format(operation=operation) * times + END
    run_ptx(kernel(body, 1, SHARED), "k", 2, 32, [out], cluster=2, seed=seed)
    return out


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [1, 2])
def test_blocks_and_copies_do_not_race(kind: str, times: int, seed: int | None) -> None:
    assert (reduced(kind, seed, times=times) == 7 + 2 * times * np.arange(32)).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", ["add.u32", "min.s32", "inc.u32", "or.b32"])
def test_what_nothing_has_written(operation: str, kind: str, seed: int | None) -> None:
    with pytest.raises(EmulatorFault) as caught:
        reduced(kind, seed, operation, before="")
    assert caught.value.kind == "uninitialized shared memory"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_register_without_a_value_wrote(kind: str, seed: int | None) -> None:
    with pytest.raises(EmulatorFault) as caught:
        reduced(kind, seed, before="st.shared.b32 [%r5+256], %r20;")
    assert caught.value.kind == "uninitialized shared memory"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("store", ["st.shared.b32", "st.relaxed.cta.shared.b32", "red.shared.add.u32"])
def test_other_writes_race(kind: str, store: str, seed: int | None) -> None:
    with pytest.raises(EmulatorFault) as caught:
        reduced(f"{store} [%r5+256], 3;\n{kind}", seed)
    assert caught.value.kind in {"race", "missing proxy fence"}
