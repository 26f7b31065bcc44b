"""A register of two parts of which one has no value: the other part may be used."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel, line_of

PACK = "mov.b32 %r1, 7;\nmov.b64 %rd5, {{{0}}};\nmov.b64 {{{1}}}, %rd5; {2}\nst.global.b32 [%rd0], %r3; // use"


@pytest.mark.parametrize(
    ("packed", "taken"), [("%r1, %r2", "%r3, %r4"), ("%r2, %r1", "%r4, %r3"), ("%r1, %r2", "%r3, _")]
)
def test_part_with_a_value(packed: str, taken: str) -> None:
    out = np.zeros(1, np.uint32)
    run_ptx(kernel(PACK.format(packed, taken, "")), "k", 1, 1, [out])
    assert out[0] == 7


@pytest.mark.parametrize(("packed", "taken"), [("%r1, %r2", "%r4, %r3"), ("%r2, %r1", "%r3, %r4")])
def test_part_without(packed: str, taken: str) -> None:
    text = kernel(PACK.format(packed, taken, ""))
    with pytest.raises(EmulatorFault, match="%r2 is read and has no value") as caught:
        run_ptx(text, "k", 1, 1, [np.zeros(1, np.uint32)])
    assert caught.value.line == line_of(text, "mov.b64 %rd5")


def test_what_was_known_of_parts_ends_with_the_next_write() -> None:
    body = "mov.b32 %r1, 7; mov.b64 %rd5, {%r1, %r2}; mov.b64 %rd5, %rd6; mov.b64 {%r3, %r4}, %rd5;\n"
    with pytest.raises(EmulatorFault, match="%rd6 is read and has no value"):
        run_ptx(kernel(body + "st.global.b32 [%rd0], %r3;"), "k", 1, 1, [np.zeros(1, np.uint32)])


WORD = "mov.b16 %h1, 0x1234;\nmov.b32 %r1, {{{0}}};\n{1}"


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        ("st.global.b16 [%rd0], %r1;", 0x1234),
        ("st.global.b8 [%rd0], %r1;", 0x34),
        ("prmt.b32 %r2, %r1, 0, 0x4501; st.global.b32 [%rd0], %r2;", 0x3412),
    ],
)
def test_low_bytes_of_a_word(store: str, expected: int) -> None:
    out = np.zeros(1, np.uint32)
    run_ptx(kernel(WORD.format("%h1, %h2", store)), "k", 1, 1, [out])
    assert out[0] == expected


@pytest.mark.parametrize(
    "store",
    [
        "st.global.b32 [%rd0], %r1;",
        "prmt.b32 %r2, %r1, 0, 0x0201; st.global.b32 [%rd0], %r2;",
        "prmt.b32 %r2, 0, %r1, 0x0006; st.global.b32 [%rd0], %r2;",
    ],
)
def test_other_bytes_of_a_word(store: str) -> None:
    with pytest.raises(EmulatorFault, match="%h2 is read and has no value"):
        run_ptx(kernel(WORD.format("%h1, %h2", store)), "k", 1, 1, [np.zeros(1, np.uint32)])


def test_low_bytes_that_have_none() -> None:
    with pytest.raises(EmulatorFault, match="%h2 is read and has no value"):
        text = WORD.format("%h2, %h1", "st.global.b16 [%rd0], %r1;")
        run_ptx(kernel(text), "k", 1, 1, [np.zeros(1, np.uint32)])


COPIES = [
    "mov.b64 %rd6, %rd5;",
    "setp.eq.u32 %p1, %r0, %r0; selp.b64 %rd6, %rd5, %rd7, %p1;",
    "setp.ne.u32 %p1, %r0, %r0; selp.b64 %rd6, %rd7, %rd5, %p1;",
]


@pytest.mark.parametrize("copy", COPIES)
def test_copies_know_of_the_parts(copy: str) -> None:
    out = np.zeros(1, np.uint32)
    body = f"mov.b32 %r1, 7; mov.b64 %rd5, {{%r1, %r2}}; {copy} mov.b64 {{%r3, %r4}}, %rd6;\n"
    run_ptx(kernel(body + "st.global.b32 [%rd0], %r3;"), "k", 1, 1, [out])
    assert out[0] == 7
    with pytest.raises(EmulatorFault, match="uninitialized register"):
        run_ptx(kernel(body + "st.global.b32 [%rd0], %r4;"), "k", 1, 1, [out])


def test_the_other_lanes_of_a_copy() -> None:
    """Lane 1 packs nothing, so what it takes out of the register has no value."""
    body = (
        "setp.eq.u32 %p1, %r0, 0; mov.b32 %r1, 7; mov.b64 %rd5, %rd6;\n"
        "@%p1 mov.b64 %rd5, {%r1, %r2}; mov.b64 {%r3, %r4}, %rd5;\n"
    )
    out = np.zeros(1, np.uint32)
    run_ptx(kernel(body + "@%p1 st.global.b32 [%rd0], %r3;"), "k", 1, 2, [out])
    assert out[0] == 7
    with pytest.raises(EmulatorFault, match="uninitialized register"):
        run_ptx(kernel(body + "@!%p1 st.global.b32 [%rd0], %r3;"), "k", 1, 2, [out])


PAIRS = (
    "mov.b32 %r1, 0f40000000; mov.b64 %rd5, {{{0}}}; mov.b64 %rd6, {{%r1, %r1}};\n{1}\n"
    "mov.b64 {{%r3, %r4}}, %rd7;\nst.global.b32 [%rd0], {2};"
)
SUMS = [("add.rn.f32x2 %rd7, %rd6, %rd5;", 4), ("fma.rn.ftz.f32x2 %rd7, %rd6, %rd5, %rd6;", 6)]


@pytest.mark.parametrize(("sums", "expected"), SUMS)
@pytest.mark.parametrize(("packed", "used"), [("%r1, %r2", "%r3"), ("%r2, %r1", "%r4")])
def test_sums_of_pairs_do_not_touch_each_other(packed: str, used: str, sums: str, expected: float) -> None:
    out = np.zeros(1, np.float32)
    run_ptx(kernel(PAIRS.format(packed, sums, used)).replace("sm_90a", "sm_100a"), "k", 1, 1, [out], chip="sm_100a")
    assert out[0] == expected


@pytest.mark.parametrize(("sums", "expected"), SUMS)
@pytest.mark.parametrize(("packed", "used"), [("%r1, %r2", "%r4"), ("%r2, %r1", "%r3")])
def test_the_sum_of_what_has_no_value(packed: str, used: str, sums: str, expected: float) -> None:
    text = kernel(PAIRS.format(packed, sums, used)).replace("sm_90a", "sm_100a")
    with pytest.raises(EmulatorFault, match="%r2 is read and has no value"):
        run_ptx(text, "k", 1, 1, [np.zeros(1, np.float32)], chip="sm_100a")


HALVES = "mov.b16 %h1, {1}; mov.b32 %r1, {{{0}}}; mov.b32 %r2, {{%h1, %h1}};\n{2}\n"
NARROW = [
    ("add.bf16x2 %r3, %r1, %r2;", "0x3f80", 0x4000),
    ("fma.rn.f16x2 %r3, %r2, %r1, %r2;", "0x3c00", 0x4000),
    ("mov.b32 %r3, %r1;", "0x3c00", 0x3C00),
    ("setp.eq.u32 %p1, %r2, %r2; selp.b32 %r3, %r1, %r4, %p1;", "0x3c00", 0x3C00),
    ("cvt.rn.satfinite.e4m3x2.f16x2 %h3, %r1; cvt.rn.f16x2.e4m3x2 %r3, %h3;", "0x3c00", 0x3C00),
]


@pytest.mark.parametrize(("body", "one", "expected"), NARROW)
@pytest.mark.parametrize(("packed", "used"), [("%h1, %h2", "%h3, _"), ("%h2, %h1", "_, %h3")])
def test_halves_of_a_word(packed: str, used: str, body: str, one: str, expected: int) -> None:
    """Triton adds the halves of a word to each other by an instruction on pairs, and drops the other result."""
    out = np.zeros(1, np.uint16)
    start, end = HALVES.format(packed, one, body), ", %r3; st.global.b16 [%rd0], %h3;"
    run_ptx(kernel(f"{start} mov.b32 {{{used}}}{end}"), "k", 1, 1, [out])
    assert out[0] == expected
    other = {"%h3, _": "_, %h3", "_, %h3": "%h3, _"}[used]
    with pytest.raises(EmulatorFault, match=r"%(h2|r1) is read and has no value"):
        run_ptx(kernel(f"{start} mov.b32 {{{other}}}{end}"), "k", 1, 1, [out])


@pytest.mark.parametrize(("numbers", "width", "line"), [("%r2, %r1", 1, "%h3"), ("%r2, %r1", 2, "%r3")])
def test_conversion_of_two_numbers(numbers: str, width: int, line: str) -> None:
    """One number of FP8 is converted as a pair (torchao's, by Triton): the second operand is the lower half."""
    form = {1: "cvt.rn.satfinite.e4m3x2.f32", 2: "cvt.rn.f16x2.f32"}[width]
    body = f"mov.b32 %r1, 0f3f800000; {form} {line}, {{0}}; st.global.b{8 * width} [%rd0], {line};"
    out = np.zeros(width, np.uint8)
    run_ptx(kernel(body.format(numbers)), "k", 1, 1, [out])
    assert out.tobytes() == {1: b"\x38", 2: b"\x00\x3c"}[width]
    with pytest.raises(EmulatorFault, match="%r2 is read and has no value"):
        run_ptx(kernel(body.format("%r1, %r2")), "k", 1, 1, [out])
