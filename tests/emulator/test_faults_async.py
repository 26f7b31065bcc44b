"""Planted mistakes with barriers, mbarriers, asynchronous copies and clusters; beside each stands a correct twin.

The twin passes under random schedules too, and so does the mistake get found: it does not hang on luck.
"""

# ruff: noqa: E501 (programs, a line a step)
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel, line_of

SHARED = ".shared .align 128 .b8 buffer[4096];\n.shared .align 8 .b64 bar[4];"
START = """
setp.eq.u32 %p1, %r0, 0; setp.lt.u32 %p2, %r0, 32; setp.eq.u32 %p3, %r0, 32;
mov.b32 %r1, bar; mov.b32 %r2, buffer; shl.b32 %r3, %r0, 2; add.s32 %r4, %r2, %r3; xor.b32 %r5, %r3, 128;
add.s32 %r5, %r5, %r2; cvt.u64.u32 %rd3, %r3; add.s64 %rd4, %rd1, %rd3; mov.u32 %r6, %cluster_ctarank;
"""
INIT = "@%p1 mbarrier.init.shared::cta.b64 [%r1], {n};\n@%p1 fence.mbarrier_init.release.cluster;\nbar.sync 0;\n"
WAIT = "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%r1], 0; @!done bra again; }\n"
EXPECT = "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;\n"
LOAD = "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd0], 256, [%r1];"
READ = "ld.shared.b32 %r7, [%r4];"
KEEP = "\nst.global.b32 [%rd4], %r7;\n"
MET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
STORE = "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 256;"
GROUP = "\n@%p1 cp.async.bulk.commit_group;\n@%p1 cp.async.bulk.wait_group.read 0;\n"
PEER = "xor.b32 %r8, %r6, 1; mapa.shared::cluster.u32 %r9, %r4, %r8; mapa.shared::cluster.u32 %r10, %r1, %r8;\n"


@dataclass(frozen=True)
class Case:
    kind: str
    wrong: str  # the marked line holds "// here"
    right: str
    threads: int = 64
    cluster: int = 1
    # Which of the two that nothing orders comes first, and with it line and kind, is up to the schedule.
    anywhere: bool = False
    or_else: str = ""  # kind, if it shows from the other side


def once(n: int = 1) -> str:
    return INIT.replace("{n}", str(n))


