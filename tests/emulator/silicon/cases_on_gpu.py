"""The cases on a GPU, through the CUDA driver: `python cases_on_gpu.py FOLDER CODE OUT`. Needs NumPy and a driver.

FOLDER: what `python -m tests.emulator.silicon.emulated_cases FOLDER` wrote; cases*.py, all_cases.py and on_gpu.py are
beside this file. CODE: the cases' PTX, or a cubin of it. OUT: gets cases.json with digests, and differences.npz with
the results of cases whose digest is another than the emulator's. A fault ends the run; with names behind OUT only cases
that begin with one of them run.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

if __package__:
    from tests.emulator.silicon import all_cases
    from tests.emulator.silicon.cases import Bytes, Case, Map, digest
    from tests.emulator.silicon.on_gpu import check, driver
else:
    import all_cases  # type: ignore[import-not-found,no-redef]
    from cases import Bytes, Case, Map, digest  # type: ignore[import-not-found,no-redef]
    from on_gpu import check, driver  # type: ignore[import-not-found,no-redef]

TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32.ftz", "tf32", "tf32.ftz")
"""As the driver numbers them."""
SWIZZLES = ("none", "32", "64", "128")
MOST_BYTES = 6 << 20
DYNAMIC_SHARED = 8


class Refused(Exception):
    """A tensor map, by the driver."""


def encode(map_: Map, address: int) -> Any:
    """128 bytes at a multiple of 64, by the driver."""
    memory = (ctypes.c_uint64 * 24)()
    at = -ctypes.addressof(memory) % 64 // 8
    rank = len(map_.sizes)
    sizes = (ctypes.c_uint64 * rank)(*map_.sizes)
    strides = (ctypes.c_uint64 * max(1, rank - 1))(*map_.strides)
    steps = (ctypes.c_uint32 * rank)(*(map_.steps or (1,) * rank))
    to = ctypes.byref(memory, 8 * at)
    common = (to, TYPES.index(map_.element), rank, ctypes.c_void_p(address), sizes, strides)
    tail = (map_.interleave, SWIZZLES.index(map_.swizzle), 0, int(map_.nan_outside))
    if map_.lower:
        lower, upper = (ctypes.c_int * 3)(*map_.lower), (ctypes.c_int * 3)(*map_.upper)
        status = driver.cuTensorMapEncodeIm2col(*common, lower, upper, map_.channels, map_.pixels, steps, *tail)
    else:
        box = (ctypes.c_uint32 * rank)(*map_.box)
        status = driver.cuTensorMapEncodeTiled(*common, box, steps, *tail)
    if status:
        raise Refused(f"refused: CUresult {status}")
    return memory, at


class Gpu:
    """The first GPU, with the cases' code, and memory for what a case is given and what it changes."""

    def __init__(self, code: bytes) -> None:
        device, context, self.module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        check(driver.cuInit(0), "cuInit")
        check(driver.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
        check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
        check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        check(driver.cuModuleLoadData(ctypes.byref(self.module), code + b"\0"), "cuModuleLoadData")
        self.memory = ctypes.c_uint64()
        check(driver.cuMemAlloc_v2(ctypes.byref(self.memory), 2 << 20), "cuMemAlloc")
        name = ctypes.create_string_buffer(100)
        check(driver.cuDeviceGetName(name, 100, device), "cuDeviceGetName")
        self.name = name.value.decode()
        self.maps: dict[str, str] = {}
        """What the driver made of the maps, beside the tensor's address."""

    def run(self, case: Case) -> Bytes:
        given, out = self.memory.value, self.memory.value + (1 << 20)
        for address, data in ((given, case.given), (out, case.out)):
            if data.size:
                check(driver.cuMemcpyHtoD_v2(ctypes.c_uint64(address), data.tobytes(), data.size), "copy")
        map_memory, at = (ctypes.c_uint64 * 24)(), 0
        if case.map is not None:
            map_memory, at = encode(case.map, out if case.map.in_out else given)
            self.maps[case.name] = bytes(map_memory)[8 * at + 8 : 8 * at + 128].hex()
        held = [ctypes.c_uint64(given), ctypes.c_uint64(out)]
        pointers = (ctypes.c_void_p * 3)(*map(ctypes.addressof, held), ctypes.addressof(map_memory) + 8 * at)
        function = ctypes.c_void_p()
        check(driver.cuModuleGetFunction(ctypes.byref(function), self.module, case.entry.encode()), case.name)
        check(driver.cuFuncSetAttribute(function, DYNAMIC_SHARED, case.shared), case.name)
        shape = (case.blocks, 1, 1, case.threads, 1, 1, case.shared)
        check(driver.cuLaunchKernel(function, *shape, None, pointers, None), case.name)
        check(driver.cuCtxSynchronize(), case.name)
        result = np.zeros(case.out.size, np.uint8)
        check(driver.cuMemcpyDtoH_v2(result.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(out), result.size), "back")
        return result


def main(folder: str, code: str, out: str, *names: str) -> None:
    expected = json.loads(Path(folder, "expected.json").read_text())
    forms = [(opcode, form) for opcode, form in json.loads(Path(folder, "forms.json").read_text())]
    gpu = Gpu(Path(code).read_bytes())
    digests: dict[str, str] = {}
    differences: dict[str, Bytes] = {}
    kept = 0
    try:
        for case in all_cases.cases(forms):
            if names and not case.name.startswith(names):
                continue
            try:
                result = gpu.run(case)
            except Refused as refused:
                digests[case.name] = str(refused)
                continue
            digests[case.name] = digest(result)
            if digests[case.name] != expected.get(case.name) and kept + result.size <= MOST_BYTES:
                kept += result.size
                differences[case.name] = result
    finally:
        different = [name for name in digests if digests[name] != expected.get(name)]
        print(f"{gpu.name}: {len(digests)} cases, {len(different)} different: {' | '.join(different)[:6000]}")
        found = {"gpu": gpu.name, "digests": digests, "maps": gpu.maps}
        Path(out, "cases.json").write_text(json.dumps(found, indent=0))
        np.savez_compressed(Path(out, "differences.npz"), **differences)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(*sys.argv[1:])
