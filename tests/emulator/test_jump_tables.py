"""`brx.idx`: lanes that go on at different places of a list and meet again."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, PtxError, run_ptx
from tests.emulator.programs import kernel

BODY = """
table: .branchtargets ONE, TWO, ONE, THREE;
and.b32 %r2, %r0, 7; mov.b32 %r1, 0;
setp.gt.u32 %p1, %r2, 3;
@!%p1 brx.idx %r2, table;
add.s32 %r1, %r1, 9;
bra END;
ONE: add.s32 %r1, %r1, 1;
TWO: add.s32 %r1, %r1, 2;
bra END;
THREE: mov.b32 %r1, 3;
END: bar.sync 0; add.s32 %r1, %r1, 10;
shl.b64 %rd2, %rd15, 2; add.s64 %rd2, %rd2, %rd0; st.global.b32 [%rd2], %r1;
"""


def test_lanes_part_and_meet() -> None:
    expected = np.array([13, 12, 13, 13, 19, 19, 19, 19] * 8)
    for seed in (None, 1, 2):
        out = np.zeros(64, np.int32)
        run_ptx(kernel(BODY), "k", 1, 64, [out], seed=seed)
        np.testing.assert_array_equal(out, expected)


def test_all_lanes_together() -> None:
    out = np.zeros(32, np.int32)
    text = kernel(BODY.replace("@!%p1 brx.idx %r2", "mov.b32 %r2, 3; brx.idx.uni %r2"))
    run_ptx(text, "k", 1, 32, [out])
    np.testing.assert_array_equal(out, np.full(32, 13))


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (BODY.replace("@!%p1 ", ""), EmulatorFault, "out of bounds: target 4 of 4"),
        (BODY.replace("@!%p1 brx.idx", "and.b32 %r2, %r2, 3; brx.idx.uni"), EmulatorFault, "divergence"),
        (BODY.replace("%r2, table", "%r2, other"), PtxError, "no list of `.branchtargets`"),
        (BODY.replace("THREE;", "FOUR;"), PtxError, "label `FOUR` is not known here"),
    ],
)
def test_mistakes(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run_ptx(kernel(text), "k", 1, 32, [np.zeros(32, np.int32)])
