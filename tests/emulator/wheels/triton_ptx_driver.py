"""A driver for Triton's NVIDIA backend: it compiles PTX, and launches run on the emulator by `run_ptx`.

Triton needs no GPU and no CUDA for it. ptxas, which comes with its wheel, compiles as ever; what runs is the PTX.
"""

from __future__ import annotations

import gc
import re
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from msa_ops.emulator import JitSession, cpu_as_gpu, jit, run_ptx, tensor_map
from msa_ops.emulator.tensor_map import SWIZZLES, TYPES
from tests.emulator.wheels.triton_driver import Launches, _Driver, _flat, _storage

CAPABILITIES = {"sm_90a": 90, "sm_100a": 100}
SHARED_BYTES = 232_448
MULTIPROCESSORS = 8
"""What host code is told: so few that persistent kernels go round."""
MAX_INSTRUCTIONS = 50_000_000


@contextmanager
def emulated_triton(chip: str) -> Iterator[Launches]:
    """Inside, torch and Triton show one GPU of the chip, and kernels launch on tensors of "cuda"."""
    from triton import knobs
    from triton.runtime import driver

    launches = Launches()
    before = driver._active
    with jit(chip) as session, cpu_as_gpu(session, multiprocessors=MULTIPROCESSORS):
        emulated = _PtxDriver(launches, session)
        driver.set_active(emulated)
        knobs.runtime.kernel_load_start_hook.add(emulated.read_text)
        _forget_answers()
        try:
            yield launches
        finally:
            knobs.runtime.kernel_load_start_hook.remove(emulated.read_text)
            driver._active = before
            _forget_answers()


def _forget_answers() -> None:
    """Kernels that were compiled for another driver, and what packages remember of the GPU."""
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    for one in gc.get_objects():
        if issubclass(type(one), JITFunction):
            one.device_caches.clear()
        elif issubclass(type(one), Autotuner):
            one.cache.clear()
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in _PACKAGES:
            for value in list(vars(module).values()):
                if callable(getattr(value, "cache_clear", None)):
                    value.cache_clear()


_PACKAGES = ("fla", "liger_kernel", "triton_kernels", "conch", "sageattention", "torchao")


class _Launcher:
    """Triton's `launcher_cls`: called for each launch with its grid, the function and the arguments."""

    driver: _PtxDriver

    def __init__(self, source: Any, metadata: Any) -> None:
        from triton.backends.driver import expand_signature, wrap_handle_tensordesc_impl
        from triton.backends.nvidia.driver import make_tensordesc_arg

        signature = dict(source.signature)
        maps = getattr(metadata, "tensordesc_meta", None)
        self._kinds = list(_flat(expand_signature(signature.values(), maps, "nvTmaDesc")))
        self._about = metadata
        self._launch = wrap_handle_tensordesc_impl(self._run, signature, maps, make_tensordesc_arg)

    def __call__(self, x: int, y: int, z: int, _stream: int, function: Any, *rest: Any) -> None:
        # Metadata and hooks come before the kernel's arguments.
        self._launch(x, y, z, function, tuple(rest[4:]))

    def _run(self, x: int, y: int, z: int, function: tuple[str, str], values: Sequence[Any]) -> None:
        text, name = function
        about, blocks = self._about, self._about.num_ctas
        if not x * y * z:
            return
        given = [value for value, kind in zip(_flat(values), self._kinds, strict=True) if kind != "constexpr"]
        pointers = [value for value in given if hasattr(value, "data_ptr")] + self.driver.mapped
        scratch = [self._scratch(x * y * z, kind) for kind in ("global", "profile")]
        found = re.search(r"\.reqntid (\d+)", text)  # more than asked for, if Triton parts warps by roles
        report = run_ptx(
            text,
            name,
            (x * blocks, y, z),
            int(found.group(1)) if found else 32 * about.num_warps,
            [_argument(value) for value in (*given, *scratch)],
            about.shared,
            self.driver.memory([*pointers, *(one for one in scratch if one is not None)]),
            MAX_INSTRUCTIONS,
            (blocks, 1, 1) if blocks > 1 else None,
            self.driver.session.chip,
            self.driver.launches.seed,
        )
        self.driver.launches.reports.append((name, report))

    def _scratch(self, blocks: int, kind: str) -> torch.Tensor | None:
        size = getattr(self._about, f"{kind}_scratch_size") * blocks * self._about.num_ctas
        return torch.empty(size, dtype=torch.uint8, device="cuda") if size else None


def _argument(value: Any) -> Any:
    """Pointers as numbers: what may be read there is told apart from them."""
    if hasattr(value, "data_ptr"):
        return value.data_ptr()
    return int(value) if isinstance(value, bool) else value


class _PtxDriver(_Driver):
    def __init__(self, launches: Launches, session: JitSession) -> None:
        super().__init__(launches)
        self.launches, self.session = launches, session
        self.capability = CAPABILITIES[session.chip]
        self.mapped: list[Any] = []
        self._text = ""
        self.launcher_cls = type("Launcher", (_Launcher,), {"driver": self})
        self.utils = types.SimpleNamespace(
            get_device_properties=lambda _: {
                "max_shared_mem": SHARED_BYTES, "multiprocessor_count": MULTIPROCESSORS, "warpSize": 32,
                "max_num_regs": 65536, "sm_clock_rate": 1, "mem_clock_rate": 1, "mem_bus_width": 1,
            },
            load_binary=lambda name, code, shared, device: (None, (self._text, name), 0, 0, 1024),
            unload_module=lambda _: None,
            fill_tma_descriptor_tiled=_tensor_map,
        )  # fmt: skip

    def read_text(self, _module: Any, _function: Any, _name: str, files: dict[str, str], _hash: str) -> None:
        """Triton's hook before a kernel is loaded."""
        (path,) = (path for name, path in files.items() if name.endswith(".ptx"))
        self._text = Path(path).read_text()

    def memory(self, pointers: Sequence[Any]) -> dict[str, torch.Tensor]:
        """The whole memory of these tensors, of which arguments may be parts."""
        found = {}
        for one in pointers:
            if isinstance(one, torch.Tensor) and one.untyped_storage().nbytes():
                address, size, whole = *self.session.lent(one.untyped_storage()), _storage(one)
                found[f"{address:x}"] = whole[address - whole.data_ptr() :][:size]
        return found

    def get_benchmarker(self) -> Any:
        """All configurations take the same time, without being run: Triton takes the first."""
        return lambda *_, **__: [1.0, 1.0, 1.0]

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        return torch.cuda


def _tensor_map(
    address: int, swizzle: int, size: int, kind: int, box: Sequence[int], shape: Sequence[int], strides: Sequence[int],
    padding: int,
) -> bytes:  # fmt: skip
    """As Triton's C code asks the driver for it: dimension 0 is the last one of the lists."""
    return tensor_map(
        address,
        TYPES[kind],
        list(reversed(shape)),
        [stride * size for stride in reversed(strides[:-1])],
        list(reversed(box)),
        swizzle=list(SWIZZLES)[swizzle],
        nan_outside=bool(padding),
        l2_promotion=2,
    )
