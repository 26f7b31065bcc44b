"""A kernel that lets the next one in its stream begin, waits, and only then writes what that one is to read.

Only a kernel that is launched to begin early (programmatic dependent launch) sees what stood there before.
"""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

DELAY_NS = 20_000
"""Long enough for the next kernel to be there and to have looked at what is not yet written."""
BLOCKS, THREADS = 16, 256

PTX = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry late_writer(.param .u64 table, .param .u32 count, .param .u32 delay)
{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<24>;
griddepcontrol.launch_dependents;
ld.param.u64 %rd0, [table];
ld.param.u32 %r0, [count];
ld.param.u32 %r1, [delay];
cvt.u64.u32 %rd1, %r1;
mov.u64 %rd2, %globaltimer;
WAIT:
nanosleep.u32 500;
mov.u64 %rd3, %globaltimer;
sub.u64 %rd4, %rd3, %rd2;
setp.lt.u64 %p0, %rd4, %rd1;
@%p0 bra WAIT;
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %ntid.x;
mov.u32 %r4, %tid.x;
mad.lo.u32 %r5, %r2, %r3, %r4;
mov.u32 %r6, %nctaid.x;
mul.lo.u32 %r7, %r6, %r3;
cvt.u64.u32 %rd5, %r5;
cvt.u64.u32 %rd6, %r7;
NEXT:
setp.eq.u32 %p1, %r0, 0;
@%p1 bra END;
ld.global.u64 %rd7, [%rd0];
ld.global.u64 %rd8, [%rd0+8];
ld.global.u64 %rd9, [%rd0+16];
mov.u64 %rd10, %rd5;
WORD:
setp.ge.u64 %p2, %rd10, %rd9;
@%p2 bra DONE;
shl.b64 %rd11, %rd10, 2;
add.u64 %rd12, %rd8, %rd11;
add.u64 %rd13, %rd7, %rd11;
ld.global.u32 %r8, [%rd12];
st.global.u32 [%rd13], %r8;
add.u64 %rd10, %rd10, %rd6;
bra WORD;
DONE:
add.u64 %rd0, %rd0, 24;
sub.u32 %r0, %r0, 1;
bra NEXT;
END:
ret;
}
"""


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _check(status: int, what: str) -> None:
    if status:
        raise RuntimeError(f"{what}: CUresult {status}")


@functools.cache
def _function() -> ctypes.c_void_p:
    """In torch's context."""
    torch.cuda.init()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _check(_driver().cuModuleLoadData(ctypes.byref(module), PTX.encode() + b"\0"), "cuModuleLoadData")
    _check(_driver().cuModuleGetFunction(ctypes.byref(function), module, b"late_writer"), "cuModuleGetFunction")
    return function


class LateWriter:
    """Copies tensors of bytes, late; `launch` may be captured. Sizes are multiples of four bytes."""

    def __init__(self, targets: list[Tensor], sources: list[Tensor]) -> None:
        rows = []
        for target, source in zip(targets, sources, strict=True):
            size = target.numel()
            if size != source.numel() or size % 4:
                raise ValueError(f"{source.numel()} bytes to {size}; accepted: the same number, a multiple of 4")
            rows.append([target.data_ptr(), source.data_ptr(), size // 4])
        self.held = [*targets, *sources]
        self.table = torch.tensor(rows, dtype=torch.int64, device="cuda")
        _function()

    def launch(self) -> None:
        """On torch's current stream."""
        values = (ctypes.c_uint64(self.table.data_ptr()), ctypes.c_uint32(len(self.table)), ctypes.c_uint32(DELAY_NS))
        pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        status = _driver().cuLaunchKernel(_function(), BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, pointers, None)
        _check(status, "cuLaunchKernel")
