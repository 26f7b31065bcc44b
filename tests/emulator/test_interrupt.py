"""Ctrl-C ends a launch that runs in native code."""

from __future__ import annotations

import signal
import time

import numpy as np
import pytest

from msa_ops.emulator import run_ptx

SPIN = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry spin(.param .u64 p_flag)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  .reg .pred %p<1>;
  ld.param.u64 %rd0, [p_flag];
again:
  mov.u32 %r1, %clock;
  ld.volatile.global.b32 %r0, [%rd0];
  setp.eq.s32 %p0, %r0, 0;
  @%p0 bra again;
  ret;
}
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_launch_ends_at_a_signal(threads: int) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    start = time.monotonic()
    try:
        with pytest.raises(Interrupted):
            run_ptx(SPIN, "spin", 4, 32, [np.zeros(1, dtype=np.int32)], threads=threads, max_instructions=10**12)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - start < 10
