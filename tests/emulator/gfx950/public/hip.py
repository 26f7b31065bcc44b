"""The stand-in for HIP: code objects that FlyDSL loads, and launches of them on the emulator."""

from __future__ import annotations

import ctypes
import gc
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from msa_ops import _C
from msa_ops.build import toolchain
from msa_ops.emulator.memory import Allocation
from msa_ops.emulator.run import Report, report_of

FAILED = 719  # hipErrorLaunchFailure

_LOAD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_char_p)
_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint),
    ctypes.c_uint,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_void_p),
)
_MEMORY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t)


@dataclass(frozen=True)
class Launch:
    """One launch that ran: on as many devices as it has reports. seconds: of processors."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    reports: list[Report]
    seconds: float

    @property
    def wave_instructions(self) -> int:
        return sum(report.total_warp_instructions for report in self.reports)


@dataclass
class Hip:
    """seed: of random schedules, another one for each launch; None: waves take turns. folder: for the library.

    launches: what ran. error: the first exception of a launch; after it nothing runs any more.
    uncached: memory that a host would allocate uncached. accept: known faults to pass over (run_gfx950).
    """

    folder: Path
    seed: int | None = None
    keep: Path | None = None
    max_instructions: int = 2 * 10**9
    launches: list[Launch] = field(default_factory=list)
    error: BaseException | None = None
    uncached: list[torch.Tensor] = field(default_factory=list)
    accept: list[tuple[str, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._modules: list[bytes] = []
        self._functions: list[tuple[bytes, dict[str, Any]]] = []
        self._allocated: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self._together: list[tuple[Any, ...]] | None = None
        self._library = ctypes.CDLL(str(_build(self.folder)), ctypes.RTLD_GLOBAL)
        self._callbacks = _LOAD(self._load), _FUNCTION(self._function), _LAUNCH(self._launch), _MEMORY(self._memory)
        self._library.msa_ops_connect(*self._callbacks)

    @contextmanager
    def devices(self) -> Iterator[None]:
        """Launches inside are those of one kernel on several devices, in order of their ranks; they run at the end."""
        self._together = []
        try:
            yield
            queued, self._together = self._together, None
            self._run(queued)
        finally:
            self._together = None

    def raise_error(self) -> None:
        if self.error is not None:
            raise self.error

    def _load(self, module: Any, image: int) -> int:
        header = ctypes.string_at(image, 64)
        sections, size, count = (*struct.unpack_from("<Q", header, 40), *struct.unpack_from("<HH", header, 58))
        self._modules.append(ctypes.string_at(image, sections + size * count))
        module[0] = len(self._modules)
        return 0

    def _function(self, function: Any, module: int, name: bytes) -> int:
        code = self._modules[module - 1]
        kernel = next(k for k in _C.code_object_kernels(code) if k["name"] == name.decode())
        self._functions.append((code, kernel))
        function[0] = len(self._functions)
        if self.keep is not None:
            self.keep.mkdir(parents=True, exist_ok=True)
            (self.keep / f"{len(self._functions):04}_{name.decode()}.hsaco").write_bytes(code)
        return 0

    def _memory(self, address: Any, size: int) -> int:
        if size == 0:
            del self._allocated[address[0]]
        else:
            buffer = ctypes.create_string_buffer(size)
            address[0] = ctypes.addressof(buffer)
            self._allocated[address[0]] = buffer
        return 0

    def _launch(self, function: int, shape: Any, lds: int, parameters: Any, extra: Any) -> int:
        if self.error is not None:
            return FAILED
        try:
            if extra:
                raise NotImplementedError("a launch with packed arguments")
            code, kernel = self._functions[function - 1]
            made = bytearray(max((offset + size for offset, size, _ in kernel["arguments"]), default=0))
            for i, (offset, size, _) in enumerate(kernel["arguments"]):
                made[offset : offset + size] = ctypes.string_at(parameters[i], size)
            launch = code, kernel["name"], tuple(shape[0:3]), tuple(shape[3:6]), lds, bytes(made)
            if self._together is None:
                self._run([launch])
            else:
                self._together.append(launch)
        except BaseException as error:
            self.error = error
            return FAILED
        return 0

    def _run(self, launches: list[tuple[Any, ...]]) -> None:
        code, name, grid, block, lds, _ = launches[0]
        if any(launch[:5] != launches[0][:5] for launch in launches):
            raise NotImplementedError("different kernels on several devices")
        memory = self._live_memory()
        uncached = [(x.data_ptr(), x.nbytes) for x in self.uncached]
        seed = None if self.seed is None else self.seed * 1000 + len(self.launches)
        started = time.process_time()
        if len(launches) == 1:
            counters = [
                _C.emulate_code_object(
                    code,
                    name,
                    grid,
                    block,
                    lds,
                    launches[0][5],
                    memory,
                    self.max_instructions,
                    seed,
                    uncached,
                    self.accept,
                )
            ]
        else:
            counters = _C.emulate_code_object_on_devices(
                code,
                name,
                grid,
                block,
                lds,
                [launch[5] for launch in launches],
                [memory] * len(launches),
                self.max_instructions,
                seed,
                uncached,
                self.accept,
            )
        seconds = time.process_time() - started
        self.launches.append(Launch(name, grid, block, [report_of(count) for count in counters], seconds))

    def _live_memory(self) -> list[Allocation]:
        """The storage of every tensor that lives, and what was allocated through HIP."""
        found = {}
        for value in gc.get_objects():
            if issubclass(type(value), torch.Tensor) and value.layout == torch.strided and value.device.type == "cpu":
                storage = value.untyped_storage()
                if storage.nbytes():
                    found[storage.data_ptr()] = storage.nbytes(), f"{value.dtype} {tuple(value.shape)}"
        for address, buffer in self._allocated.items():
            found[address] = len(buffer), "hipMalloc"
        return [Allocation(address, size, True, name) for address, (size, name) in sorted(found.items())]


def _build(folder: Path) -> Path:
    """Compiles hip.c with the symbol version that FlyDSL's runtime asks for."""
    library, versions = folder / "libamdhip64.so.7", folder / "versions"
    versions.write_text("hip_4.2 { global: hip*; msa_ops_connect; local: *; };\n")
    command = [str(toolchain.zig()), "cc", "-shared", "-fPIC", "-O1", f"-Wl,--version-script={versions}"]
    command += [f"-Wl,-soname,{library.name}", "-o", str(library), str(Path(__file__).with_name("hip.c"))]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return library
