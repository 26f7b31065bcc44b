"""Clusters and their shared memory, addresses of all kinds, blocks that wait for each other, threads and devices."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx, run_ptx_on_devices
from tests.emulator.programs import HEAD, kernel

SEEDS = [None, 1, 2, 3]
SHARED = ".shared .align 128 .b8 buffer[1024];"
ALL_MET = "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;\n"


def test_registers_of_clusters() -> None:
    names = ["clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"]
    registers = [f"%{name}.{axis}" for name in names for axis in "xyz"] + ["%cluster_ctarank", "%cluster_nctarank"]
    out = np.zeros((4, 6, 2, len(registers) + 1), np.uint32)
    body = "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %ctaid.z; mad.lo.s32 %r4, %r1, 6, %r2;\n"
    body += f"mad.lo.s32 %r4, %r4, 2, %r3; mul.wide.u32 %rd1, %r4, {4 * out.shape[-1]}; add.s64 %rd1, %rd1, %rd0;\n"
    for i, name in enumerate(registers):
        body += f"mov.u32 %r5, {name}; st.global.b32 [%rd1+{4 * i}], %r5;\n"
    body += (
        f"mov.pred %p1, %is_explicit_cluster; selp.b32 %r5, 1, 0, %p1; st.global.b32 [%rd1+{4 * len(registers)}], %r5;"
    )
    run_ptx(kernel(body), "k", (4, 6, 2), 1, [out], cluster=(2, 3, 1))
    for x, y, z in np.ndindex(4, 6, 2):
        expected = [x // 2, y // 3, z, 2, 2, 2, x % 2, y % 3, 0, 2, 3, 1, x % 2 + y % 3 * 2, 6, 1]
        assert out[x, y, z].tolist() == expected


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("way", ["mapa", "generic", "arithmetic"])
def test_each_block_reads_and_writes_the_next(way: str, seed: int | None) -> None:
    out = np.zeros((4, 32), np.uint32)
    body = "mov.u32 %r1, %cluster_ctarank; add.s32 %r2, %r1, 1; and.b32 %r2, %r2, 3; mov.b32 %r3, buffer;\n"
    body += "shl.b32 %r4, %r0, 2; add.s32 %r3, %r3, %r4; mad.lo.s32 %r5, %r1, 100, %r0; st.shared.b32 [%r3], %r5;\n"
    body += ALL_MET
    if way == "mapa":
        body += "mapa.shared::cluster.u32 %r6, %r3, %r2; getctarank.shared::cluster.u32 %r8, %r6;\n"
        body += "ld.shared::cluster.b32 %r7, [%r6]; st.shared::cluster.b32 [%r6+256], %r7;\n"
        body += "atom.shared::cluster.add.u32 %r9, [%r6+256], 1;\n"
    elif way == "generic":
        body += "cvt.u64.u32 %rd2, %r3; cvta.shared.u64 %rd2, %rd2; mapa.u64 %rd2, %rd2, %r2;\n"
        body += (
            "getctarank.u64 %r8, %rd2; ld.b32 %r7, [%rd2]; st.b32 [%rd2+256], %r7; atom.add.u32 %r9, [%rd2+256], 1;\n"
        )
    else:  # the rank is in the highest byte of an address
        body += "and.b32 %r6, %r3, 0xffffff; shl.b32 %r7, %r2, 24; or.b32 %r6, %r6, %r7; mov.b32 %r8, %r2;\n"
        body += "ld.shared::cluster.b32 %r7, [%r6]; st.shared::cluster.b32 [%r6+256], %r7;\n"
        body += "red.shared::cluster.add.u32 [%r6+256], 1;\n"
    body += ALL_MET + "ld.shared.b32 %r10, [%r3+256]; mul.wide.u32 %rd3, %r1, 128; cvt.u64.u32 %rd4, %r4;\n"
    body += "add.s64 %rd3, %rd3, %rd4; add.s64 %rd3, %rd3, %rd0; sub.s32 %r11, %r8, %r2; add.s32 %r10, %r10, %r11;\n"
    body += "st.global.b32 [%rd3], %r10;"
    run_ptx(kernel(body, 1, SHARED), "k", 4, 32, [out], cluster=4, seed=seed)
    np.testing.assert_array_equal(out, np.arange(4)[:, None] * 100 + np.arange(32) + 1)


def test_spaces_of_generic_addresses() -> None:
    out = np.zeros(32, np.uint32)
    text = f"""{HEAD}
