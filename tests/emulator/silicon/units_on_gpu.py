"""Sums over what a GPU's approximations give, through the CUDA driver: `python units_on_gpu.py UNITS OUT`.

UNITS: units_h200.txt, of which the opcodes and places count. OUT: the same with the sums of this GPU. Needs a driver
alone, and on_gpu.py and suite.py beside it. With a third argument, all 16,384 places of each opcode.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

PIECE = 1 << 18
"""Operands of a place."""
THREADS = 256


def sum_kernel(opcode: str) -> str:
    """PTX of a kernel whose every thread adds the mixed result of one operand to a 64-bit sum.

    The operand is `first` + the thread's number; of fp64 it is the upper word. mixed_sum in test_units.py is the sum.
    """
    name, type_ = opcode.rsplit(".", 1)
    if type_ == "f64":
        apply = (
            f"mov.b64 %d2, {{0, %r1}}; {name}.f64 %d2, %d2; mov.b64 {{%r3, %r2}}, %d2; mul.lo.u32 %r3, %r3, 0x9E3779B1;"
            " xor.b32 %r2, %r2, %r3;"
        )
    else:
        apply = f"{opcode} %r2, %r1;"
    mix = "mul.lo.u32 %r4, %r2, 0x9E3779B1; mad.lo.u32 %r4, %r1, 0x85EBCA77, %r4;\n"
    for shift, factor in ((15, "0x2C1B3C6D"), (13, "0x297A2D39"), (16, "1")):
        mix += f"shr.u32 %r5, %r4, {shift}; xor.b32 %r4, %r4, %r5; mul.lo.u32 %r4, %r4, {factor};\n"
    return (
        ".version 8.6\n.target sm_90a\n.address_size 64\n"
        ".visible .entry k(.param .u64 sum, .param .u32 first)\n{\n.reg .b32 %r<8>; .reg .b64 %d<4>;\n"
        "ld.param.u64 %d0, [sum]; ld.param.u32 %r0, [first];\n"
        "mov.u32 %r5, %ctaid.x; mov.u32 %r6, %ntid.x; mov.u32 %r7, %tid.x; mad.lo.u32 %r1, %r5, %r6, %r7;\n"
        f"add.u32 %r1, %r1, %r0;\n{apply}\n{mix}"
        "cvt.u64.u32 %d1, %r4; red.global.add.u64 [%d0], %d1;\nret;\n}\n"
    )


def main(units: str, out: str, everything: str = "") -> None:
    from on_gpu import Gpu, check, driver  # type: ignore[import-not-found]  # beside this file

    wanted: dict[str, list[int]] = {}
    for line in Path(units).read_text().splitlines():
        if line[0] != "#":
            opcode, place, _ = line.split(" ")
            wanted.setdefault(opcode, []).append(int(place))
    lines = []
    for opcode, places in wanted.items():
        gpu = Gpu(sum_kernel(opcode).encode())
        function = ctypes.c_void_p()
        check(driver.cuModuleGetFunction(ctypes.byref(function), gpu.module, b"k"), opcode)
        places = list(range(16384)) if everything else places
        check(driver.cuMemsetD8_v2(gpu.memory, 0, 8 * len(places)), "clear")
        for i, place in enumerate(places):
            held = ctypes.c_uint64(gpu.memory.value + 8 * i), ctypes.c_uint32(place * PIECE)
            pointers = (ctypes.c_void_p * 2)(*(ctypes.cast(ctypes.byref(one), ctypes.c_void_p) for one in held))
            blocks = PIECE // THREADS
            check(driver.cuLaunchKernel(function, blocks, 1, 1, THREADS, 1, 1, 0, None, pointers, None), "launch")
        sums = (ctypes.c_uint64 * len(places))()
        check(driver.cuMemcpyDtoH_v2(sums, gpu.memory, 8 * len(places)), "copy back")
        lines += [f"{opcode} {place} {found:x}" for place, found in zip(places, sums, strict=True)]
    head = f"# {gpu.name}: opcode, place of 2^18 operands beside each other, sum of mixed results (units_on_gpu.py)"
    Path(out).write_text("\n".join([head, *lines]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
