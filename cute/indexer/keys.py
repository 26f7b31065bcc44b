"""Index keys of 16 tokens from a page in shared memory to operands of matrix products, exactly.

A warp's lane 4 g + t holds, for tokens g and g + 8 of the 16, 32 of the 128 dims, four in each of eight steps. Any
assignment of dims to lanes and steps gives the same dot product as long as the queries follow it (queries.py), so each
lane takes what it can load in 16-byte words.

NVFP4 and FP8 keys become fp16, bf16 keys stay what they are. E2M1 codes become fp16 by integer arithmetic, two at a
time: a code moved in its half of the word so that its three magnitude bits are at bits 9 to 11 is an fp16 number of the
code's value x 2^-14 (also for 0.5, then a subnormal), and adding 0x7000 carries the sign at bit 12 into bit 15. The
product with the scale is key x 2^-14: a multiple of 2^-24 with at most 6 significant bits, so fp16 holds it exactly.

The instructions that shift (and add) take their factors from registers whose values the compiler cannot know: they
then run on the multiplier, which is idle, and not on the logic unit, which limits this code.
"""

import cutlass.cute as cute
from cutlass import Int32, Uint32
from msa_ops.cute.indexer import atoms

STEPS = 8


def operand_kind(index_format: str) -> str:
    """Type of the matrix products' operands."""
    return "bf16" if index_format == "bf16" else "f16"


def row_bytes(index_format: str) -> int:
    """Bytes of a token's elements."""
    return {"nvfp4": 64, "fp8": 128, "bf16": 256}[index_format]


def factors_of(code_factor: Int32, count: int):
    """Factors of `decode_e2m1` from 256, which the compiler does not know; the fewer the fewer registers it takes."""
    return (code_factor >> 7, code_factor) if count == 2 else (code_factor >> 7, code_factor >> 3, code_factor << 1)


def decode_e2m1(word: Uint32, scale: Uint32, factors):
    """Eight codes x scale x 2^-14: registers of codes (0, 4), (1, 5), (2, 6), (3, 7).

    factors: 2, 32 and 512, or 2 and 256 with one instruction more.
    """
    mask = 0x8E008E00
    if len(factors) == 3:
        even, odd, carry = word & Uint32(0x0F0F0F0F), word & Uint32(0xF0F0F0F0), 0x70007000
        found = (
            atoms.multiply_add(even, factors[2], carry) & Uint32(mask),
            atoms.multiply_add(odd, factors[1], carry) & Uint32(mask),
            atoms.multiply_add(even, factors[0], carry) & Uint32(mask),
            atoms.bits_of_either(odd, odd >> Uint32(3), mask),
        )
        return tuple(atoms.mul_f16x2(codes, scale) for codes in found)
    pairs = []
    for codes in (word & Uint32(0x0F0F0F0F), (word >> Uint32(4)) & Uint32(0x0F0F0F0F)):
        signed = atoms.multiply_add(codes, factors[0], 0x70707070)
        for half in (atoms.multiply_add(signed, factors[1], 0), signed):
            pairs.append(atoms.mul_f16x2(half & Uint32(mask), scale))
    return pairs[0], pairs[2], pairs[1], pairs[3]


def load_row(index_format: str, codes: Int32, scales: Int32, row: int, factors):
    """The 16 registers of a token `row` rows below the lane's own: two a step.

    codes, scales: shared addresses of the lane's share of its row 0. factors: see decode_e2m1.
    """
    found = []
    offset = row * row_bytes(index_format)
    if index_format == "nvfp4":
        pair = atoms.e4m3x2_to_f16x2(atoms.lds_u16(scales, row * 8))
        words = atoms.lds_u32x4(codes, offset)
        for m in range(4):
            found += decode_e2m1(words[m], atoms.both_f16(pair, m // 2), factors)
    elif index_format == "fp8":
        for half in range(2):
            for word in atoms.lds_u32x4(codes, offset + half * 64):
                found += atoms.e4m3x4_to_f16x4(word)
    else:
        for part in range(4):
            found += atoms.lds_u32x4(codes, offset + part * 64)
    return found


def lane_offset(index_format: str, lane: Int32) -> Int32:
    """Byte offset of the lane's share of its row 0 among 16 rows."""
    return (lane // 4) * row_bytes(index_format) + (lane % 4) * 16


@cute.jit
def e4m3_to_bf16(word: Uint32):
    """Four E4M3 values as two registers of bf16."""
    a, b = atoms.e4m3x2_to_f32(word & Uint32(0xFFFF))
    c, d = atoms.e4m3x2_to_f32(word >> Uint32(16))
    return atoms.pack_bf16x2(a, b), atoms.pack_bf16x2(c, d)
