"""NVFP4 keys as E4M3 operands of the matrix product, by a table in LDS.

The table has a row of eight bytes for each of 256 scale bytes: the E4M3 of the scale times 0, 0.5, 1, 1.5, 2, 3, 4
and 6, rounded to nearest even and saturating at 448. A code's three lower bits choose the byte, its sign is the
byte's. A NaN scale gives NaN for every code, a negative scale negative values: as the reference has it.

Of a word of eight codes the even ones give one word of the operand and the odd ones the next, so queries stand in
that order too: dims 0, 2, 4, 6 and then 1, 3, 5, 7 of each eight.
"""

from __future__ import annotations

from msa_ops.flydsl.common import memory
from msa_ops.flydsl.common.control import when
from msa_ops.flydsl.common.intrinsics import (
    anew,
    call,
    clamp,
    flag,
    from_e4m3,
    instruction,
    pack,
    permute,
    raw,
    scalar_anew,
    unpack,
)

from msa_ops.build.flydsl_adapter import fx, ir, llvm, rocdl

MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
TABLE_BYTES = 2048
SCALES = 8192
"""Where a page's scales begin."""
ROW_BYTES = 64


HALF_ROWS = 512


def fill_table(lds, offset: int, thread, threads: int) -> None:
    """Threads write half rows; to be read after a barrier."""
    for begin in range(0, HALF_ROWS, threads):
        at = thread + fx.Int32(begin)
        if begin + threads > HALF_ROWS:
            when(at < fx.Int32(HALF_ROWS), lambda at=at: _fill_half_row(lds, offset, at))
        else:
            _fill_half_row(lds, offset, at)


def _fill_half_row(lds, offset: int, at) -> None:
    scale = from_e4m3(fx.Uint32(at >> fx.Int32(1)))
    upper = (at & fx.Int32(1)) > fx.Int32(0)
    word = fx.Uint32(0)
    for i in (0, 2):
        values = []
        for j in (i, i + 1):
            factor = upper.select(fx.Float32(MAGNITUDES[4 + j]), fx.Float32(MAGNITUDES[j]))
            values.append(clamp(scale * factor, fx.Float32(-448.0), fx.Float32(448.0)))
        word = call("llvm.amdgcn.cvt.pk.fp8.f32", fx.Uint32, *values, word, flag(i == 2))
    word = (scale == scale).select(word, fx.Uint32(0x7F7F7F7F))
    lds.store(at << fx.Int32(2), word, offset)


class PageLoader:
    """Loads of a page by parts, each one instruction with a scalar base.

    base: the page's address, the same in all lanes. code_offset, scale_offset: of the lane; `first` unless they are
    another loader's of the same pass of a loop.
    """

    def __init__(self, base, code_offset, scale_offset, first: bool = True) -> None:
        self.bases = [scalar_anew(base + fx.Int64(at)) for at in (0, 4096, SCALES)]
        # Made anew so that they are widened where they are used, as a part of the load.
        self.code_offset, self.scale_offset = (
            (anew(code_offset), anew(scale_offset)) if first else (code_offset, scale_offset)
        )

    def part(self, tile: int):
        """[four words of codes, a word with two scales] of the lane's key of tile 0 to 7."""
        codes = self._load(self.bases[tile // 4], self.code_offset, 1024 * (tile % 4), fx.Uint32, 4)
        half = self._load(self.bases[2], self.scale_offset, 128 * tile, fx.Uint16, 1)
        # The upper half of the word stays undefined, which saves clearing it.
        pair = ir.VectorType.get([2], fx.Uint16.ir_type)
        both = llvm.insertelement(llvm.mlir_undef(pair), raw(half), raw(fx.Int32(0)))
        return [codes, fx.Uint32(llvm.bitcast(fx.Uint32.ir_type, both))]

    def _load(self, base, lane_offset, constant: int, dtype, count: int):
        address = base + fx.Int64(fx.Uint64(fx.Uint32(lane_offset))) + fx.Int64(constant)
        return memory.load(address, dtype, count, streaming=True)


def _shifted(words, text: str):
    """Two words shifted as one of 64 bits: one instruction, and the bits that cross over are masked later."""
    pair = fx.Uint64(fx.Uint32(words[0])) | (fx.Uint64(fx.Uint32(words[1])) << fx.Uint64(32))
    found = llvm.inline_asm(fx.Uint64.ir_type, [raw(pair)], text, "=v,v", has_side_effects=False)
    value = fx.Uint64(found)
    return fx.Uint32(value), fx.Uint32(value >> fx.Uint64(32))


def _row(scales, byte: int):
    """Eight times a byte, in one instruction."""
    text = "v_lshlrev_b32_sdwa $0, $1, $2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD"
    return instruction(f"{text} src1_sel:BYTE_{byte}", "=v,v,v", fx.Int32, fx.Uint32(3), scales)


def load_rows(lds, table: int, scales):
    """The table's rows of two scale bytes."""
    return [lds.load(_row(scales, byte), fx.Uint32, 2, table) for byte in range(2)]


def decode(rows, words):
    """The eight words of the operand: 32 values of a key."""
    mask, sign = fx.Uint32(0x07070707), fx.Uint32(0x80808080)
    found = []
    for pair in range(2):
        low, high = rows[pair]
        both = words[2 * pair : 2 * pair + 2]
        right = _shifted(both, "v_lshrrev_b64 $0, 4, $1")
        left = _shifted(both, "v_lshlrev_b64 $0, 4, $1")
        for i in range(2):
            found.append(permute(high, low, both[i] & mask) ^ (left[i] & sign))
            found.append(permute(high, low, right[i] & mask) ^ (both[i] & sign))
    return found


def query_words(words):
    """Eight words of 32 E4M3 values of a query, in the order of `decode`."""
    found = []
    for i in range(0, 8, 2):
        found.append(permute(words[i + 1], words[i], fx.Uint32(0x06040200)))
        found.append(permute(words[i + 1], words[i], fx.Uint32(0x07050301)))
    return found


def multiply(keys, queries, sums):
    """sums + keys queries: 16 x 16 fp32, four a lane, of 16 keys and 16 columns over 128 dims.

    keys, queries: eight words a lane. Lane l holds key or column l % 16 and the dims of its quarter l // 16, and of
    the result column l % 16 of the keys 4 (l // 16) to 4 (l // 16) + 3.
    """
    kind = ir.VectorType.get([4], fx.Float32.ir_type)
    found = rocdl.mfma_scale_f32_16x16x128_f8f6f4(
        kind, [pack(keys, fx.Uint32), pack(queries, fx.Uint32), pack(sums, fx.Float32), 0, 0, 0, 0, 0, 0]
    )
    return unpack(found, 4, fx.Float32)
