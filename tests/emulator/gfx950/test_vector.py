# ruff: noqa: E501 (assembler text)
"""Vector instructions against NumPy and ml_dtypes, on special and random operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.gfx950.code_object import apply

RNG = np.random.default_rng(1)
INTEGERS = np.array(
    [0, 1, 2, 31, 32, 33, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0xFFFF, 0x10000, 0xFF, 0x100], np.uint32
)
FLOATS = np.array([0.0, -0.0, 1, -1, 0.5, 2.5, 3.5, -2.5, 1e-40, -1e-40, 3e38, -3e38, np.inf, -np.inf, np.nan, 448, 464, 465, 6.0, 5.0, 0.25],
                  np.float32).view(np.uint32)  # fmt: skip
N = 512


def integers(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    made = rng.integers(0, 1 << 32, N, dtype=np.uint64).astype(np.uint32)
    made[: N // 2] = rng.choice(INTEGERS, N // 2)
    return made


def floats(seed: int, scale: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    made = (rng.standard_normal(N) * np.exp(rng.standard_normal(N) * 4) * scale).astype(np.float32).view(np.uint32)
    made[: N // 2] = rng.choice(FLOATS, N // 2)
    return made


def signed(x: np.ndarray) -> np.ndarray:
    return x.view(np.int32).astype(np.int64)


def u32(x: np.ndarray) -> np.ndarray:
    return (
        (np.asarray(x).astype(object) % (1 << 32)).astype(np.uint32)
        if x.dtype == object
        else x.astype(np.int64).astype(np.uint32)
    )


def f(x: np.ndarray) -> np.ndarray:
    return x.view(np.float32)


TWO: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "v_add_u32": lambda a, b: a + b,
    "v_sub_u32": lambda a, b: a - b,
    "v_subrev_u32": lambda a, b: b - a,
    "v_mul_lo_u32": lambda a, b: a * b,
    "v_mul_hi_u32": lambda a, b: ((a.astype(np.uint64) * b) >> np.uint64(32)).astype(np.uint32),
    "v_mul_hi_i32": lambda a, b: u32((signed(a) * signed(b)) >> 32),
    "v_mul_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b,
    "v_xor_b32": lambda a, b: a ^ b,
    "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_lshlrev_b32": lambda a, b: b << (a & 31),
    "v_lshrrev_b32": lambda a, b: b >> (a & 31),
    "v_ashrrev_i32": lambda a, b: (b.view(np.int32) >> (a & 31).astype(np.int32)).view(np.uint32),
    "v_min_u32": np.minimum,
    "v_max_u32": np.maximum,
    "v_min_i32": lambda a, b: np.minimum(a.view(np.int32), b.view(np.int32)).view(np.uint32),
    "v_max_i32": lambda a, b: np.maximum(a.view(np.int32), b.view(np.int32)).view(np.uint32),
    "v_bfm_b32": lambda a, b: ((np.uint32(1) << (a & 31)) - np.uint32(1)) << (b & 31),
    "v_bcnt_u32_b32": lambda a, b: np.array([bin(int(x)).count("1") for x in a], np.uint32) + b,
    "v_pk_add_u16": lambda a, b: (a.view(np.uint16) + b.view(np.uint16)).view(np.uint32),
}
THREE: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_lshl_add_u32": lambda a, b, c: (a << (b & 31)) + c,
    "v_add_lshl_u32": lambda a, b, c: (a + b) << (c & 31),
    "v_lshl_or_b32": lambda a, b, c: (a << (b & 31)) | c,
    "v_and_or_b32": lambda a, b, c: (a & b) | c,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_bfi_b32": lambda a, b, c: (a & b) | (~a & c),
    "v_bfe_u32": lambda a, b, c: (a >> (b & 31)) & ((np.uint32(1) << (c & 31)) - np.uint32(1)),
    "v_mad_u32_u24": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c,
    "v_alignbit_b32": lambda a, b, c: (
        ((a.astype(np.uint64) << np.uint64(32)) | b) >> (c & 31).astype(np.uint64)
    ).astype(np.uint32),
    "v_max3_u32": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    "v_min3_i32": lambda a, b, c: np.minimum(np.minimum(a.view(np.int32), b.view(np.int32)), c.view(np.int32)).view(
        np.uint32
    ),
    "v_med3_u32": lambda a, b, c: np.sort(np.stack([a, b, c]), axis=0)[1],
}


@pytest.mark.parametrize("name", TWO)
def test_integers_of_two(name: str) -> None:
    a, b = integers(1), integers(2)
    np.testing.assert_array_equal(apply(f"{name} D, A, B", 1, a, b)[0], TWO[name](a, b))


@pytest.mark.parametrize("name", THREE)
def test_integers_of_three(name: str) -> None:
    a, b, c = integers(1), integers(2), integers(3)
    np.testing.assert_array_equal(apply(f"{name} D, A, B, C", 1, a, b, c)[0], THREE[name](a, b, c))


@pytest.mark.parametrize("table", [0x6C, 0x78, 0x96, 0xCA, 0x01, 0xFF])
def test_bitop3(table: int) -> None:
    a, b, c = integers(1), integers(2), integers(3)
    want = np.zeros(N, np.uint32)
    for bit in range(32):
        index = (a >> bit & 1) * 4 + (b >> bit & 1) * 2 + (c >> bit & 1)
        want |= ((table >> index) & 1).astype(np.uint32) << np.uint32(bit)
    np.testing.assert_array_equal(apply(f"v_bitop3_b32 D, A, B, C bitop3:{table:#x}", 1, a, b, c)[0], want)


def test_perm() -> None:
    a, b = integers(1), integers(2)
    select = RNG.integers(0, 15, (N, 4)).astype(np.uint8)
    data = np.stack([b, a], axis=1).copy().view(np.uint8).reshape(N, 8)
    want = np.zeros((N, 4), np.uint8)
    for i in range(N):
        for j in range(4):
            s = int(select[i, j])
            want[i, j] = (
                0xFF if s >= 13 else 0 if s == 12 else 255 * (data[i, 2 * (s - 8) + 1] >> 7) if s >= 8 else data[i, s]
            )
    got = apply("v_perm_b32 D, A, B, C", 1, a, b, select.view(np.uint32).reshape(-1))[0]
    np.testing.assert_array_equal(got, want.view(np.uint32).reshape(-1))


def test_wide_integers() -> None:
    a, b, c = integers(1), integers(2), np.stack([integers(3), integers(4)])
    wide = c[0].astype(np.uint64) | c[1].astype(np.uint64) << np.uint64(32)

    def value(words: np.ndarray) -> np.ndarray:
        return words[0].astype(np.uint64) | words[1].astype(np.uint64) << np.uint64(32)

    np.testing.assert_array_equal(
        value(apply("v_mad_u64_u32 D, s[4:5], A, B, C", 2, a, b, c)), a.astype(np.uint64) * b + wide
    )
    np.testing.assert_array_equal(value(apply("v_lshl_add_u64 D, A, 3, B", 2, c, c)), (wide << np.uint64(3)) + wide)
    np.testing.assert_array_equal(value(apply("v_lshlrev_b64 D, A, B", 2, a, c)), wide << (a & 63).astype(np.uint64))
    np.testing.assert_array_equal(
        value(apply("v_ashrrev_i64 D, A, B", 2, a, c)),
        (wide.view(np.int64) >> (a & 63).astype(np.int64)).view(np.uint64),
    )


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Bits, except that every NaN is like another."""
    nan = np.isnan(want)
    assert np.isnan(got[nan]).all()
    np.testing.assert_array_equal(got[~nan].view(np.uint32), want[~nan].view(np.uint32))


