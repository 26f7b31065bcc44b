"""What kernels find in their first scalar registers."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from msa_ops._C import EmulatorFault
from msa_ops.emulator import run_gfx950
from tests.emulator.gfx950.code_object import DISPATCH_PACKET, KERNEL_ARGUMENTS, NAME, QUEUE, code_object

STORE = """s_load_dwordx2 s[8:9], s[4:5], 0x0
    s_waitcnt lgkmcnt(0)
    v_mov_b32 v1, 0
    v_mov_b32 v2, s10
    v_mov_b32 v3, s11
    v_mov_b32 v4, s12
    s_mov_b64 exec, 1
    global_store_dwordx3 v1, v[2:4], s[8:9]
    s_endpgm"""


def _run(text: str) -> np.ndarray:
    """All three addresses are wanted: s[0:1], s[2:3] and s[4:5]; v1 to v3 are stored."""
    out = np.zeros(3, np.uint32)
    made = code_object(text, wanted=KERNEL_ARGUMENTS | DISPATCH_PACKET | QUEUE)
    run_gfx950(
        made, NAME, (1, 3, 2), (32, 4, 1), struct.pack("<Q", out.__array_interface__["data"][0]), tensors={"o": out}
    )
    return out


def test_the_dispatch_packet_says_what_was_launched() -> None:
    sizes = _run(f"""s_load_dword s10, s[0:1], 0x4
    s_load_dword s11, s[0:1], 0xc
    s_load_dword s12, s[0:1], 0x10
    {STORE}""")
    assert [int(x) for x in sizes] == [32 | 4 << 16, 32, 12]  # the workgroup along x and y; the grid in work-items


def test_what_the_emulator_has_not_may_be_asked_for_and_must_not_be_used() -> None:
    with pytest.raises(EmulatorFault, match="s2") as found:
        _run(f"s_load_dword s10, s[2:3], 0x0 // the queue\n{STORE}")
    assert found.value.kind == "uninitialized register"
