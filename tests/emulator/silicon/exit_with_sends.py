"""Blocks that end while what they have sent to another block of the cluster is under way: does it arrive whole?

`python exit_with_sends.py`, on a machine with an sm_90 GPU, a driver and NumPy. The first block of each pair fills
96 KB of its memory with the pair's number, sends them to the other one in three bulk copies, and ends at once; the
next block of the multiprocessor overwrites that memory immediately. The other block waits for the bytes and writes
them out. For comparison the first block may also wait at the cluster's barrier for the other one.
"""

from __future__ import annotations

import ctypes

import numpy as np

PAIRS, BYTES, COPIES, ROUNDS = 4000, 98_304, 3, 3
SHARED = 2 * BYTES  # so that a multiprocessor holds one block
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
ENDS = {"at once": "", "after the other has it": MEET}


def text(last: str) -> str:
    sends = "\n".join(
        f"add.u32 %r5, %r11, {i * BYTES // COPIES}; add.u32 %r6, %r10, {i * BYTES // COPIES}; "
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
        f"[%r5], [%r6], {BYTES // COPIES}, [%r12];"
        for i in range(COPIES)
    )
    return f"""
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.shared .align 8 .b64 bar;
.visible .entry k(.param .u64 p, .param .u32 first)
.reqnctapercluster 2, 1, 1
{{
  .reg .pred %p, %q, %s; .reg .b32 %r<20>; .reg .b64 %rd<8>;
  ld.param.u64 %rd0, [p]; ld.param.u32 %r9, [first];
  mov.u32 %r0, %tid.x; mov.u32 %r10, smem; mov.u32 %r2, %ctaid.x; shr.u32 %r2, %r2, 1;
  mov.u32 %r13, %cluster_ctarank; mov.u32 %r14, bar;
  add.u32 %r8, %r2, %r9; shl.b32 %r3, %r0, 4; add.u32 %r4, %r10, %r3; mov.u32 %r6, 0;
L: st.shared.v4.b32 [%r4], {{%r8, %r8, %r8, %r8}};
  add.u32 %r4, %r4, 16384; add.u32 %r6, %r6, 16384;
  setp.lt.u32 %p, %r6, {BYTES}; @%p bra L;
  setp.eq.u32 %q, %r0, 0; setp.eq.u32 %s, %r13, 0;
  @%q mbarrier.init.shared::cta.b64 [%r14], 1;
  @%q fence.mbarrier_init.release.cluster;
  @%q mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r14], {BYTES};
  fence.proxy.async.shared::cta;
  {MEET}
  @!%s bra WAIT;
  @!%q bra SENT;
  mov.u32 %r15, 1; add.u32 %r16, %r10, {BYTES};
  mapa.shared::cluster.u32 %r11, %r16, %r15; mapa.shared::cluster.u32 %r12, %r14, %r15;
{sends}
SENT: bra END;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p, [%r14], 0; @!%p bra WAIT;
  mul.wide.u32 %rd1, %r2, {BYTES}; add.s64 %rd2, %rd0, %rd1; cvt.u64.u32 %rd3, %r3; add.s64 %rd2, %rd2, %rd3;
  add.u32 %r4, %r10, {BYTES}; add.u32 %r4, %r4, %r3; mov.u32 %r6, 0;
M: ld.shared.v4.b32 {{%r15, %r16, %r17, %r18}}, [%r4]; st.global.v4.b32 [%rd2], {{%r15, %r16, %r17, %r18}};
  add.u32 %r4, %r4, 16384; add.s64 %rd2, %rd2, 16384; add.u32 %r6, %r6, 16384;
  setp.lt.u32 %p, %r6, {BYTES}; @%p bra M;
END:
  {last}
  ret;
}}
"""


def main() -> None:
    driver = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: object) -> None:
        status = getattr(driver, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: CUresult {status}")

    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    size = ctypes.c_size_t(PAIRS * BYTES)
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(memory), size)
    found = np.empty(PAIRS * BYTES // 4, np.uint32)
    for name, end in ENDS.items():
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        call("cuModuleLoadData", ctypes.byref(module), text(end).encode())
        call("cuModuleGetFunction", ctypes.byref(function), module, b"k")
        call("cuFuncSetAttribute", function, 8, SHARED)
        wrong = 0
        for first in range(0, 7919 * ROUNDS, 7919):
            call("cuMemsetD32_v2", memory, 0xFFFFFFFF, ctypes.c_size_t(found.size))
            values = ctypes.c_uint64(memory.value), ctypes.c_uint32(first)
            arguments = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
            call("cuLaunchKernel", function, 2 * PAIRS, 1, 1, 1024, 1, 1, SHARED, None, arguments, None)
            call("cuCtxSynchronize")
            call("cuMemcpyDtoH_v2", found.ctypes.data_as(ctypes.c_void_p), memory, size)
            wanted = np.arange(first, first + PAIRS, dtype=np.uint32)[:, None]
            wrong += int((found.reshape(PAIRS, -1) != wanted).sum())
        print(f"{name}: {ROUNDS * PAIRS} pairs, {wrong} wrong words", flush=True)


if __name__ == "__main__":
    main()
