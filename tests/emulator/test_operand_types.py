"""Registers and literals of another type than an instruction takes are refused; those that ptxas takes are not."""

# ruff: noqa: E501 (a case a line, and expressions)
from __future__ import annotations

import shutil

import numpy as np
import pytest

from msa_ops import _C
from msa_ops.build import toolchain
from msa_ops.emulator import PtxError, run_ptx
from tests.emulator import operand_kinds
from tests.emulator.programs import kernel, line_of

TYPED = (
    ".reg .f32 %f<8>; .reg .f64 %fd<8>; .reg .u32 %u<8>; .reg .s64 %sd<8>; .reg .f16 %hf<8>; .reg .u16 %hu<8>;\n"
    ".reg .f16x2 %x<8>;\n.shared .align 16 .b8 s[64];\n"
)


def ptxas_is_here() -> bool:
    try:
        return shutil.which(toolchain.tool("ptxas")) is not None
    except toolchain.ToolchainError:
        return False


@pytest.mark.parametrize("instruction", [
    "setp.eq.f32 %p1, %f1, 1", "setp.lt.u32 %p1, %f1, %r1", "selp.f32 %f1, %u1, %f2, %p1", "selp.u32 %u1, 1.5, %u2, %p1",
    "slct.u32.s32 %u1, %u1, %u2, %f1", "shl.b32 %r1, %r2, %f1", "shr.u32 %f1, %r1, %r2", "bfe.u32 %r1, %r1, %f1, 1",
    "clz.b32 %f1, %r1", "popc.b32 %x1, %r1", "div.u32 %f1, %r1, %r2", "rcp.rn.f32 %f1, %u1", "cvt.rn.f32.u32 %f1, %f2",
    "cvt.rn.f16.f32 %hu1, %f1", "ld.global.f32 %u1, [%rd0]", "ld.global.u32 %f1, [%rd0]", "st.global.u32 [%rd0], %f1",
    "st.global.f32 [%rd0], 1", "atom.global.add.f32 %u1, [%rd0], %f1", "atom.global.add.u32 %rd3, [%rd0], %r1",
    "red.global.add.u32 [%rd0], 1.5", "add.bf16 %hu1, %h1, %h2", "add.bf16x2 %r1, %u1, %r2", "fma.rn.f16x2 %x1, %x1, %u1, %x1",
    "tanh.approx.f32 %u1, %f1", "and.b32 %r1, %r2, 1.5", "not.b64 %rd1, 0f3F800000", "redux.sync.add.u32 %u1, %f1, -1",
    "mbarrier.try_wait.parity.shared.b64 %p1, [s], %f1", "set.eq.u32.f32 %f1, %f1, %f2", "mad24.lo.u32 %u1, %u1, %u2, %f1",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0,%f1,%f2,%f3}, {%u0,%u1,%u2,%u3}, {%r1,%r2}, {%f0,%f1,%f2,%f3}",
    "match.any.sync.b32 %f1, %r1, -1", "mul.wide.s32 %fd1, %r1, %r2", "isspacep.global %p1, %fd1",
])  # fmt: skip
def test_what_is_refused(instruction: str) -> None:
    text = kernel(f"{TYPED}\n{instruction}; // here")
    with pytest.raises(PtxError, match=r"takes|there|bytes") as caught:
        run_ptx(text, "k", 1, 32, [np.zeros(64, np.float32)])
    assert caught.value.line == line_of(text, "// here")


@pytest.mark.parametrize("instruction", [
    "mov.f64 %fd1, 0f3F800000", "add.rn.f64 %fd1, 0f3F800000, 1.0", "shl.b32 %f1, 0f3F800000, 1", "popc.b32 %r1, 0f3F800000",
    "selp.b32 %f1, 1, 0f3F800000, 1", "mov.u32 %x1, 5", "ld.global.b32 %f1, [%rd0]", "ld.global.v2.f32 {%u1, %u2}, [%rd0]",
    "ld.global.u16 %sd1, [%rd0]", "st.global.b32 [%rd0], 0f3F800000", "slct.f32.s32 %f1, 1.0, 2.0, 3", "cvt.rzi.u32.f32 %r1, 1.5",
])  # fmt: skip
def test_what_fits(instruction: str) -> None:
    run_ptx(kernel(f"{TYPED}\n{instruction};"), "k", 1, 32, [np.zeros(64, np.float32)])


def test_a_single_as_a_double_keeps_its_value() -> None:
    out = np.zeros(1)
    run_ptx(kernel(f"{TYPED}\nmov.f64 %fd1, 0f3FC00000;\nst.global.f64 [%rd0], %fd1;"), "k", 1, 1, [out])
    assert out[0] == 1.5


@pytest.mark.parametrize("instruction", [
    "cp.async.cg.shared.global [s], [%rd0], 8", "cp.async.cg.shared.global [s], [%rd0], 4",
    "cp.async.ca.shared.global [s], [%rd0], 12", "cp.async.ca.shared.global [s], [%rd0], %r1",
    "cp.async.ca.shared.global [s], [%rd0], 4, 8", "cp.async.shared.global [s], [%rd0], 16", "cp.async.wait_group %r1",
])  # fmt: skip
def test_sizes_that_ptxas_refuses(instruction: str) -> None:
    text = kernel(f"{TYPED}\n{instruction}; // here")
    with pytest.raises(PtxError) as caught:
        run_ptx(text, "k", 1, 32, [np.zeros(64, np.float32)])
    assert caught.value.line == line_of(text, "// here")


@pytest.mark.skipif(not ptxas_is_here(), reason="ptxas is in the extra `build`")
def test_every_instruction_takes_what_ptxas_takes() -> None:
    forms = sorted(_C.emulated_forms())
    by_name: dict[str, list[tuple[str, str]]] = {}
    for form in forms:
        by_name.setdefault(form[0].split(".")[0], []).append(form)
    some = [form for every in by_name.values() for form in every[:: max(1, len(every) // 12)]]
    compared, different = operand_kinds.differences(some)
    assert compared > 8_000
    assert [(line.text, "refused by ptxas" if refused else "taken by ptxas") for line, refused in different] == []
