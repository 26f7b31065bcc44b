"""With a seed, waits at an mbarrier fail now and then, as the ISA allows, so that a result that is tested once is found."""

# ruff: noqa: E501 (programs, a line a step)
from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel, line_of
from tests.emulator.test_faults_async import EXPECT, KEEP, LOAD, MET, READ, SHARED, START, WAIT, once

ONCE = "mbarrier.{wait}.parity.shared::cta.b64 %p4, [%r1], 0;\n"
SEEDS = range(24)


def launch(body: str, seed: int | None) -> np.ndarray:
    out = np.zeros(64, np.int32)
    run_ptx(
        kernel(START + body, 2, SHARED),
        "k",
        1,
        64,
        [np.arange(64, dtype=np.int32), out],
        seed=seed,
        max_instructions=20_000,
    )
    return out


@pytest.mark.parametrize("wait", ["try_wait", "test_wait"])
def test_a_result_that_is_tested_once_is_found(wait: str) -> None:
    wrong = (
        once() + EXPECT + LOAD + "\n" + ONCE.format(wait=wait) + "@!%p4 nanosleep.u32 20;\n" + READ + " // here" + KEEP
    )
    text, found = kernel(START + wrong, 2, SHARED), 0
    for seed in SEEDS:
        try:
            launch(wrong, seed)
        except EmulatorFault as fault:
            assert fault.kind in ("race", "uninitialized shared memory")  # by which of the two comes first
            assert fault.line == line_of(text, "// here")
            found += 1
    assert found >= len(SEEDS) // 4


@pytest.mark.parametrize("wait", ["try_wait", "test_wait"])
def test_loops_end_and_find_the_data(wait: str) -> None:
    loop = WAIT.replace("try_wait", wait)
    for seed in SEEDS:
        assert np.array_equal(launch(once() + EXPECT + LOAD + "\n" + loop + READ + KEEP, seed), np.arange(64))


@pytest.mark.parametrize("wait", ["try_wait", "test_wait"])
@pytest.mark.parametrize(
    "known",
    [
        WAIT,  # by a wait before
        "@!%p2 bra J;\n" + WAIT + "J:\nbar.sync 0;\n",  # by a barrier after another warp's wait
        "@!%p2 bra J;\n" + WAIT + "J:\n" + MET,
        WAIT.replace("try_wait", "try_wait.relaxed.cta"),  # a relaxed wait has seen it, too
    ],
)
def test_what_a_warp_knows_to_be_complete_never_fails(wait: str, known: str) -> None:
    for seed in SEEDS:
        got = launch(
            once() + EXPECT + LOAD + "\n" + known + ONCE.format(wait=wait) + "selp.b32 %r7, 1, 0, %p4;" + KEEP, seed
        )
        assert got.all()


@pytest.mark.parametrize("wait", ["try_wait", "test_wait"])
def test_the_warp_that_arrives_last_knows(wait: str) -> None:
    body = (
        once()
        + "@%p3 mbarrier.arrive.shared::cta.b64 _, [%r1];\n@!%p3 bra OUT;\n"
        + ONCE.format(wait=wait)
        + "selp.b32 %r7, 1, 0, %p4;"
        + KEEP
        + "OUT:\n"
    )
    for seed in SEEDS:
        assert launch(body, seed)[32] == 1


def test_without_a_seed_a_wait_fails_only_when_nothing_can_go_on() -> None:
    body = once() + EXPECT + LOAD + "\n" + ONCE.format(wait="try_wait") + "@!%p4 nanosleep.u32 20;\n" + READ + KEEP
    assert np.array_equal(launch(body, None), np.arange(64))
