"""Names as operands: special registers and their vectors, addresses in 16, 32 and 64 bits, subscripts."""

# ruff: noqa: E501 (a case a line)
from __future__ import annotations

import numpy as np
import pytest

from msa_ops import _C
from msa_ops.emulator import EmulatorFault, PtxError, UnsupportedPtx, run_ptx
from tests.emulator.programs import kernel, line_of, run

DECLARED = (
    ".global .align 16 .b32 g[8] = {1, 2, 3, 4}; .const .align 16 .b32 c[4] = {5, 6, 7, 8}; .const .b16 d = 9;\n"
    ".global .b64 wide[2] = {0x100000002, 0x300000004}; .global .v4 .b32 four[2] = {{1, 2, 3, 4}, {5, 6, 7, 8}}; .global .b32 one;\n"
    ".func f() { ret; }\n.visible .entry other() { ret; }\n"
)
BODY = ".shared .align 16 .b8 s[64]; .local .align 16 .b32 l[4];\n"


def word(body: str, threads: int = 1) -> list[int]:
    out = np.zeros(threads * 4, np.uint32)
    run(BODY + body, out, threads=threads, declarations=DECLARED)
    return out.tolist()


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("ld.global.u32 %r1, g[1];", 2), ("ld.global.u32 %r1, g[1+2];", 4), ("ld.const.u32 %r1, c[3];", 8),
        ("ld.global.u32 %r1, wide[1];", 4), ("ld.global.u32 %r1, four[5];", 6), ("mov.u64 %rd1, g[2]; ld.global.u32 %r1, [%rd1];", 3),
        ("mov.b32 %r2, 11; st.shared.u32 s[4], %r2; ld.shared.u32 %r1, [s+4];", 11),
        ("mov.b32 %r2, 11; st.local.u32 l[1], %r2; ld.local.u32 %r1, [l+4];", 11), ("ld.u32 %r1, g[3];", 4),
        ("mov.b32 %r2, 11; st.shared.u32 [s+4], %r2; mov.u32 %r3, s[4]; ld.shared.u32 %r1, [%r3];", 11),
        ("mov.u32 %r2, c; ld.const.u32 %r1, [%r2+4];", 6), ("mov.u32 %r2, c+8; ld.const.u32 %r1, [%r2];", 7),
        ("mov.u32 %r2, c; cvt.u64.u32 %rd1, %r2; cvta.const.u64 %rd1, %rd1; ld.u32 %r1, [%rd1+12];", 8),
        ("mov.u64 %rd1, c; cvt.u32.u64 %r2, %rd1; ld.const.u32 %r1, [%r2];", 5),
        ("mov.u32 %r2, d; ld.const.u16 %h1, [%r2]; cvt.u32.u16 %r1, %h1;", 9),
        ("mov.b16 %h1, s+4; mov.u32 %r2, s+4; cvt.u32.u16 %r3, %h1; and.b32 %r2, %r2, 0xffff; sub.u32 %r1, %r2, %r3;", 0),
        ("mov.u32 %r2, s; mapa.u32 %r3, %r2, 0; mapa.shared::cluster.u32 %r4, %r2, 0; sub.u32 %r1, %r3, %r4;", 0),
        ("mov.u32 %r2, s; getctarank.u32 %r1, %r2;", 0),
        ("mov.u32 %r1, %envreg0;", 0), ("mov.b32 %r1, %envreg31;", 0), ("mov.u32 %r1, %pm0;", 0), ("mov.u32 %r1, %pm7;", 0),
        ("mov.u64 %rd1, %pm3_64; cvt.u32.u64 %r1, %rd1;", 0), ("mov.u32 %r1, %tid.w;", 0), ("mov.u32 %r1, %ntid.r;", 1),
        ("mov.u32 %r1, %reserved_smem_offset_1;", 0), ("mov.u16 %h1, %ntid.x; cvt.u32.u16 %r1, %h1;", 1),
        ("mov.b128 %q, %ntid; mov.b128 {%r2, %r3, %r1, %r4}, %q;", 1), ("mov.b128 %q, {%r0, 5, 6, 7}; mov.b128 {%rd1, %rd2}, %q; cvt.u32.u64 %r1, %rd2;", 6),
    ],
)  # fmt: skip
def test_values(body: str, value: int) -> None:
    assert word(f".reg .b128 %q;\n{body}\nst.global.u32 [%rd0], %r1;")[0] == value


