"""What the emulator itself takes: time of a decode call, memory of blocks that are resident."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from msa_ops import _C
from tests.emulator.speed import CASES, measure

MEGABYTE = 1 << 20
RESIDENT = 4
# Shared memory up to the limit written, all of tensor memory, many registers, and copies on their way.
PROGRAM = textwrap.dedent(
    """
    import sys
    import numpy as np
    from msa_ops.emulator import run_ptx

    PTX = '''.version 9.0
    .target sm_100a
    .address_size 64
    .extern .shared .align 16 .b8 all[];
    .visible .entry k(.param .u64 p0)
    {
      .reg .pred %p<4>; .reg .b32 %r<512>; .reg .b64 %rd<8>;
      ld.param.u64 %rd0, [p0];
      mov.u32 %r0, %tid.x;
      mov.u32 %r1, all;
      setp.ge.u32 %p1, %r0, 32;
      @%p1 bra WRITE;
      add.u32 %r2, %r1, 0;
      tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], 512;
      ld.shared.u32 %r3, [%r2];
      tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 512;
    WRITE:
      bar.sync 0;
      mov.u32 %r4, 0;
    NEXT:
      mad.lo.u32 %r5, %r4, 4096, %r1;
      mad.lo.u32 %r6, %r0, 4, %r5;
      st.shared.u32 [%r6], %r4;
      bar.sync 0;
      xor.b32 %r7, %r0, 37;
      mad.lo.u32 %r8, %r7, 4, %r5;
      ld.shared.u8 %r9, [%r8];
      add.u32 %r4, %r4, 1;
      setp.lt.u32 %p2, %r4, 56;
      @%p2 bra NEXT;
      bar.sync 0;
      mad.lo.u32 %r10, %r0, 4, %r1;
      st.shared.u32 [%r10], %r9;
      mov.u32 %r11, %nctaid.x;
      atom.global.add.u32 %r12, [%rd0], 1;
    WAIT:
      setp.ne.u32 %p3, %r0, 0;
      @%p3 bra END;
      ld.relaxed.gpu.global.u32 %r13, [%rd0];
      mul.lo.u32 %r14, %r11, 1024;
      setp.ne.u32 %p3, %r13, %r14;
      @%p3 bra WAIT;
    END:
      ret;
    }
    '''

    def peak():  # of this program alone: getrusage would begin with the peak of whoever started it
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

    def launch(blocks, data):
        data[0] = 0
        return run_ptx(PTX, "k", blocks, 1024, [data], shared_memory=230_000, chip="sm_100a", multiprocessors=blocks)

    launch(1, np.zeros(1, np.uint32))
    before = peak()
    data = np.zeros(64 << 18, np.uint32)  # 64 MB, all of it used by name alone
    launch(int(sys.argv[1]), data)
    print(peak() - before, data.nbytes)
    """
)


def test_memory_is_that_of_tensors_and_64_mb_a_resident_block() -> None:
    """All blocks of the launch wait for each other, so that all are resident."""
    command = [sys.executable, "-c", PROGRAM, str(RESIDENT)]
    more, tensors = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert more <= tensors + RESIDENT * 64 * MEGABYTE
    assert more > RESIDENT * MEGABYTE  # the blocks' memory was there


LOCAL = textwrap.dedent(
    """
    import sys
    import numpy as np
    from msa_ops.emulator import run_ptx

    PTX = '''.version 9.0
    .target sm_90a
    .address_size 64
    .visible .entry k(.param .u64 p0)
    {
      .local .align 16 .b8 large[500000];
      .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>;
      ld.param.u64 %rd0, [p0];
      mov.u32 %r0, %tid.x;
      mov.u32 %r1, large;
      st.local.u32 [%r1+400000], %r0;
      ld.local.u32 %r2, [%r1+400000];
      mov.u32 %r3, %ctaid.x;
      mad.lo.u32 %r4, %r3, 256, %r0;
      mul.wide.u32 %rd1, %r4, 4;
      add.u64 %rd1, %rd1, %rd0;
      mov.u32 %r5, 0;
    NEXT:
      st.global.u32 [%rd1], %r2;
      add.u64 %rd1, %rd1, 262144;
      add.u32 %r5, %r5, 1;
      setp.lt.u32 %p1, %r5, 512;
      @%p1 bra NEXT;
      ret;
    }
    '''

    def peak():
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

    data = np.ones(512 << 16, np.uint32)  # 128 MB, which all blocks write from end to end
    before = peak()
    run_ptx(PTX, "k", 256, 256, [data], multiprocessors=1, max_instructions=10_000_000)
    assert (data[:256] == np.arange(256)).all()
    print(peak() - before)
    """
)


def test_local_memory_takes_what_is_touched_of_it() -> None:
    """245 MB a block are declared; 2 MB are used, and 128 MB of global memory are watched by 8 blocks."""
    command = [sys.executable, "-c", LOCAL]
    more = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert more <= 8 * 64 * MEGABYTE


@pytest.mark.slow
@pytest.mark.skipif(
    not any(arch == "sm_90a" for _, arch in _C.compiled_kernels()), reason="this build of msa_ops holds no kernels"
)
def test_a_decode_call_takes_less_than_a_second() -> None:
    assert measure(CASES["decode"], runs=2)["seconds"] < 1
