"""Modifiers in another order than the manual's: those that ptxas 13.5 takes are taken, and mean the same."""

# ruff: noqa: E501 (a case a line)
from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from msa_ops import _C
from msa_ops.emulator import PtxError, UnsupportedPtx, run_ptx
from tests.emulator import operand_kinds
from tests.emulator.programs import kernel, run
from tests.emulator.test_operand_types import ptxas_is_here

TAKEN = [
    "ld.b32.global %r1, [%rd0]", "ld.gpu.b32.relaxed.global %r1, [%rd0]", "ld.v2.global.b32 {%r1, %r2}, [%rd0]",
    "ld.L1::no_allocate.b32.nc.global %r1, [%rd0]", "st.gpu.release.b32.global [%rd0], %r0",
    "atom.u32.add.gpu.acquire.global %r1, [%rd0], %r0", "red.gpu.relaxed.add.u32.global [%rd0], %r0",
    "fma.ftz.rn.f32 %r1, %r0, %r0, %r0", "add.f32.sat.ftz.rn %r1, %r0, %r0", "mul.wide.u32 %rd1, %r0, %r0",
    "setp.ftz.lt.f32 %p1, %r0, %r0", "setp.f32.lt %p1, %r0, %r0", "cvt.f32.rn.f64 %r1, %rd15", "add.u32.cc %r1, %r0, %r0",
    "rcp.ftz.approx.f32 %r1, %r0", "shfl.bfly.sync.b32 %r1, %r0, 1, 31, -1", "vote.pred.all.sync %p1, %p2, -1",
    "max.abs.xorsign.f32.NaN %r1, %r0, %r0", "prmt.rc8.b32 %r1, %r0, %r0, %r0", "set.f32.u32.eq %r1, %r0, %r0",
    "mma.sync.f32.m16n8k16.f16.row.aligned.f16.col.f32 {%r1,%r2,%r3,%r4}, {%r0,%r0,%r0,%r0}, {%r0,%r0}, {%r0,%r0,%r0,%r0}",
]  # fmt: skip
REFUSED = [
    "mul.u32.lo %r1, %r0, %r0", "mad.u32.lo %r1, %r0, %r0, %r0", "shf.wrap.l.b32 %r1, %r0, %r0, %r0",
    "cvt.rn.f64.f32 %r1, %rd15", "div.ftz.full.f32 %r1, %r0, %r0", "slct.s32.u32 %r1, %r0, %r0, %r0",
    "mbarrier.shared.init.b64 [%r0], 1", "cvta.u64.to.shared %rd1, %rd15",
    "mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r0,%r0,%r0,%r0}, {%r0,%r0}, {%r0,%r0,%r0,%r0}",
]  # fmt: skip


@pytest.mark.parametrize("instruction", TAKEN)
def test_orders_that_are_taken(instruction: str) -> None:
    run(f"setp.eq.u32 %p2, %r0, 0;\n{instruction};", np.zeros(64, np.uint32))


@pytest.mark.parametrize("instruction", REFUSED)
def test_orders_that_are_not(instruction: str) -> None:
    with pytest.raises((PtxError, UnsupportedPtx)):
        run_ptx(kernel(instruction + ";"), "k", 1, 32, [np.zeros(64, np.uint32)])


def test_an_order_means_what_the_other_means() -> None:
    out = np.zeros(32, np.float32)
    body = (
        "cvt.f32.rn.u32 %r1, %r0;\nfma.sat.rn.f32 %r2, %r1, 0f3D000000, 0f00000000;\nmul.lo.u32 %r3, %r0, 4;\n"
        "cvt.u64.u32 %rd1, %r3;\nadd.s64 %rd1, %rd0, %rd1;\nred.f32.gpu.add.global.relaxed [%rd1], %r2;"
    )
    report = run(body, out)
    assert out.tolist() == [lane / 32 for lane in range(32)]
    assert report.warp_instructions["fma.rn.sat.f32"] == 1  # under the manual's name


@pytest.mark.skipif(not ptxas_is_here(), reason="asks ptxas")
def test_as_ptxas_takes_them() -> None:
    forms = [form for form in _C.emulated_forms() if " " not in form[0] and form[0].count(".") in (2, 3, 4)]
    forms = [form for form in forms if form[0].split(".")[0] not in ("div", "wmma", "clusterlaunchcontrol")]
    known = [(form[0], line.text) for form in random.Random(5).sample(forms, 500)
             if (line := next(operand_kinds.lines(*form), None)) is not None]  # fmt: skip
    plain = operand_kinds.refused_by_ptxas([text for _, text in known], "sm_100a")
    texts = []
    for at, (name, text) in enumerate(known):
        base, *modifiers = name.split(".")
        orders = list(itertools.permutations(modifiers))
        if at not in plain:
            chosen = random.Random(at).sample(orders, min(4, len(orders)))
            texts += [text.replace(name, ".".join([base, *order]), 1) for order in chosen]
    refused = operand_kinds.refused_by_ptxas(texts, "sm_100a")
    other = [text for at, text in enumerate(texts)
             if operand_kinds.refused_by_emulator(text, "sm_100a") != (at in refused)]  # fmt: skip
    assert len(texts) > 500 and other == []
