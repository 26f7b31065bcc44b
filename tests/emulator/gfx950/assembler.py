# ruff: noqa: E501 (assembler text)
"""A small assembler for gfx950, so that tests can say what they run: the syntax of LLVM, the instructions of the tests.

Its tables are its own: the decoder under test shares nothing with it.
"""

from __future__ import annotations

import re
import struct


def _numbers(text: str) -> dict[str, int]:
    words = text.split()
    return {name: int(number) for number, name in zip(words[::2], words[1::2], strict=True)}


SOP1 = _numbers("""0 s_mov_b32 1 s_mov_b64 4 s_not_b32 8 s_brev_b32 12 s_bcnt1_i32_b32 13 s_bcnt1_i32_b64
    16 s_ff1_i32_b32 18 s_flbit_i32_b32 22 s_sext_i32_i8 23 s_sext_i32_i16 32 s_and_saveexec_b64 33 s_or_saveexec_b64
    35 s_andn2_saveexec_b64 48 s_abs_i32""")
SOP2 = _numbers("""0 s_add_u32 1 s_sub_u32 2 s_add_i32 3 s_sub_i32 4 s_addc_u32 5 s_subb_u32 6 s_min_i32 7 s_min_u32
    8 s_max_i32 9 s_max_u32 10 s_cselect_b32 11 s_cselect_b64 12 s_and_b32 13 s_and_b64 14 s_or_b32 15 s_or_b64
    16 s_xor_b32 17 s_xor_b64 18 s_andn2_b32 19 s_andn2_b64 20 s_orn2_b32 22 s_nand_b32 24 s_nor_b32 26 s_xnor_b32
    28 s_lshl_b32 29 s_lshl_b64 30 s_lshr_b32 31 s_lshr_b64 32 s_ashr_i32 33 s_ashr_i64 34 s_bfm_b32 36 s_mul_i32
    37 s_bfe_u32 38 s_bfe_i32 42 s_absdiff_i32 44 s_mul_hi_u32 45 s_mul_hi_i32 46 s_lshl1_add_u32 47 s_lshl2_add_u32
    48 s_lshl3_add_u32 49 s_lshl4_add_u32 50 s_pack_ll_b32_b16 51 s_pack_lh_b32_b16 52 s_pack_hh_b32_b16""")
SOPC = _numbers("""0 s_cmp_eq_i32 1 s_cmp_lg_i32 2 s_cmp_gt_i32 3 s_cmp_ge_i32 4 s_cmp_lt_i32 5 s_cmp_le_i32
    6 s_cmp_eq_u32 7 s_cmp_lg_u32 8 s_cmp_gt_u32 9 s_cmp_ge_u32 10 s_cmp_lt_u32 11 s_cmp_le_u32 12 s_bitcmp0_b32
    13 s_bitcmp1_b32 18 s_cmp_eq_u64 19 s_cmp_lg_u64""")
SOPK = _numbers("0 s_movk_i32 14 s_addk_i32 15 s_mulk_i32 17 s_getreg_b32 18 s_setreg_b32")
SOPP = _numbers("""0 s_nop 1 s_endpgm 2 s_branch 4 s_cbranch_scc0 5 s_cbranch_scc1 6 s_cbranch_vccz 7 s_cbranch_vccnz
    8 s_cbranch_execz 9 s_cbranch_execnz 10 s_barrier 12 s_waitcnt 14 s_sleep 15 s_setprio""")
SMEM = _numbers("""0 s_load_dword 1 s_load_dwordx2 2 s_load_dwordx4 3 s_load_dwordx8 8 s_buffer_load_dword
    10 s_buffer_load_dwordx4""")