FLOAT_TWO: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "v_add_f32": lambda a, b: a + b,
    "v_sub_f32": lambda a, b: a - b,
    "v_subrev_f32": lambda a, b: b - a,
    "v_mul_f32": lambda a, b: a * b,
}


@pytest.mark.parametrize("name", FLOAT_TWO)
@pytest.mark.parametrize("flush", [False, True])
def test_floats_of_two(name: str, flush: bool) -> None:
    a, b = floats(1), floats(2)
    got = apply(f"{name} D, A, B", 1, a, b, flush=flush)[0].view(np.float32)

    def flushed(x: np.ndarray) -> np.ndarray:
        return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x) if flush else x

    with np.errstate(all="ignore"):
        same(got, flushed(FLOAT_TWO[name](flushed(f(a)), flushed(f(b)))))


@pytest.mark.parametrize("instruction", ["v_fma_f32 D, A, B, C", "v_fma_f32 D, -A, |B|, C", "v_fma_f32 D, A, B, 1.0"])
def test_fma_rounds_once(instruction: str) -> None:
    a, b, c = floats(1), floats(2), floats(3)
    got = apply(instruction, 1, a, b, c)[0].view(np.float32)
    x = -f(a) if "-A" in instruction else f(a)
    y = np.abs(f(b)) if "|" in instruction else f(b)
    z = np.float32(1) if "1.0" in instruction else f(c)
    with np.errstate(all="ignore"):
        want = (x.astype(np.longdouble) * y + z).astype(np.float32)
    same(got, want)


