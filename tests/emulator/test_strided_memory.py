"""Memory of a kernel is exactly the bytes of a view: gaps between its rows are another view's, or nobody's."""

# ruff: noqa: E501 (programs, a line a step)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from msa_ops.cache.pool import CachePool
from msa_ops.cache.spec import CacheSpec
from msa_ops.emulator import EmulatorFault, multicast, run_gfx950, run_ptx, run_ptx_on_devices, tensor_map
from msa_ops.emulator.memory import address_of, allocation
from tests.emulator.gfx950.code_object import code_object
from tests.emulator.programs import kernel

# A store, a load or an addition at %rd0 plus a multiple of the thread, and the same of several bytes.
USES = {
    "store": "st.global.b32 [%rd10], %r0;",
    "load": "ld.global.b32 %r1, [%rd10];",
    "strong load": "ld.acquire.gpu.global.b32 %r1, [%rd10];",
    "atomic": "red.global.add.u32 [%rd10], 1;",
    "vector": "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd10];",
    "prefetch": "cp.async.bulk.prefetch.L2.global [%rd10], 16;",
}


def at(offset: str, use: str) -> str:
    return kernel(f"mul.wide.u32 %rd10, %r0, {offset}; add.s64 %rd10, %rd10, %rd0;\n{use}")


def view() -> torch.Tensor:
    """Rows of 256 bytes, 16,384 apart, at a multiple of 64 bytes."""
    raw = torch.zeros(4 * 4096 + 16, dtype=torch.int32)
    start = -raw.data_ptr() % 64 // 4
    return raw[start : start + 4 * 4096].view(4, 4096)[:, :64]


@pytest.mark.parametrize("use", USES)
def test_gap_between_rows(use: str) -> None:
    run_ptx(at("16384", USES[use]), "k", 1, 4, [view()])
    with pytest.raises(
        EmulatorFault, match=r"argument 0 has a gap between its rows, from byte offset 256 to 16383"
    ) as caught:
        run_ptx(at("256", USES[use]), "k", 1, 2, [view()])
    assert (caught.value.kind, caught.value.lane) == ("out of bounds", 1)
    assert "the access starts at 256" in str(caught.value)


def test_access_that_ends_in_a_gap() -> None:
    text = at("16384", "add.s64 %rd10, %rd10, 240; ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd10];")
    assert run_ptx(text, "k", 1, 4, [view()]).tensors["argument 0"].read == 64
    narrow = view()[:, :62]
    with pytest.raises(
        EmulatorFault, match="gap between its rows, from byte offset 248 to 16383, the access starts at 240"
    ):
        run_ptx(text, "k", 1, 4, [narrow])
    with pytest.raises(
        EmulatorFault, match="argument 0 of 49400 bytes ends at byte offset 49400, the access starts at 49392"
    ):
        run_ptx(text.replace("mul.wide", "add.u32 %r0, %r0, 3; mul.wide"), "k", 1, 1, [narrow])


@pytest.mark.parametrize(
    "cut",
    [
        lambda x: x[::2],
        lambda x: x[:, 8:72],
        lambda x: x[1:3, 3::5],
        lambda x: x.T[::7, :2],
        lambda x: x[::-1, ::-3],
        lambda x: x[:, ::-1],
        lambda x: x[2:3],
        lambda x: x[::3, 5],
        lambda x: np.broadcast_to(x[:, None, :40:2], (8, 6, 20)),
        lambda x: np.lib.stride_tricks.sliding_window_view(x[0], 9),
        lambda x: np.lib.stride_tricks.sliding_window_view(x[:, ::4], (2, 3), writeable=True),
    ],
)  # fmt: skip
def test_every_word_of_any_view(cut: Any) -> None:
    """Each word of the array alone: those of the view can be read, and no others."""
    base = np.arange(8 * 96, dtype=np.uint32).reshape(8, 96)
    part = cut(base)
    inside = set(np.unique(part).tolist())
    text = kernel("ld.global.b32 %r1, [%rd0]; ld.global.b32 %r1, [%rd1];", 2)
    for word in range(base.size):
        # the address alone, and the first element by the view's own
        arguments = [base.ctypes.data + 4 * word, part]
        if word in inside:
            assert run_ptx(text, "k", 1, 1, arguments).tensors["argument 1"].read == 8
            continue
        with pytest.raises(EmulatorFault, match="outside every global allocation") as caught:
            run_ptx(text, "k", 1, 1, arguments)
        assert caught.value.address == base.ctypes.data + 4 * word


