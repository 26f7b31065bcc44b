"""Literals and registers in vector operands: what ptxas 13.5 takes, and the bits that it puts there."""

# ruff: noqa: E501 (a case a line)
from __future__ import annotations

import numpy as np
import pytest

from msa_ops import _C
from msa_ops.emulator import PtxError
from tests.emulator.programs import kernel, line_of, run

TYPED = (
    ".reg .f32 %f<8>; .reg .f64 %fd<8>; .reg .u32 %u<8>; .reg .f16 %hf<8>; .reg .u16 %hu<8>; .reg .f16x2 %x<8>;\n"
    ".shared .align 16 .b8 s[64];\n"
)
A, F = "{%r1, %r2, %r3, %r4}", "{%f1, %f2, %f3, %f4}"
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 " + F
STORE = "tcgen05.st.sync.aligned.32x32b"
TAKEN = [
    "st.shared.v2.b32 [s], {1.0, %f1}", "st.shared.v2.b32 [s], {0, %r1}", "st.shared.v2.u32 [s], {1.0, %r1}",
    "st.shared.v2.b16 [s], {1.0, %h1}", "st.shared.v2.b64 [s], {0f3F800000, %rd1}", "st.shared.v2.b32 [s], {0, %u1}",
    "st.shared.v4.f32 [s], {1.0, %f1, 0f3F800000, 2.0}", "mov.b64 %rd1, {1.0, %f1}", "mov.v2.u32 {%u1, %u2}, {1.0, %r2}",
    "red.global.add.v2.f32 [%rd0], {1.0, %f1}", f"{MMA}, {A}, {{%r5, 0}}, {F}", f"{MMA}, {A}, {{%r5, 0f00000000}}, {F}",
    f"{MMA}, {A}, {{%r5, %r6}}, {{%f1, %f2, 1.5, %f4}}", "stmatrix.sync.aligned.m8n8.x2.shared.b16 [s], {0, %r1}",
    "ld.shared.v4.b32 {%u1, %r1, %f1, %r2}, [s]", "mov.b64 {_, %r1}, %rd1",
]  # fmt: skip
REFUSED = [
    "st.shared.v2.b32 [s], {1, %f1}", "st.shared.v2.b32 [s], {1.0, %u1}", "st.shared.v2.f32 [s], {1, %f1}",
    "st.shared.v2.f64 [s], {1, %fd1}", "st.shared.v2.b32 [s], {0, %x1}", "st.shared.v2.f32 [s], {%r1, 1}",
    "red.global.add.noftz.v2.f16x2 [%rd0], {0, %r1}", "mov.b64 %rd1, {1, %f1}", "mov.b64 %rd1, {1.0, 2.0}",
    "mov.b64 %rd1, {%u1, %f1}", "mov.b32 {%hu1, %hf1}, %r1", "mov.b64 {_, _}, %rd1", "st.shared.v2.b32 [s], {s, %r1}",
    "ld.shared.v2.b16 {%h1, %r1}, [s]", "ld.shared.v2.u8 {%h1, %rd1}, [s]", "st.shared.v2.b16 [s], {%h1, %r1}",
    "ld.shared.v4.b32 {%r1, %u1, %f1, %r2}, [s]", "ld.shared.v4.b32 {_, %f1, _, %u1}, [s]", "ld.shared.v2.b32 {_, _}, [s]",
    f"{MMA}, {A}, {{%x1, 0}}, {F}", f"{MMA}, {{0, 0, 0, 0}}, {{%r5, 0}}, {F}", f"{MMA}, {A}, {{%r5, %r6}}, {{0, 0, 0, 0}}",
    f"{MMA}, {{%r1, %u1, %f1, %r4}}, {{%r5, %r6}}, {F}", "stmatrix.sync.aligned.m8n8.x2.shared.b16 [s], {0, 0}",
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 %r1, [s]", "stmatrix.sync.aligned.m8n8.x1.shared.b16 [s], %r1",
]  # fmt: skip
OF_BLACKWELL = {
    f"{STORE}.x2.b32 [%r2], {{0, %r1}}": True, f"{STORE}.x2.b32 [%r2], {{0f00000000, %f1}}": True,
    f"{STORE}.x1.b32 [%r2], {{%r1}}": True, f"{STORE}.x1.b32 [%r2], %r1": False, f"{STORE}.x1.b32 [%r2], {{0}}": False,
    f"{STORE}.x2.b32 [%r2], {{0, 0}}": False, f"{STORE}.x2.b32 [%r2], {{%u1, %f1}}": False,
    f"{STORE}.x1.b32 [0], {{%r1}}": False, "tcgen05.ld.sync.aligned.32x32b.x1.b32 %r1, [%r2]": False,
    "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r2]": True, "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [0]": False,
    "tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, {0, %r4, 0, 0}, %p1": True,
    "tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, {0, 0, 0, 0}, %p1": False,
    "tcgen05.mma.cta_group::1.kind::f16 [0], %rd1, %rd2, %r2, %p1": False,
    "tcgen05.mma.cta_group::1.kind::f16 [%r1], [0], %rd2, %r2, %p1": False,
}  # fmt: skip


