"""Scalar operands whose meaning depends on the instruction."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.gfx950.code_object import run


@pytest.mark.parametrize(
    ("instruction", "wanted"),
    [
        ("s_mov_b64 s[10:11], 0xfffffff0", 0xFFFFFFF0),
        ("s_and_b64 s[10:11], s[12:13], 0x80000001", 0x80000001),
        ("s_lshl_b64 s[10:11], 0x80000000, 1", 0x100000000),
        ("s_ashr_i64 s[10:11], 0x80000000, 4", 0xFFFFFFFFF8000000),
        ("s_mov_b64 s[10:11], -16", 0xFFFFFFFFFFFFFFF0),
    ],
)
def test_literals_of_64_bits(instruction: str, wanted: int) -> None:
    """Of 32 bits in the text: above them are copies of the sign for signed operations, zeros for all others."""
    out = np.zeros(2, np.uint32)
    run(
        f"""s_load_dwordx2 s[8:9], s[0:1], 0x0
        s_mov_b64 s[12:13], -1
        {instruction}
        v_mov_b32 v1, 0
        v_mov_b32 v2, s10
        v_mov_b32 v3, s11
        s_waitcnt lgkmcnt(0)
        s_mov_b64 exec, 1
        global_store_dwordx2 v1, v[2:3], s[8:9]
        s_endpgm""",
        out,
    )
    assert int(out.view(np.uint64)[0]) == wanted
