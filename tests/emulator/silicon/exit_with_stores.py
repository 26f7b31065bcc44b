"""Blocks that end with bulk stores for which nobody waited: do the bytes arrive as the block wrote them?

`python exit_with_stores.py`, on a machine with an sm_90 GPU, a driver and NumPy. Each block fills 192 KB of its memory
with its own number, stores it in three bulk copies, and ends: at once, after a commit, after `wait_group.read 1`, or
after it has waited for all. The next block of the multiprocessor overwrites that memory immediately.
"""

from __future__ import annotations

import ctypes

import numpy as np

BLOCKS, BYTES, COPIES, ROUNDS = 8000, 196_608, 3, 3
COMMIT = "cp.async.bulk.commit_group;"
ENDS = {
    "no group": ("", ""),
    "no wait": ("", COMMIT),
    "wait_group.read 1": (COMMIT, "cp.async.bulk.wait_group.read 1;"),
    "wait_group 0": ("", f"{COMMIT} cp.async.bulk.wait_group 0;"),
}
"""After each copy, and at the end."""


def text(each: str, last: str) -> str:
    stores = "\n".join(
        f"add.s64 %rd3, %rd2, {i * BYTES // COPIES}; add.u32 %r5, %r1, {i * BYTES // COPIES}; "
        f"cp.async.bulk.global.shared::cta.bulk_group [%rd3], [%r5], {BYTES // COPIES}; {each}"
        for i in range(COPIES)
    )
    return f"""
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .u64 p, .param .u32 first)
{{
  .reg .pred %p, %q; .reg .b32 %r<10>; .reg .b64 %rd<6>;
  ld.param.u64 %rd0, [p]; ld.param.u32 %r9, [first];
  mov.u32 %r0, %tid.x; mov.u32 %r1, smem; mov.u32 %r2, %ctaid.x;
  add.u32 %r8, %r2, %r9; shl.b32 %r3, %r0, 4; add.u32 %r4, %r1, %r3; mov.u32 %r6, 0;
L: st.shared.v4.b32 [%r4], {{%r8, %r8, %r8, %r8}};
  add.u32 %r4, %r4, 16384; add.u32 %r6, %r6, 16384;
  setp.lt.u32 %p, %r6, {BYTES}; @%p bra L;
  fence.proxy.async.shared::cta; bar.sync 0;
  setp.ne.u32 %q, %r0, 0; @%q bra E;
  mul.wide.u32 %rd1, %r2, {BYTES}; add.s64 %rd2, %rd0, %rd1;
{stores}
  {last}
E: ret;
}}
"""


def main() -> None:
    driver = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: object) -> None:
        status = getattr(driver, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: CUresult {status}")

    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    size = ctypes.c_size_t(BLOCKS * BYTES)
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(memory), size)
    found = np.empty(BLOCKS * BYTES // 4, np.uint32)
    for name, end in ENDS.items():
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        call("cuModuleLoadData", ctypes.byref(module), text(*end).encode())
        call("cuModuleGetFunction", ctypes.byref(function), module, b"k")
        call("cuFuncSetAttribute", function, 8, BYTES)
        wrong = 0
        for first in range(0, 7919 * ROUNDS, 7919):
            call("cuMemsetD32_v2", memory, 0xFFFFFFFF, ctypes.c_size_t(found.size))
            values = ctypes.c_uint64(memory.value), ctypes.c_uint32(first)
            arguments = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
            call("cuLaunchKernel", function, BLOCKS, 1, 1, 1024, 1, 1, BYTES, None, arguments, None)
            call("cuCtxSynchronize")
            call("cuMemcpyDtoH_v2", found.ctypes.data_as(ctypes.c_void_p), memory, size)
            wanted = np.arange(first, first + BLOCKS, dtype=np.uint32)[:, None]
            wrong += int((found.reshape(BLOCKS, -1) != wanted).sum())
        print(f"{name}: {ROUNDS * BLOCKS} blocks, {wrong} wrong words", flush=True)


if __name__ == "__main__":
    main()