def text_of(instruction: str, target: str = "sm_90a") -> str:
    return kernel(f"{TYPED}\n{instruction}; // here").replace("sm_90a", target)


@pytest.mark.parametrize("instruction", TAKEN)
def test_what_goes_together(instruction: str) -> None:
    _C.ptx_parameters(text_of(instruction), "k")


@pytest.mark.parametrize("instruction", REFUSED)
def test_what_does_not(instruction: str) -> None:
    text = text_of(instruction)
    with pytest.raises(PtxError) as caught:
        _C.ptx_parameters(text, "k")
    assert caught.value.line == line_of(text, "// here")


@pytest.mark.parametrize("instruction", OF_BLACKWELL)
def test_of_tensor_memory(instruction: str) -> None:
    text = text_of(instruction, "sm_100a")
    if OF_BLACKWELL[instruction]:
        _C.ptx_parameters(text, "k")
        return
    with pytest.raises(PtxError) as caught:
        _C.ptx_parameters(text, "k")
    assert caught.value.line == line_of(text, "// here")


@pytest.mark.parametrize(
    ("instruction", "words"),
    [  # words are read from what ptxas makes of them
        ("st.global.v2.b32 [%rd0], {1.5, %r1}", [0, 7]),  # the low half of the fp64
        ("st.global.v2.b32 [%rd0], {0f3FC00000, %r1}", [0x3FC00000, 7]),
        ("st.global.v2.u32 [%rd0], {5, %r1}", [5, 7]),
        ("st.global.v2.f32 [%rd0], {1.5, %r1}", [0x3FC00000, 7]),
        ("st.global.v2.f32 [%rd0], {1.5, 0d3FF8000000000000}", [0x3FC00000] * 2),
        ("st.global.v2.b64 [%rd0], {0f3FC00000, %rd1}", [0x3FC00000, 0, 7, 0]),
        ("st.global.v2.f64 [%rd0], {0f3FC00000, %rd1}", [0x3FC00000, 0, 7, 0]),
        ("st.global.v2.u64 [%rd0], {1.5, %rd1}", [0, 0x3FF80000, 7, 0]),
        ("mov.b64 %rd2, {1.5, %r1}; st.global.b64 [%rd0], %rd2", [0, 7]),
        ("mov.b64 %rd2, {0f3FC00000, %r1}; st.global.b64 [%rd0], %rd2", [0x3FC00000, 7]),
        ("mov.v2.f32 {%f1, %f2}, {1.5, %r1}; st.global.v2.f32 [%rd0], {%f1, %f2}", [0x3FC00000, 7]),
    ],
)
def test_the_bits_of_literals(instruction: str, words: list[int]) -> None:
    out = np.zeros(4, np.uint32)
    run(f"{TYPED}mov.b32 %r1, 7; mov.b64 %rd1, 7;\n{instruction};", out, threads=1)
    assert out[: len(words)].tolist() == words
