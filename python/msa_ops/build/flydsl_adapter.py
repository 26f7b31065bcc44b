"""The one place that imports FlyDSL: what kernels use of it, and compilation to a code object without a GPU or ROCm.

Kernels import their names from here, so that another release of FlyDSL is one file's business. FlyDSL is set up by
environment variables: `compile_kernel` sets them, above all the arch, which FlyDSL would otherwise guess silently.
The names resolve when they are first used, so that this module can be imported where FlyDSL is not installed.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msa_ops.build import toolchain

NAMES = {
    "compiler": "flydsl.compiler",
    "fx": "flydsl.expr",
    "range_constexpr": "flydsl.expr:range_constexpr",
    "const_expr": "flydsl.expr:const_expr",
    "rocdl": "flydsl.expr.rocdl",
    "vector": "flydsl._mlir.dialects.vector",
    "ir": "flydsl._mlir.ir",
    "llvm": "flydsl._mlir.dialects.llvm",
    "arith": "flydsl._mlir.dialects.arith",
    "gpu": "flydsl._mlir.dialects.gpu",
    "scf": "flydsl._mlir.dialects.scf",
}
"""Public name here -> module, or module:attribute, of FlyDSL."""

_TRACING = threading.Lock()
"""Two traces at once in a process share FlyDSL's state and corrupt each other."""


class FlyDslError(RuntimeError):
    """FlyDSL could not compile a kernel; the message holds its own."""


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"{__name__} has no {name!r}")
    toolchain.flydsl_version()
    toolchain.refuse_beside("cutlass", "FlyDSL")
    module, _, attribute = NAMES[name].partition(":")
    found = importlib.import_module(module)
    globals()[name] = getattr(found, attribute) if attribute else found
    return globals()[name]


def compile_kernel(
    trace: Callable[[], tuple[Callable[..., None], Sequence[Any]]], arch: str, work: Path
) -> tuple[bytes, str]:
    """Code object and ISA text of the one kernel that a launcher launches.

    trace: gives the launcher (a FlyDSL jit function) and the values to trace it with. arch: as "gfx950".
    work: an empty folder for FlyDSL's dumps and for the tools that it looks up under ROCM_PATH.
    Raises FlyDslError.
    """
    dump = work / "dump"
    settings = {
        "FLYDSL_GPU_ARCH": arch,
        "ARCH": arch,
        "COMPILE_ONLY": "1",
        "ROCM_PATH": str(_rocm_folder(work)),
        "FLYDSL_RUNTIME_ENABLE_CACHE": "0",
        "FLYDSL_DUMP_IR": "1",
        "FLYDSL_DUMP_DIR": str(dump),
    }
    with _TRACING:
        before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        try:
            launcher, values = trace()
            launcher(*values)
        except Exception as error:
            raise FlyDslError(_explain(error)) from error
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
    return _code_object(_one(dump, "*_gpu_module_to_binary.mlir"), arch), _one(dump, "*_final_isa.s").read_text()


def _rocm_folder(work: Path) -> Path:
    """What FlyDSL expects of a ROCm installation: a linker at llvm/bin/ld.lld."""
    folder = work / "rocm"
    linker = folder / "llvm" / "bin" / "ld.lld"
    linker.parent.mkdir(parents=True)
    linker.write_text(f'#!/bin/sh\nexec "{toolchain.zig()}" ld.lld "$@"\n')
    linker.chmod(0o755)
    return folder


def _one(dump: Path, pattern: str) -> Path:
    found = sorted(dump.glob(f"*/{pattern}"))
    if len(found) != 1:
        raise FlyDslError(f"{len(found)} files {pattern} were dumped; expected one kernel a unit")
    return found[0]


def _code_object(file: Path, arch: str) -> bytes:
    """The bytes inside the gpu.binary operation of a compiled module."""
    from flydsl._mlir import ir
    from flydsl._mlir.dialects import gpu
    from flydsl.compiler.jit_function import _create_mlir_context

    with _create_mlir_context():
        module = ir.Module.parse(file.read_text())
        objects = [
            gpu.ObjectAttr(entry)
            for operation in module.body.operations
            if operation.operation.name == "gpu.binary"
            for entry in operation.attributes["objects"]
        ]
        if len(objects) != 1 or f'chip = "{arch}"' not in str(objects[0].target):
            raise FlyDslError(
                f"compiled for {[str(entry.target) for entry in objects]}; expected one object for {arch}"
            )
        return bytes(objects[0].object)


def _explain(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"
    hints = {
        "lld": "the linker failed; FlyDSL needs ld.lld, which the extra `build` brings with ziglang",
        "serializing the module": "a call of the device library (__ocml_*, __ockl_*) is left: use native functions",
        "SharedAllocator": "shared memory is allocated once a kernel",
    }
    return "\n".join([text, *(hint for word, hint in hints.items() if word in text)])
