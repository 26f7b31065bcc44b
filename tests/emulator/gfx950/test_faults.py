# ruff: noqa: E501 (assembler text)
"""Planted mistakes are found with kind and place; beside each stands a correct twin that runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault
from tests.emulator.gfx950.assembler import place_of
from tests.emulator.gfx950.code_object import run

START = """s_load_dwordx4 s[8:11], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
s_mov_b32 s12, s8
s_mov_b32 s13, s9
s_mov_b32 s14, 0x200
s_mov_b32 s15, 0x20000
"""
"""s[8:9] and s[10:11] address two arrays of 128 dwords, s[12:15] is the first as a buffer; v1 is 4 times the work-item."""
STORE = "\ns_waitcnt vmcnt(0) lgkmcnt(0)\ns_nop 7\ns_nop 7\ns_nop 7\nglobal_store_dword v1, v4, s[10:11]\ns_endpgm"
ONES = "\n".join(f"v_mov_b32 v{i}, 1.0" for i in range(8, 24)) + "\ns_nop 1\n"


@dataclass(frozen=True)
class Case:
    kind: str
    wrong: str  # the line at fault holds "// here"
    right: str
    lane: int | None = None
    warp: int = 0
    threads: int = 128
    blocks: int = 1
    store: bool = True


WRITE_LDS = "ds_write_b32 v1, v0\n"
READ_FIRST_HALF = """v_and_b32 v2, 0xff, v1
s_waitcnt lgkmcnt(0)
s_barrier
ds_read_b32 v4, v2
s_waitcnt lgkmcnt(0)
v_cmp_lt_u32 vcc, 63, v0
s_nop 1
s_and_saveexec_b64 s[4:5], vcc
"""
"""Both waves read what the first one wrote; lanes of the second stay on."""
GONE_LANES = """v_cmp_gt_u32 vcc, 37, v0
s_and_saveexec_b64 s[4:5], vcc
v_cmp_gt_u32 vcc, 9, v0
s_andn2_b64 s[12:13], s[40:41], exec
s_and_b64 s[14:15], vcc, exec
s_or_b64 s[40:41], s[12:13], s[14:15]
"""
CASES = {
    "vector_register": Case(
        "uninitialized register",
        wrong="v_add_u32 v4, 1, v5 // here",
        right="v_mov_b32 v5, 1\nv_add_u32 v4, 1, v5",
        lane=0,
    ),
    "vector_register_of_some_lanes": Case(
        "uninitialized register",
        wrong="v_cmp_gt_u32 vcc, 37, v0\ns_and_saveexec_b64 s[4:5], vcc\nv_mov_b32 v5, 1\ns_mov_b64 exec, s[4:5]\nv_add_u32 v4, 1, v5 // here",
        right="v_mov_b32 v5, 0\nv_cmp_gt_u32 vcc, 37, v0\ns_and_saveexec_b64 s[4:5], vcc\nv_mov_b32 v5, 1\ns_mov_b64 exec, s[4:5]\nv_add_u32 v4, 1, v5",
        lane=37,
    ),
    "half_of_a_register": Case(
        "uninitialized register",
        wrong="v_cvt_pk_fp8_f32 v4, 1.0, 2.0\nglobal_store_dword v1, v4, s[10:11] // here\ns_endpgm",
        right="v_cvt_pk_fp8_f32 v4, 1.0, 2.0\nv_cvt_pk_fp8_f32 v4, 1.0, 2.0 op_sel:[0,0,1]",
        lane=0,
    ),
    "scalar_register": Case(
        "uninitialized register",
        wrong="s_add_u32 s4, s40, 1 // here\nv_mov_b32 v4, s4",
        right="s_mov_b32 s40, 5\ns_add_u32 s4, s40, 1\nv_mov_b32 v4, s4",
    ),
    # A condition of the lanes that have gone is kept beside that of the others; at first it has no value.
    "condition_of_some_lanes": Case(
        "uninitialized register",
        wrong=GONE_LANES + "s_mov_b64 exec, s[4:5]\nv_cndmask_b32_e64 v4, 0, 1, s[40:41] // here",
        right=GONE_LANES + "v_cndmask_b32_e64 v4, 0, 1, s[40:41]\ns_mov_b64 exec, s[4:5]\nv_mov_b32 v4, 0",
    ),
    "condition_that_becomes_exec": Case(
        "uninitialized register",
        wrong=GONE_LANES + "s_and_b64 s[6:7], s[40:41], s[4:5]\ns_mov_b64 exec, s[6:7] // here\nv_mov_b32 v4, 0",
        right=GONE_LANES + "s_and_b64 exec, s[40:41], exec\ns_mov_b64 exec, s[4:5]\nv_mov_b32 v4, 0",
    ),
    "scc": Case(
        "uninitialized register",
        wrong="s_cselect_b32 s4, 1, 2 // here\nv_mov_b32 v4, s4",
        right="s_cmp_eq_u32 s2, 0\ns_cselect_b32 s4, 1, 2\nv_mov_b32 v4, s4",
    ),
    "accumulator": Case(
        "uninitialized register",
        wrong="v_accvgpr_read_b32 v4, a7 // here",
        right="v_accvgpr_write_b32 a7, 1\nv_accvgpr_read_b32 v4, a7",
        lane=0,
    ),
    "matrix_operand": Case(
        "uninitialized register",
        wrong=ONES + "v_mfma_f32_16x16x4_f32 v[4:7], v8, v30, 0 // here",
        right=ONES + "v_mfma_f32_16x16x4_f32 v[4:7], v8, v9, 0",
        lane=0,
    ),
    "address": Case(
        "uninitialized register",
        wrong="global_load_dword v4, v30, s[8:9] // here",
        right="global_load_dword v4, v1, s[8:9]",
        lane=0,
    ),
    "vmcnt": Case(
        "missing wait",
        wrong="global_load_dword v5, v1, s[8:9]\nv_add_u32 v4, 1, v5 // here",
        right="global_load_dword v5, v1, s[8:9]\ns_waitcnt vmcnt(0)\nv_add_u32 v4, 1, v5",
        lane=0,
    ),
    "vmcnt_too_many": Case(
        "missing wait",
        wrong="global_load_dword v5, v1, s[8:9]\nglobal_load_dword v6, v1, s[8:9]\ns_waitcnt vmcnt(1)\nv_add_u32 v4, v5, v6 // here",
        right="global_load_dword v5, v1, s[8:9]\nglobal_load_dword v6, v1, s[8:9]\ns_waitcnt vmcnt(0)\nv_add_u32 v4, v5, v6",
        lane=0,
    ),
    "vmcnt_overwritten": Case(
        "missing wait",
        wrong="global_load_dword v4, v1, s[8:9]\nv_mov_b32 v4, 1 // here",
        right="global_load_dword v4, v1, s[8:9]\ns_waitcnt vmcnt(0)\nv_mov_b32 v4, 1",
        lane=0,
    ),
    "lgkmcnt_of_the_lds": Case(
        "missing wait",
        wrong=WRITE_LDS + "ds_read_b32 v5, v1\nv_add_u32 v4, 1, v5 // here",
        right=WRITE_LDS + "ds_read_b32 v5, v1\ns_waitcnt lgkmcnt(0)\nv_add_u32 v4, 1, v5",
        lane=0,
    ),
    "lgkmcnt_of_a_scalar_load": Case(
        "missing wait",
        wrong="s_load_dword s20, s[8:9], 0x0\nv_mov_b32 v4, s20 // here",
        right="s_load_dword s20, s[8:9], 0x0\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v4, s20",
    ),
    "scalar_loads_come_in_any_order": Case(
        "missing wait",
        wrong="s_load_dword s20, s[8:9], 0x0\ns_load_dword s21, s[8:9], 0x4\ns_waitcnt lgkmcnt(1)\nv_mov_b32 v4, s20 // here",
        right="s_load_dword s20, s[8:9], 0x0\ns_load_dword s21, s[8:9], 0x4\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v4, s20",
    ),
    "load_to_the_lds": Case(
        "missing wait",
        wrong="s_mov_b32 m0, 0\ns_nop 0\nbuffer_load_dword v1, s[12:15], 0 offen lds\nds_read_b32 v4, v1 // here",
        right="s_mov_b32 m0, 0\ns_nop 0\nbuffer_load_dword v1, s[12:15], 0 offen lds\ns_waitcnt vmcnt(0)\nds_read_b32 v4, v1",
        lane=0,
        threads=64,
    ),
    "lds_loaded_twice": Case(
        "missing wait",
        wrong="s_mov_b32 m0, 0\ns_nop 0\nbuffer_load_dword v1, s[12:15], 0 offen lds\nds_write_b32 v1, v0 // here\nv_mov_b32 v4, 0",
        right="s_mov_b32 m0, 0\ns_nop 0\nbuffer_load_dword v1, s[12:15], 0 offen lds\nbuffer_load_dword v1, s[12:15], 0 offen lds\ns_waitcnt vmcnt(0)\nds_read_b32 v4, v1",
        lane=0,
        threads=64,
    ),
    "lds_never_written": Case(
        "uninitialized shared memory",
        wrong="ds_read_b32 v4, v1 // here",
        right=WRITE_LDS + "ds_read_b32 v4, v1",
        lane=0,
    ),
    "lds_written_in_part": Case(
        "uninitialized shared memory",
        wrong="ds_write_b16 v1, v0\nds_read_b32 v4, v1 // here",
        right="ds_write_b16 v1, v0\nds_write_b16 v1, v0 offset:2\nds_read_b32 v4, v1",
        lane=0,
    ),
    "lds_outside": Case(
        "out of bounds",
        wrong="v_add_u32 v2, 0xff0, v1\nds_write_b32 v2, v0 // here\nv_mov_b32 v4, 0",
        right="v_add_u32 v2, 0xe00, v1\nds_write_b32 v2, v0\nv_mov_b32 v4, 0",
        lane=4,
    ),
    "lds_misaligned": Case(
        "misaligned",
        wrong="ds_write_b32 v1, v0 offset:2 // here\nv_mov_b32 v4, 0",
        right="ds_write_b32 v1, v0 offset:4\nv_mov_b32 v4, 0",
        lane=0,
    ),
    "no_barrier_before_reading": Case(
        "race",
        wrong=WRITE_LDS + "v_and_b32 v2, 0xff, v1\ns_waitcnt lgkmcnt(0)\nds_read_b32 v4, v2 // here",
        right=WRITE_LDS + "v_and_b32 v2, 0xff, v1\ns_waitcnt lgkmcnt(0)\ns_barrier\nds_read_b32 v4, v2",
        lane=0,
        warp=1,
    ),
    "no_barrier_before_writing_again": Case(
        "race",
        wrong=WRITE_LDS + READ_FIRST_HALF + "ds_write_b32 v2, v1 // here\ns_mov_b64 exec, s[4:5]",
        right=WRITE_LDS + READ_FIRST_HALF + "s_barrier\nds_write_b32 v2, v1\ns_mov_b64 exec, s[4:5]",
        lane=0,
        warp=1,
    ),
    "no_wait_before_the_barrier": Case(
        "race",
        wrong=WRITE_LDS + "v_xor_b32 v2, 0x100, v1\ns_barrier\nds_read_b32 v4, v2 // here",
        right=WRITE_LDS + "v_xor_b32 v2, 0x100, v1\ns_waitcnt lgkmcnt(0)\ns_barrier\nds_read_b32 v4, v2",
    ),
    "load_to_the_lds_of_another_wave": Case(
        "race",
        wrong="v_readfirstlane_b32 s20, v1\ns_mov_b32 m0, s20\ns_nop 4\nbuffer_load_dword v1, s[12:15], 0 offen lds\nv_xor_b32 v2, 0x100, v1\ns_barrier\nds_read_b32 v4, v2 // here",
        right="v_readfirstlane_b32 s20, v1\ns_mov_b32 m0, s20\ns_nop 4\nbuffer_load_dword v1, s[12:15], 0 offen lds\nv_xor_b32 v2, 0x100, v1\ns_waitcnt vmcnt(0)\ns_barrier\nds_read_b32 v4, v2",
        lane=0,
    ),
    "loads_of_two_waves_to_one_place": Case(
        "race",
        wrong="s_mov_b32 m0, 0\ns_nop 4\nbuffer_load_dword v1, s[12:15], 0 offen lds // here\nv_and_b32 v2, 0xff, v1\ns_waitcnt vmcnt(0)\ns_barrier\nds_read_b32 v4, v2",
        right="s_mov_b32 m0, 0\ns_nop 4\nv_and_b32 v2, 0xff, v1\nbuffer_load_dword v2, s[12:15], 0 offen lds\ns_waitcnt vmcnt(0)\ns_barrier\nds_read_b32 v4, v2",
    ),
    "global_end": Case(
        "out of bounds",
        wrong="global_load_dword v4, v1, s[8:9] offset:4 // here",
        right="global_load_dword v4, v1, s[8:9]",
        lane=63,
        warp=1,
    ),
    "global_start": Case(
        "out of bounds",
        wrong="v_mov_b32 v4, 0\nglobal_store_dword v1, v4, s[8:9] offset:-4 // here",
        right="v_mov_b32 v4, 0\nglobal_store_dword v1, v4, s[8:9]",
        lane=0,
    ),
    "buffer_larger_than_its_memory": Case(
        "out of bounds",
        wrong="s_mov_b32 s14, 0x204\nbuffer_load_dword v4, v1, s[12:15], 0 offen offset:4 // here",
        right="buffer_load_dword v4, v1, s[12:15], 0 offen offset:4",
        lane=63,
        warp=1,
    ),
    "scratch_outside": Case(
        "out of bounds",
        wrong="v_mov_b32 v4, 0\nscratch_store_dword off, v4, off offset:16 // here",
        right="v_mov_b32 v4, 0\nscratch_store_dword off, v4, off offset:12",
        lane=0,
    ),
    "matrix_result_used_at_once": Case(
        "wait states",
        wrong=ONES + "v_mfma_f32_16x16x4_f32 v[4:7], v8, v9, 0\nv_add_f32 v4, v4, v5 // here",
        right=ONES + "v_mfma_f32_16x16x4_f32 v[4:7], v8, v9, 0\ns_nop 7\ns_nop 1\nv_add_f32 v4, v4, v5",
    ),
    "matrix_result_one_state_too_early": Case(
        "wait states",
        wrong=ONES + "v_mfma_f32_16x16x32_fp8_fp8 v[4:7], v[8:9], v[10:11], 0\ns_nop 6\nv_add_f32 v4, v4, v5 // here",
        right=ONES + "v_mfma_f32_16x16x32_fp8_fp8 v[4:7], v[8:9], v[10:11], 0\ns_nop 7\nv_add_f32 v4, v4, v5",
    ),
    "matrix_result_as_an_operand": Case(
        "wait states",
        wrong=ONES + "v_mfma_f32_16x16x32_fp8_fp8 v[4:7], v[8:9], v[10:11], 0\nv_mfma_f32_16x16x32_fp8_fp8 v[12:15], v[4:5], v[10:11], 0 // here",
        right=ONES + "v_mfma_f32_16x16x32_fp8_fp8 v[4:7], v[8:9], v[10:11], 0\nv_mfma_f32_16x16x32_fp8_fp8 v[4:7], v[8:9], v[10:11], v[4:7]",
    ),
    "accumulator_in_part": Case(
        "wait states",
        wrong=ONES + "v_mov_b32 v12, 1.0\nv_mov_b32 v13, 1.0\nv_mfma_f32_16x16x32_fp8_fp8 v[4:7], v[8:9], v[10:11], 0\nv_mfma_f32_16x16x32_fp8_fp8 v[16:19], v[8:9], v[10:11], v[6:9] // here",
        right=ONES + "v_mfma_f32_16x16x32_fp8_fp8 v[4:7], v[8:9], v[10:11], 0\nv_mfma_f32_16x16x32_fp8_fp8 v[16:19], v[8:9], v[10:11], v[4:7]",
    ),
    "swap_after_a_write": Case(
        "wait states",
        wrong="v_mov_b32 v4, v0\nv_mov_b32 v5, v0\nv_permlane32_swap_b32 v4, v5 // here",
        right="v_mov_b32 v4, v0\nv_mov_b32 v5, v0\ns_nop 1\nv_permlane32_swap_b32 v4, v5",
    ),
    "constant_of_a_comparison": Case(
        "wait states",
        wrong="v_cmp_gt_u32 vcc, 5, v0\ns_nop 0\nv_add_u32 v4, vcc_lo, v0 // here",
        right="v_cmp_gt_u32 vcc, 5, v0\nv_cndmask_b32 v4, v0, v1, vcc",
    ),
    "value_missing_in_the_lds": Case(
        "uninitialized shared memory",
        wrong="ds_write_b32 v1, v5\nds_read_b32 v4, v1 // here\ns_waitcnt lgkmcnt(0)\nglobal_store_dword v1, v4, s[10:11]",
        right="v_mov_b32 v4, 1\nds_write_b32 v1, v5\nds_read_b32 v6, v1\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v6, v6",
        lane=0,
    ),
    "upper_half_of_a_sum": Case(
        "uninitialized register",
        wrong="v_mov_b32 v6, 3\nv_mad_u64_u32 v[4:5], s[20:21], v0, v0, v[6:7] // here\nglobal_store_dwordx2 v1, v[4:5], s[10:11]\ns_endpgm",
        right="v_mov_b32 v6, 3\nv_mad_u64_u32 v[4:5], s[20:21], v0, v0, v[6:7]",
        lane=0,
    ),
    "transcendental": Case(
        "wait states",
        wrong="v_rcp_f32 v5, 2.0\nv_add_f32 v4, v5, v5 // here",
        right="v_rcp_f32 v5, 2.0\ns_nop 0\nv_add_f32 v4, v5, v5",
    ),
    "lanes_moved_after_a_write": Case(
        "wait states",
        wrong="v_mov_b32 v5, v0\nv_mov_b32_dpp v4, v5 row_ror:1 // here",
        right="v_mov_b32 v5, v0\ns_nop 1\nv_mov_b32_dpp v4, v5 row_ror:1",
    ),
    "address_from_a_lane": Case(
        "wait states",
        wrong="v_readfirstlane_b32 s20, v0\nbuffer_load_dword v4, v1, s[12:15], s20 offen // here",
        right="v_readfirstlane_b32 s20, v0\ns_nop 4\nbuffer_load_dword v4, v1, s[12:15], s20 offen",
        threads=64,
    ),
    "lane_read_after_a_write": Case(
        "wait states",
        wrong="v_mov_b32 v5, v0\nv_readlane_b32 s20, v5, 3 // here\nv_mov_b32 v4, s20",
        right="v_mov_b32 v5, v0\ns_nop 0\nv_readlane_b32 s20, v5, 3\ns_nop 1\nv_mov_b32 v4, s20",
    ),
    "lane_chosen_by_a_vector_instruction": Case(
        "wait states",
        wrong="v_readfirstlane_b32 s20, v0\ns_nop 2\nv_readlane_b32 s21, v0, s20 // here\nv_mov_b32 v4, s21",
        right="v_readfirstlane_b32 s20, v0\ns_and_b32 s20, s20, 63\ns_nop 2\nv_readlane_b32 s21, v0, s20\ns_nop 1\nv_mov_b32 v4, s21",
    ),
    "condition_of_div_fmas": Case(
        "wait states",
        wrong="v_mov_b32 v5, 1.0\nv_cmp_gt_u32 vcc, 5, v0\ns_nop 2\nv_div_fmas_f32 v4, v5, v5, v5 // here",
        right="v_mov_b32 v5, 1.0\nv_cmp_gt_u32 vcc, 5, v0\ns_nop 3\nv_div_fmas_f32 v4, v5, v5, v5",
    ),
    "lanes_moved_after_exec": Case(
        "wait states",
        wrong="v_mov_b32 v4, v0\nv_mov_b32 v5, v0\nv_cmpx_gt_u32 vcc, 64, v0\ns_nop 3\nv_mov_b32_dpp v4, v5 row_ror:1 // here",
        right="v_mov_b32 v4, v0\nv_mov_b32 v5, v0\nv_cmpx_gt_u32 vcc, 64, v0\ns_nop 4\nv_mov_b32_dpp v4, v5 row_ror:1",
        threads=64,
    ),
    "first_lane_after_exec": Case(
        "wait states",
        wrong="v_cmpx_lt_u32 vcc, 3, v0\ns_nop 2\nv_readfirstlane_b32 s20, v0 // here\nv_mov_b32 v4, s20",
        right="v_cmpx_lt_u32 vcc, 3, v0\ns_nop 3\nv_readfirstlane_b32 s20, v0\ns_nop 1\nv_mov_b32 v4, s20",
    ),
    "swap_after_exec": Case(
        "wait states",
        wrong="v_mov_b32 v4, v0\nv_mov_b32 v5, v0\nv_cmpx_gt_u32 vcc, 64, v0\ns_nop 2\nv_permlane32_swap_b32 v4, v5 // here",
        right="v_mov_b32 v4, v0\nv_mov_b32 v5, v0\nv_cmpx_gt_u32 vcc, 64, v0\ns_nop 3\nv_permlane32_swap_b32 v4, v5",
        threads=64,
    ),
    "matrix_instruction_after_exec": Case(
        "wait states",
        wrong=ONES + "v_cmpx_gt_u32 vcc, 64, v0\ns_nop 2\nv_mfma_f32_16x16x4_f32 v[4:7], v8, v9, 0 // here",
        right=ONES + "v_cmpx_gt_u32 vcc, 64, v0\ns_nop 3\nv_mfma_f32_16x16x4_f32 v[4:7], v8, v9, 0",
        threads=64,
    ),
    "part_of_a_register_by_sdwa": Case(
        "wait states",
        wrong="v_add_u32_sdwa v5, v0, v1 dst_sel:BYTE_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD\nv_add_u32 v4, v5, v0 // here",
        right="v_add_u32_sdwa v5, v0, v1 dst_sel:BYTE_1 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD\ns_nop 0\nv_add_u32 v4, v5, v0",
    ),
    "part_of_a_register_by_op_sel": Case(
        "wait states",
        wrong="v_mov_b32 v5, 0\nv_cvt_pk_fp8_f32 v5, 1.0, 2.0 op_sel:[0,0,1]\nv_add_u32 v4, v5, v0 // here",
        right="v_mov_b32 v5, 0\nv_cvt_pk_fp8_f32 v5, 1.0, 2.0 op_sel:[0,0,1]\ns_nop 0\nv_add_u32 v4, v5, v0",
    ),
    "dot_product_used_at_once": Case(
        "wait states",
        wrong="v_dot4_i32_i8 v5, v0, v1, v0\ns_nop 1\nv_add_u32 v4, v5, v0 // here",
        right="v_dot4_i32_i8 v5, v0, v1, v0\nv_dot4_i32_i8 v5, v0, v1, v5\ns_nop 2\nv_add_u32 v4, v5, v0",
    ),
    "data_of_a_wide_store": Case(
        "wait states",
        wrong=ONES + "v_mov_b32 v2, 0\nglobal_store_dwordx4 v2, v[8:11], s[10:11]\ns_nop 0\nv_mov_b32 v11, 0 // here\nv_mov_b32 v4, 0",
        right=ONES + "v_mov_b32 v2, 0\nglobal_store_dwordx4 v2, v[8:11], s[10:11]\ns_nop 1\nv_mov_b32 v11, 0\nv_mov_b32 v4, 0",
    ),
    "addend_of_a_matrix_instruction": Case(
        "wait states",
        wrong=ONES + "v_mfma_f32_16x16x32_fp8_fp8 v[4:7], v[8:9], v[10:11], v[16:19]\ns_nop 1\nv_mov_b32 v18, 0 // here",
        right=ONES + "v_mfma_f32_16x16x32_fp8_fp8 v[4:7], v[8:9], v[10:11], v[16:19]\ns_nop 2\nv_mov_b32 v18, 0",
    ),
    "result_of_fp64_stored_at_once": Case(
        "wait states",
        wrong=ONES + "v_mfma_f64_16x16x4_f64 v[24:31], v[8:9], v[10:11], 0\ns_nop 7\ns_nop 7\ns_nop 0\nglobal_store_dword v1, v24, s[10:11] // here\nv_mov_b32 v4, 0",
        right=ONES + "v_mfma_f64_16x16x4_f64 v[24:31], v[8:9], v[10:11], 0\ns_nop 7\ns_nop 7\ns_nop 1\nglobal_store_dword v1, v24, s[10:11]\nv_mov_b32 v4, 0",
    ),
    "mode_read_after_it_was_written": Case(
        "wait states",
        wrong="s_getreg_b32 s20, 0xf801\ns_setreg_b32 s20, 0xf801\ns_nop 0\ns_getreg_b32 s21, 0xf801 // here\nv_mov_b32 v4, s21",
        right="s_getreg_b32 s20, 0xf801\ns_setreg_b32 s20, 0xf801\ns_nop 1\ns_getreg_b32 s21, 0xf801\nv_mov_b32 v4, s21",
    ),
    "swap_with_lanes_off": Case(
        "illegal instruction",
        wrong="v_mov_b32 v4, v0\nv_mov_b32 v5, v0\ns_mov_b64 exec, 7\ns_nop 1\nv_permlane32_swap_b32 v4, v5 // here",
        right="v_mov_b32 v4, v0\nv_mov_b32 v5, v0\ns_nop 4\nv_permlane32_swap_b32 v4, v5",
        lane=0,
    ),
    "endless_loop": Case(
        "limit",
        wrong="v_mov_b32 v4, 0\nagain:\ns_branch again // here",
        right="v_mov_b32 v4, 0\ns_branch again\nagain:\ns_nop 0",
    ),
}  # fmt: skip


def arrays() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(128, dtype=np.uint32), np.zeros(128, np.uint32)


@pytest.mark.parametrize("name", CASES)
def test_mistake_is_found(name: str) -> None:
    case = CASES[name]
    text = START + case.wrong + STORE
    with pytest.raises(EmulatorFault) as caught:
        run(text, *arrays(), threads=case.threads, blocks=case.blocks, lds=4096, scratch=16, max_instructions=10_000)
    fault = caught.value
    assert (fault.kind, fault.line) == (case.kind, place_of(text, "// here")), str(fault)
    if case.lane is not None:
        assert (fault.lane, fault.warp) == (case.lane, case.warp), str(fault)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [None, 1])
def test_correct_twin_runs(name: str, seed: int | None) -> None:
    case = CASES[name]
    run(
        START + case.right + STORE, *arrays(), threads=case.threads, blocks=case.blocks, lds=4096, scratch=16, seed=seed
    )


def test_wave_that_waits_for_one_that_has_gone_elsewhere() -> None:
    """A wave that ends does not keep a barrier closed; one that spins on a flag which nobody sets reaches the limit."""
    text = """v_readfirstlane_b32 s20, v0