CASES = {
    # ---- races between warps
    "read_before_barrier": Case(
        "race",
        wrong="st.shared.b32 [%r4], %r0;\nld.shared.b32 %r7, [%r5]; // here" + KEEP,
        right="st.shared.b32 [%r4], %r0;\nbar.sync 0; ld.shared.b32 %r7, [%r5];" + KEEP,
        anywhere=True,
        or_else="uninitialized shared memory",
    ),
    "write_before_all_have_read": Case(
        "race",
        wrong="st.shared.b32 [%r4], %r0; bar.sync 0; ld.shared.b32 %r7, [%r5];\nst.shared.b32 [%r4], %r7; // here\n",
        right="st.shared.b32 [%r4], %r0; bar.sync 0; ld.shared.b32 %r7, [%r5];\nbar.sync 0; st.shared.b32 [%r4], %r7;\n",
        anywhere=True,
    ),
    "two_writers": Case(
        "race",
        wrong="st.shared.b32 [%r2], %r0; // here\n",
        right="@%p1 st.shared.b32 [%r2], %r0;\n",
    ),
    # Two warps send the same bytes to the same place of the other block, and both count.
    "different_bytes_sent_to_one_place": Case(
        "race",
        wrong=once(2) + PEER + "mapa.shared::cluster.u32 %r11, %r2, %r8;\nshr.u32 %r12, %r0, 5; and.b32 %r13, %r0, 31;\n"
        "st.shared.b32 [%r4+512], %r0; fence.proxy.async.shared::cta; bar.sync 0;\n" + MET +
        "setp.eq.u32 %p5, %r13, 0; @%p5 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;\n"
        "mad.lo.s32 %r14, %r12, 128, %r2;\n"
        "@%p5 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r11], [%r14+512], 16, [%r10]; // here\n"
        + WAIT + "ld.shared.b32 %r7, [%r2];" + KEEP + MET,
        right=once(2) + PEER + "mapa.shared::cluster.u32 %r11, %r2, %r8;\nshr.u32 %r12, %r0, 5; and.b32 %r13, %r0, 31;\n"
        "st.shared.b32 [%r4+512], %r13; fence.proxy.async.shared::cta; bar.sync 0;\n" + MET +
        "setp.eq.u32 %p5, %r13, 0; @%p5 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;\n"
        "mad.lo.s32 %r14, %r12, 128, %r2;\n"
        "@%p5 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r11], [%r14+512], 16, [%r10];\n"
        + WAIT + "ld.shared.b32 %r7, [%r2];" + KEEP + MET,
        cluster=2,
    ),
    # Warps may store what is there already; but then who writes something else must have seen all of them.
    "another_value_after_the_same": Case(
        "race",
        wrong="st.shared.b32 [%r2], 7;\n@!%p2 bra DONE;\nst.shared.b32 [%r2], %r0; // here\nDONE:\n",
        right="st.shared.b32 [%r2], 7;\nbar.sync 0; @!%p2 bra DONE;\nst.shared.b32 [%r2], %r0;\nDONE:\n",
        anywhere=True,
    ),
    "the_same_value_over_one_that_is_being_changed": Case(
        "race",
        wrong="@%p1 st.shared.b32 [%r2], 7;\nbar.sync 0;\n@%p1 st.shared.b32 [%r2], 8;\n"
        "@%p3 st.shared.b32 [%r2], 7; // here\n",
        right="@%p1 st.shared.b32 [%r2], 7;\nbar.sync 0;\n@%p3 st.shared.b32 [%r2], 7; bar.sync 0;\n"
        "@%p1 st.shared.b32 [%r2], 8;\n",
        anywhere=True,
    ),
    "bytes_of_one_word": Case(
        "race",
        wrong="add.s32 %r8, %r2, %r0; st.shared.b8 [%r8], %r0; bar.sync 0;\n@%p2 st.shared.b8 [%r2+40], %r0;\n"
        "@!%p2 st.shared.b8 [%r2+40], %r0; // here\n",
        right="add.s32 %r8, %r2, %r0; st.shared.b8 [%r8], %r0; bar.sync 0;\n@%p2 st.shared.b8 [%r2+40], %r0;\n"
        "@!%p2 st.shared.b8 [%r2+41], %r0;\n",
        anywhere=True,
    ),
    "wrong_named_barrier": Case(
        "race",
        wrong="st.shared.b32 [%r4], %r0;\n@%p2 bar.sync 1, 32;\n@!%p2 bar.sync 2, 32;\n"
        "ld.shared.b32 %r7, [%r5]; // here" + KEEP,
        right="st.shared.b32 [%r4], %r0;\n@%p2 bar.sync 1, 64;\n@!%p2 bar.sync 1, 64;\nld.shared.b32 %r7, [%r5];" + KEEP,
        anywhere=True,
        or_else="uninitialized shared memory",
    ),
    "arrive_is_no_wait": Case(
        "race",
        wrong="@%p2 bar.arrive 1, 64;\n@!%p2 st.shared.b32 [%r5], %r0;\n@!%p2 bar.sync 1, 64;\n"
        "@%p2 ld.shared.b32 %r7, [%r4]; // here\n",
        right="@!%p2 st.shared.b32 [%r5], %r0;\n@!%p2 bar.arrive 1, 64;\n@%p2 bar.sync 1, 64;\n"
        "@%p2 ld.shared.b32 %r7, [%r4];\n",
        anywhere=True,
        or_else="uninitialized shared memory",
    ),
    # A try may fail, so one whose result nobody looks at orders nothing, whatever is made of the result.
    "wait_ignored": Case(
        "race",
        wrong=once() + EXPECT + LOAD + "\nmbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1], 0;\n"
        "ld.shared.b32 %r7, [%r4]; // here" + KEEP,
        right=once() + EXPECT + LOAD + "\nmbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1], 0;\n" + WAIT + READ + KEEP,
        or_else="uninitialized shared memory",
    ),
    "wait_ignored_by_its_branch": Case(
        "race",
        wrong=once() + EXPECT + LOAD + "\nmbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1], 0;\n@!%p4 bra OUT;\nOUT:\n"
        "ld.shared.b32 %r7, [%r4]; // here" + KEEP,
        right=once() + EXPECT + LOAD + "\nOUT:\nmbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1], 0;\n@!%p4 bra OUT;\n"
        + READ + KEEP,
        or_else="uninitialized shared memory",
    ),
    "wait_made_a_number_that_is_ignored": Case(
        "race",
        wrong=once() + EXPECT + LOAD + "\nmbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1], 0;\nselp.b32 %r8, 1, 0, %p4;\n"
        "ld.shared.b32 %r7, [%r4]; // here" + KEEP,
        right=once() + EXPECT + LOAD + "\nOUT:\nmbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1], 0;\n"
        "selp.b32 %r8, 1, 0, %p4;\nsetp.eq.s32 %p5, %r8, 0;\n@%p5 bra OUT;\n" + READ + KEEP,
        or_else="uninitialized shared memory",
    ),
    "flag_without_release": Case(
        "race",
        wrong="@%p1 st.shared.b32 [%r2+512], 0; bar.sync 0;\n@%p2 bra FIRST;\n"
        "SPIN: ld.relaxed.cta.shared.b32 %r8, [%r2+512]; setp.eq.b32 %p4, %r8, 0; @%p4 bra SPIN;\n"
        "ld.shared.b32 %r7, [%r5]; // here\nbra DONE;\n"
        "FIRST: st.shared.b32 [%r4], %r0; bar.warp.sync -1;\n@%p1 st.relaxed.cta.shared.b32 [%r2+512], 1;\nDONE:\n",
        right="@%p1 st.shared.b32 [%r2+512], 0; bar.sync 0;\n@%p2 bra FIRST;\n"
        "SPIN: ld.acquire.cta.shared.b32 %r8, [%r2+512]; setp.eq.b32 %p4, %r8, 0; @%p4 bra SPIN;\n"
        "ld.shared.b32 %r7, [%r5]; bra DONE;\n"
        "FIRST: st.shared.b32 [%r4], %r0; bar.warp.sync -1;\n@%p1 st.release.cta.shared.b32 [%r2+512], 1;\nDONE:\n",
    ),
    "flag_without_fence": Case(
        "race",
        wrong="@%p1 st.shared.b32 [%r2+512], 0; bar.sync 0;\n@%p2 bra FIRST;\n"
        "SPIN: ld.volatile.shared.b32 %r8, [%r2+512]; setp.eq.b32 %p4, %r8, 0; @%p4 bra SPIN;\n"
        "ld.shared.b32 %r7, [%r5]; // here\nbra DONE;\n"
        "FIRST: st.shared.b32 [%r4], %r0; membar.cta;\n@%p1 st.volatile.shared.b32 [%r2+512], 1;\nDONE:\n",
        right="@%p1 st.shared.b32 [%r2+512], 0; bar.sync 0;\n@%p2 bra FIRST;\n"
        "SPIN: ld.volatile.shared.b32 %r8, [%r2+512]; setp.eq.b32 %p4, %r8, 0; @%p4 bra SPIN;\n"
        "membar.cta; ld.shared.b32 %r7, [%r5]; bra DONE;\n"
        "FIRST: st.shared.b32 [%r4], %r0; membar.cta;\n@%p1 st.volatile.shared.b32 [%r2+512], 1;\nDONE:\n",
    ),
    "plain_beside_atomic": Case(
        "race",
        wrong="@%p1 st.shared.b32 [%r2], 0; bar.sync 0; red.shared.add.u32 [%r2], 1;\n"
        "@%p3 ld.shared.b32 %r7, [%r2]; // here\n",
        right="@%p1 st.shared.b32 [%r2], 0; bar.sync 0; red.shared.add.u32 [%r2], 1;\nbar.sync 0;\n"
        "@%p3 ld.shared.b32 %r7, [%r2];\n",
        anywhere=True,
    ),
    # ---- copies of threads
    "copy_not_waited_for": Case(
        "race",
        wrong="add.s64 %rd5, %rd0, %rd3; cp.async.ca.shared.global [%r4], [%rd5], 4; cp.async.commit_group;\n"
        "ld.shared.b32 %r7, [%r4]; // here" + KEEP,
        right="add.s64 %rd5, %rd0, %rd3; cp.async.ca.shared.global [%r4], [%rd5], 4; cp.async.commit_group;\n"
        "cp.async.wait_group 0; ld.shared.b32 %r7, [%r4];" + KEEP,
    ),
    "copy_of_a_later_group": Case(
        "race",
        wrong="add.s64 %rd5, %rd0, %rd3; cp.async.ca.shared.global [%r4], [%rd5], 4; cp.async.commit_group;\n"
        "cp.async.ca.shared.global [%r4+512], [%rd5], 4; cp.async.commit_group; cp.async.wait_group 1;\n"
        "ld.shared.b32 %r7, [%r4+512]; // here" + KEEP,
        right="add.s64 %rd5, %rd0, %rd3; cp.async.ca.shared.global [%r4], [%rd5], 4; cp.async.commit_group;\n"
        "cp.async.ca.shared.global [%r4+512], [%rd5], 4; cp.async.commit_group; cp.async.wait_group 1;\n"
        "ld.shared.b32 %r7, [%r4];" + KEEP,
    ),
    "copies_of_others": Case(
        "race",
        wrong="add.s64 %rd5, %rd0, %rd3; cp.async.ca.shared.global [%r4], [%rd5], 4;\ncp.async.wait_all;\n"
        "ld.shared.b32 %r7, [%r5]; // here" + KEEP,
        right="add.s64 %rd5, %rd0, %rd3; cp.async.ca.shared.global [%r4], [%rd5], 4;\ncp.async.wait_all; bar.sync 0;\n"
        "ld.shared.b32 %r7, [%r5];" + KEEP,
        anywhere=True,
        or_else="uninitialized shared memory",
    ),
    "copy_size": Case(
        "asynchronous operation",
        wrong="mov.b32 %r3, 9;\ncp.async.ca.shared.global [%r2], [%rd0], 8, %r3; // here\n",
        right="@%p1 cp.async.ca.shared.global [%r2], [%rd0], 8;\n",
    ),
    # ---- mbarriers
    "init_not_seen": Case(
        "race",
        wrong="@%p1 mbarrier.init.shared::cta.b64 [%r1], 64;\nmbarrier.arrive.shared::cta.b64 _, [%r1]; // here\n",
        right="@%p1 mbarrier.init.shared::cta.b64 [%r1], 64;\nbar.sync 0; mbarrier.arrive.shared::cta.b64 _, [%r1];\n",
        anywhere=True,
        or_else="mbarrier",
    ),
    "no_init": Case(
        "mbarrier",
        wrong="mbarrier.arrive.shared::cta.b64 _, [%r1+8]; // here\n",
        right=once(64) + "mbarrier.arrive.shared::cta.b64 _, [%r1];\n",
    ),
    "init_count": Case(
        "mbarrier",
        wrong="@%p1 mbarrier.init.shared::cta.b64 [%r1], 0; // here\n",
        right="@%p1 mbarrier.init.shared::cta.b64 [%r1], 1;\n",
    ),
    "init_twice": Case(
        "mbarrier",
        wrong="@%p1 mbarrier.init.shared::cta.b64 [%r1], 1;\n@%p1 mbarrier.init.shared::cta.b64 [%r1], 2; // here\n",
        right="@%p1 mbarrier.init.shared::cta.b64 [%r1], 1;\n@%p1 mbarrier.inval.shared::cta.b64 [%r1];\n"
        "@%p1 mbarrier.init.shared::cta.b64 [%r1], 2;\n",
    ),
    "written_over": Case(
        "mbarrier",
        wrong=once() + "@%p1 st.shared.b32 [%r1+4], %r0; // here\n",
        right=once() + "@%p1 mbarrier.inval.shared::cta.b64 [%r1];\n@%p1 st.shared.b32 [%r1+4], %r0;\n",
    ),
    "read_as_data": Case(
        "mbarrier",
        wrong=once() + "ld.shared.b64 %rd5, [%r1]; // here\n",
        right=once() + "@%p1 st.shared.b64 [%r2], %rd0;\n",
    ),
    "alignment_of_mbarrier": Case(
        "misaligned",
        wrong="@%p1 mbarrier.init.shared::cta.b64 [%r1+4], 1; // here\n",
        right="@%p1 mbarrier.init.shared::cta.b64 [%r1+8], 1;\n",
    ),
    "too_many_arrivals": Case(
        "mbarrier",
        wrong=once(2) + "@%p1 mbarrier.expect_tx.shared::cta.b64 [%r1], 16;\nbar.sync 0;\n"
        "@%p2 mbarrier.arrive.shared::cta.b64 _, [%r1]; // here\n",
        right=once(32) + "@%p1 mbarrier.expect_tx.shared::cta.b64 [%r1], 16;\nbar.sync 0;\n"
        "@%p2 mbarrier.arrive.shared::cta.b64 _, [%r1];\n",
    ),
    "one_arrival_short": Case(
        "deadlock",
        wrong=once(65) + "mbarrier.arrive.shared::cta.b64 _, [%r1];\n" + WAIT.replace("again; }", "again; } // here"),
        right=once(64) + "mbarrier.arrive.shared::cta.b64 _, [%r1];\n" + WAIT,
        anywhere=True,
    ),
    "wrong_parity": Case(
        "race",
        wrong=once() + EXPECT + LOAD + "\n" + WAIT.replace("], 0;", "], 1;") + READ + " // here" + KEEP,
        right=once() + EXPECT + LOAD + "\n" + WAIT + READ + KEEP,
        anywhere=True,
        or_else="uninitialized shared memory",
    ),
    "result_not_looked_at": Case(
        "race",
        wrong=once() + EXPECT + LOAD + "\nmbarrier.test_wait.parity.shared::cta.b64 %p4, [%r1], 0;\n"
        + READ + " // here" + KEEP,
        right=once() + EXPECT + LOAD + "\n" + WAIT + READ + KEEP,
    ),
    # ---- bulk copies
    "load_not_waited_for": Case(
        "race",
        wrong=once() + EXPECT + LOAD + "\nbar.sync 0;\n" + READ + " // here" + KEEP,
        right=once() + EXPECT + LOAD + "\n" + WAIT + READ + KEEP,
    ),
    "too_many_bytes_expected": Case(
        "deadlock",
        wrong=once() + EXPECT.replace("256", "512") + LOAD + "\n" + WAIT + READ + " // here" + KEEP,
        right=once() + EXPECT + LOAD + "\n" + WAIT + READ + KEEP,
        anywhere=True,
    ),
    "too_few_bytes_expected": Case(
        "mbarrier",
        wrong=once() + LOAD + " // here\n@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 0;\n" + WAIT + READ + KEEP,
        right=once() + LOAD + "\n" + EXPECT + WAIT + READ + KEEP,
        anywhere=True,
    ),
    # No fence is asked for after an initialisation (ptxas makes no instruction of fence.mbarrier_init), but order is.
    "no_barrier_after_init": Case(
        "race",
        wrong="@%p1 mbarrier.init.shared::cta.b64 [%r1], 1;\n" + (EXPECT + LOAD).replace("%p1", "%p3") + " // here\nbar.sync 0;\n" + WAIT,
        right="@%p1 mbarrier.init.shared::cta.b64 [%r1], 1; bar.sync 0;\n" + (EXPECT + LOAD).replace("%p1", "%p3") + "\n" + WAIT,
        anywhere=True,
        or_else="mbarrier",
    ),
    "buffer_still_read": Case(
        "race",
        wrong="st.shared.b32 [%r4], %r0;\nfence.proxy.async.shared::cta;\n" + once() + READ + "\n"
        + EXPECT + LOAD + " // here\n" + WAIT,
        right="st.shared.b32 [%r4], %r0;\nfence.proxy.async.shared::cta;\n" + once() + READ + "\nbar.sync 0;\n"
        + EXPECT + LOAD + "\n" + WAIT,
        anywhere=True,
    ),
    "load_over_what_was_stored": Case(
        "missing proxy fence",
        wrong="st.shared.b32 [%r4], %r0;\n" + once() + EXPECT + LOAD + " // here\n" + WAIT,
        right="st.shared.b32 [%r4], %r0;\nfence.proxy.async.shared::cta;\n" + once() + EXPECT + LOAD + "\n" + WAIT,
    ),
    "store_without_fence": Case(
        "missing proxy fence",
        wrong="st.shared.b32 [%r4], %r0;\nbar.sync 0;\n" + STORE + " // here" + GROUP,
        right="st.shared.b32 [%r4], %r0;\nfence.proxy.async.shared::cta; bar.sync 0;\n" + STORE + GROUP,
    ),
    "store_without_barrier": Case(
        "race",
        wrong="st.shared.b32 [%r4], %r0;\nfence.proxy.async.shared::cta;\n" + STORE + " // here" + GROUP,
        right="st.shared.b32 [%r4], %r0;\nbar.sync 0; fence.proxy.async.shared::cta;\n" + STORE + GROUP,
        anywhere=True,
        or_else="uninitialized shared memory",
    ),
    "store_still_reads": Case(
        "race",
        wrong="st.shared.b32 [%r4], %r0;\nfence.proxy.async.shared::cta; bar.sync 0;\n" + STORE
        + "\n@%p1 cp.async.bulk.commit_group;\nbar.sync 0;\nst.shared.b32 [%r4], 1; // here\n"
        + "@%p1 cp.async.bulk.wait_group 0;\n",
        right="st.shared.b32 [%r4], %r0;\nfence.proxy.async.shared::cta; bar.sync 0;\n" + STORE + GROUP
        + "bar.sync 0;\nst.shared.b32 [%r4], 1;\n",
    ),
    "store_not_in_a_group": Case(
        "race",
        wrong="st.shared.b32 [%r4], %r0;\nfence.proxy.async.shared::cta; bar.sync 0;\n" + STORE
        + "\n@%p1 cp.async.bulk.wait_group.read 0;\nbar.sync 0;\nst.shared.b32 [%r4], 1; // here\n",
        right="st.shared.b32 [%r4], %r0;\nfence.proxy.async.shared::cta; bar.sync 0;\n" + STORE + GROUP
        + "bar.sync 0;\nst.shared.b32 [%r4], 1;\n",
    ),
    "load_after_the_end": Case(
        "exited block",
        wrong=once() + EXPECT + LOAD + " // here\n",
        right=once() + EXPECT + LOAD + "\n" + WAIT,
    ),
    "size_of_bulk_copy": Case(
        "asynchronous operation",
        wrong=once() + LOAD.replace("256,", "250,") + " // here\n",
        right=once() + EXPECT + LOAD + "\n" + WAIT,
    ),
    "alignment_of_bulk_copy": Case(
        "misaligned",
        wrong=once() + LOAD.replace("[%r2]", "[%r2+8]") + " // here\n",
        right=once() + EXPECT + LOAD.replace("[%r2]", "[%r2+16]") + "\n" + WAIT,
    ),
    "bounds_of_bulk_copy": Case(
        "out of bounds",
        wrong=once() + EXPECT + LOAD.replace("[%rd0]", "[%rd0+16]") + " // here\n" + WAIT,
        right=once() + EXPECT + LOAD + "\n" + WAIT,
    ),
    "unwritten_source": Case(
        "uninitialized shared memory",
        wrong="@%p2 st.shared.b32 [%r4], %r0;\nfence.proxy.async.shared::cta; bar.sync 0;\n" + STORE + " // here" + GROUP,
        right="st.shared.b32 [%r4], %r0;\nfence.proxy.async.shared::cta; bar.sync 0;\n" + STORE + GROUP,
    ),
    # ---- clusters
    "peer_not_ready": Case(
        "race",
        wrong="st.shared.b32 [%r4], %r0;\n" + PEER + "ld.shared::cluster.b32 %r7, [%r9]; // here\n" + MET,
        right="st.shared.b32 [%r4], %r0;\n" + MET + PEER + "ld.shared::cluster.b32 %r7, [%r9];\n" + MET,
        cluster=2,
        threads=32,
        anywhere=True,
        or_else="uninitialized shared memory",
    ),
    "peer_not_ready_relaxed": Case(
        "race",
        wrong="st.shared.b32 [%r4], %r0;\nbarrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;\n" + PEER
        + "ld.shared::cluster.b32 %r7, [%r9]; // here\n" + MET,
        right="st.shared.b32 [%r4], %r0;\n" + MET + PEER + "ld.shared::cluster.b32 %r7, [%r9];\n" + MET,
        cluster=2,
        threads=32,
    ),
    "peer_has_ended": Case(
        "exited block",
        wrong="st.shared.b32 [%r4], %r0;\n" + MET + "setp.eq.u32 %p5, %r6, 1; @%p5 bra DONE;\n" + PEER
        + "mov.b32 %r11, 0;\nSPIN: add.s32 %r11, %r11, 1; setp.lt.u32 %p6, %r11, 9000; @%p6 bra SPIN;\n"
        + "ld.shared::cluster.b32 %r7, [%r9]; // here\nDONE:",
        right="st.shared.b32 [%r4], %r0;\n" + MET + "setp.eq.u32 %p5, %r6, 1; @%p5 bra DONE;\n" + PEER
        + "mov.b32 %r11, 0;\nSPIN: add.s32 %r11, %r11, 1; setp.lt.u32 %p6, %r11, 9000; @%p6 bra SPIN;\n"
        + "ld.shared::cluster.b32 %r7, [%r9];\nDONE: " + MET,
        cluster=2,
        threads=32,
    ),
    "no_such_block": Case(
        "out of bounds",
        wrong="mov.b32 %r8, 2; mapa.shared::cluster.u32 %r9, %r4, %r8;\nst.shared::cluster.b32 [%r9], %r8; // here\n",
        right="mov.b32 %r8, 2; mapa.shared::cluster.u32 %r9, %r4, %r8;\n",
        cluster=2,
        threads=32,
    ),
    "peer_without_cluster": Case(
        "out of bounds",
        wrong="st.shared.b32 [%r4], %r0;\n" + MET + PEER + "ld.shared.b32 %r7, [%r9]; // here\n" + MET,
        right="st.shared.b32 [%r4], %r0;\n" + MET + PEER + "ld.shared::cluster.b32 %r7, [%r9];\n" + MET,
        cluster=2,
        threads=32,
    ),
    "cluster_barrier_twice": Case(
        "barrier",
        wrong="barrier.cluster.arrive.aligned;\nbarrier.cluster.arrive.aligned; // here\n",
        right=MET + MET,
        cluster=2,
        threads=32,
        anywhere=True,
    ),
    "cluster_wait_alone": Case(
        "barrier",
        wrong="barrier.cluster.wait.aligned; // here\n",
        right=MET,
        cluster=2,
        threads=32,
    ),
    "cluster_barrier_missing": Case(
        "deadlock",
        wrong="setp.eq.u32 %p5, %r6, 1;\n@!%p5 bra FIRST;\nbar.sync 1, 64; // here\nFIRST:\n" + MET,
        right="setp.eq.u32 %p5, %r6, 1;\n@!%p5 bra FIRST;\nbar.sync 1, 32;\nFIRST:\n" + MET,
        cluster=2,
        threads=32,
        anywhere=True,
    ),
    "mbarrier_of_another_block": Case(
        "asynchronous operation",
        wrong=once() + MET + PEER
        + "@%p1 st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r9], %r0, [%r1]; // here\n" + MET,
        right=once() + "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 4;\n" + MET + PEER
        + "@%p1 st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r9], %r0, [%r10];\n" + WAIT + MET,
        cluster=2,
        threads=32,
    ),
    "sent_and_not_waited_for": Case(
        "race",
        wrong=once() + "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 128;\n" + MET + PEER
        + "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r9], %r0, [%r10];\n" + MET
        + READ + " // here\n" + WAIT + MET,
        right=once() + "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 128;\n" + MET + PEER
        + "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r9], %r0, [%r10];\n" + MET
        + WAIT + READ + "\n" + MET,
        cluster=2,
        threads=32,
    ),
    # ---- others
    "registers_of_a_warp_group": Case(
        "register pool",
        wrong="setmaxnreg.dec.sync.aligned.u32 30; // here\n",
        right="setmaxnreg.dec.sync.aligned.u32 40;\n",
    ),
    "local_memory": Case(
        "uninitialized local memory",
        wrong="{ .local .align 4 .b8 own[16]; st.local.b32 [own], %r0;\nld.local.b32 %r7, [own+4]; // here\n}",
        right="{ .local .align 4 .b8 own[16]; st.local.b32 [own+4], %r0;\nld.local.b32 %r7, [own+4];\n}",
    ),
    "local_bounds": Case(
        "out of bounds",
        wrong="{ .local .align 4 .b8 own[16];\nst.local.b32 [own+16], %r0; // here\n}",
        right="{ .local .align 4 .b8 own[16];\nst.local.b32 [own+12], %r0;\n}",
    ),
}  # fmt: skip


