"""A driver for Triton's AMD backend: it compiles for gfx950, and launches run on the emulator by `run_gfx950`.

Triton needs no GPU, no ROCm and no HIP for it: the linker and the device libraries come with its wheel.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from msa_ops.emulator import Report, run_gfx950
from tests.emulator.gfx950.public.host import torch_on_gfx950

LDS_BYTES = 160 * 1024


class Launches:
    """What ran. seed: of the schedule of the next launches."""

    def __init__(self) -> None:
        self.seed: int | None = None
        self.reports: list[tuple[str, Report]] = []


@contextmanager
def emulated_triton() -> Iterator[Launches]:
    """Inside, torch and Triton show one gfx950, and kernels launch on CPU tensors."""
    from triton.runtime import driver

    launches = Launches()
    before = driver._active
    driver.set_active(_Driver(launches))
    try:
        with torch_on_gfx950():
            yield launches
    finally:
        driver._active = before


class _Launcher:
    """Triton's `launcher_cls`: called for each launch with its grid, the function and the arguments."""

    launches: Launches

    def __init__(self, source: Any, metadata: Any) -> None:
        self._types = list(_flat(source.signature.values()))
        self._threads = metadata.num_warps * metadata.warp_size
        self._lds = metadata.shared
        if metadata.global_scratch_size or metadata.profile_scratch_size:
            raise NotImplementedError("a kernel that wants scratch memory of its launcher")

    def __call__(self, x: int, y: int, z: int, stream: int, function: Any, *rest: Any) -> None:
        code, name = function
        # Metadata and hooks come before the kernel's arguments.
        given = [value for value, kind in zip(_flat(rest[4:]), self._types, strict=True) if kind != "constexpr"]
        tensors = [value for value in given if isinstance(value, torch.Tensor)]
        memory = {f"{i}": _storage(tensor) for i, tensor in enumerate(tensors)}
        arguments = [value.data_ptr() if isinstance(value, torch.Tensor) else value for value in given]
        arguments = [int(value) if isinstance(value, bool) else value for value in arguments]
        report = run_gfx950(
            code,
            name,
            (x, y, z),
            self._threads,
            [*arguments, None, None],
            lds=self._lds,
            tensors=memory,
            seed=self.launches.seed,
        )
        self.launches.reports.append((name, report))


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple):
            yield from _flat(value)
        else:
            yield value


def _storage(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


class _Driver:
    def __init__(self, launches: Launches) -> None:
        self.launcher_cls = type("Launcher", (_Launcher,), {"launches": launches})
        self.utils = types.SimpleNamespace(
            get_device_properties=lambda _: {
                "max_shared_mem": LDS_BYTES, "multiprocessor_count": 256, "warpSize": 64, "arch": "gfx950",
                "max_num_regs": 65536, "sm_clock_rate": 0, "mem_clock_rate": 0, "mem_bus_width": 0,
            },
            load_binary=lambda name, code, shared, device: (None, (code, name), 0, 0, 1024),
            unload_module=lambda _: None,
        )  # fmt: skip

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("hip", "gfx950", 64)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, _: int) -> None: ...

    def get_current_stream(self, _: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_benchmarker(self) -> Callable[..., Any]:
        def once(function: Callable[[], Any], *_: Any, **__: Any) -> list[float]:
            function()
            return [1.0, 1.0, 1.0]

        return once

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(1)

    def clear_cache(self, _: Any) -> None: ...