s_load_dwordx2 s[8:9], s[0:1], 0x0
s_cmp_eq_u32 s20, 0
s_cbranch_scc1 out
s_barrier
out:
s_endpgm"""
    run(text, *arrays(), threads=128)


def test_two_workgroups_that_wait_for_each_other() -> None:
    """Workgroups run at the same time: each sets its flag and waits for the other's."""
    text = """s_load_dwordx2 s[8:9], s[0:1], 0x0
s_lshl_b32 s20, s2, 2
s_sub_u32 s21, 4, s20
v_mov_b32 v2, s20
v_mov_b32 v3, s21
v_mov_b32 v4, 1
s_waitcnt lgkmcnt(0)
global_store_dword v2, v4, s[8:9] sc0 sc1
again:
s_sleep 1
global_load_dword v5, v3, s[8:9] sc0 sc1
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s22, v5
s_cmp_lg_u32 s22, 1
s_cbranch_scc1 again
s_endpgm"""
    for seed in (None, 1, 2):
        flags = np.zeros(2, np.uint32)
        run(text, flags, blocks=2, seed=seed)
        assert flags.tolist() == [1, 1]
    with pytest.raises(EmulatorFault, match="limit"):
        run(text, np.zeros(2, np.uint32), blocks=1, max_instructions=10_000)


KNOWN = {"race", "missing wait", "wait states", "uninitialized shared memory"}


@pytest.mark.parametrize(
    "name", [n for n, case in CASES.items() if case.kind in KNOWN and "scratch" not in n] + ["lds_outside"]
)
def test_a_known_fault_is_passed_over(name: str) -> None:
    """By its kind and place, and nowhere else."""
    case = CASES[name]
    text = START + case.wrong + STORE
    place = place_of(text, "// here")
    options = {"threads": case.threads, "blocks": case.blocks, "lds": 4096, "scratch": 16}
    try:
        run(text, *arrays(), **options, accept=[(case.kind, place, place)])
    except EmulatorFault as fault:  # some texts hold a second one
        assert (fault.kind, fault.line > place) == (case.kind, True), str(fault)
    with pytest.raises(EmulatorFault) as caught:
        run(text, *arrays(), **options, accept=[(case.kind, place + 4, 1 << 20), ("limit", 0, 1 << 20)])
    assert caught.value.line == place
    with pytest.raises(ValueError, match="kind of a fault"):
        run(text, *arrays(), **options, accept=[("bad luck", 0, 0)])
