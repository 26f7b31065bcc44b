"""NVFP4 keys as E4M3 operands of the matrix product, by a table in LDS.

The table has a row of eight bytes for each of 256 scale bytes: the E4M3 of the scale times 0, 0.5, 1, 1.5, 2, 3, 4
and 6, rounded to nearest even and saturating at 448. A code's three lower bits choose the byte, its sign is the
byte's. A NaN scale gives NaN for every code, a negative scale negative values: as the reference has it. So the rows of
negative scales are those of positive ones with all signs turned.

Of a word of eight codes the even ones give one word of the operand and the odd ones the next, so queries stand in
that order too: dims 0, 2, 4, 6 and then 1, 3, 5, 7 of each eight.
"""

from __future__ import annotations

from msa_ops.flydsl.common import memory
from msa_ops.flydsl.common.control import when
from msa_ops.flydsl.common.intrinsics import (
    call,
    flag,
    from_e4m3,
    instruction,
    minnum,
    pack,
    permute,
    raw,
    unpack,
)

from msa_ops.build.flydsl_adapter import fx, ir, llvm, rocdl

MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
TABLE_BYTES = 2048
SCALES = 8192
"""Where a page's scales begin."""
ROW_BYTES = 64
POSITIVE = 128
"""Scale bytes without a sign."""


def fill_table(lds, offset: int, thread, threads: int) -> None:
    """A thread writes the rows of a scale and of its negative; to be read after a barrier."""
    if threads < POSITIVE:
        raise ValueError(f"{threads} threads; accepted: {POSITIVE} and more")
    when(thread < fx.Int32(POSITIVE), lambda: _fill_rows(lds, offset, thread))


def _fill_rows(lds, offset: int, at) -> None:
    scale = from_e4m3(fx.Uint32(at))
    row = []
    for i in range(0, len(MAGNITUDES), 4):
        values = []
        for factor in MAGNITUDES[i : i + 4]:
            value = scale * fx.Float32(factor) if factor != 1.0 else scale
            # 448 is the most that a scale is.
            values.append(minnum(value, fx.Float32(448.0)) if factor > 1.0 else value)
        word = fx.Uint32(0)
        for j in (0, 2):
            word = call("llvm.amdgcn.cvt.pk.fp8.f32", fx.Uint32, values[j], values[j + 1], word, flag(j == 2))
        # Of what a NaN times 0 is, and a smaller number of NaN and 448.
        row.append((scale == scale).select(word, fx.Uint32(0x7F7F7F7F)))
    lds.store(at << fx.Int32(3), row, offset)
    lds.store(at << fx.Int32(3), [word ^ fx.Uint32(0x80808080) for word in row], offset + 8 * POSITIVE)


class PageOffsets:
    """Where a lane's parts of a page are: 64 bytes of codes and a byte a scale for each key, 16 keys a part."""

    def __init__(self, lane) -> None:
        key, quarter = lane & fx.Int32(15), lane >> fx.Int32(4)
        codes = (key << fx.Int32(6)) + (quarter << fx.Int32(4))
        scales = fx.Int32(SCALES) + (key << fx.Int32(3)) + (quarter << fx.Int32(1))
        self.values = [codes, codes + fx.Int32(4096), scales]


class PageLoader:
    """Loads of a page by parts, each one instruction.

    base: the page's address; exists: whether there is one, else its keys are 0. Both are the same in all lanes.
    offsets: those of PageOffsets, of which the compiler must not know that they are the same in each turn of a loop:
    then constants are added where they are used, as a part of the load.
    """

    def __init__(self, base, exists, offsets) -> None:
        self._page = memory.Buffer(base, exists.select(fx.Int32(SCALES + 1024), fx.Int32(0)))
        self._offsets = offsets

    def part(self, tile: int):
        """[four words of codes, a word with two scales] of the lane's key of tile 0 to 7."""
        codes = self._page.load(self._offsets[tile // 4] + fx.Int32(1024 * (tile % 4)), fx.Uint32, 4, streaming=True)
        half = self._page.load(self._offsets[2] + fx.Int32(128 * tile), fx.Uint16, streaming=True)
        # The upper half of the word stays undefined, which saves clearing it.
        pair = ir.VectorType.get([2], fx.Uint16.ir_type)
        both = llvm.insertelement(llvm.mlir_undef(pair), raw(half), raw(fx.Int32(0)))
        return [codes, fx.Uint32(llvm.bitcast(fx.Uint32.ir_type, both))]


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
    """Words of E4M3 values of a query, an even number, in the order of `decode`."""
    found = []
    for i in range(0, len(words), 2):
        found.append(permute(words[i + 1], words[i], fx.Uint32(0x06040200)))
        found.append(permute(words[i + 1], words[i], fx.Uint32(0x07050301)))
    return found


def multiply(keys, queries):
    """keys queries: 16 x 16 fp32, four a lane, of 16 keys and 16 columns over 128 dims.

    keys, queries: eight words a lane. Lane l holds key or column l % 16 and the dims of its quarter l // 16, and of
    the result column l % 16 of the keys 4 (l // 16) to 4 (l // 16) + 3.
    """
    kind = ir.VectorType.get([4], fx.Float32.ir_type)
    found = rocdl.mfma_scale_f32_16x16x128_f8f6f4(
        kind,
        [pack(keys, fx.Uint32), pack(queries, fx.Uint32), pack([fx.Float32(0.0)] * 4, fx.Float32), 0, 0, 0, 0, 0, 0],
    )
    return unpack(found, 4, fx.Float32)