def test_vectors_of_special_registers() -> None:
    out = np.zeros((64, 4), np.uint32)
    place = "cvt.u64.u32 %rd1, %r0;\nshl.b64 %rd1, %rd1, 4;\nadd.u64 %rd1, %rd0, %rd1;\n"
    body = place + ".reg .v4 .u32 v;\nmov.v4.u32 v, %tid;\nst.global.v4.u32 [%rd1], v;"
    run_ptx(kernel(body), "k", 1, 64, [out])
    assert out.tolist() == [[thread, 0, 0, 0] for thread in range(64)]
    narrow = np.zeros((64, 4), np.uint16)
    body = place.replace(", 4;", ", 3;") + ".reg .v4 .u16 v;\nmov.v4.u16 v, %tid;\nst.global.v4.u16 [%rd1], v;"
    run_ptx(kernel(body), "k", 1, 64, [narrow])
    assert narrow.tolist() == out.tolist()


def test_sixteen_bits_of_each_lane() -> None:
    out = np.zeros(64, np.uint16)
    body = "mov.u16 %h1, %tid.x; mul.wide.u32 %rd1, %r0, 2; add.u64 %rd1, %rd0, %rd1; st.global.u16 [%rd1], %h1;"
    run(body, out, threads=64)
    assert out.tolist() == list(range(64))


def test_parameters_of_sixteen_bytes() -> None:
    out, value = np.zeros(4, np.uint32), b"".join(i.to_bytes(4, "little") for i in (1, 2, 3, 4))
    text = kernel(".reg .b128 %q;\nld.param.b128 %q, [big];\nst.global.b128 [%rd0], %q;")
    text = text.replace("(.param .u64 p0)", "(.param .u64 p0, .param .align 16 .b8 big[16])")
    run_ptx(text, "k", 1, 1, [out, value])
    assert out.tolist() == [1, 2, 3, 4]


def test_an_address_of_a_kernel_is_no_memory() -> None:
    for name in ("k", "other"):
        with pytest.raises(EmulatorFault, match=r"out of bounds|misaligned"):
            word(f"mov.u64 %rd1, {name}; ld.u32 %r1, [%rd1];")
    word("mov.u32 %r1, k; mov.u32 %r2, f;")


@pytest.mark.parametrize("instruction", [
    "mov.u32 %r1, g", "mov.u16 %h1, g", "mov.u64 %rd1, f+4", "mov.u64 %rd1, k+4", "mov.u64 %rd1, one[0]", "mov.u64 %rd1, g[1]+4",
    "mov.u64 %rd1, g[1.0]", "mov.u64 %rd1, g[]", "ld.global.u32 %r1, [g[1]]", "ld.global.u32 %r1, g", "ld.global.u32 %r1, g[1][1]",
    "atom.global.add.u32 %r1, g[1], %r2", "red.global.add.u32 g[1], %r2", "mov.u16 %h1, %laneid", "mov.u16 %h1, %clusterid.x",
    "mov.u64 %rd1, %tid.x", "mov.u32 %r1, %envreg32", "mov.u32 %r1, %pm8", "mov.u64 %rd1, %pm0", "mov.u32 %r1, %pm0_64",
    "mov.v2.u32 {%r1, %r2}, %tid", "mov.u32 %r1, %tid", "mov.u16 %h1, %envreg0",
])  # fmt: skip
def test_what_is_refused(instruction: str) -> None:
    text = kernel(f"{BODY}{instruction}; // here", declarations=DECLARED)
    with pytest.raises((PtxError, UnsupportedPtx)) as caught:
        _C.ptx_parameters(text, "k")
    assert caught.value.line == line_of(text, "// here")
