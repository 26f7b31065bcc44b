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
    attributes = {
        attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: int(arch.removeprefix("sm_")[:-2]),
        attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: int(arch[-2]),
        attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: multiprocessors or chip.multiprocessors,
    }

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
        (driver, "cuDeviceGetAttribute", lambda name, device: (ok, attributes[name])),
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
