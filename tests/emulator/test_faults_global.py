"""Planted mistakes with global memory that warps, blocks and devices of one launch share; beside each a correct twin.

Found in order and under random schedules. p0 is 64 words of data, p1 flags and counters, p2 what comes out.
"""

# ruff: noqa: E501 (programs, a line a step)
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from msa_ops.emulator import EmulatorFault, run_ptx, run_ptx_on_devices
from tests.emulator.programs import kernel, line_of

SEEDS = (None, 1, 2, 3)
SHARED = ".shared .align 128 .b8 buffer[1024];\n.shared .align 8 .b64 bar;"
# %p1: the first thread, %p2: the first block, %p3: the first warp; %rd3: a thread's own word of data, %rd4: of another
# warp, %rd5: of the result.
START = """
mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r1, 0; setp.lt.u32 %p3, %r0, 32;
shl.b32 %r2, %r0, 2; cvt.u64.u32 %rd6, %r2; add.s64 %rd3, %rd0, %rd6; add.s64 %rd5, %rd2, %rd6;
xor.b32 %r3, %r2, 128; cvt.u64.u32 %rd7, %r3; add.s64 %rd4, %rd0, %rd7; mov.b32 %r4, buffer; mov.b32 %r5, bar;
"""
KEEP = "\nst.global.b32 [%rd5], %r7;\n"
READ = "ld.global.b32 %r7, [%rd3];"
POLL = "SPIN: ld.{how}.global.b32 %r8, [%rd1]; setp.eq.b32 %p4, %r8, 0; @%p4 bra SPIN;\n"


def handed_on(give: str, take: str, mark: str = READ + " // here" + KEEP) -> str:
    """The first block writes and tells, the second one looks and reads: `take`, then `mark`."""
    return f"@!%p2 bra TAKE;\nst.global.b32 [%rd3], %r0;\nbar.sync 0;\n{give}\nbra DONE;\nTAKE:\n{take}\n{mark}DONE:\n"


def poll(how: str) -> str:
    return POLL.replace("{how}", how)


RIGHT_READ = READ + KEEP
GIVE = "@%p1 st.release.gpu.global.b32 [%rd1], 1;"
TAKE = poll("acquire.gpu")
LAST = (
    "mov.u32 %r9, %nctaid.x; mov.b32 %r10, 0;\n@!%p3 bra NO;\n{give}\nNO:\n{meet}"
    "ld.shared.b32 %r10, [%r4]; add.s32 %r10, %r10, 1; setp.ne.u32 %p5, %r10, %r9; @%p5 bra DONE;\n{take}"
)
TELL = "@%p1 st.shared.b32 [%r4], %r10;\n"
COPY = (
    "@%p1 mbarrier.init.shared::cta.b64 [%r5], 1;\nbar.sync 0;\n"
    "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 256;\n{before}"
    "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd0], 256, [%r5]; // here\n"
    "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r5], 0; @!%p5 bra WAIT;\n"
    "add.s32 %r6, %r4, %r2; ld.shared.b32 %r7, [%r6];" + KEEP
)


def partials(give: str, take: str, meet: str = "bar.sync 0;\n") -> str:
    """Each block writes its words; the block that counts last reads all of them."""
    own = "mad.lo.u32 %r11, %r1, 256, %r2; cvt.u64.u32 %rd8, %r11; add.s64 %rd8, %rd8, %rd0;\n"
    own += "st.global.b32 [%rd8], %r0;\n" + meet
    body = LAST.replace("{give}", give + "\n" + TELL).replace("{meet}", "bar.sync 0;\n").replace("{take}", take)
    return (
        own
        + body
        + "\nld.global.b32 %r7, [%rd3]; // here\nld.global.b32 %r8, [%rd3+256]; add.s32 %r7, %r7, %r8;"
        + KEEP
        + "DONE:\n"
    )


COUNT = "@%p1 atom{how}.global.add.u32 %r10, [%rd1], 1;"


def count(how: str) -> str:
    return COUNT.replace("{how}", how)


@dataclass(frozen=True)
class Case:
    wrong: str  # the marked line holds "// here"
    right: str
    kind: str = "race"
    anywhere: bool = False  # which of the two that nothing orders comes first is up to the schedule