VOP1 = _numbers("""0 v_nop 1 v_mov_b32 2 v_readfirstlane_b32 3 v_cvt_i32_f64 4 v_cvt_f64_i32 5 v_cvt_f32_i32
    6 v_cvt_f32_u32 7 v_cvt_u32_f32 8 v_cvt_i32_f32 10 v_cvt_f16_f32 11 v_cvt_f32_f16 15 v_cvt_f32_f64 16 v_cvt_f64_f32
    17 v_cvt_f32_ubyte0 18 v_cvt_f32_ubyte1 19 v_cvt_f32_ubyte2 20 v_cvt_f32_ubyte3 27 v_fract_f32 28 v_trunc_f32
    29 v_ceil_f32 30 v_rndne_f32 31 v_floor_f32 32 v_exp_f32 33 v_log_f32 34 v_rcp_f32 36 v_rsq_f32 39 v_sqrt_f32
    41 v_sin_f32 42 v_cos_f32 43 v_not_b32 44 v_bfrev_b32 45 v_ffbh_u32 46 v_ffbl_b32 47 v_ffbh_i32
    51 v_frexp_exp_i32_f32 52 v_frexp_mant_f32 56 v_mov_b64 61 v_rcp_f16 62 v_sqrt_f16 68 v_floor_f16 71 v_rndne_f16
    81 v_swap_b32 82 v_accvgpr_mov_b32 84 v_cvt_f32_fp8 85 v_cvt_f32_bf8 86 v_cvt_pk_f32_fp8 87 v_cvt_pk_f32_bf8
    89 v_permlane16_swap_b32 90 v_permlane32_swap_b32 91 v_cvt_f32_bf16""")
VOP2 = _numbers("""0 v_cndmask_b32 1 v_add_f32 2 v_sub_f32 3 v_subrev_f32 5 v_mul_f32 6 v_mul_i32_i24 8 v_mul_u32_u24
    9 v_mul_hi_u32_u24 10 v_min_f32 11 v_max_f32 12 v_min_i32 13 v_max_i32 14 v_min_u32 15 v_max_u32 16 v_lshrrev_b32
    17 v_ashrrev_i32 18 v_lshlrev_b32 19 v_and_b32 20 v_or_b32 21 v_xor_b32 25 v_add_co_u32 26 v_sub_co_u32
    28 v_addc_co_u32 29 v_subb_co_u32 31 v_add_f16 32 v_sub_f16 34 v_mul_f16 38 v_add_u16 39 v_sub_u16 41 v_mul_lo_u16
    42 v_lshlrev_b16 43 v_lshrrev_b16 45 v_max_f16 46 v_min_f16 47 v_max_u16 48 v_max_i16 51 v_ldexp_f16 52 v_add_u32
    53 v_sub_u32 54 v_subrev_u32 59 v_fmac_f32 61 v_xnor_b32""")
VOP3 = _numbers("""450 v_mad_i32_i24 451 v_mad_u32_u24 456 v_bfe_u32 457 v_bfe_i32 458 v_bfi_b32 459 v_fma_f32
    460 v_fma_f64 462 v_alignbit_b32 463 v_alignbyte_b32 464 v_min3_f32 465 v_min3_i32 466 v_min3_u32 467 v_max3_f32
    468 v_max3_i32 469 v_max3_u32 470 v_med3_f32 471 v_med3_i32 472 v_med3_u32 473 v_sad_u8 478 v_div_fixup_f32
    480 v_div_scale_f32 482 v_div_fmas_f32 488 v_mad_u64_u32 489 v_mad_i64_i32 493 v_perm_b32 499 v_xad_u32
    509 v_lshl_add_u32 510 v_add_lshl_u32 511 v_add3_u32 512 v_lshl_or_b32 513 v_and_or_b32 514 v_or3_b32 518 v_fma_f16
    520 v_lshl_add_u64 564 v_bitop3_b32 565 v_cvt_scalef32_pk_fp8_f32 566 v_cvt_scalef32_pk_bf8_f32
    569 v_cvt_scalef32_pk_f32_fp8 573 v_cvt_scalef32_pk_fp4_f32 575 v_cvt_scalef32_pk_f32_fp4
    594 v_cvt_scalef32_2xpk16_fp6_f32 598 v_cvt_scalef32_pk32_f32_fp6 615 v_cvt_pk_f16_f32 616 v_cvt_pk_bf16_f32
    640 v_add_f64 641 v_mul_f64 645 v_mul_lo_u32 646 v_mul_hi_u32 647 v_mul_hi_i32 648 v_ldexp_f32 649 v_readlane_b32
    650 v_writelane_b32 651 v_bcnt_u32_b32 652 v_mbcnt_lo_u32_b32 653 v_mbcnt_hi_u32_b32 655 v_lshlrev_b64
    656 v_lshrrev_b64 657 v_ashrrev_i64 659 v_bfm_b32 662 v_cvt_pkrtz_f16_f32 672 v_pack_b32_f16 674 v_cvt_pk_fp8_f32
    675 v_cvt_pk_bf8_f32 680 v_minimum3_f32 681 v_maximum3_f32""")