.global .align 4 .b32 variable = 7;
.const .align 8 .u64 table[3] = {{1, 2, 0x300000004}};
.visible .entry k(.param .u64 p0)
{{
.reg .pred %p<9>; .reg .b32 %r<32>; .reg .b64 %rd<32>;
.local .align 8 .b8 own[16]; .shared .align 8 .b8 buffer[64];
ld.param.u64 %rd0, [p0]; mov.u32 %r0, %tid.x;
mov.b64 %rd1, own; cvta.local.u64 %rd2, %rd1; mov.b64 %rd3, buffer; cvta.shared.u64 %rd4, %rd3;
isspacep.local %p1, %rd2; isspacep.shared::cta %p2, %rd4; isspacep.global %p3, %rd0; isspacep.shared::cluster %p4, %rd4;
isspacep.global %p5, %rd4;
selp.b32 %r1, 1, 0, %p1; selp.b32 %r2, 2, 0, %p2; selp.b32 %r3, 4, 0, %p3; selp.b32 %r4, 8, 0, %p4;
selp.b32 %r5, 16, 0, %p5;
add.s32 %r1, %r1, %r2; add.s32 %r1, %r1, %r3; add.s32 %r1, %r1, %r4; add.s32 %r1, %r1, %r5;
st.local.b32 [own+8], %r0; ld.b32 %r6, [%rd2+8]; st.b32 [%rd2], %r6; ld.local.b32 %r7, [own];
cvta.to.local.u64 %rd5, %rd2; ld.local.b32 %r8, [%rd5];
setp.eq.u32 %p6, %r0, 0; @%p6 st.shared.b32 [buffer+4], 5; bar.sync 0; ld.b32 %r9, [%rd4+4];
cvta.to.shared.u64 %rd6, %rd4; ld.shared.b32 %r10, [%rd6+4];
ld.global.b32 %r11, [variable]; mov.u64 %rd7, variable; ld.global.b32 %r12, [%rd7];
ld.const.u64 %rd8, [table+16]; cvt.u32.u64 %r13, %rd8; mov.u64 %rd9, table; ld.const.u64 %rd10, [%rd9+8];
cvt.u32.u64 %r14, %rd10;
@%p6 st.global.b32 [%rd0], %r1; shl.b32 %r15, %r0, 2; cvt.u64.u32 %rd11, %r15; add.s64 %rd11, %rd11, %rd0;
add.s32 %r7, %r7, %r8; add.s32 %r7, %r7, %r9; add.s32 %r7, %r7, %r10; add.s32 %r7, %r7, %r11; add.s32 %r7, %r7, %r12;
add.s32 %r7, %r7, %r13; add.s32 %r7, %r7, %r14;
@!%p6 st.global.b32 [%rd11], %r7; ret;
}}"""
    run_ptx(text, "k", 1, 32, [out])
    assert out[0] == 15
    np.testing.assert_array_equal(out[1:], np.arange(1, 32) * 2 + 5 + 5 + 7 + 7 + 4 + 2)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("seed", [None, 5])
def test_blocks_wait_for_later_ones(seed: int | None, threads: int) -> None:
    """A barrier of the whole grid on a counter in global memory, three times."""
    blocks = 20
    counter, out = np.zeros(1, np.uint32), np.zeros(blocks, np.uint32)
    body = f"""
    mov.u32 %r1, %ctaid.x; mov.b32 %r2, 0; setp.ne.u32 %p1, %r0, 0;
    AGAIN:
    add.s32 %r2, %r2, 1; mul.lo.s32 %r3, %r2, {blocks};
    @%p1 bra MET;
    fence.acq_rel.gpu;
    atom.global.add.release.gpu.u32 %r4, [%rd0], 1;
    SPIN: ld.acquire.gpu.global.b32 %r5, [%rd0]; setp.lt.u32 %p2, %r5, %r3; @%p2 bra SPIN;
    MET:
    bar.sync 0;
    setp.lt.u32 %p3, %r2, 3; @%p3 bra AGAIN;
    mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd2, %rd1; @!%p1 st.global.b32 [%rd2], %r5;
    """.replace("atom.global.add.release.gpu.u32", "atom.release.gpu.global.add.u32")
    run_ptx(kernel(body, 2), "k", blocks, 64, [counter, out], seed=seed, threads=threads)
    assert counter[0] == 3 * blocks
    assert (out == 3 * blocks).all()


def test_lanes_wait_for_each_other() -> None:
    """Lane 0 spins until lane 1 of its warp, on the other side of a branch, has written."""
    flag, out = np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    body = """
    setp.eq.u32 %p1, %r0, 0; @!%p1 bra OTHER;
    SPIN: ld.volatile.global.b32 %r1, [%rd0]; setp.eq.b32 %p2, %r1, 0; @%p2 bra SPIN;
    st.global.b32 [%rd1], %r1; bra DONE;
    OTHER: mov.b32 %r2, 9; st.volatile.global.b32 [%rd0], %r2;
    DONE: bar.warp.sync -1;
    """
    for text in (body, body.replace("@!%p1 bra OTHER;", "@%p1 bra FIRST; bra OTHER; FIRST:")):
        flag[0] = out[0] = 0
        run_ptx(kernel(text, 2), "k", 1, 2, [flag, out], max_instructions=100_000)
        assert out[0] == 9


@pytest.mark.parametrize("threads", [2, 4])
def test_threads_of_the_host(threads: int) -> None:
    """Atomics of blocks on several threads are atomic, and the counts are those of one thread."""

    def run(threads: int) -> tuple[int, dict[str, int]]:
        total = np.zeros(1, np.uint32)
        body = "mov.b32 %r1, 0;\nAGAIN: red.global.add.u32 [%rd0], 1; add.s32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 50;\n"
        report = run_ptx(kernel(body + "@%p1 bra AGAIN;"), "k", 40, 64, [total], threads=threads)
        return int(total[0]), report.warp_instructions

    assert run(threads) == run(1)
    assert run(threads)[0] == 40 * 64 * 50


def test_a_fault_on_any_thread_is_reported() -> None:
    text = kernel("mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 33;\n@%p1 st.global.b32 [%rd0+4], %r1;")
    with pytest.raises(EmulatorFault) as caught:
        run_ptx(text, "k", 64, 32, [np.zeros(1, np.uint32)], threads=3)
    assert caught.value.kind == "out of bounds" and caught.value.block == (33, 0, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_devices_wait_for_each_other(seed: int | None) -> None:
    """Each of three devices writes into the next one's memory and waits for a flag in its own."""
    flags, values = [np.zeros(1, np.uint32) for _ in range(3)], [np.zeros(32, np.uint32) for _ in range(3)]
    out = [np.zeros(32, np.uint32) for _ in range(3)]
    body = """
    shl.b32 %r1, %r0, 2; cvt.u64.u32 %rd6, %r1; add.s64 %rd7, %rd3, %rd6; ld.global.b32 %r2, [%rd5];
    mad.lo.s32 %r3, %r2, 100, %r0; st.global.b32 [%rd7], %r3;
    bar.sync 0;
    setp.ne.u32 %p1, %r0, 0; @%p1 bra MET;
    atom.release.sys.global.exch.b32 %r4, [%rd2], 1;
    SPIN: ld.acquire.sys.global.b32 %r5, [%rd0]; setp.eq.b32 %p2, %r5, 0; @%p2 bra SPIN;
    MET: bar.sync 0;
    add.s64 %rd8, %rd1, %rd6; add.s64 %rd9, %rd4, %rd6; ld.global.b32 %r6, [%rd8]; st.global.b32 [%rd9], %r6;
    """
    numbers = [np.array([device], np.uint32) for device in range(3)]
    arguments = [[flags[d], values[d], flags[(d + 1) % 3], values[(d + 1) % 3], out[d], numbers[d]] for d in range(3)]
    reports = run_ptx_on_devices(kernel(body, 6), "k", 1, 32, arguments, seed=seed, max_instructions=10**7)
    assert len(reports) == 3 and all(report.launches == 1 for report in reports)
    for device in range(3):
        np.testing.assert_array_equal(out[device], (device - 1) % 3 * 100 + np.arange(32))
    with pytest.raises(EmulatorFault, match="out of bounds"):
        text = kernel("ld.global.b64 %rd1, [%rd0]; ld.global.b32 %r1, [%rd1];")
        far = np.zeros(1, np.uint32)
        address = np.array([far.ctypes.data], np.uint64)
        run_ptx_on_devices(text, "k", 1, 1, [[address], [far]], peer_access=False)