def launch(body: str, case: Case, seed: int | None) -> None:
    data, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    text = kernel(START + body, 2, SHARED)
    run_ptx(text, "k", case.cluster, case.threads, [data, out], cluster=case.cluster, seed=seed,
            max_instructions=1_000_000)  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_found_and_twin_passes(name: str) -> None:
    case = CASES[name]
    for seed in (None, 1, 2, 3):
        launch(case.right, case, seed)
        with pytest.raises(EmulatorFault) as caught:
            launch(case.wrong, case, seed)
        fault = caught.value
        assert fault.kind in (case.kind, case.or_else or case.kind), fault
        if not case.anywhere:
            assert fault.line == line_of(kernel(START + case.wrong, 2, SHARED), "// here"), fault


def test_deadlock_tells_what_mbarriers_and_clusters_wait_for() -> None:
    with pytest.raises(EmulatorFault) as caught:
        launch(CASES["too_many_bytes_expected"].wrong, CASES["too_many_bytes_expected"], None)
    assert "in phase 0 (1 of 1 arrivals, 256 bytes to come)" in str(caught.value)
    too_few = once() + EXPECT.replace("256", "128") + LOAD + "\n" + WAIT
    with pytest.raises(EmulatorFault) as caught:
        launch(too_few, CASES["too_many_bytes_expected"], None)
    assert caught.value.kind == "deadlock"
    assert "in phase 0 (1 of 1 arrivals, 128 bytes more than were expected)" in str(caught.value)
    with pytest.raises(EmulatorFault) as caught:
        launch(CASES["cluster_barrier_missing"].wrong, CASES["cluster_barrier_missing"], None)
    assert "no warp of the cluster can go on" in str(caught.value)
    assert "the barrier of the cluster (1 of 2 warps have arrived)" in str(caught.value)
    assert "block 1 warp 0" in str(caught.value) and "barrier 1 (1 of 2 warps have arrived)" in str(caught.value)


