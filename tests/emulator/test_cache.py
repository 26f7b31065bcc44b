"""What kernels tell the caches: it changes nothing but lines that they throw away, and its addresses must exist."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault
from tests.emulator.programs import run


def lines(count: int) -> np.ndarray:
    """This many lines of 128 bytes, which begin at one."""
    memory = np.zeros(128 * (count + 1), np.uint8)
    start = -memory.ctypes.data % 128
    return memory[start : start + 128 * count].view(np.uint32)


def test_a_discarded_line_is_lost_and_no_other() -> None:
    data = lines(3)
    data[:] = 5
    run("setp.eq.u32 %p0, %r0, 0;\n@%p0 discard.global.L2 [%rd0+128], 128;", data)
    assert (data[32:64] == 0xFFFFFFFF).all()
    assert (data[:32] == 5).all()
    assert (data[64:] == 5).all()


@pytest.mark.parametrize("what", ["discard.global.L2", "discard.L2", "applypriority.global.L2::evict_normal",
                                  "applypriority.L2::evict_normal"])  # fmt: skip
def test_lines_are_whole_and_exist(what: str) -> None:
    data = lines(2)
    run(f"{what} [%rd0], 128;", data)
    for place, kind in (("%rd0+64", "misaligned"), ("%rd0+256", "out of bounds")):
        with pytest.raises(EmulatorFault, match=kind):
            run(f"{what} [{place}], 128;", data)
    with pytest.raises(EmulatorFault, match="64 bytes; accepted: 128"):
        run(f"{what} [%rd0], 64;", data)


def test_a_line_of_shared_memory_cannot_be_thrown_away() -> None:
    with pytest.raises(EmulatorFault, match="not an address of global memory"):
        run("mov.u64 %rd1, s;\ncvta.shared.u64 %rd1, %rd1;\ndiscard.L2 [%rd1], 128;", lines(1),
            declarations=".shared .align 128 .b8 s[128];")  # fmt: skip


def test_policies_and_prefetches_change_nothing() -> None:
    data = lines(2)
    data[:] = np.arange(64)
    run(
        "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %rd20, 0.5;\n"
        "createpolicy.range.L2::evict_first.b64 %rd21, [%rd0], 64, 128;\n"
        "createpolicy.cvt.L2.b64 %rd22, 0x10F0000000000000;\n"
        "prefetch.global.L2::evict_last [%rd0];\n"
        "mul.lo.s64 %rd23, %rd15, 4;\nadd.s64 %rd23, %rd23, %rd0;\n"
        "ld.global.L1::evict_last.L2::cache_hint.b32 %r1, [%rd23], %rd20;\n"
        "st.global.L1::no_allocate.L2::cache_hint.b32 [%rd23+128], %r1, %rd22;",
        data,
    )
    np.testing.assert_array_equal(data[32:], np.arange(32))