def test_what_is_told_of_a_view() -> None:
    x = np.zeros((6, 10), np.int16)
    assert allocation("x", x.T) == (x.ctypes.data, 120, True, "x", 0, ())
    assert allocation("x", x[::-1]) == (x.ctypes.data, 120, True, "x", 0, ())
    assert address_of("x", x[::-1]) == x.ctypes.data + 100
    assert allocation("x", x[::-2, :3]) == (x.ctypes.data + 20, 86, True, "x", 6, [(40, 3)])
    assert allocation("x", x[:, :0])[:2] == (x.ctypes.data, 0)
    assert allocation("x", np.array(5, np.int16))[1] == 2
    t = torch.zeros(3, 8, dtype=torch.bfloat16)
    assert allocation("t", t[:, :5]) == (t.data_ptr(), 42, True, "t", 10, [(16, 3)])
    assert allocation("t", t[:1, :1].expand(4, 9)) == (t.data_ptr(), 2, True, "t", 0, ())


def test_a_negative_stride_begins_at_the_first_element() -> None:
    base = np.arange(64, dtype=np.uint32)
    out = np.zeros(32, np.uint32)
    text = kernel("mul.wide.u32 %rd10, %r0, 8; sub.s64 %rd10, %rd0, %rd10; ld.global.b32 %r1, [%rd10];\n"
                  "mul.wide.u32 %rd10, %r0, 4; add.s64 %rd10, %rd1, %rd10; st.global.b32 [%rd10], %r1;", 2)  # fmt: skip
    run_ptx(text, "k", 1, 32, [base[::-2], out])
    np.testing.assert_array_equal(out, base[::-2])


COPY = kernel("mul.wide.u32 %rd10, %r0, 4; add.s64 %rd11, %rd10, %rd0; add.s64 %rd12, %rd10, %rd1;\n"
              "ld.global.b32 %r1, [%rd11]; st.global.b32 [%rd12], %r1;", 2)  # fmt: skip