@pytest.mark.parametrize("end", ["", "@%p1 cp.async.bulk.commit_group;\n@%p1 cp.async.bulk.wait_group.read 1;\n"])
def test_a_block_may_end_before_its_stores(end: str) -> None:
    """Its shared memory stays until they have been made; tests/emulator/silicon/exit_with_stores.py shows it on a GPU."""
    body = "st.shared.b32 [%r4], %r0;\nfence.proxy.async.shared::cta; bar.sync 0;\n" + STORE + "\n" + end
    for seed in (None, 1, 2, 3):
        out = np.full(64, -1, np.int32)
        text = kernel(START + body, 2, SHARED)
        run_ptx(text, "k", 1, 64, [np.zeros(64, np.int32), out], seed=seed)
        assert out.tolist() == list(range(64))


def test_a_block_may_end_before_what_it_sends() -> None:
    """The other block of the cluster waits for it; tests/emulator/silicon/exit_with_sends.py shows it on a GPU."""
    body = once() + "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;\n"
    body += (
        "st.shared.b32 [%r4+512], %r0;\nfence.proxy.async.shared::cta; "
        + MET
        + "setp.eq.u32 %p5, %r6, 0;\n@!%p5 bra GET;\n"
    )
    body += "mov.b32 %r8, 1; mapa.shared::cluster.u32 %r9, %r2, %r8; mapa.shared::cluster.u32 %r10, %r1, %r8;\n"
    body += (
        "@%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r9], [%r2+512], 256, [%r10];\n"
    )
    body += "bra DONE;\nGET:\n" + WAIT + READ + KEEP + "DONE:\n"
    for seed in (None, 1, 2, 3):
        out = np.full(64, -1, np.int32)
        run_ptx(kernel(START + body, 2, SHARED), "k", 2, 64, [np.zeros(64, np.int32), out], cluster=2, seed=seed)
        assert out.tolist() == list(range(64))


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_warps_may_store_the_same_value(width: int) -> None:
    """Each reads it back without waiting for the other; after a barrier it may be changed."""
    body = (
        f"cvt.u64.u32 %rd5, %r2; mov.b64 %rd6, 77; st.shared.b{width} [%r2+8], %rd6;\n"
        f"mov.b64 %rd7, 0; ld.shared.b{width} %rd7, [%r2+8]; cvt.u32.u64 %r7, %rd7;\nst.global.b32 [%rd4], %r7;\n"
        f"bar.sync 0; @%p1 st.shared.b{width} [%r2+8], %rd5;\n"
    )
    for seed in (None, 1, 2, 3):
        out = np.zeros(64, np.int32)
        run_ptx(kernel(START + body, 2, SHARED), "k", 1, 64, [np.zeros(64, np.int32), out], seed=seed)
        assert out.tolist() == [77] * 64


