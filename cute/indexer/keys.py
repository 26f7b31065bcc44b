"""Index keys of 16 tokens from a page in shared memory to bf16 operands of matrix products, exactly.

A warp's lane 4 g + t holds, for tokens g and g + 8 of the 16, the 32 dims that `DIMS` names for t: eight steps of
four dims. Any assignment of dims to steps gives the same dot product as long as the queries follow it, so each lane
takes what it can load in 16-byte words.

E2M1 codes become bf16 by integer arithmetic: the code's three magnitude bits, put at bits 6 to 8 of a bf16, are its
value x 2^-126 (also for the subnormal code 0.5), and adding 0x7E00 carries a sign at bit 9 into bit 15. The scale,
as bf16 x 2^119, makes the product a normal number: key x 2^-7, at most 6 significant bits, so nothing is rounded.

The instruction that shifts and adds takes its factor from a register whose value the compiler cannot know: it then
runs on the multiplier, which is idle, and not on the logic unit, which limits this code.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Uint32
from msa_ops.cute.indexer import atoms

STEPS = 8
CODE_SCALE = 2.0**119


def row_bytes(index_format: str) -> int:
    """Bytes of a token's elements."""
    return {"nvfp4": 64, "fp8": 128, "bf16": 256}[index_format]


def dims(index_format: str, t: int, step: int) -> tuple[int, int, int, int]:
    """Dims of lane t's four values in a step: low and high half of the first register, then of the second."""
    if index_format == "nvfp4":
        first = 32 * t + 8 * (step // 2) + 2 * (step % 2)
        return (first, first + 4, first + 1, first + 5)
    if index_format == "fp8":
        first = 16 * (t + 4 * (step // 4)) + 4 * (step % 4)
    else:
        first = 8 * (t + 4 * (step // 2)) + 4 * (step % 2)
    return (first, first + 1, first + 2, first + 3)


@cute.jit
def scale_pairs(pair: Uint32):
    """Two E4M3 scales as bf16 x 2^119, each in both halves of a register."""
    low, high = atoms.e4m3x2_to_f32(pair)
    low, high = low * Float32(CODE_SCALE), high * Float32(CODE_SCALE)
    return atoms.pack_bf16x2(low, low), atoms.pack_bf16x2(high, high)


@cute.jit
def decode_e2m1(word: Uint32, scale: Uint32, factors):
    """Eight codes x scale x 2^-7: registers of codes (0, 4), (1, 5), (2, 6), (3, 7). factors: 64 and 4."""
    upper = word >> Uint32(8)
    found = []
    for part in cutlass.range_constexpr(2):
        source = upper if cutlass.const_expr(part == 1) else word
        for mask, factor in zip((0x000F000F, 0x00F000F0), factors, strict=True):
            code = atoms.multiply_add(source & Uint32(mask), factor, 0x7E007E00)
            found.append(atoms.mul_bf16x2(code & Uint32(0x81C081C0), scale))
    return found


@cute.jit
def decode_e4m3(word: Uint32):
    """Four E4M3 values as two registers of bf16."""
    a, b = atoms.e4m3x2_to_f32(word & Uint32(0xFFFF))
    c, d = atoms.e4m3x2_to_f32(word >> Uint32(16))
    return atoms.pack_bf16x2(a, b), atoms.pack_bf16x2(c, d)


@cute.jit
def load_row(index_format: cutlass.Constexpr, codes: Int32, scales: Int32, row: cutlass.Constexpr, factors):
    """The 16 registers of a token `row` rows below the lane's own: two a step.

    codes, scales: shared addresses of the lane's share of its row 0. factors: see decode_e2m1.
    """
    found = []
    offset = row * row_bytes(index_format)
    if cutlass.const_expr(index_format == "nvfp4"):
        pair = scale_pairs(atoms.lds_u16(scales, row * 8))
        words = atoms.lds_u32x4(codes, offset)
        for m in cutlass.range_constexpr(4):
            found += decode_e2m1(words[m], pair[m // 2], factors)
    elif cutlass.const_expr(index_format == "fp8"):
        for half in cutlass.range_constexpr(2):
            words = atoms.lds_u32x4(codes, offset + half * 64)
            for m in cutlass.range_constexpr(4):
                found += decode_e4m3(words[m])
    else:
        for part in cutlass.range_constexpr(4):
            found += atoms.lds_u32x4(codes, offset + part * 64)
    return found


@cute.jit
def lane_offset(index_format: cutlass.Constexpr, lane: Int32) -> Int32:
    """Byte offset of the lane's share of its row 0 among 16 rows."""
    return (lane // 4) * row_bytes(index_format) + (lane % 4) * 16
