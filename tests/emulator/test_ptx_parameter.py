"""Numbers as the types of a kernel's parameters take them."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
import torch

from msa_ops.emulator import run_ptx, run_ptx_on_devices
from msa_ops.emulator.ptx_parameter import parameter_bytes
from tests.emulator.programs import HEAD

SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}


def bytes_of(value: Any, kind: str) -> bytes:
    return parameter_bytes(1, value, SIZES[kind.lstrip(".bsuf")], kind)


@pytest.mark.parametrize("value", [2, 2.0, np.int32(2), np.float16(2), np.float64(2)])
@pytest.mark.parametrize(
    ("kind", "form"),
    [(".f16", "<e"), (".f32", "<f"), (".f64", "<d"), (".u8", "<B"), (".u16", "<H"), (".s32", "<i"), (".u64", "<Q")],
)
def test_a_number_is_that_number_in_every_type(value: Any, kind: str, form: str) -> None:
    assert bytes_of(value, kind) == struct.pack(form, 2)


def test_truth_values_are_numbers() -> None:
    assert bytes_of(True, ".f32") == struct.pack("<f", 1)
    assert bytes_of(np.bool_(True), ".u32") == struct.pack("<I", 1)


def test_bits_take_the_bits_of_what_is_given() -> None:
    assert bytes_of(2.0, ".b32") == struct.pack("<f", 2)
    assert bytes_of(2, ".b32") == struct.pack("<i", 2)
    assert bytes_of(2.0, ".b64") == struct.pack("<d", 2)


def test_floats_are_rounded_and_negative_integers_wrap() -> None:
    assert bytes_of(0.1, ".f32") == np.float32(0.1).tobytes()
    assert bytes_of(-1, ".u32") == b"\xff" * 4
    assert bytes_of(float("-inf"), ".f32") == np.float32(-np.inf).tobytes()


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (1000.5, ".u32", "argument 1: 1000.5; the parameter is .u32, accepted: whole numbers"),
        (float("nan"), ".s64", "argument 1: nan; the parameter is .s64, accepted: whole numbers"),
        (1e30, ".u64", "does not fit into the 8 bytes of the parameter, which is .u64"),
        (256, ".u8", "argument 1: 256 does not fit into the 1 bytes"),
        (2**24 + 1, ".f32", "argument 1: 16777217 is not exactly a number of .f32"),
        (2**53 + 1, ".f64", "is not exactly a number of .f64"),
        (1e5, ".f16", "argument 1: 100000.0 does not fit into .f16"),
        (10**400, ".f64", "does not fit into .f64"),
        (torch.tensor(2.0), ".f32", "argument 1: Tensor, whose address would be passed; the parameter is .f32"),
        (np.zeros(1), ".f64", "argument 1: ndarray, whose address would be passed; the parameter is .f64"),
        (torch.zeros(4), ".u32", "accepted: a number"),
        (None, ".f32", "argument 1: None; the parameter is .f32"),
        (bytes(3), ".u32", "argument 1: 3 bytes; accepted: 4"),
    ],
)
def test_what_does_not_fit(value: Any, kind: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bytes_of(value, kind)


def test_other_things() -> None:
    with pytest.raises(TypeError, match="argument 1: str; accepted: tensor"):
        bytes_of("2", ".u32")
    with pytest.raises(ValueError, match="argument 1: int; the parameter is an array, accepted: 24 bytes"):
        parameter_bytes(1, 3, 24, "")
    assert parameter_bytes(1, bytes(24), 24, "") == bytes(24)


TEXT = (
    HEAD
    + """
.entry k(.param .u64 out, .param .f32 s, .param .align 4 .b8 more[8])
{
  .reg .b64 %rd<2>;
  .reg .f32 %f<4>;
  ld.param.u64 %rd0, [out];
  ld.param.f32 %f0, [s];
  ld.param.f32 %f1, [more+4];
  mul.f32 %f2, %f0, %f1;
  st.global.f32 [%rd0], %f2;
  ret;
}
"""
)


def test_the_text_says_the_types() -> None:
    more = np.array([0, 1.5], np.float32).tobytes()
    for two in (2, np.int32(2), 2.0):
        out, other = np.zeros(1, np.float32), torch.zeros(1)
        run_ptx(TEXT, "k", 1, 1, [out, two, more])
        run_ptx_on_devices(TEXT, "k", 1, 1, [[other, two, more]])
        assert out[0] == other[0] == 3