def test_a_thread_of_every_warp_may_initialise_an_mbarrier() -> None:
    """The same count, before anybody uses it; another one, or one warp twice, is a mistake."""
    each = (
        "and.b32 %r8, %r0, 31; setp.eq.u32 %p5, %r8, 0;\n@%p5 mbarrier.init.shared::cta.b64 [%r1], 64;\nbar.sync 0;\n"
    )
    use = "mbarrier.arrive.shared::cta.b64 _, [%r1];\n" + WAIT
    again = "@%p5 mbarrier.init.shared::cta.b64 [%r1], 64;\n"
    for seed in (None, 1, 2, 3):
        for body, fine in (
            (each + use, True),
            (
                each.replace(", 64;", ", %r9;").replace("and.b32", "shr.u32 %r9, %r0, 5; add.s32 %r9, %r9, 1; and.b32")
                + use,
                False,
            ),
            (each + again, False),
        ):
            text = kernel(START + body, 2, SHARED)
            memory = [np.zeros(64, np.int32), np.zeros(64, np.int32)]
            if fine:
                run_ptx(text, "k", 1, 64, memory, seed=seed)
                continue
            with pytest.raises(EmulatorFault, match="not invalidated"):
                run_ptx(text, "k", 1, 64, memory, seed=seed)


