"""A register of two parts of which one has no value: the other part may be used."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel, line_of

PACK = "mov.b32 %r1, 7;\nmov.b64 %rd5, {{{0}}};\nmov.b64 {{{1}}}, %rd5; {2}\nst.global.b32 [%rd0], %r3; // use"


@pytest.mark.parametrize(
    ("packed", "taken"), [("%r1, %r2", "%r3, %r4"), ("%r2, %r1", "%r4, %r3"), ("%r1, %r2", "%r3, _")]
)
def test_part_with_a_value(packed: str, taken: str) -> None:
    out = np.zeros(1, np.uint32)
    run_ptx(kernel(PACK.format(packed, taken, "")), "k", 1, 1, [out])
    assert out[0] == 7


@pytest.mark.parametrize(("packed", "taken"), [("%r1, %r2", "%r4, %r3"), ("%r2, %r1", "%r3, %r4")])
def test_part_without(packed: str, taken: str) -> None:
    text = kernel(PACK.format(packed, taken, ""))
    with pytest.raises(EmulatorFault, match="%r2 is read and has no value") as caught:
        run_ptx(text, "k", 1, 1, [np.zeros(1, np.uint32)])
    assert caught.value.line == line_of(text, "mov.b64 %rd5")


def test_what_was_known_of_parts_ends_with_the_next_write() -> None:
    body = "mov.b32 %r1, 7; mov.b64 %rd5, {%r1, %r2}; mov.b64 %rd5, %rd6; mov.b64 {%r3, %r4}, %rd5;\n"
    with pytest.raises(EmulatorFault, match="%rd6 is read and has no value"):
        run_ptx(kernel(body + "st.global.b32 [%rd0], %r3;"), "k", 1, 1, [np.zeros(1, np.uint32)])