CASES = {
    "flag_without_fence": Case(
        handed_on("@%p1 st.relaxed.gpu.global.b32 [%rd1], 1;", TAKE),
        handed_on("@%p1 fence.acq_rel.gpu;\n@%p1 st.relaxed.gpu.global.b32 [%rd1], 1;", TAKE, RIGHT_READ),
    ),
    "fence_after_flag": Case(
        handed_on("@%p1 st.volatile.global.b32 [%rd1], 1;\nmembar.gl;", poll("volatile") + "membar.gl;"),
        handed_on("membar.gl;\n@%p1 st.volatile.global.b32 [%rd1], 1;", poll("volatile") + "membar.gl;", RIGHT_READ),
    ),
    "no_acquire": Case(
        handed_on(GIVE, poll("relaxed.gpu")),
        handed_on(GIVE, poll("relaxed.gpu") + "fence.acq_rel.gpu;", RIGHT_READ),
    ),
    "weak_polling": Case(
        handed_on(GIVE, poll("weak").replace("\n", " // here\n") + "fence.acq_rel.gpu;", RIGHT_READ),
        handed_on(GIVE, TAKE, RIGHT_READ),
        anywhere=True,
    ),
    "weak_flag": Case(
        handed_on("membar.gl;\n@%p1 st.global.b32 [%rd1], 1; // here", TAKE, RIGHT_READ),
        handed_on("membar.gl;\n@%p1 st.relaxed.gpu.global.b32 [%rd1], 1;", TAKE, RIGHT_READ),
        anywhere=True,
    ),
    "release_to_the_block": Case(
        handed_on("@%p1 st.release.cta.global.b32 [%rd1], 1;", TAKE, RIGHT_READ),
        handed_on(GIVE, TAKE, RIGHT_READ),
        anywhere=True,
    ),
    "fence_of_the_block": Case(
        handed_on("@%p1 fence.acq_rel.cta;\n@%p1 st.relaxed.gpu.global.b32 [%rd1], 1;", TAKE),
        handed_on("@%p1 fence.acq_rel.gpu;\n@%p1 st.relaxed.gpu.global.b32 [%rd1], 1;", TAKE, RIGHT_READ),
    ),
    "acquiring_fence_of_the_block": Case(
        handed_on(GIVE, poll("relaxed.gpu") + "fence.acq_rel.cta;"),
        handed_on(GIVE, poll("relaxed.gpu") + "fence.acq_rel.sys;", RIGHT_READ),
    ),
    # The fence of one thread covers what others did only if a barrier lies between.
    "no_barrier_before_the_flag": Case(
        handed_on(GIVE, TAKE).replace("bar.sync 0;\n", "", 1),
        handed_on(GIVE, TAKE, RIGHT_READ),
        anywhere=True,
    ),
    # One thread looks, the others read behind a barrier or without one.
    "no_barrier_behind_the_flag": Case(
        handed_on(GIVE, "@!%p1 bra ON;\n" + TAKE + "ON:"),
        handed_on(GIVE, "@!%p1 bra ON;\n" + TAKE + "ON: bar.sync 0;", RIGHT_READ),
        anywhere=True,
    ),
    "last_block_relaxed": Case(
        partials(count(""), "bar.sync 0;"),
        partials("membar.gl;\n" + count("") + "\nmembar.gl;", "bar.sync 0;"),
        anywhere=True,
    ),
    "last_block_without_acquire": Case(
        partials(count(".release.gpu"), "bar.sync 0;"),
        partials(count(".acq_rel.gpu"), "bar.sync 0;"),
        anywhere=True,
    ),
    "last_block_without_barrier": Case(
        partials(count(".acq_rel.gpu"), "bar.sync 0;", meet=""),
        partials(count(".acq_rel.gpu"), "bar.sync 0;"),
        anywhere=True,
    ),
    "atomics_of_blocks": Case(
        "atom.relaxed.cta.global.add.u32 %r7, [%rd1], 1; // here\n",
        "atom.relaxed.gpu.global.add.u32 %r7, [%rd1], 1;\n",
    ),
    "two_writers": Case(
        "st.global.b32 [%rd3], %r1; // here\n",
        "st.global.b32 [%rd3], %r0;\n",
    ),
    "one_byte": Case(
        "cvt.u64.u32 %rd8, %r1; add.s64 %rd8, %rd8, %rd0;\n@%p1 st.global.b8 [%rd0+1], %r1; // here\n",
        "cvt.u64.u32 %rd8, %r1; add.s64 %rd8, %rd8, %rd0;\n@%p1 st.global.b8 [%rd8+1], %r1;\n",
    ),
    "write_after_read": Case(
        "@%p2 bra FIRST;\nst.global.b32 [%rd3], 7; // here\nbra DONE;\nFIRST:\n" + READ + KEEP + "DONE:\n",
        "@%p2 bra FIRST;\n" + TAKE + "st.global.b32 [%rd3], 7;\nbra DONE;\nFIRST:\n" + READ + KEEP
        + "bar.sync 0;\n" + GIVE + "\nDONE:\n",
        anywhere=True,
    ),
    "atomic_beside_a_weak_read": Case(
        "@%p2 bra FIRST;\nred.global.add.u32 [%rd3], 7; // here\nbra DONE;\nFIRST:\n" + READ + KEEP + "DONE:\n",
        "@%p2 bra FIRST;\nred.global.add.u32 [%rd3], 7;\nbra DONE;\nFIRST:\nld.relaxed.gpu.global.b32 %r7, [%rd3];"
        + KEEP + "DONE:\n",
        anywhere=True,
    ),
    "warps_of_a_block": Case(
        "@!%p2 bra DONE;\nst.global.b32 [%rd3], %r0;\nld.global.b32 %r7, [%rd4]; // here" + KEEP + "DONE:\n",
        "@!%p2 bra DONE;\nst.global.b32 [%rd3], %r0;\nbar.sync 0; ld.global.b32 %r7, [%rd4];" + KEEP + "DONE:\n",
        anywhere=True,
    ),
    "copy_of_what_is_not_there": Case(
        "@!%p2 bra DONE;\nst.global.b32 [%rd3], %r0;\nadd.s32 %r6, %r4, %r2; cp.async.ca.shared.global [%r6], [%rd4], 4; // here\n"
        "cp.async.wait_all;\nDONE:\n",
        "@!%p2 bra DONE;\nst.global.b32 [%rd3], %r0; bar.sync 0;\nadd.s32 %r6, %r4, %r2; cp.async.ca.shared.global [%r6], [%rd4], 4;\n"
        "cp.async.wait_all;\nDONE:\n",
        anywhere=True,
    ),
    # ---- the asynchronous proxy
    "bulk_copy_of_own_stores": Case(
        "@!%p2 bra DONE;\nst.global.b32 [%rd3], %r0; bar.sync 0;\n" + COPY.replace("{before}", "") + "DONE:\n",
        "@!%p2 bra DONE;\nst.global.b32 [%rd3], %r0; bar.sync 0;\n"
        + COPY.replace("{before}", "fence.proxy.async.global;\n").replace("// here", "") + "DONE:\n",
        kind="missing proxy fence",
    ),
    "fence_of_shared_memory": Case(
        "@!%p2 bra DONE;\nst.global.b32 [%rd3], %r0; bar.sync 0;\n"
        + COPY.replace("{before}", "fence.proxy.async.shared::cta;\n") + "DONE:\n",
        "@!%p2 bra DONE;\nst.global.b32 [%rd3], %r0; fence.proxy.async; bar.sync 0;\n"
        + COPY.replace("{before}", "").replace("// here", "") + "DONE:\n",
        kind="missing proxy fence",
    ),
    "bulk_copy_in_another_block": Case(
        handed_on(GIVE, TAKE, COPY.replace("{before}", "")),
        handed_on(GIVE, TAKE, COPY.replace("{before}", "fence.proxy.async;\n").replace("// here", "")),
        kind="missing proxy fence",
    ),
    "bulk_copy_without_order": Case(
        handed_on(GIVE, "", COPY.replace("{before}", "fence.proxy.async;\n")),
        handed_on(GIVE, TAKE, COPY.replace("{before}", "fence.proxy.async;\n").replace("// here", "")),
        anywhere=True,
    ),
    "store_that_has_only_been_read": Case(
        "add.s32 %r6, %r4, %r2; st.shared.b32 [%r6], %r0; fence.proxy.async.shared::cta; bar.sync 0;\n@!%p2 bra TAKE;\n@!%p1 bra DONE;\n"
        "cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r4], 256; cp.async.bulk.commit_group;\n"
        "cp.async.bulk.wait_group.read 0;\nst.release.gpu.global.b32 [%rd1], 1; bra DONE;\nTAKE:\n" + TAKE + READ + " // here" + KEEP
        + "DONE:\n",
        "add.s32 %r6, %r4, %r2; st.shared.b32 [%r6], %r0; fence.proxy.async.shared::cta; bar.sync 0;\n@!%p2 bra TAKE;\n@!%p1 bra DONE;\n"
        "cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r4], 256; cp.async.bulk.commit_group;\n"
        "cp.async.bulk.wait_group 0;\nst.release.gpu.global.b32 [%rd1], 1; bra DONE;\nTAKE:\n" + TAKE + READ + KEEP + "DONE:\n",
    ),
}  # fmt: skip