def test_maximum_and_max_differ_on_nan() -> None:
    a, b, c = floats(1), floats(2), floats(3)
    with np.errstate(all="ignore"):
        same(apply("v_max3_f32 D, A, B, C", 1, a, b, c)[0].view(np.float32) + 0, np.fmax(np.fmax(f(a), f(b)), f(c)) + 0)
        same(
            apply("v_maximum3_f32 D, A, B, C", 1, a, b, c)[0].view(np.float32) + 0,
            np.maximum(np.maximum(f(a), f(b)), f(c)) + 0,
        )
        same(
            apply("v_minimum3_f32 D, A, B, C", 1, a, b, c)[0].view(np.float32) + 0,
            np.minimum(np.minimum(f(a), f(b)), f(c)) + 0,
        )


@pytest.mark.parametrize("name,function", [("v_exp_f32", np.exp2), ("v_log_f32", np.log2), ("v_rcp_f32", lambda x: 1 / x),
                                           ("v_rsq_f32", lambda x: 1 / np.sqrt(x)), ("v_sqrt_f32", np.sqrt)])  # fmt: skip
def test_approximate_functions(name: str, function: Callable[[np.ndarray], np.ndarray]) -> None:
    a = floats(1)
    got = apply(f"{name} D, A", 1, a)[0].view(np.float32)
    with np.errstate(all="ignore"):
        want = function(f(a).astype(np.float64)).astype(np.float32)
    normal = (np.abs(f(a)) > 1e-37) & ((np.abs(want) > 1e-37) | (want == 0))
    np.testing.assert_allclose(got[normal], want[normal], rtol=1.2e-7)


def test_division_as_compilers_expand_it() -> None:
    """Correctly rounded, also where the reciprocal of the denominator, the quotient or both are denormal.

    Denormal quotients may be rounded twice, which is a unit of the last place.
    """
    rng = np.random.default_rng(7)
    sizes = np.concatenate([rng.integers(-126, 128, N), rng.integers(100, 128, N), rng.integers(-126, -90, N)])
    x, y = (
        (np.ldexp(rng.uniform(1, 2, 3 * N), rng.permutation(sizes)) * rng.choice([-1, 1], 3 * N)).astype(np.float32)
        for _ in "xy"
    )
    x[:N] = 1
    specials = np.array([(a, b) for a in FLOATS for b in FLOATS], np.uint32)
    specials = np.resize(specials, (512, 2)).T.copy().view(np.float32)
    x, y = np.concatenate([x, specials[0]]), np.concatenate([y, specials[1]])
    steps = """v_div_scale_f32 v20, s[20:21], v10, v10, v8
s_nop 1
v_rcp_f32 v21, v20
v_div_scale_f32 v22, vcc, v8, v10, v8
s_nop 4
v_fma_f32 v23, -v20, v21, 1.0
v_fma_f32 v21, v23, v21, v21
v_mul_f32 v23, v22, v21
v_fma_f32 v24, -v20, v23, v22
v_fma_f32 v23, v24, v21, v23
v_fma_f32 v24, -v20, v23, v22
v_div_fmas_f32 v25, v24, v21, v23
s_nop 1"""
    got = apply("v_div_fixup_f32 D, v25, B, A", 1, x.view(np.uint32), y.view(np.uint32), before=steps)[0]
    with np.errstate(all="ignore"):
        want = x / y
    found, small = got.view(np.float32), np.abs(want) < 2.0**-126
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    exact = ~small & ~np.isnan(want)
    np.testing.assert_array_equal(found[exact], want[exact])
    assert (np.abs(found[small].astype(float) - want[small]) <= 2.0**-149).all()


def test_packed_floats_choose_words() -> None:
    a, b = np.stack([floats(1), floats(2)]), np.stack([floats(3), floats(4)])
    with np.errstate(all="ignore"):
        got = apply("v_pk_mul_f32 D, A, B op_sel:[0,1] op_sel_hi:[1,0]", 2, a, b)
        same(got[0].view(np.float32), f(a[0]) * f(b[1]))
        same(got[1].view(np.float32), f(a[1]) * f(b[0]))
        got = apply("v_pk_add_f32 D, A, B neg_lo:[0,1] neg_hi:[1,0]", 2, a, b)
        same(got[0].view(np.float32), f(a[0]) - f(b[0]))
        same(got[1].view(np.float32), -f(a[1]) + f(b[1]))
        for words in ("", " op_sel_hi:[1,0]"):
            got = apply(f"v_pk_add_f32 D, A, 0{words}", 2, a)
            same(got[0].view(np.float32), f(a[0]) + np.float32(0))
            same(got[1].view(np.float32), f(a[1]) + np.float32(0))


