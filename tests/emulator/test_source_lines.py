"""Faults name the line of the source where the PTX has line information."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx, run_ptx_on_devices
from msa_ops.emulator.source_lines import source_of
from tests.emulator.programs import kernel

WITH = (
    kernel('.loc 1 10 3\nmov.b32 %r1, 1;\n.loc 2 20 5, function_name $L__info, inlined_at 1 12 1\n'
           "st.global.b32 [%rd0+64], %r1;\n.loc 1 30 1\nmov.b32 %r2, 2;")
    + '.file 1 "/home/me/kernel.py"\n.file 2 "helper.py"\n'
)  # fmt: skip


def test_a_fault_knows_its_source() -> None:
    with pytest.raises(EmulatorFault) as caught:
        run_ptx(WITH, "k", 1, 1, [np.zeros(16, np.uint32)])
    assert caught.value.source == "helper.py:20" and caught.value.__notes__ == ["source: helper.py:20"]
    with pytest.raises(EmulatorFault) as caught:
        run_ptx_on_devices(WITH, "k", 1, 1, [[np.zeros(16, np.uint32)]])
    assert caught.value.source == "helper.py:20"


def test_without_line_information() -> None:
    with pytest.raises(EmulatorFault) as caught:
        run_ptx(kernel("st.global.b32 [%rd0+64], %r0;"), "k", 1, 1, [np.zeros(16, np.uint32)])
    assert caught.value.source is None and not hasattr(caught.value, "__notes__")


def test_lines() -> None:
    first = 1 + WITH.splitlines().index(".loc 1 10 3")
    assert [source_of(WITH, first + i) for i in (-1, 0, 1, 3, 5)] == [
        None, "/home/me/kernel.py:10", "/home/me/kernel.py:10", "helper.py:20", "/home/me/kernel.py:30"
    ]  # fmt: skip
    assert source_of(WITH.replace(".file 2", ".file 3"), first + 3) is None
