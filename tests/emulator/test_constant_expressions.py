"""Constant expressions: values of ptxas 13.5, read from the bytes that it gave to variables with these values."""

# ruff: noqa: E501 (a case a line, and expressions)
from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import PtxError, run_ptx
from tests.emulator.programs import kernel, line_of

M = (1 << 64) - 1
VALUES = {
    "1+2*3": 7, "(1+2)*3": 9, "1<<4": 16, "2+1<<3": 24, "1<<2+1": 8, "-7/2": -3, "7 % -3": 1, "-7 % 3": -1, "-8>>1": -4,
    "0x8000000000000000>>63": 1, "0xffffffffffffffff/2": M >> 1, "-1/2U": M >> 1, "-1<1U": 0, "-1<1": 1, "-1>0U": 1,
    "~0": -1, "!5": 0, "!0": 1, "~5U": -6, "1?2:3": 2, "0?2:3": 3, "1?2:0?4:5": 2, "(.u64)-1/2": M >> 1,
    "(.s64)0xffffffffffffffff/2": 0, "(.u64)1 < -1": 1, "1==1": 1, "1!=1": 0, "3&6": 2, "3^6": 5, "3|6": 7, "1&&0": 0,
    "1||0": 1, "2>1>0": 1, "1|2^3&4": 3, "7&3==3": 1, "5-3-1": 1, "100/7/2": 7, "+5": 5, "-(3)": -3, "- -3": 3, "3*-2": -6,
    "1<<64": 1, "1<<-1": 1 << 63, "1U<<63": 1 << 63, "1<<63>>63": -1, "-1U>>1": M >> 1, "(-1)>>1U": -1, "0b101+1": 6,
    "010+1": 9, "0xff&~0xf": 0xF0, "WARP_SZ*2": 64, "1?-1:1U": -1, "(1?-1:1U)>>1": -1, "(0?1U:-1)/2": 0,
    "(1U<<3)-9>>1": M >> 1, "(1U<2U)-2>>1": -1, "!1U-2>>1": -1, "~0U>>1": M >> 1, "1&&1-5": 1, "0x7fffffffffffffff+1": 1 << 63,
    "9223372036854775808": 1 << 63, "4>=4": 1, "4<=3": 0, "6/4*4": 4, "1.0<2.0": 1, "(1.5>1.0)+1": 2, "5 % 3 * 2": 4,
    "((2))": 2, "(-9223372036854775808)/-1U": 0, "18446744073709551616": 0, "18446744073709551617": 1,
    "20000000000000000000": 1553255926290448384, "0x1234567890123456789a": 0x567890123456789A, "0x10000000000000000": 0,
    "02000000000000000000000": 0, "184467440737095516160": 0,
}  # fmt: skip
FLOATS = {
    "1.5+2.0": 3.5, "1.5*2.0": 3.0, "-1.5": -1.5, "1.5/2.0": 0.75, "1.5-0.5*2.0": 0.5, "0d3FF0000000000000+1.0": 2.0,
    ".5": 0.5, "-.5": -0.5, ".5+.25": 0.75, "(.5)": 0.5, ".5E+3": 500.0, ".5e-1": 0.05, "0.0e-400": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("expression", VALUES)
def test_integers(expression: str) -> None:
    out = np.zeros(2, np.uint64)
    body = f"mov.b64 %rd1, {expression};\nst.global.b64 [%rd0], %rd1;\nld.global.b64 %rd2, [x];\nst.global.b64 [%rd0+8], %rd2;"
    run_ptx(kernel(body, declarations=f".global .b64 x = {expression};"), "k", 1, 1, [out])
    assert out.tolist() == [VALUES[expression] & M] * 2


@pytest.mark.parametrize("expression", FLOATS)
def test_floats(expression: str) -> None:
    out = np.zeros(2)
    body = f"mov.f64 %rd1, {expression};\nst.global.b64 [%rd0], %rd1;\nld.global.b64 %rd2, [x];\nst.global.b64 [%rd0+8], %rd2;"
    run_ptx(kernel(body, declarations=f".global .f64 x = {expression};"), "k", 1, 1, [out])
    assert out.tolist() == [FLOATS[expression]] * 2


def test_in_addresses() -> None:
    out = np.zeros(8, np.int32)
    declarations = ".shared .align 4 .b8 s[32];"
    body = (
        "mov.b32 %r1, s+4*2; mov.b32 %r2, 7;\nst.shared.b32 [%r1+4*2], %r2;\nld.shared.b32 %r3, [s+(1<<4)];\n"
        "st.global.b32 [%rd0+2*4], %r3;\nld.shared.b32 %r4, [%r1+4+4];\nst.global.b32 [%rd0+-4+8], %r4;\n"
        "st.shared.b32 [s+28], %r2;"
    )
    run_ptx(kernel(body, declarations=declarations), "k", 1, 1, [out])
    assert out.tolist() == [0, 7, 7, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("expression, reason", [
    ("5/0", "division by zero"), ("5 % 0", "division by zero"), ("1.5+2", "an integer and a float"),
    ("!1.5", "takes an integer"), ("(.u64)1.5", "takes an integer"), ("1?1.5:2.5", "takes integers"),
    ("0f3F800000+1.0", "stands alone"), ("(1", r"expected `\)`"), ("1+", "expected a number"), ("1?2", "expected `:`"),
    ("1u", "not an integer"), ("99999999999999999999", "more than 64 bits"),
    ("184467440737095516159", "more than 64 bits"), ("0b1" + "0" * 64, "more than 64 bits"), ("0x" + "f" * 17, "more than 64 bits"),
    ("1e400", "beyond the normal numbers"), ("1e-310", "beyond the normal numbers"), ("-0f3F800000", "a sign before 0f"),
    ("+0f3F800000", "a sign before 0f"), (".5.5", "is not a number"), ("5e", "is not a number"), ("08", "not an integer"),
    ("0x", "not an integer"), ("(" * 300 + "1" + ")" * 300, "too deeply"),
    ("-" * 300 + "1", "too deeply"), ("1.5<<2.0", "takes integers"),
])  # fmt: skip
def test_what_is_refused(expression: str, reason: str) -> None:
    text = kernel(f"mov.b64 %rd1, {expression}; // here")
    with pytest.raises(PtxError, match=reason) as caught:
        run_ptx(text, "k", 1, 1, [np.zeros(1)])
    assert caught.value.line == line_of(text, "// here")