VOP3P = _numbers("""2 v_pk_add_i16 10 v_pk_add_u16 14 v_pk_fma_f16 15 v_pk_add_f16 16 v_pk_mul_f16 17 v_pk_min_f16
    18 v_pk_max_f16 26 v_dot2_f32_bf16 35 v_dot2_f32_f16 32 v_mad_mix_f32 40 v_dot4_i32_i8 48 v_pk_fma_f32 49 v_pk_mul_f32 50 v_pk_add_f32
    51 v_pk_mov_b32""")
MFMA = _numbers("""45 v_mfma_f32_16x16x128_f8f6f4 46 v_mfma_f32_32x32x64_f8f6f4 53 v_mfma_f32_16x16x32_bf16
    54 v_mfma_i32_16x16x64_i8 55 v_mfma_f32_32x32x16_bf16 56 v_mfma_i32_32x32x32_i8 64 v_mfma_f32_32x32x1_2b_f32
    66 v_mfma_f32_4x4x1_16b_f32 80 v_mfma_i32_32x32x4_2b_i8
    82 v_mfma_i32_4x4x4_16b_i8 93 v_mfma_f32_32x32x4_2b_bf16 94 v_mfma_f32_16x16x4_4b_bf16 95 v_mfma_f32_4x4x4_16b_bf16
    68 v_mfma_f32_32x32x2_f32 69 v_mfma_f32_16x16x4_f32 73 v_mfma_f32_16x16x4_4b_f16
    74 v_mfma_f32_4x4x4_16b_f16 76 v_mfma_f32_32x32x8_f16 77 v_mfma_f32_16x16x16_f16 81 v_mfma_i32_16x16x4_4b_i8
    84 v_mfma_f32_16x16x32_f16 85 v_mfma_f32_32x32x16_f16 86 v_mfma_i32_32x32x16_i8 87 v_mfma_i32_16x16x32_i8
    96 v_mfma_f32_32x32x8_bf16 97 v_mfma_f32_16x16x16_bf16 110 v_mfma_f64_16x16x4_f64 112 v_mfma_f32_16x16x32_bf8_bf8
    113 v_mfma_f32_16x16x32_bf8_fp8 114 v_mfma_f32_16x16x32_fp8_bf8 115 v_mfma_f32_16x16x32_fp8_fp8
    119 v_mfma_f32_32x32x16_fp8_fp8""")
