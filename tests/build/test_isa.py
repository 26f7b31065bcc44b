from __future__ import annotations

import pytest

from msa_ops.build import isa

KERNEL = """\
	.text
kernel_0:                               ; @kernel_0
	s_load_dwordx2 s[0:1], s[0:1], 0x0
	v_lshlrev_b32_e32 v1, 2, v0
	v_lshlrev_b32_e64 v1, 2, v0      ; comment
	v_and_b32_sdwa v1, v0, v1 dst_sel:DWORD
	.p2align 8
.LBB0_1:
	s_endpgm
"""


def test_main_loop_has_the_most_products_and_then_the_most_loads() -> None:
    text = """\
kernel:
	v_mov_b32_e32 v1, 0
	v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], 0
.LBB0_1:
	v_perm_b32 v1, v2, v3, v4
	v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], 0
	global_load_ushort v1, v2, s[0:1]
	s_cbranch_scc1 .LBB0_1
	v_max_f32_e32 v0, v1, v2
.LBB0_2:
	v_add_u32_e32 v0, v1, v2
"""
    name = "v_mfma_f32_16x16x128_f8f6f4"
    expected = {"global_load_ushort": 1, "s_cbranch_scc1": 1, "v_max_f32": 1, name: 1, "v_perm_b32": 1}
    assert isa.main_loop(text) == expected
    assert isa.main_loop(KERNEL) == {}
    assert isa.of_kind(expected, "v_") == 3


def padded(*lines: str) -> str:
    return "\n".join(["\tv_add_u32_e32 v0, v0, v1"] * isa.FEWEST + [f"\t{line}" for line in lines])


def test_histogram_joins_encodings_and_skips_the_rest() -> None:
    assert isa.histogram(KERNEL) == {"s_endpgm": 1, "s_load_dwordx2": 1, "v_and_b32_sdwa": 1, "v_lshlrev_b32": 2}
    assert isa.histogram("") == {}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("scratch_store_dword off, v1, s32", "spills: scratch_store_dword"),
        ("s_swappc_b64 s[30:31], s[4:5]", "calls a function"),
        ("s_add_u32 s4, s4, __ocml_tanh_f32@rel32@lo+4", "calls the device library: __ocml_tanh_f32"),
        ("v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7] op_sel:[0,1,0]", "v_pk_fma_f32 with low op_sel bits"),
        ("v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7] op_sel:[1,0,0] op_sel_hi:[0,1,1]", "low op_sel bits"),
    ],
)
def test_what_no_kernel_may_contain(line: str, said: str) -> None:
    (found,) = isa.violations(padded(line))
    assert said in found


@pytest.mark.parametrize(
    "line",
    [
        "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7] op_sel_hi:[1,0,1] neg_lo:[1,0,0]",
        "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7] op_sel:[0,0,0] op_sel_hi:[0,0,1]",
        "v_pk_mul_f32 v[0:1], v[2:3], v[4:5] op_sel:[0,1]",
    ],
)
def test_what_a_kernel_may_contain(line: str) -> None:
    assert isa.violations(padded(line)) == []


def test_an_empty_kernel_is_a_failure() -> None:
    assert isa.violations("\ts_endpgm\n") == ["1 instructions: nothing is left of the kernel"]


STORE = ["buffer_wbl2 sc0 sc1", "s_waitcnt vmcnt(0) lgkmcnt(0)", "global_store_dword v0, v1, s[0:1] sc0 sc1"]
LOAD = ["global_load_dword v1, v0, s[2:3] sc0 sc1", "s_waitcnt vmcnt(0)", "buffer_inv sc0 sc1"]


def test_flags_between_gpus() -> None:
    assert isa.flag_violations(padded(*STORE, *LOAD)) == []


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (STORE[1:], "store without buffer_wbl2"),
        ([STORE[0], STORE[2]], "store without buffer_wbl2"),
        (["buffer_wbl2 sc1", *STORE[1:]], "store without buffer_wbl2"),
        ([*STORE[:2], "global_store_dword v0, v3, s[4:5]", STORE[2]], "store without buffer_wbl2"),
        (LOAD[:2], "load without a wait and buffer_inv"),
        ([LOAD[0], LOAD[2]], "load without a wait and buffer_inv"),
        ([LOAD[0], LOAD[1], "global_load_dword v5, v4, s[2:3]", LOAD[2]], "load without a wait and buffer_inv"),
        (["global_store_dword v0, v1, s[0:1] sc1"], "no access at system scope"),
    ],
)
def test_flags_that_another_gpu_may_not_see(lines: list[str], said: str) -> None:
    (found,) = isa.flag_violations(padded(*lines))
    assert said in found