def test_half_precision() -> None:
    a, b = integers(1), integers(2)
    x, y = a.view(np.float16), b.view(np.float16)
    with np.errstate(all="ignore"):
        for name, want in (("v_pk_add_f16", x + y), ("v_pk_mul_f16", x * y)):
            got = apply(f"{name} D, A, B", 1, a, b)[0].view(np.float16)
            nan = np.isnan(want)
            assert np.isnan(got[nan]).all()
            np.testing.assert_array_equal(got[~nan].view(np.uint16), want[~nan].view(np.uint16))


def bytes_of(x: np.ndarray, dtype: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return x.astype(dtype).view(np.uint8).astype(np.uint32)


@pytest.mark.parametrize(
    "name,dtype", [("v_cvt_pk_fp8_f32", ml_dtypes.float8_e4m3fn), ("v_cvt_pk_bf8_f32", ml_dtypes.float8_e5m2)]
)
def test_to_eight_bits(name: str, dtype: Any) -> None:
    a, b = floats(1, 30.0), floats(2, 30.0)
    got = apply(f"{name} D, A, B op_sel:[0,0,1]", 1, a, b, initial=np.full(N, 0x1234, np.uint32))[0]
    assert (got & 0xFFFF == 0x1234).all()
    for shift, source in ((16, f(a)), (24, f(b))):
        byte = (got >> shift & 0xFF).astype(np.uint8)
        want = bytes_of(source, dtype).astype(np.uint8)
        nan = np.isnan(want.view(dtype).astype(np.float32))
        assert np.isnan(byte[nan].view(dtype).astype(np.float32)).all()
        np.testing.assert_array_equal(byte[~nan], want[~nan])


def test_from_eight_bits() -> None:
    codes = np.arange(256, dtype=np.uint32).repeat(2)
    for select in range(4):
        got = apply(f"v_cvt_f32_fp8_sdwa D, A src0_sel:BYTE_{select}", 1, codes << np.uint32(8 * select))[0].view(
            np.float32
        )
        same(got, codes.astype(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32))


@pytest.mark.parametrize("power", [-3, 0, 4])
def test_four_bits_with_a_scale(power: int) -> None:
    values = f(floats(1))
    finite = np.where(np.isfinite(values), np.clip(values, -1e6, 1e6), 1).astype(np.float32).view(np.uint32)
    scale = np.full(N, 2.0**power * 1.5, np.float32).view(np.uint32)  # the mantissa does not count
    got = apply("v_cvt_scalef32_pk_fp4_f32 D, A, B, C op_sel:[0,0,1,1]", 1, finite, finite[::-1].copy(), scale)[0]
    assert (got & 0xFFFFFF == 0).all()
    for shift, source in ((24, f(finite)), (28, f(finite[::-1].copy()))):
        want = np.clip(source / 2.0**power, -6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 15
        np.testing.assert_array_equal(got >> shift & 15, want)
    codes = np.arange(16, dtype=np.uint32).repeat(N // 16)
    got = apply(
        "v_cvt_scalef32_pk_f32_fp4 D, A, B op_sel:[1,0,0]", 2, codes << np.uint32(8) | codes << np.uint32(12), scale
    )
    want_f = codes.astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32) * 2.0**power
    same(got[0].view(np.float32), want_f.astype(np.float32))
    same(got[1].view(np.float32), want_f.astype(np.float32))


def test_to_sixteen_bits() -> None:
    a, b = floats(1), floats(2)
    with np.errstate(all="ignore"):
        for name, dtype in (("v_cvt_pk_bf16_f32", ml_dtypes.bfloat16), ("v_cvt_pk_f16_f32", np.float16)):
            got = apply(f"{name} D, A, B", 1, a, b)[0]
            for half, source in ((got & 0xFFFF, f(a)), (got >> 16, f(b))):
                want = source.astype(dtype)
                nan = np.isnan(source)
                np.testing.assert_array_equal(half[~nan].astype(np.uint16), want[~nan].view(np.uint16))


@pytest.mark.parametrize("kind,view", [("u32", np.uint32), ("i32", np.int32), ("f32", np.float32)])
@pytest.mark.parametrize(
    "name,function",
    [("lt", np.less), ("eq", np.equal), ("le", np.less_equal), ("gt", np.greater), ("ge", np.greater_equal)],
)
def test_comparisons(kind: str, view: Any, name: str, function: Any) -> None:
    a, b = (floats(1), floats(2)) if kind == "f32" else (integers(1), integers(2))
    got = apply(
        "v_cndmask_b32 D, 0, A, vcc",
        1,
        np.ones(N, np.uint32),
        a,
        b,
        before=f"v_cmp_{name}_{kind} vcc, v10, v12\ns_nop 1",
    )[0]
    np.testing.assert_array_equal(got.astype(bool), function(a.view(view), b.view(view)))


def test_carries() -> None:
    a, b = integers(1), integers(2)
    got = apply("v_addc_co_u32 D, vcc, A, B, vcc", 1, a, b, before="v_add_co_u32 v20, vcc, v8, v10\ns_nop 1")[0]
    carry = (a.astype(np.uint64) + b) >> np.uint64(32)
    np.testing.assert_array_equal(got, (a.astype(np.uint64) + b + carry).astype(np.uint32))


LANE = np.arange(64)
MOVES = {
    "quad_perm:[1,0,3,2]": LANE ^ 1,
    "row_ror:1": (LANE & ~15) | (LANE - 1 & 15),
    "row_mirror": (LANE & ~15) | (15 - (LANE & 15)),
    "row_half_mirror": (LANE & ~7) | (7 - (LANE & 7)),
    "row_newbcast:3": (LANE & ~15) | 3,
}


@pytest.mark.parametrize("move", MOVES)
def test_lanes_moved(move: str) -> None:
    a = integers(1)
    want = a.reshape(-1, 64)[:, MOVES[move]].reshape(-1)
    np.testing.assert_array_equal(apply(f"v_mov_b32_dpp D, A {move}", 1, a)[0], want)


def test_lanes_moved_over_the_edge() -> None:
    a, old = integers(1), integers(2)
    rows = a.reshape(-1, 16)
    kept = np.concatenate([old.reshape(-1, 16)[:, :1], rows[:, :-1]], axis=1).reshape(-1)
    np.testing.assert_array_equal(apply("v_mov_b32_dpp D, A row_shr:1", 1, a, initial=old)[0], kept)
    zeros = np.concatenate([np.zeros((N // 16, 1), np.uint32), rows[:, :-1]], axis=1).reshape(-1)
    np.testing.assert_array_equal(apply("v_mov_b32_dpp D, A row_shr:1 bound_ctrl:1", 1, a, initial=old)[0], zeros)


@pytest.mark.parametrize("half,name", [(32, "v_permlane32_swap_b32"), (16, "v_permlane16_swap_b32")])
def test_swaps(half: int, name: str) -> None:
    a, d = integers(1), integers(2)
    got = apply(f"{name} D, A", 1, a, initial=d)[0].reshape(-1, 64 // (2 * half), 2, half)
    sources = a.reshape(-1, 64 // (2 * half), 2, half)
    targets = d.reshape(-1, 64 // (2 * half), 2, half)
    np.testing.assert_array_equal(got[:, :, 0], targets[:, :, 0])
    np.testing.assert_array_equal(got[:, :, 1], sources[:, :, 0])


def test_parts_of_registers() -> None:
    a, b, old = integers(1), integers(2), integers(3)
    got = apply(
        "v_add_u32_sdwa D, A, B dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 src1_sel:BYTE_3",
        1,
        a,
        b,
        initial=old,
    )[0]
    want = (old & ~np.uint32(0xFF00)) | (((a >> 16) + (b >> 24)) & 0xFF) << 8
    np.testing.assert_array_equal(got, want)


def test_mixed_products_take_constants_of_sixteen_bits() -> None:
    """As compilers emit them: the second operand is a half, and a constant."""
    x = RNG.standard_normal(64).astype(np.float16)
    bits = x.view(np.uint16).astype(np.uint32)
    for constant, value in (("1.0", 1.0), ("-2.0", -2.0), ("0", 0.0)):
        got = apply(f"v_mad_mix_f32 D, A, {constant}, 0 op_sel_hi:[1,1,0]", 1, bits)[0].view(np.float32)
        np.testing.assert_array_equal(got, x.astype(np.float32) * np.float32(value) + np.float32(0))


def test_a_choice_takes_signs() -> None:
    """Compilers fold the negation of a float into v_cndmask_b32."""
    a, b = floats(1), floats(2)
    got = apply("v_cndmask_b32_e64 D, -A, |B|, vcc", 1, a, b, before="v_cmp_lt_u32 vcc, 31, v0")[0]
    second = np.arange(N) % 64 > 31
    np.testing.assert_array_equal(got, np.where(second, b & 0x7FFFFFFF, a ^ 0x80000000))