DS = _numbers("""0 ds_add_u32 8 ds_max_u32 13 ds_write_b32 14 ds_write2_b32 15 ds_write2st64_b32 30 ds_write_b8
    31 ds_write_b16 32 ds_add_rtn_u32 45 ds_wrxchg_rtn_b32 48 ds_cmpst_rtn_b32 53 ds_add_rtn_f32 54 ds_read_b32
    55 ds_read2_b32 56 ds_read2st64_b32 57 ds_read_i8 58 ds_read_u8 59 ds_read_i16 60 ds_read_u16 61 ds_swizzle_b32
    62 ds_permute_b32 63 ds_bpermute_b32 77 ds_write_b64 78 ds_write2_b64 91 ds_read_u16_d16_hi 96 ds_add_rtn_u64
    118 ds_read_b64 119 ds_read2_b64 222 ds_write_b96 223 ds_write_b128 224 ds_read_b64_tr_b4 225 ds_read_b96_tr_b6
    226 ds_read_b64_tr_b8 227 ds_read_b64_tr_b16 254 ds_read_b96 255 ds_read_b128""")
MEMORY = _numbers("""16 load_ubyte 17 load_sbyte 18 load_ushort 19 load_sshort 20 load_dword 21 load_dwordx2
    22 load_dwordx3 23 load_dwordx4 24 store_byte 26 store_short 28 store_dword 29 store_dwordx2 30 store_dwordx3
    31 store_dwordx4 36 load_short_d16 37 load_short_d16_hi 42 load_lds_dword 64 atomic_swap 65 atomic_cmpswap
    66 atomic_add 68 atomic_smin 71 atomic_umax 75 atomic_inc 77 atomic_add_f32 82 atomic_pk_add_bf16 98 atomic_add_x2
    125 load_lds_dwordx4""")
CACHE = {"buffer_wbl2": 40, "buffer_inv": 41}
COMPARES = {
    f"v_cmp_{name}_{kind}": base + i
    for base, kind, names in (
        *((base, kind, "f lt eq le gt lg ge o u nge nlg ngt nle neq nlt tru") for base, kind in ((0x40, "f32"), (0x20, "f16"), (0x60, "f64"))),
        *((base, kind, "f lt eq le gt ne ge t") for base, kind in ((0xC0, "i32"), (0xC8, "u32"), (0xE0, "i64"), (0xE8, "u64"), (0xA0, "i16"), (0xA8, "u16"))),
    )
    for i, name in enumerate(names.split())
} | {"v_cmp_class_f32": 0x10}  # fmt: skip
VOPC = COMPARES | {
    name.replace("v_cmp_", "v_cmpx_"): number + (1 if "class" in name else 16) for name, number in COMPARES.items()
}

SPECIAL = {"vcc": 106, "vcc_lo": 106, "vcc_hi": 107, "m0": 124, "exec": 126, "exec_lo": 126, "exec_hi": 127, "src_scc": 253, "off": 127}  # fmt: skip
FLOATS = {"0.5": 240, "-0.5": 241, "1.0": 242, "-1.0": 243, "2.0": 244, "-2.0": 245, "4.0": 246, "-4.0": 247}
SELECTS = {**{f"BYTE_{i}": i for i in range(4)}, "WORD_0": 4, "WORD_1": 5, "DWORD": 6}
UNUSED = {"UNUSED_PAD": 0, "UNUSED_SEXT": 1, "UNUSED_PRESERVE": 2}


class Operand:
    """A register, a constant or a literal, with its signs."""

    def __init__(self, text: str) -> None:
        self.negate = text.startswith("-") and text not in FLOATS and not re.fullmatch(r"-\d+", text)
        text = text[1:] if self.negate else text
        self.absolute = text.startswith("|")
        text = text.strip("|")
        self.literal: int | None = None
        self.accumulator = False
        found = re.fullmatch(r"([vsa])(?:(\d+)|\[(\d+):(\d+)\])", text)
        if found:
            first = int(found[2] or found[3])
            self.accumulator = found[1] == "a"
            self.code = first if found[1] == "s" else 256 + first
        elif text in SPECIAL:
            self.code = SPECIAL[text]
        elif text in FLOATS:
            self.code = FLOATS[text]
        else:
            value = int(text, 0)
            if 0 <= value <= 64:
                self.code = 128 + value
            elif -16 <= value < 0:
                self.code = 192 - value
            else:
                self.code = 255
                self.literal = value & 0xFFFFFFFF

    @property
    def register(self) -> int:
        return self.code & 0xFF


