"""alloca, stacksave and stackrestore: memory of a thread that it takes while it runs."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import HEAD, run

OUT = np.zeros(64, np.uint32)
PLACE = "shl.b64 %rd20, %rd15, 2; add.s64 %rd20, %rd20, %rd0;\n"


def test_each_lane_has_memory_of_its_own_size() -> None:
    """Lane i takes 8 (i + 1) bytes, fills them and adds them up again, through local and generic addresses."""
    run(
        PLACE + "add.u32 %r1, %r0, 1; shl.b32 %r2, %r1, 3; cvt.u64.u32 %rd2, %r2;\n"
        "alloca.u64 %rd3, %rd2; cvta.local.u64 %rd4, %rd3; mov.u32 %r3, 0; mov.u32 %r4, 0;\n"
        "FILL: cvt.u64.u32 %rd5, %r3; add.s64 %rd6, %rd3, %rd5; st.local.b32 [%rd6], %r3; st.local.b32 [%rd6+4], %r0;\n"
        "add.u32 %r3, %r3, 8; setp.lt.u32 %p1, %r3, %r2; @%p1 bra FILL;\n"
        "mov.u32 %r3, 0;\n"
        "SUM: cvt.u64.u32 %rd5, %r3; add.s64 %rd6, %rd4, %rd5; ld.v2.b32 {%r5, %r6}, [%rd6]; add.u32 %r4, %r4, %r5;\n"
        "add.u32 %r4, %r4, %r6; add.u32 %r3, %r3, 8; setp.lt.u32 %p1, %r3, %r2; @%p1 bra SUM;\n"
        "st.global.b32 [%rd20], %r4;",
        OUT,
    )
    wanted = [sum(range(0, 8 * (i + 1), 8)) + i * (i + 1) for i in range(32)]
    np.testing.assert_array_equal(OUT[:32], wanted)


@pytest.mark.parametrize("alignment", [1, 8, 16, 128])
def test_alignment_and_32_bits(alignment: int) -> None:
    run(
        PLACE + f"mov.u32 %r1, 5; alloca.u32 %r2, %r1, {alignment}; alloca.u32 %r3, %r1, {alignment};\n"
        "st.local.b8 [%r2], %r0; st.local.b8 [%r3], %r1; ld.local.u8 %r4, [%r2];\n"
        f"rem.u32 %r5, %r3, {max(8, alignment)};\n"
        "mad.lo.u32 %r4, %r5, 1000, %r4; st.global.b32 [%rd20], %r4;",
        OUT,
    )
    np.testing.assert_array_equal(OUT[:32], np.arange(32))


def test_restored_memory_is_given_out_again_without_a_value() -> None:
    run(
        PLACE + "stacksave.u64 %rd2; alloca.u64 %rd3, 64; st.local.b32 [%rd3], %r0; stackrestore.u64 %rd2;\n"
        "alloca.u64 %rd4, 64; sub.s64 %rd5, %rd3, %rd4; cvt.u32.u64 %r1, %rd5; st.global.b32 [%rd20], %r1;",
        OUT,
    )
    assert not OUT[:32].any()


@pytest.mark.parametrize(("body", "kind", "text"), [
    ("alloca.u64 %rd2, 16; ld.local.b32 %r1, [%rd2];", "uninitialized local memory", "has not written"),
    ("alloca.u64 %rd2, 16; mov.u32 %r1, 3; st.local.b32 [%rd2+16], %r1;", "out of bounds", "of 4 bytes of local"),
    ("alloca.u64 %rd2, 16; mov.u32 %r1, 3; st.local.b32 [%rd2-4], %r1;", "out of bounds", "stack begins at"),
    ("stacksave.u64 %rd3; alloca.u64 %rd2, 16; mov.u32 %r1, 3; st.local.b32 [%rd2], %r1; stackrestore.u64 %rd3;\n"
     "ld.local.b32 %r1, [%rd2];", "out of bounds", "stack begins at"),
    ("stacksave.u64 %rd3; alloca.u64 %rd2, 16; stacksave.u64 %rd4; stackrestore.u64 %rd3; stackrestore.u64 %rd4;",
     "out of bounds", "no place in the stack"),
    ("alloca.u64 %rd2, 524289;", "out of bounds", "the thread's stack has 524288 left"),
    ("alloca.u64 %rd2, 16, 12;", "misaligned", "an alignment of 12"),
])  # fmt: skip
def test_faults(body: str, kind: str, text: str) -> None:
    with pytest.raises(EmulatorFault, match=text) as raised:
        run(body, OUT)
    assert raised.value.kind == kind


FUNCTION = f"""{HEAD}
.func (.reg .b32 result) work(.reg .b32 n)
{{ .reg .b64 %d<4>; .reg .b32 %x<4>;
  cvt.u64.u32 %d0, n; alloca.u64 %d1, %d0; st.local.b32 [%d1], n; ld.local.b32 %x0, [%d1]; mov.b32 result, %x0; ret; }}
.visible .entry k(.param .u64 p)
{{ .reg .b64 %rd<8>; .reg .b32 %r<8>; .reg .pred %p<2>;
  ld.param.u64 %rd0, [p]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; add.s64 %rd0, %rd0, %rd1;
  alloca.u64 %rd2, 32; st.local.b32 [%rd2], %r0; stacksave.u64 %rd3; mov.u32 %r3, 0; mov.u32 %r4, 0;
AGAIN: add.u32 %r1, %r0, 64; and.b32 %r5, %r0, 1; setp.eq.u32 %p0, %r5, 1;
  @%p0 call (%r2), work, (%r1);
  @!%p0 mov.u32 %r2, 1000;
  add.u32 %r4, %r4, %r2; add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 10000; @%p1 bra AGAIN;
  stacksave.u64 %rd4; sub.s64 %rd4, %rd4, %rd3; cvt.u32.u64 %r6, %rd4; ld.local.b32 %r7, [%rd2];
  sub.u32 %r7, %r7, %r0; add.u32 %r4, %r4, %r6; add.u32 %r4, %r4, %r7; st.global.b32 [%rd0], %r4; ret; }}
"""


def test_a_function_gives_back_what_it_took() -> None:
    """10,000 calls of some lanes, which would not fit together."""
    run_ptx(FUNCTION, "k", 1, 32, [OUT], max_instructions=10_000_000)
    thread = np.arange(32)
    np.testing.assert_array_equal(OUT[:32], np.where(thread % 2 == 1, (thread + 64) * 10000, 10_000_000))
