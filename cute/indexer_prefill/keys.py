"""Index keys from pages in global memory to operands of matrix products in shared memory, exactly. Four warps.

NVFP4 and FP8 keys become fp16, bf16 keys stay what they are; NVFP4 keys are multiplied by 2^-14, which makes every
product of a code and its scale an fp16 number (common/half_pairs.py). Any assignment of dims to places in a row gives
the same dot products as long as the queries follow it (queries.py), so units of 16 bytes go where their stores do not
collide. The place of unit `u` of half `h` holds, in this order, the dims that `dims` says.
"""

from types import SimpleNamespace

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32
from msa_ops.cute.common import async_copy, half_pairs, memory, streaming
from msa_ops.cute.common.asm import asm
from msa_ops.cute.indexer_prefill.products import HALF_BYTES
from msa_ops.cute.indexer_prefill.sm90_configs import PAGE, ROW_BYTES

SCALES_AT = PAGE * ROW_BYTES["nvfp4"]


def first_dim(index_format: str, half: int, unit: int) -> int:
    """The lowest of the eight dims in a unit."""
    if index_format == "nvfp4":
        return unit // 2 * 32 + (2 * half + unit % 2) * 8
    if index_format == "fp8":
        return unit * 16 + half * 8
    return half * 64 + unit * 8


def place(warp: Int32, lane: Int32, index_format: str) -> SimpleNamespace:
    """Where a lane's share of a page begins, and where it goes in shared memory, in bytes."""
    if index_format == "nvfp4":  # a lane takes 32 codes of every eighth row of the warp's 32
        row, part = lane // 4, lane % 4
        base = warp * (32 * 128) + row * 128
        units = [base + ((2 * part + i) ^ row) * 16 for i in range(2)]
        first = warp * 32 + row
        return SimpleNamespace(codes=first * 64 + part * 16, scales=SCALES_AT + first * 8 + part * 2, units=units)
    if index_format == "fp8":  # 16 bytes of every fourth row of the warp's 32
        row, unit = lane // 8, lane % 8
        base = warp * (32 * 128) + row * 128
        units = [base + (unit ^ (row + 4 * i)) * 16 for i in range(2)]
        return SimpleNamespace(source=(warp * 32 + row) * 128 + unit * 16, units=units)
    row, unit = 2 * warp + lane // 16, lane % 16  # 16 bytes of every eighth row
    to = row * 128 + ((unit % 8) ^ row) * 16 + (unit // 8) * HALF_BYTES
    return SimpleNamespace(source=row * 256 + unit * 16, units=[to])


def multiply_add(a: Uint32, factor: Int32, addend: int) -> Uint32:
    """Integer a x factor + addend as one instruction of the multiplier."""
    return asm("mad.lo.u32 $0, $1, $2, $3;", [Uint32], [a, factor, Int32(addend)], pure=True)


def decode(word: Uint32, scale: Uint32, factors) -> list:
    """Eight E2M1 codes x scale x 2^-14: FP16 pairs of codes (0, 4), (1, 5), (2, 6), (3, 7).

    A code doubled in its byte has its magnitude at bits 1 to 3 and its sign at bit 4, which adding 0x70 carries into
    bit 7: the upper byte of an FP16 number (common/half_pairs.py). factors: 2 and 256, in registers, so that shifts
    run on the multiplier and not on the logic unit, which limits this code.
    """
    found = []
    for codes in (word & Uint32(0x0F0F0F0F), (word >> Uint32(4)) & Uint32(0x0F0F0F0F)):
        signed = multiply_add(codes, factors[0], 0x70707070)
        for half in (multiply_add(signed, factors[1], 0), signed):
            found.append(half_pairs.mul_f16x2(half & Uint32(0x8E008E00), scale))
    return [found[0], found[2], found[1], found[3]]


@cute.jit
def load(index_format: cutlass.Constexpr, page: Int64, p, words, scales):
    """Asks for a lane's share of the page at that address; not for bf16."""
    if cutlass.const_expr(index_format == "nvfp4"):
        for i in cutlass.range_constexpr(4):
            scales[i] = streaming.load_u16(page + Int64(p.scales + i * 64))
            four = streaming.load_once_128(page + Int64(p.codes + i * 512))
            for j in cutlass.range_constexpr(4):
                words[4 * i + j] = four[j]
    else:
        for i in cutlass.range_constexpr(8):
            four = streaming.load_once_128(page + Int64(p.source + i * 512))
            for j in cutlass.range_constexpr(4):
                words[4 * i + j] = four[j]


@cute.jit
def store(index_format: cutlass.Constexpr, stage: Int32, p, words, scales, factors):
    """Decodes a lane's share into a stage."""
    if cutlass.const_expr(index_format == "nvfp4"):
        for i in cutlass.range_constexpr(4):
            pair = half_pairs.e4m3x2_to_f16x2(scales[i])
            both = (half_pairs.both_low(pair), half_pairs.both_high(pair))
            for w in cutlass.range_constexpr(4):
                found = decode(words[4 * i + w], both[w // 2], factors)
                memory.store_shared_128(stage + p.units[w % 2] + (i * 1024 + w // 2 * HALF_BYTES), *found)
    else:
        for i in cutlass.range_constexpr(8):
            for half in cutlass.range_constexpr(2):
                found = (
                    *half_pairs.e4m3x4_to_f16x2(words[4 * i + 2 * half]),
                    *half_pairs.e4m3x4_to_f16x2(words[4 * i + 2 * half + 1]),
                )
                memory.store_shared_128(stage + p.units[i % 2] + (i * 512 + half * HALF_BYTES), *found)


def copy(stage: Int32, page: Int64, p) -> None:
    """Starts the copy of a lane's share of a page of bf16 keys."""
    for i in range(16):
        async_copy.copy_16(stage + p.units[0] + i * 1024, page + Int64(p.source + i * 2048))