def _modifiers(text: str) -> tuple[list[str], dict[str, str]]:
    """Operands, and what stands behind them."""
    text = re.sub(r"\s*,\s*", ",", text.strip())
    operands, *rest = text.split(" ") if text else [""]
    return [part for part in operands.split(",") if part], {
        word.partition(":")[0]: word.partition(":")[2] or "1" for word in rest if word
    }


def _bits(text: str | None, count: int, default: int) -> list[int]:
    found = [int(part) for part in re.findall(r"\d", text)] if text else []
    return found + [default] * (count - len(found))


def _dpp(modifiers: dict[str, str]) -> int | None:
    for name, base in (("row_shl", 0x100), ("row_shr", 0x110), ("row_ror", 0x120), ("row_newbcast", 0x150)):
        if name in modifiers:
            return base + int(modifiers[name])
    if "quad_perm" in modifiers:
        return sum(lane << (2 * i) for i, lane in enumerate(_bits(modifiers["quad_perm"], 4, 0)))
    fixed = {"row_mirror": 0x140, "row_half_mirror": 0x141, "wave_shl": 0x130, "wave_shr": 0x138}
    if "row_bcast" in modifiers:
        return 0x142 if modifiers["row_bcast"] == "15" else 0x143
    return next((code for name, code in fixed.items() if name in modifiers), None)


