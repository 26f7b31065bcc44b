"""Instructions that stop a kernel, and signs to a profiler."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault
from tests.emulator.programs import run


@pytest.mark.parametrize("instruction", ["trap", "brkpt"])
def test_a_kernel_that_stops_itself_fails(instruction: str) -> None:
    data = np.zeros(32, np.uint32)
    with pytest.raises(EmulatorFault, match=instruction) as caught:
        run(f"setp.eq.u32 %p0, %r0, 7;\n@%p0 {instruction};", data)
    assert (caught.value.kind, caught.value.lane) == ("trap", 7)
    run(f"setp.eq.u32 %p0, %r0, 77;\n@%p0 {instruction};", data)


def test_events_are_for_profilers() -> None:
    data = np.zeros(32, np.uint32)
    run("pmevent 3;\npmevent.mask 5;\nst.global.u32 [%rd0], 1;", data)
    assert data[0] == 1
