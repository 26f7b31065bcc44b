"""Matrix arithmetic gives the same bits on every width of vectors, and no scale makes it inexact."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from msa_ops import _C
from tests.emulator.gfx950.test_matrix import execute, lanes_of, rows_of_result

SHAPES = {  # registers of A and of the result
    "v_mfma_f32_16x16x32_f16": (4, 4),
    "v_mfma_f32_32x32x16_bf16": (4, 16),
    "v_mfma_f32_16x16x32_bf16": (4, 4),
    "v_mfma_f32_32x32x4_2b_bf16": (2, 32),
    "v_mfma_f32_16x16x4_4b_f16": (2, 16),
    "v_mfma_f32_4x4x4_16b_bf16": (2, 4),
    "v_mfma_f32_4x4x1_16b_f32": (1, 4),
    "v_mfma_f32_32x32x2_f32": (1, 16),
    "v_mfma_f32_16x16x4_f32": (1, 4),
    "v_mfma_i32_16x16x64_i8": (4, 4),
    "v_mfma_i32_4x4x4_16b_i8": (1, 4),
    "v_mfma_f32_16x16x32_bf8_fp8": (2, 4),
    "v_mfma_f32_32x32x16_fp8_fp8": (2, 16),
}
REGISTERS = {0: 8, 1: 8, 2: 6, 3: 6, 4: 4}  # of an operand of a format


@pytest.fixture
def best() -> Iterator[str]:
    name = _C.gfx950_products()[0]
    yield name
    _C.choose_gfx950_product(name)


def test_a_product_that_does_not_run_here_is_named() -> None:
    assert _C.gfx950_products()[-1] == "portable"
    with pytest.raises(ValueError, match="'avx1024' does not run on this processor"):
        _C.choose_gfx950_product("avx1024")


def numbers(rng: np.random.Generator, count: int, spread: int) -> np.ndarray:
    """Registers of random bits, and of fp32 numbers (or bf16 ones, two a register) over 10^-spread .. 10^spread."""
    bits = rng.integers(0, 2**32, (count, 64), dtype=np.uint32)
    if spread == 0:
        return bits
    values = rng.standard_normal((count, 64)) * 10.0 ** rng.integers(-spread, spread, (count, 64))
    wide = values.astype(np.float32).view(np.uint32)
    return wide & 0xFFFF0000 | wide >> 16


@pytest.mark.parametrize("name", SHAPES)
def test_every_width_of_vectors_gives_the_same_bits(name: str, best: str) -> None:
    """Infinities, NaN, numbers below the normal ones, and products beyond fp32 among them."""
    rng = np.random.default_rng(23)
    operand, result = SHAPES[name]
    for spread in (0, 3, 30):
        a, b, c = (numbers(rng, count, spread) for count in (operand, operand, result))
        made = []
        for product in _C.gfx950_products():
            _C.choose_gfx950_product(product)
            made.append(execute(name, a, b, c))
        for other in made[1:]:
            np.testing.assert_array_equal(other, made[0])


@pytest.mark.parametrize("format_a", range(5))
@pytest.mark.parametrize("format_b", range(5))
def test_every_width_gives_the_same_bits_for_mixed_formats(format_a: int, format_b: int, best: str) -> None:
    rng = np.random.default_rng(29)
    for m, k, result in ((16, 128, 4), (32, 64, 16)):
        for low, high in ((127, 128), (100, 150), (0, 256)):
            a, b, c = (numbers(rng, n, 0) for n in (REGISTERS[format_a], REGISTERS[format_b], result))
            c = rng.standard_normal((result, 64)).astype(np.float32).view(np.uint32)
            scales = rng.integers(low, high, (2, 64)).astype(np.uint32)
            made = []
            for product in _C.gfx950_products():
                _C.choose_gfx950_product(product)
                made.append(
                    execute(f"v_mfma_scale_f32_{m}x{m}x{k}_f8f6f4 cbsz:{format_a} blgp:{format_b}", a, b, c, scales)
                )
            for other in made[1:]:
                np.testing.assert_array_equal(other, made[0])


def _rounded(value: Fraction) -> np.float32:
    """To nearest even; fp64 holds every sum of this test."""
    near = float(value)
    assert Fraction(near) == value
    return np.float32(near)


@pytest.mark.parametrize("scale_a,scale_b", [(254, 1), (254, 20), (1, 254), (0, 254), (239, 60)])
def test_scales_at_their_ends_lose_nothing(scale_a: int, scale_b: int) -> None:
    """448 * 2^127 is beyond fp32, its product with a small number is not."""
    rng = np.random.default_rng(31)
    codes_a, codes_b = (rng.choice(np.array([0x7E, 0xFE, 0x38, 0xC1, 0x01], np.uint8), (16, 128)) for _ in "ab")
    values = {0x7E: 448, 0xFE: -448, 0x38: 1, 0xC1: Fraction(-9, 4), 0x01: Fraction(1, 512)}
    power = Fraction(2) ** (scale_a + scale_b - 254)
    scales = np.stack([np.full(64, scale_a), np.full(64, scale_b)]).astype(np.uint32)
    got = execute(
        "v_mfma_scale_f32_16x16x128_f8f6f4 cbsz:0 blgp:0",
        lanes_of(codes_a, 0, 16),
        lanes_of(codes_b, 0, 16),
        np.zeros((4, 64), np.uint32),
        scales,
    ).view(np.float32)
    want = np.zeros((16, 16), np.float32)
    for i in range(16):
        for j in range(16):
            for k in range(128):
                product = values[codes_a[i, k]] * values[codes_b[j, k]] * power
                want[i, j] = _rounded(Fraction(float(want[i, j])) + product)
    row, column = rows_of_result(16, 4)
    np.testing.assert_array_equal(got, want[row, column])