def arrays() -> list[NDArray[np.uint32]]:
    return [np.arange(7, 263, dtype=np.uint32), np.zeros(16, np.uint32), np.zeros(256, np.uint32)]


def launch(body: str, seed: int | None, threads: int = 1) -> list[NDArray[np.uint32]]:
    memory = arrays()
    run_ptx(
        kernel(START + body, 3, SHARED),
        "k",
        2,
        64,
        list(memory),
        seed=seed,
        threads=threads,
        max_instructions=3_000_000,
    )
    return memory


@pytest.mark.parametrize("name", CASES)
def test_found_and_twin_passes(name: str) -> None:
    case = CASES[name]
    for seed in SEEDS:
        launch(case.right.replace("// here", ""), seed)
        with pytest.raises(EmulatorFault) as caught:
            launch(case.wrong, seed)
        assert caught.value.kind == case.kind, caught.value
        if not case.anywhere:
            assert caught.value.line == line_of(kernel(START + case.wrong, 3, SHARED), "// here"), caught.value


@pytest.mark.parametrize("name", CASES)
def test_twins_pass_on_several_threads(name: str) -> None:
    for _ in range(3):
        launch(CASES[name].right.replace("// here", ""), None, threads=2)


def test_equal_stores_of_two_threads_never_alarm() -> None:
    """One cluster says what it stores, another one compares before it has been stored: in one of a hundred launches."""
    for _ in range(500):
        launch(CASES["two_writers"].right, None, threads=2)


