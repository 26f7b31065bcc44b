"""The few calls of the CUDA driver that host code in Python makes by itself, answered for one emulated chip."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from msa_ops.registry import parse_platform


@contextlib.contextmanager
def driver_of(arch: str, multiprocessors: int | None = None) -> Iterator[None]:
    """Within the block `cuda.bindings.driver` and `.runtime` know one device of this arch."""
    driver, runtime = (importlib.import_module(f"cuda.bindings.{name}") for name in ("driver", "runtime"))
    chip = parse_platform(arch)
    ok, runtime_ok = driver.CUresult.CUDA_SUCCESS, runtime.cudaError_t.cudaSuccess
    attribute = driver.CUdevice_attribute
    major, minor = int(arch.removeprefix("sm_")[:-2]), int(arch[-2])
    shared = 334_848 if arch == "sm_107a" else 232_448  # bytes that a block may have
    figures = {
        "COMPUTE_CAPABILITY_MAJOR": major,
        "COMPUTE_CAPABILITY_MINOR": minor,
        "MULTIPROCESSOR_COUNT": multiprocessors or chip.multiprocessors,
        "WARP_SIZE": 32,
        "MAX_THREADS_PER_BLOCK": 1024,
        "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
        "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
        "MAX_SHARED_MEMORY_PER_BLOCK": 48 << 10,
        "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": shared,
        "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": shared + 1024,
        "RESERVED_SHARED_MEMORY_PER_BLOCK": 1024,
        "MAX_REGISTERS_PER_BLOCK": 65_536,
        "MAX_REGISTERS_PER_MULTIPROCESSOR": 65_536,
        "CLUSTER_LAUNCH": 1,
        "COOPERATIVE_LAUNCH": 0,
        "MULTICAST_SUPPORTED": 1,
    }
    attributes = {getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}"): figure for name, figure in figures.items()}

    def attribute_of(name: Any, _: Any) -> tuple[Any, int]:
        if name not in attributes:
            raise NotImplementedError(f"{name} of an emulated chip")
        return ok, attributes[name]

    def answer(*values: Any) -> Any:
        return lambda *args, **kwargs: (ok, *values)

    changes: list[tuple[Any, str, Any]] = [
        (driver, "cuInit", answer()),
        (driver, "cuDriverGetVersion", answer(13000)),
        (driver, "cuDeviceGetCount", answer(1)),
        (driver, "cuDeviceGet", answer(driver.CUdevice(0))),
        (driver, "cuDeviceGetName", answer(chip.chips.encode())),
        (driver, "cuCtxGetCurrent", answer(driver.CUcontext(0))),
        (driver, "cuCtxSynchronize", answer()),
        (driver, "cuCtxCreate", answer(driver.CUcontext(0))),
        (driver, "cuDevicePrimaryCtxRetain", answer(driver.CUcontext(0))),
        (driver, "cuCtxSetCurrent", answer()),
        (driver, "cuStreamCreate", answer(driver.CUstream(0))),
        (driver, "cuStreamSynchronize", answer()),
        (driver, "cuStreamDestroy", answer()),
        (driver, "cuDeviceGetAttribute", attribute_of),
        (runtime, "cudaDeviceSynchronize", lambda: (runtime_ok,)),
        (runtime, "cudaGetDeviceCount", lambda: (runtime_ok, 1)),
        (runtime, "cudaGetDevice", lambda: (runtime_ok, 0)),
        (runtime, "cudaSetDevice", lambda device: (runtime_ok,)),
        (runtime, "cudaStreamSynchronize", lambda stream: (runtime_ok,)),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, value in changes:
            stack.enter_context(mock.patch.object(owner, name, value))
        yield
