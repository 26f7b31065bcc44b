"""tcgen05.mma against NumPy: kinds, layouts, shapes, A in tensor memory, scale factors, pairs of blocks."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from msa_ops.emulator import EmulatorFault
from tests.emulator.shared_operands import WIDTHS, descriptor, place, to_bytes
from tests.emulator.tensor_products import OPERANDS, Program

Array = NDArray[np.generic]
FORMATS = {
    "f16": (0, np.float16, 16), "bf16": (1, ml_dtypes.bfloat16, 16), "tf32": (2, np.float32, 8),
    "e4m3": (0, ml_dtypes.float8_e4m3fn, 32), "e5m2": (1, ml_dtypes.float8_e5m2, 32),
    "e2m3": (3, ml_dtypes.float6_e2m3fn, 32), "e3m2": (4, ml_dtypes.float6_e3m2fn, 32),
    "e2m1": (5, ml_dtypes.float4_e2m1fn, 32), "u8": (0, np.uint8, 32), "s8": (1, np.int8, 32),
}  # fmt: skip
BITS = {"e2m3": 6, "e3m2": 6, "e2m1": 4}
KINDS = {"f16": "f16", "bf16": "f16", "tf32": "tf32", "u8": "i8", "s8": "i8"}
SUMS = {"f16": 0, "f32": 1, "s32": 2}


def draw(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> Array:
    """Numbers whose sums of products are exact in every order."""
    limits = {"s8": (-128, 128), "u8": (0, 256), "e2m1": (-4, 5), "e2m3": (-4, 5)}.get(kind, (-4, 5))
    return rng.integers(*limits, shape).astype(FORMATS[kind][1])


def codes_of(matrix: Array, kind: str) -> Array:
    """Elements as unsigned numbers; those of less than 8 bits keep their low bits."""
    size = matrix.dtype.itemsize
    return np.ascontiguousarray(matrix).view(f"u{size}") & np.array((1 << BITS.get(kind, 8 * size)) - 1, f"u{size}")


def padded(matrix: Array, kind: str) -> Array:
    """Rows of bytes in which 16 elements of less than 8 bits fill the first of each 16 bytes."""
    codes = codes_of(matrix, kind)
    if kind not in BITS:
        return codes
    bits = BITS[kind]
    rows, k = codes.shape
    units = codes.reshape(rows, k // 16, 16)
    flat = (units[..., None] >> np.arange(bits, dtype=np.uint8) & 1).reshape(rows, k // 16, 16 * bits)
    packed = np.packbits(flat, axis=-1, bitorder="little")
    return np.pad(packed, ((0, 0), (0, 0), (0, 16 - packed.shape[-1]))).reshape(rows, k)


def in_bytes(codes: Array, kind: str) -> Array:
    """As tensor memory holds them: those of 4 bits are in the middle of a byte."""
    return codes << np.array(2, codes.dtype) if BITS.get(kind) == 4 else codes


def instruction(m: int, n: int, a: str, b: str, d: str, **bits: int) -> int:
    value = SUMS[d] << 4 | FORMATS[a][0] << 7 | FORMATS[b][0] << 10 | (n >> 3) << 17 | (m >> 4) << 24
    places = {"negate_a": 13, "negate_b": 14, "a_mn": 15, "b_mn": 16, "saturate": 3, "long_k": 29}
    return value | sum(on << places[name] for name, on in bits.items())


def lanes_of(m: int, n: int, blocks: int, weight_stationary: bool = False) -> tuple[Array, Array, Array]:
    """Block, lane and column of element (row, column) of D."""
    row, column = np.meshgrid(np.arange(m), np.arange(n), indexing="ij")
    share = m // blocks
    block, row = row // share, row % share
    if share == 128:
        return block, row, column
    if share == 64 and blocks == 1 and not weight_stationary:
        return block, row % 16 + row // 16 * 32, column
    parts = 128 // share
    return block, row + share * (column // (n // parts)), column % (n // parts)


def words_of(values: Array, d: str) -> NDArray[np.uint32]:
    if d == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint32)
    return values.astype({"f32": np.float32, "s32": np.int32}[d]).view(np.uint32)


def to_tensor(
    words: NDArray[np.uint32], where: tuple[Array, Array, Array], blocks: int, columns: int
) -> NDArray[np.uint32]:
    made = np.zeros((blocks, columns, 128), np.uint32)
    block, lane, column = where
    made[block, column, lane] = words
    return made


def check(a_kind: str, b_kind: str, d_kind: str, m: int = 128, n: int = 32, *, blocks: int = 1, keep: bool = True,
          a_mode: str = "128", b_mode: str = "128", a_major: str = "k", b_major: str = "k", in_tensor: bool = False,
          weight_stationary: bool = False, negate: tuple[int, int] = (0, 0), masks: list[int] | None = None,
          shift: int | None = None, k_factor: int = 1, chip: str = "sm_100a", gap: int = 0,
          collector: str = "", base: int = 0, zeros: int | None = None, most_shift: int = 0,
          read_back_a: bool = False) -> None:  # fmt: skip
    """base: operands begin so many times 128 bytes behind a multiple of 1024, and so does the swizzle's pattern.
    zeros: a zero-column mask descriptor. most_shift: that field of the instruction descriptor. read_back_a: `.ashift`,
    of which A in tensor memory is read back and compared, too.
    """
    rng = np.random.default_rng([m, n, blocks])
    k = FORMATS[a_kind][2] * k_factor
    moved = (zeros or 0) >> 56 & 63
    a, b = draw(rng, a_kind, (m, k)), draw(rng, b_kind, (n + -(-moved // 8) * 8, k))
    width = 32 * k_factor
    memory, descriptors = [], []
    start = OPERANDS
    for matrix, kind, mode, major in ((a, a_kind, a_mode, a_major), (b, b_kind, b_mode, b_major)):
        rows = matrix.shape[0] // blocks
        if major == "mn" and moved:
            rows = -(-rows // 64) * 64
            matrix = np.pad(matrix, ((0, rows - len(matrix)), (0, 0)))
        elements = padded(matrix, kind) if major == "k" else codes_of(matrix, kind)
        offset, leading, stride, size = place(rows, width, mode, major, elements.dtype.itemsize, gap)
        parts = [to_bytes(elements[rows * i : rows * (i + 1)], offset, size) for i in range(blocks)]
        descriptors.append(descriptor(start + 128 * base, leading, stride, mode, "blackwell") | base << 49)
        memory.append(np.pad(np.stack(parts), ((0, 0), (128 * base, -128 * base % 1024)), constant_values=0x5A))
        start += memory[-1].shape[1]
    image = np.concatenate(memory, axis=1)
    image = np.pad(image, ((0, 0), (0, -image.shape[1] % 2048)))
    where = lanes_of(m, n, blocks, weight_stationary)
    c = rng.integers(-50, 50, (m, n))
    columns = n if not (weight_stationary or blocks == 2) else int(where[2].max()) + 1
    d_columns = -(-columns // 32) * 32
    tensors = to_tensor(words_of(c, d_kind), where, blocks, d_columns)
    a_operand = "%rd10"
    if in_tensor:
        codes = (
            np.ascontiguousarray(in_bytes(codes_of(a, a_kind), a_kind))
            .view(np.uint8)
            .reshape(m, -1)
            .copy()
            .view(np.uint32)
        )
        a_where = lanes_of(m, codes.shape[1], blocks, weight_stationary)
        a_words = np.zeros((blocks, 32, 128), np.uint32)
        share = m // blocks
        copies = 1 if share == 128 or (share == 64 and blocks == 1 and not weight_stationary) else 128 // share
        for i in range(copies):
            block, row = np.divmod(np.arange(m), share)
            lane = row + share * i if copies > 1 else a_where[1][:, 0]
            for column in range(codes.shape[1]):
                a_words[block, column, lane] = codes[:, column]
        tensors = np.concatenate([tensors, a_words], axis=1)
        a_operand = f"[%r2+{d_columns}]"
    idesc = instruction(m, n, a_kind, b_kind, d_kind, negate_a=negate[0], negate_b=negate[1],
                        a_mn=int(a_major == "mn"), b_mn=int(b_major == "mn"), long_k=k_factor - 1)  # fmt: skip
    idesc |= most_shift << 30
    mask_operand = ""
    if masks is not None:
        mask_operand = "{" + ", ".join(f"%r{16 + i}" for i in range(4 * blocks)) + "}, "
    kind = KINDS.get(a_kind, "f8f6f4")
    stationary = ".ws" if weight_stationary else ""
    products = (
        f"mov.b64 %rd10, {descriptors[0]:#x}; mov.b64 %rd11, {descriptors[1]:#x}; mov.b32 %r10, {idesc:#x};\n"
        + (f"mov.b64 %rd12, {zeros:#x};\n" if zeros is not None else "")
        + "".join(f"mov.b32 %r{16 + i}, {mask:#x};\n" for i, mask in enumerate(masks or []))
        + f"mov.pred %p4, {int(keep)};\n"
        f"tcgen05.mma{stationary}.cta_group::{blocks}.kind::{kind}{collector} [%r2], {a_operand}, %rd11, %r10, "
        f"{mask_operand}%p4"
        + (f", {shift}" if shift is not None else "")
        + (", %rd12" if zeros is not None else "")
        + ";"
    )
    program = Program(image, tensors, products, d_columns + 32 if read_back_a else columns, blocks=blocks, chip=chip)
    out = program.run()
    if read_back_a:
        given = tensors[:, d_columns:].reshape(blocks, 32, 4, 32)
        after = out[:, d_columns:].reshape(blocks, 32, 4, 32)
        width = k * (8 if a_kind in BITS else 8 * a.dtype.itemsize) // 32
        np.testing.assert_array_equal(after[:, :width, :, :31], given[:, :width, :, 1:])
        np.testing.assert_array_equal(after[:, :width, :, 31], given[:, :width, :, 31])
        np.testing.assert_array_equal(after[:, width:], given[:, width:])
        out = out[:, :columns]
    if zeros is not None:
        b = np.where(np.array(zero_columns(zeros, m, n))[:, None], np.zeros_like(b[:n]), b[moved : moved + n])
    sign = (-1) ** (negate[0] + negate[1])
    exact = sign * (a.astype(np.float64) @ b.astype(np.float64).T)
    if keep:
        exact = exact + c * 2.0 ** -(shift or 0)
    expected = to_tensor(words_of(exact, d_kind), where, blocks, columns)
    if masks is not None:
        bits = np.concatenate([np.uint32(mask) >> np.arange(32, dtype=np.uint32) & 1 for mask in masks])
        untouched = bits.reshape(blocks, 1, 128).astype(bool)
        expected = np.where(untouched, tensors[:, :columns], expected)
    used = to_tensor(np.ones((m, n), np.uint32), where, blocks, columns) != 0
    np.testing.assert_array_equal(np.where(used, out, 0), np.where(used, expected, 0))


@pytest.mark.parametrize(
    ("a", "b", "d"),
    [("f16", "f16", "f32"), ("f16", "f16", "f16"), ("bf16", "bf16", "f32"), ("tf32", "tf32", "f32")]
    + [(a, b, "f32") for a, b in itertools.product(["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"], repeat=2)]
    + [(a, b, "s32") for a, b in itertools.product(["u8", "s8"], repeat=2)],
)
def test_types(a: str, b: str, d: str) -> None:
    check(a, b, d)


@pytest.mark.parametrize(("m", "n"), [(128, 8), (128, 40), (128, 48), (128, 256), (64, 8), (64, 24), (64, 256)])
@pytest.mark.parametrize("keep", [False, True])
def test_shapes(m: int, n: int, keep: bool) -> None:
    check("f16", "f16", "f32", m, n, keep=keep)


@pytest.mark.parametrize("mode", WIDTHS)
@pytest.mark.parametrize("major", ["k", "mn"])
@pytest.mark.parametrize("kind", ["f16", "e4m3"])
def test_layouts(mode: str, major: str, kind: str) -> None:
    gap = 256 if mode == "none" else 1024
    check(kind, kind, "f32", n=128, a_mode=mode, b_mode=mode, a_major=major, b_major=major, gap=gap)


@pytest.mark.parametrize(("m", "n"), [(128, 16), (128, 32), (128, 256), (256, 16), (256, 128), (256, 256)])
@pytest.mark.parametrize("in_tensor", [False, True])
def test_pairs_of_blocks(m: int, n: int, in_tensor: bool) -> None:
    check("f16", "f16", "f32", m, n, blocks=2, in_tensor=in_tensor)


@pytest.mark.parametrize("kind", ["f16", "bf16", "tf32", "e4m3", "s8"])
@pytest.mark.parametrize("m", [64, 128])
def test_a_in_tensor_memory(kind: str, m: int) -> None:
    check(kind, kind, "s32" if kind == "s8" else "f32", m, in_tensor=True)


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("blocks", [1, 2])
def test_small_a_in_tensor_memory(kind: str, blocks: int) -> None:
    check(kind, "e4m3", "f32", 128 * blocks, blocks=blocks, in_tensor=True)


@pytest.mark.parametrize("mode", ["32", "64", "128"])
@pytest.mark.parametrize("major", ["k", "mn"])
@pytest.mark.parametrize("base", [1, 2, 5])
def test_patterns_that_begin_elsewhere(mode: str, major: str, base: int) -> None:
    check("f16", "f16", "f32", n=128, a_mode=mode, b_mode=mode, a_major=major, b_major=major, gap=1024, base=base)


def test_base_offset_needs_a_swizzle() -> None:
    with pytest.raises(EmulatorFault, match="a base offset without a swizzle"):
        check("f16", "f16", "f32", a_mode="none", b_mode="none", base=1)


@pytest.mark.parametrize("m", [32, 64, 128])
@pytest.mark.parametrize("n", [64, 256])
@pytest.mark.parametrize("in_tensor", [False, True])
def test_weight_stationary(m: int, n: int, in_tensor: bool) -> None:
    check("f16", "f16", "f32", m, n, weight_stationary=True, in_tensor=in_tensor)


def zero_columns(descriptor: int, m: int, n: int) -> list[bool]:
    """Columns of B that count as zeros: PTX ISA, zero-column mask descriptor, spans as in its examples."""
    parts = 128 // m
    made = []
    for part in range(parts):
        start, zeros_first = descriptor >> 8 * part & 255, bool(descriptor >> (32 + part) & 1)
        zeros, used = (descriptor >> 40 & 255) + 1, (descriptor >> 48 & 255) + 1
        spans = [True] * zeros + [False] * used if zeros_first else [False] * used + [True] * zeros
        start = min(start, (zeros if zeros_first else used) - 1)
        made += (spans * n)[start : start + n // parts]
    return made if descriptor >> 39 & 1 else [False] * n


def column_mask(
    starts: tuple[int, ...], firsts: tuple[int, ...], skip: int, use: int, shift: int = 0, on: int = 1
) -> int:
    value = sum(start << 8 * i for i, start in enumerate(starts)) | sum(bit << (32 + i) for i, bit in enumerate(firsts))
    return value | on << 39 | skip << 40 | use << 48 | shift << 56


def test_examples_of_the_manual() -> None:
    """Bits of the masks from the last one down, as the manual prints them."""

    def text(descriptor: int, m: int, n: int, part: int, count: int) -> str:
        size = n // (128 // m)
        return "".join("01"[bit] for bit in zero_columns(descriptor, m, n)[part * size :][:count])[::-1]

    assert not any(zero_columns(column_mask((0,) * 4, (0,) * 4, 4, 3, on=0), 128, 128))
    second = column_mask((0,), (0,), 2, 3)
    assert text(second, 128, 128, 0, 14) == "11100001110000"
    third = column_mask((0, 0), (1, 0), 2, 3)
    assert [text(third, 64, 128, i, 17) for i in range(2)] == ["11100001110000111", "00011100001110000"]
    fourth = column_mask((0, 1, 2, 1), (1, 1, 0, 0), 2, 3, 2)
    masks = ["00001110000111", "0000111000011", "111000011100", "1110000111000"]
    assert [text(fourth, 32, 128, part, len(bits)) for part, bits in enumerate(masks)] == masks


MASKS = [
    (128, 128, column_mask((0,), (0,), 2, 3)),
    (128, 64, column_mask((0,), (0,), 0, 0)),
    (128, 64, column_mask((3,), (1,), 2, 3, on=0)),
    (64, 128, column_mask((0, 0), (1, 0), 2, 3)),
    (64, 64, column_mask((2, 200), (1, 0), 6, 1)),
    (32, 128, column_mask((0, 1, 2, 1), (1, 1, 0, 0), 2, 3)),
    (32, 128, column_mask((0, 1, 2, 1), (1, 1, 0, 0), 2, 3, 2)),
    (128, 64, column_mask((0,), (0,), 255, 255, 32)),
    (64, 64, column_mask((0,), (0,), 0, 0, 8, on=0)),
]


@pytest.mark.parametrize(("m", "n", "descriptor"), MASKS)
@pytest.mark.parametrize("kind", ["f16", "e4m3", "s8"])
def test_zero_columns(m: int, n: int, descriptor: int, kind: str) -> None:
    check(kind, kind, "s32" if kind == "s8" else "f32", m, n, weight_stationary=True, zeros=descriptor, most_shift=3)


def test_shifted_columns_of_an_mn_major_operand() -> None:
    descriptor = column_mask((0,), (0,), 2, 3, 16)
    check("f16", "f16", "f32", 128, 64, weight_stationary=True, zeros=descriptor, most_shift=3, b_major="mn", gap=1024)
    with pytest.raises(EmulatorFault, match="unsupported: a shift of 3 columns of MN-major B"):
        descriptor = column_mask((0,), (0,), 2, 3, 3)
        check(
            "f16", "f16", "f32", 128, 64, weight_stationary=True, zeros=descriptor, most_shift=3, b_major="mn", gap=1024
        )


@pytest.mark.parametrize(
    ("m", "descriptor", "most_shift", "message"),
    [
        (128, column_mask((0,), (0,), 0, 0, 9), 1, "a shift of 9; M 128 and the instruction descriptor allow 8"),
        (32, column_mask((0,), (0,), 0, 0, 17), 3, "a shift of 17; M 32 and the instruction descriptor allow 16"),
        (128, column_mask((0,), (0,), 0, 0) | 1 << 37, 0, "reserved bits"),
    ],
)
def test_zero_column_masks_that_do_not_exist(m: int, descriptor: int, most_shift: int, message: str) -> None:
    with pytest.raises(EmulatorFault, match=message):
        check("f16", "f16", "f32", m, 64, weight_stationary=True, zeros=descriptor, most_shift=most_shift)


@pytest.mark.parametrize("kind", ["f16", "tf32", "e4m3", "e2m1", "s8"])
def test_a_moves_on_after_the_product(kind: str) -> None:
    check(kind, "e4m3" if kind == "e2m1" else kind, "s32" if kind == "s8" else "f32", in_tensor=True, read_back_a=True,
          collector=".ashift.collector::a::lastuse")  # fmt: skip


@pytest.mark.parametrize("m", [128, 256])
def test_a_of_pairs_moves_on(m: int) -> None:
    check("f16", "f16", "f32", m, 32, blocks=2, in_tensor=True, read_back_a=True, collector=".ashift")


def test_long_a_moves_on() -> None:
    check("e4m3", "e4m3", "f32", in_tensor=True, read_back_a=True, collector=".ashift", k_factor=2, chip="sm_107a")


def test_a_that_does_not_move_on() -> None:
    with pytest.raises(EmulatorFault, match=r"M 64 with .ashift; accepted: 128, 256"):
        check("f16", "f16", "f32", 64, in_tensor=True, collector=".ashift")
    with pytest.raises(Exception, match="unsupported"):
        check("f16", "f16", "f32", collector=".ashift")


@pytest.mark.parametrize("negate", [(0, 1), (1, 0), (1, 1)])
def test_negation(negate: tuple[int, int]) -> None:
    check("e4m3", "e4m3", "f32", negate=negate)


@pytest.mark.parametrize("shift", [0, 1, 4])
def test_scaled_sums(shift: int) -> None:
    check("f16", "f16", "f32", shift=shift)


def test_masked_lanes() -> None:
    check("f16", "f16", "f32", masks=[0, 0xFFFFFFFF, 0x0000FF0F, 1])
    check("f16", "f16", "f32", masks=[0, 0xFFFFFFFF, 0x0000FF0F, 1], collector=".collector::a::discard")
    check("f16", "f16", "f32", 256, 32, blocks=2, masks=[0, 0xFFFFFFFF, 0xFF0F, 1, 5, 0, 0x80000000, 0])


def test_long_k_of_rubin() -> None:
    check("e4m3", "e5m2", "f32", k_factor=2, chip="sm_107a")
    with pytest.raises(Exception, match="K 64 on sm_100a"):
        check("e4m3", "e5m2", "f32", k_factor=2)


# ---- scale factors


def ue5m3(code: int) -> float:
    field, mantissa = code >> 3, code & 7
    return math.ldexp(mantissa + 8 * (field > 0), max(field, 1) - 15 - 3)


def scale_words(codes: NDArray[np.uint8], halves: bool = False) -> NDArray[np.uint32]:
    """[rows, up to 4] codes to words [columns, 128 lanes]: row r in lane r % 32 of each 32 and column r / 32. Further
    codes of a row stand in the columns behind those of all rows.
    """
    if codes.shape[1] > 4:
        return np.concatenate([scale_words(codes[:, :4], halves), scale_words(codes[:, 4:], halves)])
    rows = len(codes)
    words = np.zeros((rows, 4), np.uint8)
    words[:, : codes.shape[1]] = codes
    packed = np.pad(words.view(np.uint32)[:, 0], (0, -rows % 32))
    if not halves:
        return np.tile(packed.reshape(-1, 32), (1, 4))
    lower, upper = packed[: rows // 2].reshape(-1, 32), packed[rows // 2 :].reshape(-1, 32)
    return np.concatenate([lower, lower, upper, upper], axis=1)


def scaled(kind: str, names: str, element: str, scale: str, block: int, m: int = 128, n: int = 64, blocks: int = 1,
           scale_id: int = 0, extreme: bool = False, in_tensor: bool = False, k: int = 0,
           chip: str = "sm_100a", by_lane: bool = False, sparsity_version: int = 0) -> None:  # fmt: skip
    """by_lane: A's scale factors in the other layout, row r in lane r."""
    rng = np.random.default_rng([m, n, block])
    nibbles = kind != "mxf8f6f4"
    k = k or (64 if nibbles else 32)
    a, b = draw(rng, element, (m, k)), draw(rng, element, (n, k))
    count = k // block
    if scale == "ue8m0":
        low, high = (0, 255) if extreme else (124, 131)
        codes = [rng.integers(low, high, (rows, count)).astype(np.uint8) for rows in (m, n)]
        if extreme:
            codes[1] = 254 - codes[0][: len(codes[1])]  # products of scale factors near one, the factors far from it
            codes[0] = np.broadcast_to(codes[0][:1], codes[0].shape).copy()
            codes[1] = np.broadcast_to(codes[1][:1], codes[1].shape).copy()
        factors = [2.0 ** (code.astype(np.float64) - 127) for code in codes]
    elif scale == "ue5m3":
        values = np.array([ue5m3(code) for code in range(255)])
        small = np.flatnonzero((values >= 0.5) & (values <= 8) & (values * 2 % 1 == 0)).astype(np.uint8)
        codes = [rng.choice(small, (rows, count)) for rows in (m, n)]
        factors = [values[code] for code in codes]
    else:
        factors = [rng.integers(1, 9, (rows, count)).astype(ml_dtypes.float8_e4m3fn) for rows in (m, n)]
        codes = [factor.view(np.uint8) for factor in factors]
        factors = [factor.astype(np.float64) for factor in factors]
    memory, descriptors, start = [], [], OPERANDS
    for matrix in (a, b):
        rows = matrix.shape[0] // blocks
        codes_here = codes_of(matrix, element)
        elements = codes_here[:, 0::2] | codes_here[:, 1::2] << 4 if nibbles else padded(matrix, element)
        offset, leading, stride, size = place(rows, k // 2 if nibbles else k, "128", "k", 1)
        parts = [to_bytes(elements[rows * i : rows * (i + 1)], offset, size) for i in range(blocks)]
        descriptors.append(descriptor(start, leading, stride, "128", "blackwell"))
        memory.append(np.stack(parts))
        start += memory[-1].shape[1]
    image = np.concatenate(memory, axis=1)
    image = np.pad(image, ((0, 0), (0, -image.shape[1] % 2048)))
    share = m // blocks
    shifted = [np.pad(code, ((0, 0), (scale_id, 0))) for code in codes]
    a_scales = np.stack([scale_words(shifted[0][share * i : share * (i + 1)]) for i in range(blocks)])
    if by_lane:
        words = (
            np.pad(shifted[0], ((0, 0), (0, -shifted[0].shape[1] % 4))).reshape(m, -1, 4).copy().view(np.uint32)[..., 0]
        )
        a_scales = np.zeros((blocks, words.shape[1], 128), np.uint32)
        a_scales[:, :, :share] = words.reshape(blocks, share, -1).swapaxes(1, 2)
    b_scales = np.stack([scale_words(shifted[1], halves=blocks == 2 and share == 64)] * blocks)
    where = lanes_of(m, n, blocks)
    columns = int(where[2].max()) + 1
    d_columns = -(-columns // 32) * 32
    c = rng.integers(-50, 50, (m, n))
    tensors = np.zeros((blocks, d_columns + 64, 128), np.uint32)
    tensors[:, :d_columns] = to_tensor(words_of(c, "f32"), where, blocks, d_columns)
    tensors[:, d_columns : d_columns + a_scales.shape[1]] = a_scales
    tensors[:, d_columns + 16 : d_columns + 16 + b_scales.shape[1]] = b_scales
    a_operand = "%rd10"
    if in_tensor:
        packed = codes_of(a, element)
        packed = packed[:, 0::2] | packed[:, 1::2] << 4 if nibbles else in_bytes(packed, element)
        tensors[0, d_columns + 32 : d_columns + 40] = np.ascontiguousarray(packed).view(np.uint32).T
        a_operand = f"[%r2+{d_columns + 32}]"
    format_code = 1 if nibbles else FORMATS[element][0]
    idesc = format_code << 7 | format_code << 10 | (n >> 3) << 17 | ("ue4m3", "ue8m0", "ue5m3").index(scale) << 23
    idesc |= scale_id << 4 | scale_id << 29 | (m >> 4) << 24 | by_lane << 26 | sparsity_version << 12
    if nibbles:
        idesc |= {64: 0, 96: 1 << 31, 128: 1 << 3}[k]
    else:
        idesc |= int(k == 64) << 31
    products = (
        f"mov.b64 %rd10, {descriptors[0]:#x}; mov.b64 %rd11, {descriptors[1]:#x}; mov.b32 %r10, {idesc:#x};\n"
        f"add.s32 %r11, %r2, {d_columns}; add.s32 %r12, %r2, {d_columns + 16}; mov.pred %p4, 1;\n"
        f"tcgen05.mma.cta_group::{blocks}.kind::{kind}.block_scale{names} [%r2], {a_operand}, %rd11, %r10, "
        "[%r11], [%r12], %p4;"
    )
    out = Program(image, tensors, products, columns, blocks=blocks, chip=chip).run()
    wide = [np.repeat(factor, block, axis=1) * x.astype(np.float64) for factor, x in zip(factors, (a, b), strict=True)]
    expected = to_tensor(words_of(wide[0] @ wide[1].T + c, "f32"), where, blocks, columns)
    np.testing.assert_array_equal(out, expected)


SCALED = [
    ("mxf8f6f4", ".block32", "e4m3", "ue8m0", 32), ("mxf8f6f4", "", "e2m1", "ue8m0", 32),
    ("mxf8f6f4", ".scale_vec::1X", "e3m2", "ue8m0", 32), ("mxf4", ".block32", "e2m1", "ue8m0", 32),
    ("mxf4", ".scale_vec::2X", "e2m1", "ue8m0", 32), ("mxf4nvf4", ".block16", "e2m1", "ue4m3", 16),
    ("mxf4nvf4", ".scale_vec::4X", "e2m1", "ue8m0", 16), ("mxf4nvf4", ".block32", "e2m1", "ue4m3", 32),
]  # fmt: skip


@pytest.mark.parametrize("case", SCALED, ids=lambda case: "-".join(map(str, case)))
@pytest.mark.parametrize("n", [16, 64, 256])
def test_scale_factors(case: tuple[str, str, str, str, int], n: int) -> None:
    scaled(*case, n=n)


@pytest.mark.parametrize("scale_id", [0, 1, 2, 3])
def test_which_scale_factor(scale_id: int) -> None:
    scaled("mxf8f6f4", ".block32", "e4m3", "ue8m0", 32, scale_id=scale_id)
    if scale_id in (0, 2):
        scaled("mxf4", ".block32", "e2m1", "ue8m0", 32, scale_id=scale_id)


@pytest.mark.parametrize(("m", "n"), [(256, 256), (256, 64), (128, 64), (128, 128)])
def test_scale_factors_of_pairs(m: int, n: int) -> None:
    scaled("mxf4nvf4", ".block16", "e2m1", "ue4m3", 16, m=m, n=n, blocks=2)


def test_scale_factors_with_a_in_tensor_memory() -> None:
    scaled("mxf4nvf4", ".block16", "e2m1", "ue4m3", 16, in_tensor=True)
    scaled("mxf8f6f4", ".block32", "e4m3", "ue8m0", 32, in_tensor=True)


@pytest.mark.parametrize("element", ["e2m1", "e3m2", "e2m3"])
def test_scale_factors_with_small_a_in_tensor_memory(element: str) -> None:
    scaled("mxf8f6f4", ".block32", element, "ue8m0", 32, in_tensor=True)


LONGER = [
    ("sm_103a", "mxf4nvf4", ".block16", "ue4m3", 16, 96), ("sm_103a", "mxf4nvf4", ".block32", "ue8m0", 32, 96),
    ("sm_103a", "mxf4", ".block32", "ue8m0", 32, 96), ("sm_107a", "mxf4nvf4", ".block16", "ue4m3", 16, 128),
    ("sm_107a", "mxf4nvf4", ".block16", "ue5m3", 16, 128), ("sm_107a", "mxf4nvf4", ".block32", "ue5m3", 32, 128),
    ("sm_107a", "mxf4nvf4", ".block16", "ue5m3", 16, 64), ("sm_107a", "mxf4", ".block32", "ue8m0", 32, 128),
    ("sm_107a", "mxf8f6f4", ".block32", "ue8m0", 32, 64),
]  # fmt: skip


@pytest.mark.parametrize("case", LONGER, ids=lambda case: "-".join(map(str, case)))
@pytest.mark.parametrize(("n", "blocks"), [(32, 1), (128, 1), (64, 2)])
def test_depths_and_scales_of_later_chips(case: tuple[str, str, str, str, int, int], n: int, blocks: int) -> None:
    chip, kind, names, scale, block, k = case
    element = "e4m3" if kind == "mxf8f6f4" else "e2m1"
    scaled(kind, names, element, scale, block, m=128 * blocks, n=n, blocks=blocks, k=k, chip=chip)


@pytest.mark.parametrize(("m", "blocks"), [(128, 1), (256, 2), (128, 2)])
def test_scale_factors_by_lane(m: int, blocks: int) -> None:
    for kind, names, element, scale, block, k in (
        ("mxf8f6f4", ".block32", "e4m3", "ue8m0", 32, 32),
        ("mxf4nvf4", ".block16", "e2m1", "ue4m3", 16, 64),
        ("mxf4nvf4", ".block16", "e2m1", "ue5m3", 16, 128),
    ):
        scaled(kind, names, element, scale, block, m=m, n=64, blocks=blocks, k=k, chip="sm_107a", by_lane=True)
    with pytest.raises(EmulatorFault, match=r"scale factors of A in 128 lanes \(bit 26\) on sm_103a"):
        scaled("mxf4nvf4", ".block16", "e2m1", "ue4m3", 16, chip="sm_103a", by_lane=True)


@pytest.mark.parametrize("chip", ["sm_100a", "sm_107a"])
def test_how_sparse_operands_are_written_does_not_matter(chip: str) -> None:
    scaled("mxf4nvf4", ".block16", "e2m1", "ue4m3", 16, chip=chip, sparsity_version=1)


def test_depths_and_scales_that_a_chip_has_not() -> None:
    for chip, scale, k, message in (
        ("sm_100a", "ue4m3", 96, "K 96 on sm_100a"),
        ("sm_103a", "ue4m3", 128, "K 128 on sm_103a"),
        ("sm_103a", "ue5m3", 64, "scale factors UE5M3 on sm_103a"),
    ):
        with pytest.raises(EmulatorFault, match=message):
            scaled("mxf4nvf4", ".block16", "e2m1", scale, 16, k=k, chip=chip)


def test_extreme_scale_factors() -> None:
    """2^127 times 2^-127: neither factor's products fit into fp32."""
    scaled("mxf8f6f4", ".block32", "e4m3", "ue8m0", 32, extreme=True)
