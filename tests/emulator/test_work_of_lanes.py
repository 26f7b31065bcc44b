"""Asynchronous work is the thread's that asked for it: another lane's commit does not commit it, nor its wait wait."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel

SEEDS = [None, 1, 2, 3]
SHARED = ".shared .align 128 .b8 buffer[128];"
STORE = (
    "mov.b32 %r1, buffer; shl.b32 %r2, %r0, 2; add.s32 %r2, %r2, %r1; st.shared.b32 [%r2], %r0;\n"
    "fence.proxy.async.shared::cta; bar.sync 0; setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r0, 1;\n"
    "@%p{issues} cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 128;\n"
    "@%p{commits} cp.async.bulk.commit_group; @%p{waits} cp.async.bulk.wait_group.read 0;\n"
    "bar.sync 0; st.shared.b32 [%r2], 9;\n"
    "@%p{commits} cp.async.bulk.wait_group 0;"
)


def stored(seed: int | None, issues: int, commits: int, waits: int) -> np.ndarray:
    out = np.zeros(32, np.uint32)
    run_ptx(kernel(STORE.format(issues=issues, commits=commits, waits=waits), 1, SHARED), "k", 1, 32, [out], seed=seed)
    return out


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("lane", [0, 1])
def test_groups_of_one_lane(lane: int, seed: int | None) -> None:
    assert (stored(seed, lane, lane, lane) == np.arange(32)).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("issues", "commits", "waits"), [(0, 1, 1), (1, 0, 0), (0, 0, 1), (0, 1, 0)])
def test_groups_of_another_lane(issues: int, commits: int, waits: int, seed: int | None) -> None:
    with pytest.raises(EmulatorFault) as caught:
        stored(seed, issues, commits, waits)
    assert caught.value.kind == "race"
    assert caught.value.instruction.startswith("st.shared.b32 [%r2], 9")


@pytest.mark.parametrize("seed", SEEDS)
def test_two_lanes_store(seed: int | None) -> None:
    """Each waits for its own."""
    half = "@%p{0} cp.async.bulk.global.shared::cta.bulk_group [%rd0+{1}], [%r1+{1}], 64;\n"
    body = STORE.format(issues=0, commits=0, waits=0)
    body = body.replace("[%rd0], [%r1], 128;", "[%rd0], [%r1], 64;\n" + half.format(1, 64))
    body = body.replace("@%p0 cp.async.bulk.wait", "or.pred %p2, %p0, %p1; @%p2 cp.async.bulk.wait")
    body = body.replace("@%p0 cp.async.bulk.commit", "@%p1 cp.async.bulk.commit_group; @%p0 cp.async.bulk.commit")
    out = np.zeros(32, np.uint32)
    run_ptx(kernel(body, 1, SHARED), "k", 1, 32, [out], seed=seed)
    assert (out == np.arange(32)).all()