class Assembler:
    def __init__(self) -> None:
        self.words: list[int] = []
        self.labels: dict[str, int] = {}
        self.places: list[int] = []  # of each instruction, in bytes
        self._jumps: list[tuple[int, str]] = []

    def add(self, line: str) -> None:
        line = re.split(r"//|;", line)[0].strip()
        if line.endswith(":"):
            self.labels[line[:-1]] = len(self.words)
            return
        if not line:
            return
        name, _, rest = line.partition(" ")
        self.places.append(4 * len(self.words))
        self._instruction(name, *_modifiers(rest))

    def finish(self) -> bytes:
        for at, label in self._jumps:
            self.words[at] |= (self.labels[label] - at - 1) & 0xFFFF
        return struct.pack(f"<{len(self.words)}I", *self.words)

    def _literal(self, *operands: Operand) -> None:
        self.words += [operand.literal for operand in operands if operand.literal is not None]

    def _instruction(self, name: str, texts: list[str], m: dict[str, str]) -> None:
        if name in SOPP:
            self._program(name, texts, m)
        elif name in SOP1:
            d, s = Operand(texts[0]), Operand(texts[1])
            self.words.append(0x17D << 23 | d.code << 16 | SOP1[name] << 8 | s.code)
            self._literal(s)
        elif name in SOP2:
            d, a, b = map(Operand, texts)
            self.words.append(2 << 30 | SOP2[name] << 23 | d.code << 16 | b.code << 8 | a.code)
            self._literal(a, b)
        elif name in SOPC:
            a, b = map(Operand, texts)
            self.words.append(0x17E << 23 | SOPC[name] << 16 | b.code << 8 | a.code)
            self._literal(a, b)
        elif name in SOPK:
            self.words.append(0xB << 28 | SOPK[name] << 23 | Operand(texts[0]).code << 16 | int(texts[1], 0) & 0xFFFF)
        elif name in SMEM:
            d, base, offset = Operand(texts[0]), Operand(texts[1]), texts[2]
            word = 0x30 << 26 | SMEM[name] << 18 | d.code << 6 | base.code >> 1
            if offset.startswith("s"):
                self.words += [word, Operand(offset).code]
            else:
                self.words += [word | 1 << 17, int(offset, 0) & 0x1FFFFF]
        elif name in DS:
            self._lds(name, texts, m)
        elif name == "s_dcache_inv":
            self.words += [0x30 << 26 | 32 << 18, 0]
        elif name in CACHE:
            scope = dict.fromkeys([*texts, *m])
            self.words += [0x38 << 26 | CACHE[name] << 18 | ("sc0" in scope) << 14 | ("sc1" in scope) << 15, 0]
        elif name.startswith("buffer_"):
            self._buffer(name, texts, m)
        elif name.partition("_")[0] in ("global", "flat", "scratch"):
            self._flat(name, texts, m)
        elif name.startswith(("v_mfma", "v_accvgpr_read", "v_accvgpr_write")):
            self._matrix(name, texts, m)
        elif name in VOP3P:
            self._packed(name, texts, m)
        else:
            self._vector(name, texts, m)

    def _program(self, name: str, texts: list[str], m: dict[str, str]) -> None:
        word = 0x17F << 23 | SOPP[name] << 16
        if name == "s_waitcnt":
            counts = {kind: int(value) for kind, value in re.findall(r"(\w+)\((\d+)\)", " ".join([*texts, *m]))}
            vector, lds = counts.get("vmcnt", 63), counts.get("lgkmcnt", 15)
            word |= vector & 15 | 7 << 4 | lds << 8 | vector >> 4 << 14
        elif "branch" in name:
            self._jumps.append((len(self.words), texts[0]))
        elif texts:
            word |= int(texts[0], 0) & 0xFFFF
        self.words.append(word)

    @staticmethod
    def _scope(m: dict[str, str], sc0: int, sc1: int) -> int:
        return ("sc0" in m) << sc0 | ("sc1" in m) << sc1 | ("nt" in m) << 17

    def _lds(self, name: str, texts: list[str], m: dict[str, str]) -> None:
        registers = list(map(Operand, texts))
        returns = "_rtn" in name or "read" in name or "permute" in name or "swizzle" in name
        d = registers.pop(0) if returns else None
        address, *data = registers
        offset = int(m.get("offset0", m.get("offset", "0")), 0) | int(m.get("offset1", "0"), 0) << 8
        acc = any(r.accumulator for r in [*data, *([d] if d else [])])
        self.words += [
            0x36 << 26 | acc << 25 | DS[name] << 17 | offset,
            address.register
            | (data[0].register if data else 0) << 8
            | (data[1].register if len(data) > 1 else 0) << 16
            | (d.register if d else 0) << 24,
        ]

    def _buffer(self, name: str, texts: list[str], m: dict[str, str]) -> None:
        registers = [Operand(text) for text in texts if text != "off"]
        to_lds = "lds" in m
        data = None if to_lds else registers.pop(0)
        address = registers.pop(0) if "offen" in m or "idxen" in m else None
        resource, offset = registers
        self.words += [
            0x38 << 26 | MEMORY[name.removeprefix("buffer_")] << 18 | to_lds << 16 | self._scope(m, 14, 15)
            | ("idxen" in m) << 13 | ("offen" in m) << 12 | int(m.get("offset", "0"), 0),
            (address.register if address else 0) | (data.register if data else 0) << 8 | resource.code // 4 << 16
            | (data.accumulator if data else 0) << 23 | offset.code << 24,
        ]  # fmt: skip

    def _flat(self, name: str, texts: list[str], m: dict[str, str]) -> None:
        segment, _, operation = name.partition("_")
        registers = list(texts)
        stores = operation.startswith("store") or (operation.startswith("atomic") and "sc0" not in m)
        lds = "lds" in operation
        d = Operand(registers.pop(0)) if not stores and not lds else None
        address = registers.pop(0)
        data = Operand(registers.pop(0)) if operation.startswith(("store", "atomic")) else None
        saddr = Operand(registers.pop(0)).code if registers else 127
        number = {"flat": 0, "scratch": 1, "global": 2}[segment]
        in_vector = address != "off"
        acc = bool((data and data.accumulator) or (d and d.accumulator))
        self.words += [
            0x37 << 26 | self._scope(m, 16, 25) | MEMORY[operation] << 18 | number << 14
            | (segment == "scratch" and in_vector) << 13 | int(m.get("offset", "0"), 0) & 0x1FFF,
            (Operand(address).register if in_vector else 0) | (data.register if data else 0) << 8
            | (0 if segment == "flat" else saddr) << 16 | acc << 23 | (d.register if d else 0) << 24,
        ]  # fmt: skip

    def _matrix(self, name: str, texts: list[str], m: dict[str, str]) -> None:
        if "accvgpr" in name:
            d, s = map(Operand, texts)
            self.words += [0x1A7 << 23 | (88 if "read" in name else 89) << 16 | 0x4000 | d.register, s.code | 3 << 27]
            if name.endswith("write_b32") or "write" in name:
                self.words[-1] = s.code | 3 << 27
            return
        scaled = name.startswith("v_mfma_scale_")
        name = name.replace("v_mfma_scale_", "v_mfma_")
        d, a, b, c, *scales = map(Operand, texts)
        if scaled:
            low, high = _bits(m.get("op_sel"), 2, 0), _bits(m.get("op_sel_hi"), 2, 0)
            self.words += [
                0x1A7 << 23 | 44 << 16 | low[0] << 11 | low[1] << 12 | c.absolute << 10,
                scales[0].code | scales[1].code << 9 | high[0] << 27 | high[1] << 28 | c.negate << 31,
            ]
        self.words += [
            0x1A7 << 23 | MFMA[name] << 16 | d.accumulator << 15 | (1 if scaled else int(m.get("abid", "0"))) << 11
            | int(m.get("cbsz", "0")) << 8 | d.register,
            a.code | b.code << 9 | c.code << 18 | a.accumulator << 27 | b.accumulator << 28
            | int(m.get("blgp", "0")) << 29,
        ]  # fmt: skip

    def _packed(self, name: str, texts: list[str], m: dict[str, str]) -> None:
        d, *s = map(Operand, texts)
        low, high = _bits(m.get("op_sel"), 3, 0), _bits(m.get("op_sel_hi"), 3, 1)
        neg_lo, neg_hi = _bits(m.get("neg_lo"), 3, 0), _bits(m.get("neg_hi"), 3, 0)
        word = 0x1A7 << 23 | VOP3P[name] << 16 | ("clamp" in m) << 15 | high[2] << 14 | d.register
        second = high[0] << 27 | high[1] << 28
        for i, operand in enumerate(s):
            word |= low[i] << (11 + i) | neg_hi[i] << (8 + i)
            second |= operand.code << (9 * i) | neg_lo[i] << (29 + i)
        self.words += [word, second]

    def _vector(self, name: str, texts: list[str], m: dict[str, str]) -> None:
        wanted = re.search(r"_(e32|e64|sdwa|dpp)$", name)
        base = name[: wanted.start()] if wanted else name
        kind = wanted[1] if wanted else None
        operands = list(map(Operand, texts))
        if base in VOP3:
            self._long(VOP3[base], base, operands, m)
        elif base in VOPC:
            if kind == "e64" or (kind is None and texts[0] != "vcc"):
                self._long(VOPC[base], base, operands, m)
            elif kind == "sdwa":
                _, a, b = operands
                self.words.append(0x3E << 25 | VOPC[base] << 17 | b.register << 9 | 249)
                self.words.append(
                    self._sdwa(a, b, m) & ~0xFF00 | (0 if texts[0] == "vcc" else 1 << 15 | operands[0].code << 8)
                )
            else:
                _, a, b = operands
                self.words.append(0x3E << 25 | VOPC[base] << 17 | b.register << 9 | a.code)
                self._literal(a)
        elif kind == "e64":
            self._long(VOP2[base] + 0x100 if base in VOP2 else VOP1[base] + 0x140, base, operands, m)
        elif base in VOP1:
            d, *rest = operands or [Operand("v0")]
            a = rest[0] if rest else Operand("s0")  # v_nop has none
            code = {"sdwa": 249, "dpp": 250}.get(kind or "", a.code)
            self.words.append(0x3F << 25 | d.register << 17 | VOP1[base] << 9 | code)
            self._tail(kind, a, None, m)
        else:
            d, *rest = operands
            if base.endswith("_co_u32"):
                rest = rest[1:]  # vcc
            a, b, *_ = rest
            code = {"sdwa": 249, "dpp": 250}.get(kind or "", a.code)
            self.words.append(VOP2[base] << 25 | d.register << 17 | b.register << 9 | code)
            self._tail(kind, a, b, m)

    def _tail(self, kind: str | None, a: Operand, b: Operand | None, m: dict[str, str]) -> None:
        if kind == "sdwa":
            self.words.append(self._sdwa(a, b, m))
        elif kind == "dpp":
            control = _dpp(m)
            assert control is not None
            self.words.append(
                a.register | control << 8 | ("bound_ctrl" in m) << 19 | a.negate << 20 | a.absolute << 21
                | int(m.get("bank_mask", "0xf"), 0) << 24 | int(m.get("row_mask", "0xf"), 0) << 28
            )  # fmt: skip
        else:
            self._literal(a)

    @staticmethod
    def _sdwa(a: Operand, b: Operand | None, m: dict[str, str]) -> int:
        return (
            a.register | SELECTS[m.get("dst_sel", "DWORD")] << 8 | UNUSED[m.get("dst_unused", "UNUSED_PAD")] << 11
            | SELECTS[m.get("src0_sel", "DWORD")] << 16 | a.negate << 20 | a.absolute << 21 | (a.code < 256) << 23
            | (SELECTS[m.get("src1_sel", "DWORD")] << 24 | b.negate << 28 | b.absolute << 29 | (b.code < 256) << 31 if b else 0)
        )  # fmt: skip

    def _long(self, number: int, name: str, operands: list[Operand], m: dict[str, str]) -> None:
        d, *s = operands
        word = 0x34 << 26 | number << 16 | ("clamp" in m) << 15 | (d.code & 0xFF)
        second = int({"2": 1, "4": 2}.get(m.get("mul", ""), 3 if "div" in m else 0)) << 27
        mask_result = name.endswith("_co_u32") or name in ("v_div_scale_f32", "v_mad_u64_u32", "v_mad_i64_i32")
        if mask_result:
            word |= s.pop(0).code << 8
        for i, bit in enumerate(_bits(m.get("op_sel"), 4, 0)):
            word |= 0 if mask_result else bit << (11 + i)
        if "op_sel" in m and len(re.findall(r"\d", m["op_sel"])) == len(s) + 1:  # the last one is the result's
            bits = _bits(m["op_sel"], 4, 0)
            word = (
                word & ~(15 << 11) | sum(bit << (11 + i) for i, bit in enumerate(bits[: len(s)])) | bits[len(s)] << 14
            )
        if name.startswith("v_bitop3"):
            table = int(m["bitop3"], 0)
            word |= (table >> 3 & 7) << 8
            second = table >> 6 << 27 | (table & 7) << 29
        for i, operand in enumerate(s):
            second |= operand.code << (9 * i) | operand.negate << (29 + i)
            word |= 0 if mask_result else operand.absolute << (8 + i)
        self.words += [word, second]


def assemble(text: str) -> bytes:
    made = Assembler()
    for line in text.splitlines():
        made.add(line)
    return made.finish()


def place_of(text: str, fragment: str) -> int:
    """Offset of the only instruction whose line holds the fragment."""
    made = Assembler()
    found = []
    for line in text.splitlines():
        before = len(made.places)
        made.add(line)
        if fragment in line:
            assert len(made.places) == before + 1, f"no instruction in the line of {fragment}"
            found.append(made.places[-1])
    (place,) = found
    return place
