"""Bytes by space, and waits by warp, of small kernels whose traffic is known."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import Report, SpaceBytes, run_ptx, run_ptx_on_devices
from tests.emulator.programs import kernel, run

SHARED = ".shared .align 128 .b8 buffer[2048];"
ALL_MET = "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;\n"
PLACE = "shl.b32 %r3, %r0, 2; mov.b32 %r4, buffer; add.s32 %r3, %r3, %r4;\n"


def nothing() -> np.ndarray:
    return np.zeros(64, np.uint32)


def clustered(body: str) -> Report:
    return run_ptx(kernel(body, 1, SHARED), "k", 2, 32, [nothing()], cluster=2)


def test_shared_and_local_memory() -> None:
    body = (
        ".local .align 8 .b8 own[16];\n" + PLACE + "st.shared.b32 [%r3], %r0; ld.shared.b32 %r5, [%r3];\n"
        "atom.shared.add.u32 %r6, [%r3], 1; mov.b32 %r7, own; st.local.b32 [%r7], %r0; ld.local.b32 %r8, [%r7];\n"
        "st.local.b32 [%r7+4], %r0;"
    )
    report = run(body, nothing(), declarations=SHARED)
    assert report.spaces == {"shared": SpaceBytes(2 * 128, 2 * 128), "local": SpaceBytes(128, 2 * 128)}


@pytest.mark.parametrize("generic", [False, True])
def test_memory_of_another_block(generic: bool) -> None:
    """Each of two blocks writes 128 bytes of its own and reads, writes and updates as many of the other."""
    body = PLACE + "st.shared.b32 [%r3], %r0;\n" + ALL_MET + "mov.u32 %r1, %cluster_ctarank; xor.b32 %r2, %r1, 1;\n"
    if generic:
        body += "cvt.u64.u32 %rd2, %r3; cvta.shared.u64 %rd2, %rd2; mapa.u64 %rd2, %rd2, %r2;\n"
        body += "ld.b32 %r5, [%rd2]; st.b32 [%rd2+256], %r5; red.add.u32 [%rd2+256], 1;\n"
    else:
        body += "mapa.shared::cluster.u32 %r6, %r3, %r2; ld.shared::cluster.b32 %r5, [%r6];\n"
        body += "st.shared::cluster.b32 [%r6+256], %r5; red.shared::cluster.add.u32 [%r6+256], 1;\n"
    report = clustered(body + ALL_MET)
    assert report.spaces == {"shared": SpaceBytes(0, 256), "cluster": SpaceBytes(2 * 256, 2 * 256)}


def test_copies_count_at_both_ends() -> None:
    """A block sends 64 bytes to the other and 32 to global memory."""
    body = (
        "mov.b32 %r4, buffer; mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r1, 0;\n"
        "@%p1 mbarrier.init.shared.b64 [buffer], 1; @%p1 fence.mbarrier_init.release.cluster;\n" + PLACE +
        "st.shared.b32 [%r3+1024], %r0; fence.proxy.async;\n" + ALL_MET +
        "and.pred %p3, %p1, %p2; mov.b32 %r7, 1; mapa.shared::cluster.u32 %r6, %r4, %r7;\n"
        "not.pred %p4, %p2; and.pred %p5, %p1, %p4;\n"
        "@%p5 mbarrier.arrive.expect_tx.shared.b64 _, [buffer], 64;\n"
        "@%p3 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
        "[%r6+512], [%r4+1024], 64, [%r6];\n"
        "@%p3 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r4+1024], 32; @%p3 cp.async.bulk.commit_group;\n"
        "@%p3 cp.async.bulk.wait_group 0;\n@%p2 bra DONE;\n"
        "AGAIN: mbarrier.try_wait.parity.shared.b64 %p6, [buffer], 0; @!%p6 bra AGAIN;\nDONE:\n" + ALL_MET
    )  # fmt: skip
    out = np.zeros(64, np.uint32)
    memory = out.view(np.uint8)
    report = run_ptx(kernel(body, 1, SHARED), "k", 2, 32, [memory], cluster=2)
    assert report.spaces == {"shared": SpaceBytes(64 + 32, 2 * 128), "cluster": SpaceBytes(0, 64)}
    assert report.tensors["argument 0"].written == 32


@pytest.mark.parametrize(("stride", "conflicts"), [(16, 0), (128, 7 * 4)])
def test_matrices_have_bank_conflicts(stride: int, conflicts: int) -> None:
    """Rows of 16 bytes beside each other, or all in the same four banks."""
    size = 32 * stride
    body = (
        f"mov.b32 %r4, rows; mad.lo.u32 %r5, %r0, {stride}, %r4; mov.b32 %r6, 0;\n"
        "st.shared.v4.b32 [%r5], {%r6, %r6, %r6, %r6}; bar.warp.sync -1;\n"
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r7, %r8, %r9, %r10}, [%r5];"
    )
    report = run(body, nothing(), declarations=f".shared .align 128 .b8 rows[{size}];")
    store = conflicts  # the store's quarters of the warp are the same eight rows
    assert report.shared_passes_at_least == 4 + 4 and report.bank_conflicts == conflicts + store
    assert report.spaces["shared"] == SpaceBytes(512, 512)


def test_tensor_memory() -> None:
    body = (
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [buffer], 32; ld.shared.b32 %r2, [buffer];\n"
        "tcgen05.st.sync.aligned.32x32b.x2.b32 [%r2], {%r0, %r0}; tcgen05.wait::st.sync.aligned;\n"
        "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r3}, [%r2]; tcgen05.wait::ld.sync.aligned;\n"
        "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;"
    )
    report = run(body, nothing(), declarations=SHARED, target="sm_100a")
    assert report.spaces["tensor"] == SpaceBytes(128, 256)


def test_memory_of_another_device() -> None:
    """Each device reads 4 bytes a lane of its own and of the other's tensor, and writes into the other's."""
    body = (
        "mul.wide.u32 %rd10, %r0, 4; add.s64 %rd11, %rd0, %rd10; add.s64 %rd12, %rd1, %rd10;\n"
        "ld.global.b32 %r1, [%rd11]; ld.global.b32 %r2, [%rd12]; st.global.b32 [%rd12+128], %r1;"
    )
    memory = [np.zeros(64, np.uint32) for _ in range(2)]
    addresses = [one.ctypes.data for one in memory]
    reports = run_ptx_on_devices(
        kernel(body, 2), "k", 1, 32, [[memory[0], addresses[1]], [memory[1], addresses[0]]]
    )  # fmt: skip
    for report in reports:
        assert report.spaces == {"peer": SpaceBytes(128, 128)}
        assert report.tensors["argument 0"].read == 128 and report.global_bytes_read == 256
    assert reports[0].tensors["device 1 argument 0"].written == 128


def test_waits_by_warp() -> None:
    """Warp 0 meets the others at one barrier, warps 1 and 2 at two."""
    body = "setp.ge.u32 %p1, %r0, 32; @%p1 bar.sync 1, 64; bar.sync 0;"
    report = run(body, nothing(), threads=96, blocks=2)
    assert report.waits_of_warp == {0: 2, 1: 4, 2: 4} and report.waits == 10