def test_all_lanes_of_a_warp_may_initialise_an_mbarrier() -> None:
    """With the same count; with another one it is a mistake."""
    use = "bar.sync 0;\nmbarrier.arrive.shared::cta.b64 _, [%r1];\n" + WAIT
    for count, fine in (("64", True), ("%r8", False)):
        body = "add.s32 %r8, %r0, 64;\n@%p2 mbarrier.init.shared::cta.b64 [%r1], " + count + ";\n" + use
        arguments = [np.zeros(64, np.int32), np.zeros(64, np.int32)]
        if fine:
            run_ptx(kernel(START + body, 2, SHARED), "k", 1, 64, arguments)
            continue
        with pytest.raises(EmulatorFault, match="not invalidated") as caught:
            run_ptx(kernel(START + body, 2, SHARED), "k", 1, 64, arguments)
        assert caught.value.lane == 1


@pytest.mark.parametrize("one", ["1", "-1", "3"])
def test_the_lowest_bit_of_a_parity_counts(one: str) -> None:
    """A fresh mbarrier: the phase before the first counts as complete, the first one does not."""
    body = once() + f"mov.b32 %r8, {one}; mov.b32 %r7, 0; add.s32 %r9, %r8, 1;\n"
    body += "mbarrier.test_wait.parity.shared::cta.b64 %p4, [%r1], %r8; @%p4 add.s32 %r7, %r7, 1;\n"
    body += "mbarrier.test_wait.parity.shared::cta.b64 %p4, [%r1], %r9; @%p4 add.s32 %r7, %r7, 2;\n"
    out = np.zeros(64, np.int32)
    run_ptx(kernel(START + body + KEEP, 2, SHARED), "k", 1, 64, [np.zeros(64, np.int32), out])
    assert out.tolist() == [1] * 64