@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_running_clusters_take_the_work_of_others(cluster: int, seed: int | None) -> None:
    """Every block is done once, by itself or by a cluster that cancelled it."""
    blocks = 24
    done, started = np.zeros(blocks, np.uint32), np.zeros(1, np.uint32)
    multicast = ".multicast::cluster::all" if cluster > 1 else ""
    declarations = ".shared .align 16 .b8 answer[16];\n.shared .align 8 .b64 bar;"
    body = f"""
    setp.eq.u32 %p1, %r0, 0; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %cluster_ctarank; setp.eq.u32 %p2, %r2, 0;
    and.pred %p2, %p1, %p2; mov.b32 %r3, bar; mov.b32 %r4, answer; mov.b32 %r10, 0;
    @%p1 red.global.add.u32 [%rd1], 1;
    @%p1 mbarrier.init.shared::cta.b64 [%r3], 1; @%p1 fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive; barrier.cluster.wait;
    AGAIN:
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 16;
    barrier.cluster.arrive; barrier.cluster.wait;
    @%p2 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes{multicast}.b128 [%r4], [%r3];
    mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd2, %rd0; @%p1 red.global.add.u32 [%rd2], 1;
    {{ .reg .pred ok; again: mbarrier.try_wait.parity.shared::cta.b64 ok, [%r3], %r10; @!ok bra again; }}
    xor.b32 %r10, %r10, 1;
    {{ .reg .b128 handle; ld.shared.v2.b64 {{%rd5, %rd6}}, [%r4]; mov.b128 handle, {{%rd5, %rd6}};
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, handle;
    @!%p3 bra DONE;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r1, handle;
    }}
    add.s32 %r1, %r1, %r2; fence.proxy.async.shared::cta;
    bra AGAIN;
    DONE:
    barrier.cluster.arrive; barrier.cluster.wait;
    """
    text = kernel(body, 2, declarations).replace("sm_90a", "sm_100a")
    run_ptx(text, "k", blocks, 32, [done, started], cluster=cluster, seed=seed, chip="sm_100a")
    np.testing.assert_array_equal(done, 1)
    assert started[0] < blocks