def test_each_view_has_its_own_bytes() -> None:
    """Columns of one matrix: counts are those of the view that covers a byte, whatever was touched before."""
    base = torch.arange(256, dtype=torch.int32).view(2, 128)
    left, right = base[:, :64], base[:, 64:]
    report = run_ptx(COPY, "k", 1, 64, [left, right])
    assert (report.tensors["argument 0"].read, report.tensors["argument 0"].written) == (256, 0)
    assert (report.tensors["argument 1"].read, report.tensors["argument 1"].written) == (0, 256)
    both = kernel("ld.global.v2.b64 {%rd10, %rd11}, [%rd0+248];", 2).replace("v2.b64 {%rd10, %rd11}", "b64 %rd10")
    run_ptx(both, "k", 1, 1, [left, right])
    # an access over both is of both; the same without the other view ends in a gap
    raw = np.zeros(80, np.uint32)
    rows = raw[-raw.ctypes.data % 16 // 4 :][:64].reshape(2, 32)
    text = kernel("ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd0+32];", 1)
    report = run_ptx(text, "k", 1, 1, [rows[:, :10]], tensors={"rest": rows[:, 10:]})
    assert (report.tensors["argument 0"].read, report.tensors["rest"].read) == (8, 8)
    with pytest.raises(EmulatorFault, match="gap between its rows, from byte offset 40 to 127"):
        run_ptx(text, "k", 1, 1, [rows[:, :10]])
    # what only happens to be behind a tensor is not its own
    with pytest.raises(EmulatorFault, match="argument 0 of 40 bytes ends at byte offset 40, the access starts at 32"):
        run_ptx(text, "k", 1, 1, [rows[0, :10]], tensors={"rest": rows[0, 10:]})
    report = run_ptx(text, "k", 1, 1, [rows[0, :10]], tensors={"rest": rows[0, 10:], "whole": rows})
    assert {name: one.read for name, one in report.tensors.items()} == {"argument 0": 8, "rest": 8}


@pytest.mark.parametrize("turn", [False, True])
def test_a_byte_of_two_belongs_to_the_first(turn: bool) -> None:
    """Also when the last access was to bytes that the second one alone has."""
    base = torch.arange(64, dtype=torch.int32)
    first, second = base[::2], base[:33]
    text = kernel(
        "shl.b32 %r1, %r0, 2; cvt.u64.u32 %rd10, %r1; add.s64 %rd10, %rd10, %rd0; ld.global.b32 %r1, [%rd10];", 2
    )
    views = [second, first] if turn else [first, second]
    report = run_ptx(text, "k", 1, 33, views).tensors
    read = [report[name].read for name in ("argument 0", "argument 1") if name in report]
    assert read == ([132] if turn else [68, 64])


def test_what_may_be_written() -> None:
    base = np.arange(64, dtype=np.uint32)
    frozen = base[::2]
    frozen.flags.writeable = False
    text = kernel("st.global.b32 [%rd0], 7; ld.global.b32 %r1, [%rd0]; red.global.add.u32 [%rd0], 1;")
    with pytest.raises(EmulatorFault, match="write of 4 bytes to argument 0") as caught:
        run_ptx(text, "k", 1, 1, [frozen], tensors={"odd": base[1::2]})
    assert caught.value.kind == "read only"
    report = run_ptx(text, "k", 1, 1, [frozen], tensors={"all": base}).tensors
    assert base[0] == 8
    assert (report["argument 0"].read, report["argument 0"].written) == (4, 0)
    assert (report["all"].read, report["all"].written) == (4, 8)


BOX = """
mov.b32 %r4, buffer; mov.b32 %r5, bar; mov.b64 %rd2, p1; cvta.param.u64 %rd1, %rd2; mov.b32 %r10, COLUMN; mov.b32 %r11, ROW; setp.ne.u32 %p1, %r0, 0; @%p1 ret;
mbarrier.init.shared::cta.b64 [%r5], 1; fence.proxy.async;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 512;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r4], [%rd1, {%r10, %r11}], [%r5];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0; @!%p2 bra WAIT;
"""
SHARED = ".shared .align 128 .b8 buffer[512];\n.shared .align 8 .b64 bar;"


def test_boxes_row_by_row() -> None:
    rows = view()
    text = kernel(BOX, 1, SHARED).replace(".param .u64 p0", ".param .u64 p0, .param .align 64 .b8 p1[128]")

    def read(columns: int, column: int, row: int) -> int:
        of_rows = tensor_map(rows, "s32", (columns, 4), (16384,), (64, 2))
        placed = text.replace("COLUMN", str(column)).replace("ROW", str(row))
        return run_ptx(placed, "k", 1, 32, [rows, of_rows]).tensors["argument 0"].read

    assert read(64, 0, 2) == read(4096, 0, 2) == 512
    assert read(64, 4, 2) == 480  # the map knows where rows end
    with pytest.raises(
        EmulatorFault, match="gap between its rows, from byte offset 16640 to 32767, the access starts at 16400"
    ):
        read(4096, 4, 1)


@pytest.mark.parametrize("use", ["bulk store", "bulk load"])
def test_bulk_copies(use: str) -> None:
    store = ("cp.async.bulk.global.shared::cta.bulk_group [%rd0+OFFSET], [%r4], 256; cp.async.bulk.commit_group;\n"
             "cp.async.bulk.wait_group 0;")  # fmt: skip
    load = ("mbarrier.init.shared::cta.b64 [%r5], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 256;\n"
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd0+OFFSET], 256, [%r5];\n"
            "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0; @!%p2 bra WAIT;")  # fmt: skip
    fill = ("mov.b32 %r4, buffer; mov.b32 %r5, bar; mad.lo.u32 %r6, %r0, 8, %r4; mov.b64 %rd9, 5; st.shared.b64 [%r6], %rd9;\n"
            "fence.proxy.async.shared::cta; bar.sync 0; setp.ne.u32 %p1, %r0, 0; @%p1 ret;\n")  # fmt: skip
    text = kernel(fill + (store if use == "bulk store" else load), 1, SHARED)
    rows = view()
    run_ptx(text.replace("OFFSET", "16384"), "k", 1, 32, [rows])
    assert (rows[1] == torch.tensor([5, 0]).repeat(32)).all() == (use == "bulk store")
    with pytest.raises(
        EmulatorFault, match="gap between its rows, from byte offset 256 to 16383, the access starts at 16"
    ):
        run_ptx(text.replace("OFFSET", "16"), "k", 1, 32, [rows])