def test_the_message_names_the_other_access() -> None:
    case = CASES["flag_without_fence"]
    line = line_of(kernel(START + case.wrong, 3, SHARED), "st.global.b32 [%rd3], %r0")
    with pytest.raises(EmulatorFault, match=rf"after the write of block \(0, 0, 0\), warp 0 at line {line}"):
        launch(case.wrong, None)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_value_is_no_race(seed: int | None) -> None:
    launch("st.global.b32 [%rd3], 7;\nst.global.b16 [%rd0+6], 0;\n", seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_barrier_of_the_grid(seed: int | None) -> None:
    """As cooperative groups make it: fence, atomic, polling by volatile loads, fence; three times round the same words."""
    body = (
        "mov.b32 %r12, 0; mov.b32 %r7, 0;\nROUND: mad.lo.u32 %r11, %r1, 256, %r2; cvt.u64.u32 %rd8, %r11; add.s64 %rd8, %rd8, %rd0;\n"
        "add.s32 %r13, %r12, %r1; st.global.b32 [%rd8], %r13;\n{meet}"
        "xor.b32 %r14, %r1, 1; mad.lo.u32 %r11, %r14, 256, %r2; cvt.u64.u32 %rd9, %r11; add.s64 %rd9, %rd9, %rd0;\n"
        "ld.global.b32 %r8, [%rd9]; add.s32 %r7, %r7, %r8;\n{again}add.s32 %r12, %r12, 1; setp.lt.u32 %p6, %r12, 3; @%p6 bra ROUND;\n"
        "add.s64 %rd5, %rd8, %rd2; sub.s64 %rd5, %rd5, %rd0; st.global.b32 [%rd5], %r7;\n"
    )
    meet = (
        "bar.sync 0; @!%p1 bra MET{n}; membar.gl; atom.global.add.u32 %r9, [%rd1], 1; mad.lo.u32 %r10, %r12, 4, {n};\n"
        "SPIN{n}: ld.volatile.global.u32 %r9, [%rd1]; setp.lt.u32 %p7, %r9, %r10; @%p7 bra SPIN{n}; membar.gl;\nMET{n}: bar.sync 0;\n"
    )
    right = body.replace("{meet}", meet.replace("{n}", "2")).replace("{again}", meet.replace("{n}", "4"))
    *_, out = launch(right, seed)
    assert out.tolist() == [6] * 64 + [3] * 64 + [0] * 128
    with pytest.raises(EmulatorFault, match="race"):
        launch(right.replace("membar.gl", "membar.cta"), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_devices_need_the_scope_of_the_system(seed: int | None) -> None:
    body = handed_on("@%p1 st.release.{s}.global.b32 [%rd1], 1;", poll("acquire.{s}"), RIGHT_READ)
    body = "ld.global.b32 %r15, [%rd10]; setp.eq.u32 %p2, %r15, 0;\n" + body
    for scope, fine in (("sys", True), ("gpu", False)):
        data, flag, out, which = *arrays(), [np.full(16, device, np.uint32) for device in range(2)]
        text = kernel(START + body.replace("{s}", scope), 4, SHARED).replace(
            "ld.param.u64 %rd3, [p3];", "ld.param.u64 %rd10, [p3];"
        )
        text = text.replace("mov.u32 %r1, %ctaid.x;", "ld.param.u64 %rd10, [p3]; mov.u32 %r1, %ctaid.x;")
        each = [[data, flag, out, which[device]] for device in range(2)]
        if fine:
            run_ptx_on_devices(text, "k", 1, 64, each, seed=seed, max_instructions=3_000_000)
            assert out[:64].tolist() == list(range(64))
            continue
        with pytest.raises(EmulatorFault, match=r"race.*device"):
            run_ptx_on_devices(text, "k", 1, 64, each, seed=seed, max_instructions=3_000_000)