def test_a_relaxed_wait_orders_at_the_next_fence() -> None:
    """Both ways: a relaxed arrival after a fence hands on what came before it."""
    pass_on = "@%p2 bra READ;\nst.shared.b32 [%r5], %r0; fence.acq_rel.cta; bar.warp.sync -1;\n"
    pass_on += "@%p3 mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r1];\nbra DONE;\nREAD:\n"
    relaxed = WAIT.replace("parity", "parity.relaxed.cta")
    read = "ld.shared.b32 %r7, [%r4];" + KEEP + "DONE:\n"
    for seed in (None, 1, 2, 3):
        out = np.zeros(64, np.int32)
        for body, fine in (
            (pass_on + relaxed + "fence.acq_rel.cta;\n" + read, True),
            (pass_on + relaxed + read, False),
            (pass_on.replace("fence.acq_rel.cta;", "") + relaxed + "fence.acq_rel.cta;\n" + read, False),
        ):
            text = kernel(START + once() + body, 2, SHARED)
            if fine:
                run_ptx(text, "k", 1, 64, [np.zeros(64, np.int32), out], seed=seed)
                assert out[:32].tolist() == list(range(32, 64))
                continue
            with pytest.raises(EmulatorFault, match="race"):
                run_ptx(text, "k", 1, 64, [np.zeros(64, np.int32), out], seed=seed)


def test_race_names_the_other_access() -> None:
    case = CASES["two_writers"]
    line = line_of(kernel(START + case.wrong, 2, SHARED), "// here")
    with pytest.raises(EmulatorFault, match=f"after the write of warp 0 at line {line} .*warp 1, lane 0"):
        launch(case.wrong, case, None)
