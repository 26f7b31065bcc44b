"""Declarations of variables: arrays, vectors, initial values, addresses; what is refused, as by ptxas 13.5."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, PtxError, UnsupportedPtx, run_ptx
from tests.emulator.programs import HEAD, kernel


def words(declaration: str, space: str = "global", count: int = 8, *, inside: bool = False) -> list[int]:
    """32-bit words from the start of the variable `v`."""
    body = "".join(
        f"ld.{space}.b32 %r1, [v+{4 * i}];\nst.global.b32 [%rd0+{4 * i}], %r1;\n" for i in range(count)
    )  # fmt: skip
    out = np.zeros(count, np.uint32)
    text = kernel(f"{declaration}\n{body}" if inside else body, declarations="" if inside else declaration)
    run_ptx(text, "k", 1, 1, [out])
    return [int(word) for word in out]


def floats(*values: float) -> list[int]:
    return [int(word) for word in np.array(values, np.float32).view(np.uint32)]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("space", ["global", "const"])
@pytest.mark.parametrize("declaration, expected", [
    (".b32 v[2][3] = {{1, 2, 3}, {4, 5, 6}}", [1, 2, 3, 4, 5, 6]),
    (".b32 v[][2] = {{1, 2}, {3}}", [1, 2, 3, 0]),
    (".b32 v[2][2][2] = {{{1, 2}, {3, 4}}, {{5}}}", [1, 2, 3, 4, 5, 0, 0, 0]),
    (".b32 v[2][3] = {{1}, {4, 5}}", [1, 4, 5, 0, 0, 0]),  # ptxas sets them one behind the other
    (".b32 v[2] = {}", [0, 0]),
    (".b32 v[0x2] = {WARP_SZ, ~0}", [32, 0xFFFFFFFF]),
    (".u32 v[3] = {1+2*3, 4294967296, -1}", [7, 0, 0xFFFFFFFF]),
    (".v4 .f32 v = {1.0, 2.5, 0f40400000, -4.0}", floats(1, 2.5, 3, -4)),
    (".align 16 .v2 .f32 v[2] = {{1.0, 2.0}, {3.0, 4.0}}", floats(1, 2, 3, 4)),
    (".v2 .u16 v[] = {{1, 2}, {3, 4}}", [0x20001, 0x40003]),
    (".u8 v[4] = {1, 2, 255, 256}", [0x00FF0201]),
    (".b32 v = 1.5, w = 2", floats(1.5)),
    (".b32 v = 0d3ff0000000000000", floats(1)),
    (".f64 v = 0.5", [0, 0x3FE00000]),
    (".b128 v = 1", [1, 0, 0, 0]),
])  # fmt: skip
def test_values(declaration: str, expected: list[int], space: str, inside: bool) -> None:
    assert words(f".{space} {declaration};", space, len(expected), inside=inside) == expected


def test_several_names() -> None:
    assert words(".global .u32 w = 1, v[2] = {2, 3}, u;", count=2) == [2, 3]
    assert words(".global .u32 w<3>; .global .u32 v = 5;", count=1) == [5]
    assert words('.pragma "nounroll";\n.global .attribute(.managed) .align 8 .b32 v = 6;', count=1) == [6]
    assert words(".extern .global .b32 v; .visible .global .b32 v = 7; .extern .global .b32 v;", count=1) == [7]


ADDRESSES = """
.const .u32 c[2] = {{11, 12}};
.global .u32 g[4] = {{1, 2, 3, 4}};
.global .u32 h = 5;
{space} .u64 v[6] = {{g, g+4, generic(g)+8, c+4, generic(h), 7}};
"""


@pytest.mark.parametrize("space", [".global", ".const"])
@pytest.mark.parametrize("number, expected", list(enumerate([1, 2, 3, 12, 5])))
def test_addresses(number: int, expected: int, space: str) -> None:
    out = np.zeros(2, np.uint32)
    read = "ld.const.b32" if number == 3 else "ld.global.b32"
    body = f"""ld{space}.u64 %rd1, [v+{8 * number}];
    {read} %r1, [%rd1];
    st.global.b32 [%rd0], %r1;
    ld{space}.b32 %r1, [v+40];
    st.global.b32 [%rd0+4], %r1;"""
    run_ptx(kernel(body, declarations=ADDRESSES.format(space=space)), "k", 1, 1, [out])
    assert list(out) == [expected, 7]


def test_bytes_of_addresses() -> None:
    masks = [f"{0xFF << 8 * i:#x}(g+4)" for i in range(8)]
    assert masks[0] == "0xff(g+4)"
    out = np.zeros(1, np.uint64)
    declarations = f".global .u32 g[2]; .global .u8 v[8] = {{{', '.join(masks)}}};"
    body = """mov.u64 %rd1, g; mov.u64 %rd4, v;
    mov.u64 %rd2, 0; mov.u32 %r1, 7;
    more: cvt.u64.u32 %rd3, %r1; add.u64 %rd3, %rd4, %rd3; ld.global.u8 %rd3, [%rd3];
    shl.b64 %rd2, %rd2, 8; or.b64 %rd2, %rd2, %rd3;
    sub.u32 %r1, %r1, 1; setp.ge.s32 %p1, %r1, 0;
    @%p1 bra more;
    sub.u64 %rd2, %rd2, %rd1;
    st.global.b64 [%rd0], %rd2;"""
    run_ptx(kernel(body, declarations=declarations), "k", 1, 1, [out])
    assert out[0] == 4


TABLE = """
.func (.reg .u32 r) one(.reg .u32 a) { add.u32 r, a, 1; ret; }
.func (.reg .u32 r) two(.reg .u32 a) { add.u32 r, a, 2; ret; }
.global .u64 inner[2] = {one, two};
.const .u64 table = inner;
"""


@pytest.mark.parametrize("which", [0, 1])
def test_table_of_functions_behind_a_pointer(which: int) -> None:
    out = np.zeros(1, np.uint32)
    body = f"""ld.const.u64 %rd1, [table];
    ld.global.u64 %rd1, [%rd1+{8 * which}];
    mov.u32 %r1, 40;
    proto: .callprototype (.reg .u32 _) _ (.reg .u32 _);
    call (%r2), %rd1, (%r1), proto;
    st.global.b32 [%rd0], %r2;"""
    run_ptx(kernel(body, declarations=TABLE), "k", 1, 1, [out])
    assert out[0] == 41 + which


def test_variables_of_bodies_have_names_of_their_own() -> None:
    """They keep their values, as those of the module; each scope has its own."""
    out = np.zeros(4, np.uint32)
    body = """{ .global .u32 g = 3, also = 30; .global .u64 p = g; ld.global.u64 %rd2, [p]; ld.global.u32 %r1, [%rd2]; }
    { .global .u32 g = 4; ld.global.u32 %r2, [g]; }
    ld.global.u32 %r3, [g];
    st.global.v4.b32 [%rd0], {%r1, %r2, %r3, %r3};"""
    run_ptx(kernel(body, declarations=".global .u32 g = 5;"), "k", 1, 1, [out])
    assert list(out) == [3, 4, 5, 5]


def test_shared_arrays() -> None:
    out = np.zeros(32, np.uint32)
    body = """.shared .v4 .b32 q[2][4], after;
    mad.lo.u32 %r1, %r0, 4, 0; mov.u32 %r2, q; add.u32 %r1, %r1, %r2;
    st.shared.b32 [%r1], %r0;
    mov.u32 %r3, after; sub.u32 %r3, %r3, %r2;
    ld.shared.b32 %r4, [%r1]; add.u32 %r4, %r4, %r3;
    mad.lo.u64 %rd1, %rd15, 4, %rd0;
    st.global.b32 [%rd1], %r4;"""
    run_ptx(kernel(body), "k", 1, 32, [out])
    assert list(out) == [128 + i for i in range(32)]


def test_ends_of_arrays_are_known() -> None:
    with pytest.raises(EmulatorFault, match="out of bounds"):
        words(".global .b32 v[2][3];", count=7)


@pytest.mark.parametrize("declaration, message", [
    (".global .b32 v[2][3] = {1, 2, 3, 4, 5, 6};", "without `{`"),
    (".global .b32 v[2][3] = {{1, 2, 3, 4}};", "more initial values than `v` has elements"),
    (".global .b32 v[2] = {1, 2, 3};", "more initial values than `v` has elements"),
    (".global .b32 v[2][];", "only the first size"),
    (".global .b32 v[2] = {1, 2,};", "no .b32"),
    (".global .b32 v = {1};", "no .b32"),
    (".global .b32 v[];", "the size of `v` is open"),
    (".global .b32 v[0];", "the size of `v` is open"),
    (".shared .b32 v[];", "the size of `v` is open"),
    (".global .b32 v[2+1];", r"expected `\]`"),
    (".global .b32 v[-1];", "a number of elements"),
    (".global .b8 v[1073741824][1073741824];", "1073741824 bytes of variables"),
    (".global .f32 v = 1;", "no .f32"),
    (".global .f64 v[2] = {1.0, 2};", "no .f64"),
    (".global .u32 v = 1.5;", "no .u32"),
    (".global .f16 v = 1.0;", "type .f16"),
    (".global .pred v;", "`.pred` of a variable in .global"),
    (".global .bf16 v;", "no type of a variable or a register"),
    (".global .v3 .b32 v;", "no type of a variable or a register"),
    (".global .v4 .f64 v;", "more than 16 bytes"),
    (".global .v4 .f32 v = {1.0};", "accepted: 4"),
    (".global .attribute(.other) .b32 v;", "no attribute"),
    (".shared .attribute(.managed) .b32 v;", "accepted: .global"),
    (".shared .b32 v = 1;", "accepted: .global, .const"),
    (".extern .global .b32 v = 1;", "which is external"),
    (".extern .global .b32 v;", "nothing defines it"),
    (".extern .global .b32 v; .global .b32 v;", "accepted: a definition that is .visible"),
    (".extern .global .b32 v; .visible .global .b32 v[2];", "in another way"),
    (".visible .extern .global .b32 v;", "expected a variable, a kernel or a function"),
    (".common .shared .b32 v;", "`.global` after `.common`"),
    (".global .b32 k;", "`k` is something else before"),
    (".func f { ret; } .global .b32 f;", "`f` twice"),
    (".const .b8 v[65535]; .const .b32 w;", "65536 bytes of constant"),
    (".global .u64 v = g; .global .b32 g;", "that stand before"),
    (".shared .b32 g; .global .u64 v = g;", "accepted: variables of .global and .const"),
    (".global .u64 v = k;", "accepted: variables"),
    (".extern .func f; .global .u64 v = f;", "accepted: variables"),
    (".func f { ret; } .global .u64 v = f+8;", "accepted: variables"),
    (".global .b32 g; .global .b64 v = g;", "type .b64; accepted: .u64"),
    (".global .b32 g; .global .u8 v = g;", "type .u8"),
    (".global .b32 g; .global .u8 v = 0xf(g);", "accepted: 0xff, 0xff00"),
    (".pragma nounroll;", "a string"),
])  # fmt: skip
def test_refusals(declaration: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        run_ptx(kernel("", declarations=declaration), "k", 1, 1, [np.zeros(1, np.uint32)])


def test_addresses_of_four_bytes_are_unsupported() -> None:
    """ptxas 13.5 relocates eight, on an H200 the first of what follows were lost."""
    with pytest.raises(UnsupportedPtx, match="initial value of four bytes"):
        words(".global .u32 g; .global .u32 v = g;")


def test_textures_are_unsupported() -> None:
    with pytest.raises(UnsupportedPtx, match=r"`\.texref`"):
        run_ptx(f"{HEAD}.global .texref t;\n.visible .entry k(.param .u64 p) {{ ret; }}", "k", 1, 1, [None])
