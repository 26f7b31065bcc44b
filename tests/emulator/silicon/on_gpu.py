"""The suite on a GPU, through the CUDA driver: `python on_gpu.py PROGRAMS CODE OUT`. Needs NumPy and a driver alone.

PROGRAMS: as `python -m tests.emulator.silicon.prepare` writes it, with the emulator's digests. CODE: the suite's PTX,
or a cubin of it. OUT: gets digests.json, and differences.npz with the results of instructions whose digest is another.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import numpy as np

if __package__:
    from tests.emulator.silicon import suite
else:
    import suite  # type: ignore[no-redef]

MOST_BYTES = 12 << 20
"""Of results that are kept."""

driver = ctypes.CDLL("libcuda.so.1")


def check(status: int, what: str) -> None:
    if status:
        raise RuntimeError(f"{what}: CUresult {status}")


class Gpu:
    """The first GPU, with the suite's code and a piece of memory."""

    def __init__(self, code: bytes) -> None:
        device, context, self.module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        check(driver.cuInit(0), "cuInit")
        check(driver.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
        check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
        check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        check(driver.cuModuleLoadData(ctypes.byref(self.module), code + b"\0"), "cuModuleLoadData")
        self.memory = ctypes.c_uint64()
        check(driver.cuMemAlloc_v2(ctypes.byref(self.memory), 1 << 20), "cuMemAlloc")
        name = ctypes.create_string_buffer(100)
        check(driver.cuDeviceGetName(name, 100, device), "cuDeviceGetName")
        self.name = name.value.decode()

    def run(self, program: suite.Program) -> list[np.ndarray]:
        values = suite.operand_values(program)
        offsets, at = [], 0
        for value in values:
            data = value.tobytes()
            check(driver.cuMemcpyHtoD_v2(ctypes.c_uint64(self.memory.value + at), data, len(data)), "copy")
            offsets.append(at)
            at += len(data)
        to, place = [], 0
        for size in program.outputs:
            to.append(place)
            place += size * suite.COUNT
        out = self.memory.value + (1 << 19)
        numbers = [self.memory.value, *offsets, *[0] * (5 - len(offsets)), out, *to, *[0] * (3 - len(to))]
        held = [ctypes.c_uint64(number) for number in numbers]
        pointers = (ctypes.c_void_p * len(held))(*(ctypes.cast(ctypes.byref(h), ctypes.c_void_p) for h in held))
        function = ctypes.c_void_p()
        check(driver.cuModuleGetFunction(ctypes.byref(function), self.module, program.entry.encode()), program.entry)
        check(driver.cuLaunchKernel(function, suite.COUNT // 256, 1, 1, 256, 1, 1, 0, None, pointers, None), "launch")
        result = np.zeros(place, np.uint8)
        check(driver.cuMemcpyDtoH_v2(result.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(out), place), "copy back")
        return [result[a : a + s * suite.COUNT].view(f"uint{8 * s}") for a, s in zip(to, program.outputs, strict=True)]


def main(programs: str, code: str, out: str) -> None:
    described = json.loads(Path(programs).read_text())
    gpu = Gpu(Path(code).read_bytes())
    digests, differences, kept = {}, {}, 0
    for opcode, (inputs, outputs, expected) in described.items():
        program = suite.Program(opcode, tuple(inputs), tuple(outputs), "")
        results = gpu.run(program)
        digests[opcode] = suite.digest(results)
        if digests[opcode] != expected:
            size = sum(result.nbytes for result in results)
            if kept + size <= MOST_BYTES:
                kept += size
                differences.update({f"{opcode} {i}": result for i, result in enumerate(results)})
    different = [opcode for opcode in described if digests[opcode] != described[opcode][2]]
    print(f"{gpu.name}: {len(described)} instructions, {len(different)} different: {' '.join(different)[:3000]}")
    Path(out, "digests.json").write_text(json.dumps({"gpu": gpu.name, "digests": digests}, indent=0))
    np.savez_compressed(Path(out, "differences.npz"), **differences)


if __name__ == "__main__":
    main(*sys.argv[1:])
