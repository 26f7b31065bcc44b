# ruff: noqa: E501 (assembler text)
"""Workgroups of one XCD share its L2: what one of them has stored and waited for, the others see without a write-back,
and a line that one of them has read may be stale for all. Mistakes are found, their correct twins run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault
from tests.emulator.gfx950.assembler import place_of
from tests.emulator.gfx950.code_object import run

WORKGROUPS = 9
"""0 and 8 are on one XCD, 1 is on another one; 2 to 7 do nothing."""
TEXT = """s_load_dwordx4 s[8:11], s[0:1], 0x0
s_load_dwordx2 s[12:13], s[0:1], 0x10
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v2, 0
v_mov_b32 v3, 1
v_add_u32 v4, 7, v0
s_waitcnt lgkmcnt(0)
s_cmp_eq_u32 s2, 0
s_cbranch_scc1 zero
s_cmp_eq_u32 s2, 1
s_cbranch_scc1 one
s_cmp_eq_u32 s2, 8
s_cbranch_scc1 eight
s_endpgm
zero:
{zero}
s_branch end
one:
{one}
s_branch end
eight:
{eight}
end:
s_waitcnt vmcnt(0)
s_endpgm"""
"""s[8:9]: 64 dwords to hand on, s[10:11]: flags in lines of their own, s[12:13]: 64 dwords of the reader."""

STORE, READ = "global_store_dword v1, v4, s[8:9]", "global_load_dword v5, v1, s[8:9]"
WAIT = "s_waitcnt vmcnt(0)"
RESULT = f"{WAIT}\nglobal_store_dword v1, v5, s[12:13]"
STAY = "s_sleep 1\n" * 3


def flag(place: int, bits: str = "") -> str:
    return f"global_store_dword v2, v3, s[10:11] offset:{128 * place} {bits}"


def spin(place: int, who: int) -> str:
    return f"""again_{who}_{place}:
s_sleep 1
global_load_dword v6, v2, s[10:11] offset:{128 * place} sc1
{WAIT}
v_readfirstlane_b32 s20, v6
s_cmp_lg_u32 s20, 1
s_cbranch_scc1 again_{who}_{place}"""


def lines(*parts: str) -> str:
    return "\n".join(parts)


@dataclass(frozen=True)
class Case:
    """What the three workgroups do, wrong and right. The line at fault holds "// here"."""

    kind: str
    zero: str
    one: str
    eight: str
    right_zero: str
    right_one: str
    right_eight: str


SAME_RIGHT = lines(STORE, WAIT, flag(0))
ACROSS = lines(STORE, "buffer_wbl2 sc1", WAIT, flag(0, "sc1"))
NOTHING = "s_nop 0"
CASES = {
    # The producer is workgroup 8, the reader workgroup 0 of the same XCD.
    "flag_before_data": Case(
        "missing wait", lines(spin(0, 0), READ + " // here", RESULT), NOTHING, lines(STORE, flag(0), spin(1, 8)),
        lines(spin(0, 0), READ, RESULT, WAIT, flag(1)), NOTHING, lines(SAME_RIGHT, spin(1, 8)),
    ),
    "line_in_the_own_cache": Case(
        "missing invalidation", lines(READ, WAIT, flag(1), spin(0, 0), READ + " // here", RESULT), NOTHING, lines(spin(1, 8), SAME_RIGHT),
        lines(READ, WAIT, flag(1), spin(0, 0), "buffer_inv sc0", READ, RESULT), NOTHING, lines(spin(1, 8), SAME_RIGHT),
    ),
    "scalar_line_in_the_own_cache": Case(
        "missing invalidation", lines("s_load_dword s21, s[8:9], 0x0", "s_waitcnt lgkmcnt(0)", flag(1), spin(0, 0), "buffer_inv sc1", "s_load_dword s21, s[8:9], 0x0 // here", "s_waitcnt lgkmcnt(0)"), NOTHING, lines(spin(1, 8), SAME_RIGHT),
        lines("s_load_dword s21, s[8:9], 0x0", "s_waitcnt lgkmcnt(0)", flag(1), spin(0, 0), "s_dcache_inv", "s_waitcnt lgkmcnt(0)", "s_load_dword s21, s[8:9], 0x0", "s_waitcnt lgkmcnt(0)", READ, RESULT), NOTHING, lines(spin(1, 8), SAME_RIGHT),
    ),
    # Workgroup 8 has read the line; then workgroup 1 of another XCD stores to it, and workgroup 0 reads it first now.
    "line_that_a_neighbour_has_read": Case(
        "missing invalidation", lines(spin(0, 0), READ + " // here", RESULT), lines(spin(1, 1), ACROSS), lines(READ, WAIT, flag(1, "sc1")),
        lines(spin(0, 0), "buffer_inv sc1", READ, RESULT), lines(spin(1, 1), ACROSS), lines(READ, WAIT, flag(1, "sc1")),
    ),
    "invalidation_of_the_own_cache_alone": Case(
        "missing invalidation", lines(spin(0, 0), "buffer_inv sc0", READ + " // here", RESULT), lines(spin(1, 1), ACROSS), lines(READ, WAIT, flag(1, "sc1")),
        lines(spin(0, 0), "buffer_inv sc1", READ, RESULT), lines(spin(1, 1), ACROSS), lines(READ, WAIT, flag(1, "sc1")),
    ),
    # Workgroup 8 stores, workgroup 0 of its XCD hears of it and tells workgroup 1 of another one.
    "handed_on_without_write_back": Case(
        "missing write-back", lines(spin(1, 0), flag(0, "sc1")), lines(spin(0, 1), "buffer_inv sc1", READ + " // here", RESULT, WAIT, flag(2, "sc1")), lines(STORE, WAIT, flag(1), spin(2, 8)),
        lines(spin(1, 0), "buffer_wbl2 sc1", WAIT, flag(0, "sc1")), lines(spin(0, 1), "buffer_inv sc1", READ, RESULT, WAIT, flag(2, "sc1")), lines(STORE, WAIT, flag(1), spin(2, 8)),
    ),
    "same_protocol_on_another_xcd": Case(
        "missing write-back", lines(spin(0, 0), READ + " sc1 // here", RESULT, WAIT, flag(1, "sc1")), lines(STORE, WAIT, flag(0, "sc1"), spin(1, 1)), NOTHING,
        lines(spin(0, 0), READ + " sc1", RESULT), NOTHING, lines(STORE, WAIT, flag(0)),
    ),
}  # fmt: skip


def memory() -> list[np.ndarray]:
    return [np.full(64, 3, np.uint32), np.zeros(128, np.uint32), np.zeros(64, np.uint32)]


@pytest.mark.parametrize("name", CASES)
def test_mistake_is_found(name: str) -> None:
    case = CASES[name]
    text = TEXT.format(zero=case.zero, one=case.one, eight=case.eight)
    with pytest.raises(EmulatorFault) as caught:
        run(text, *memory(), blocks=WORKGROUPS, max_instructions=100_000)
    fault = caught.value
    assert (fault.kind, fault.line) == (case.kind, place_of(text, "// here")), str(fault)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [None, *range(9)])
def test_correct_twin_runs(name: str, seed: int | None) -> None:
    """Whichever XCD the first workgroup is on."""
    case = CASES[name]
    used = memory()
    text = TEXT.format(zero=case.right_zero, one=case.right_one, eight=case.right_eight)
    run(text, *used, blocks=WORKGROUPS, seed=seed, max_instructions=100_000)
    assert used[2].tolist() == list(range(7, 71))


@pytest.mark.parametrize("seed", [None, 3, 8])
def test_workgroups_go_to_the_dies_in_turn(seed: int | None) -> None:
    text = """s_load_dwordx2 s[8:9], s[0:1], 0x0
s_getreg_b32 s10, 0xf814
s_lshl_b32 s11, s2, 2
v_mov_b32 v1, s11
v_mov_b32 v2, s10
s_waitcnt lgkmcnt(0)
s_mov_b64 exec, 1
global_store_dword v1, v2, s[8:9]
s_endpgm"""
    out = np.zeros(20, np.uint32)
    run(text, out, blocks=20, seed=seed)
    assert out.tolist() == [(i + (seed or 0)) % 8 for i in range(20)]