def test_multicast_views_and_peers() -> None:
    views = [view() for _ in range(2)]
    of_all = multicast(views)
    text = at("OFFSET", "multimem.red.relaxed.sys.global.add.u32 [%rd10], 1;")
    run_ptx(text.replace("OFFSET", "16384"), "k", 1, 4, [of_all])
    assert [one[:, 0].tolist() for one in views] == [[1] * 4] * 2
    with pytest.raises(EmulatorFault, match="gap between its rows"):
        run_ptx(text.replace("OFFSET", "512"), "k", 1, 4, [of_all])
    with pytest.raises(ValueError, match=r"tensors: strides \(-4,\); accepted: none below zero"):
        multicast([np.zeros(4, np.float32)[::-1]] * 2)
    store = kernel("st.global.b32 [%rd0+256], 1;", 1)
    with pytest.raises(EmulatorFault, match="device 1 argument 0 has a gap"):
        run_ptx_on_devices(store, "k", 1, 1, [[views[0].data_ptr()], [views[0]]])


def test_pending_gaps_are_not_pending() -> None:
    """What another launch writes of a matrix are its columns; the others may be used at once."""
    base = torch.zeros(4, 64, dtype=torch.int32)
    text = kernel("ld.relaxed.gpu.global.b32 %r1, [%rd0+OFFSET]; st.global.b32 [%rd1], %r1;", 2)
    earlier, out = base + 3, torch.zeros(1, dtype=torch.int32)

    def run(offset: int, pending: Any) -> None:
        run_ptx(text.replace("OFFSET", str(offset)), "k", 1, 1, [base, out], pending=pending)

    run(4 * 32, [base[:, :32]])
    run(4 * 32, [(base[:, :32], earlier[:, :32])])
    assert out.item() == 0
    run(4 * 64, [(base[:, :32], earlier[:, :32])])
    assert out.item() == 3
    with pytest.raises(EmulatorFault, match="missing grid wait"):
        run(4 * 64, [base[:, :32]])
    with pytest.raises(
        ValueError, match="pending 0: the gaps between its rows are others before; accepted: the same strides"
    ):
        run(0, [(base[::3, :32], base.view(-1)[:224])])


@pytest.mark.parametrize("use", ["global_store_dword v1, v2, s[8:9]", "global_load_dword v2, v1, s[8:9]",
                                 "global_atomic_add v1, v2, s[8:9]"])  # fmt: skip
def test_gfx950(use: str) -> None:
    text = ("s_load_dwordx2 s[8:9], s[0:1], 0x0\nv_mul_u32_u24 v1, PITCH, v0\nv_mov_b32 v2, v0\ns_waitcnt lgkmcnt(0)\n"
            "v_cmp_gt_u32 vcc, 4, v0\ns_and_b64 exec, exec, vcc\n" + use + "\ns_waitcnt vmcnt(0)\ns_endpgm")  # fmt: skip

    def run(pitch: int) -> None:
        rows = view()
        run_gfx950(code_object(text.replace("PITCH", str(pitch))), "k", 1, 64,
                   rows.data_ptr().to_bytes(8, "little"), tensors={"rows": rows})  # fmt: skip

    run(16384)
    with pytest.raises(EmulatorFault, match=r"rows has a gap between its rows, from byte offset 256 to 16383"):
        run(128)


def test_layers_of_a_pool_are_apart() -> None:
    """A layer's pages are no memory of a kernel that was given another layer's, nor are index keys beside them."""
    pool = CachePool.allocate(CacheSpec(kv_format="nvfp4", index_format="nvfp4", tp=4), 4, "block_outer")
    kv, keys = pool.kv_cache(5), pool.index_cache(5)
    assert kv.stride(0) > kv[0].numel()
    text = kernel("mul.wide.u32 %rd10, %r0, 4; add.s64 %rd11, %rd10, %rd0; st.global.b32 [%rd11], %r0;\n"
                  "add.s64 %rd11, %rd10, %rd1; st.global.b32 [%rd11], %r0;", 2)  # fmt: skip
    report = run_ptx(text, "k", 1, 256, [kv, keys]).tensors
    assert (report["argument 0"].written, report["argument 1"].written) == (1024, 1024)
    beyond = kernel(f"st.global.b32 [%rd0+{kv[0].numel()}], 1;")
    with pytest.raises(EmulatorFault, match="gap between its rows"):
        run_ptx(beyond, "k", 1, 1, [kv])
    other = pool.kv_cache(6)
    with pytest.raises(EmulatorFault, match="gap between its rows"):
        run_ptx(kernel(f"st.global.b32 [%rd0+{other.data_ptr() - kv.data_ptr()}], 1;"), "k", 1, 1, [kv])