def test_shapes_of_clusters_and_chips() -> None:
    out = np.zeros(1, np.uint32)
    for options, message in (
        ({"grid": 5, "cluster": 2}, "grid x: 5; accepted: multiples of the cluster's 2"),
        ({"grid": 32, "cluster": 32}, "cluster x: 32; accepted: 1 to 16"),
        ({"grid": (4, 8), "cluster": (4, 8)}, "blocks a cluster: 32"),
        ({"grid": 1, "chip": "sm_80"}, "accepted: sm_90a, sm_100a, sm_103a, sm_107a"),
        ({"grid": 1, "chip": "sm_100a"}, "compiled for sm_90a, which sm_100a does not run"),
        ({"grid": 1, "shared_memory": 232_449}, "accepted: 0 to 232448"),
    ):
        with pytest.raises(ValueError, match=message):
            run_ptx(kernel(""), "k", **{"block": 32, "arguments": [out]} | options)  # type: ignore[arg-type]
    rubin = kernel("").replace("sm_90a", "sm_107a")
    run_ptx(rubin, "k", 1, 32, [out], 334_848, chip="sm_107a")
    for target, chip in (("sm_90", "sm_103a"), ("sm_100f", "sm_103a"), ("sm_103a", "sm_103a")):
        run_ptx(kernel("").replace("sm_90a", target), "k", 1, 32, [out], chip=chip)
    for target, chip in (("sm_103f", "sm_100a"), ("sm_100a", "sm_103a"), ("sm_103", "sm_100a")):
        with pytest.raises(ValueError, match="does not run"):
            run_ptx(kernel("").replace("sm_90a", target), "k", 1, 32, [out], chip=chip)
    with pytest.raises(ValueError, match="it demands 2 x 1 x 1"):
        run_ptx(kernel("", directives=".reqnctapercluster 2\n"), "k", 2, 32, [out], cluster=1)
    run_ptx(kernel("", directives=".explicitcluster\n.reqnctapercluster 2\n"), "k", 2, 32, [out], cluster=2)


@pytest.mark.parametrize("name", ["bar", "barrier", "barrier.cta"])
@pytest.mark.parametrize("operation", ["popc.u32 %r1", "and.pred %p3", "or.pred %p3"])
def test_barriers_that_count_votes(operation: str, name: str) -> None:
    for limit in (0, 1, 40, 64):
        out = np.zeros(64, np.uint32)
        body = f"setp.lt.u32 %p1, %r0, {limit};\n{name}.red.{operation}, 1, 64, %p1; {name}.sync 2;\n"
        body += "" if "popc" in operation else "selp.b32 %r1, 1, 0, %p3;\n"
        body += "shl.b32 %r2, %r0, 2; cvt.u64.u32 %rd2, %r2; add.s64 %rd2, %rd2, %rd0; st.global.b32 [%rd2], %r1;"
        run_ptx(kernel(body), "k", 1, 64, [out])
        expected = limit if "popc" in operation else limit == 64 if "and" in operation else limit > 0
        np.testing.assert_array_equal(out, int(expected))
