"""The kernel languages and binary tools of this environment, with their versions."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

DSL_DISTRIBUTION = "nvidia-cutlass-dsl"
DSL_VERSION = "4.8.1"
FLYDSL_VERSION = "0.5.0"


class ToolchainError(RuntimeError):
    """A tool that compilation needs is missing or has another version."""


@functools.cache
def dsl_version() -> str:
    """Version of CuTe-DSL; raises ToolchainError unless it is the pinned one with its CUDA 13 libraries."""
    try:
        found = importlib.metadata.version(DSL_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        raise ToolchainError(f"{DSL_DISTRIBUTION} is not installed; pip install 'msa-ops[build]'") from None
    if found != DSL_VERSION:
        raise ToolchainError(f"{DSL_DISTRIBUTION} is {found}; accepted: {DSL_VERSION}")
    if not runtime_library().is_file():
        raise ToolchainError(f"the CUDA 13 libraries of {DSL_DISTRIBUTION} are missing; install its extra cu13")
    return found


@functools.cache
def flydsl_version() -> str:
    """Version of FlyDSL; raises ToolchainError unless it is the pinned one."""
    try:
        found = importlib.metadata.version("flydsl")
    except importlib.metadata.PackageNotFoundError:
        raise ToolchainError("flydsl is not installed; pip install 'msa-ops[build]'") from None
    if found != FLYDSL_VERSION:
        raise ToolchainError(f"flydsl is {found}; accepted: {FLYDSL_VERSION}")
    return found


_LANGUAGES = {"cutlass": "CuTe-DSL", "flydsl": "FlyDSL"}
"""Packages of the kernel languages."""


def refuse_beside(package: str, wanted: str) -> None:
    """To be called before a kernel language is imported: each loads an MLIR of its own, the second one of a process
    aborts it ("refusing to add duplicate key").

    package: the other language's. Raises ToolchainError if it is loaded.
    """
    if f"{package}._mlir" in sys.modules:
        raise ToolchainError(
            f"{wanted} cannot be loaded: this process has loaded {_LANGUAGES[package]}, and the two abort Python "
            "together; use a process for each"
        )


@functools.cache
def distribution_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise ToolchainError(f"{name} is not installed; pip install 'msa-ops[build]'") from None


@functools.cache
def zig() -> Path:
    """The zig executable, whose `ld.lld` links AMD GPU code objects. Raises ToolchainError."""
    path = _package_folder("ziglang") / "zig"
    if not path.is_file():
        raise ToolchainError("ziglang is not installed; pip install 'msa-ops[build]'")
    path.chmod(path.stat().st_mode | 0o111)
    return path


@functools.cache
def runtime_library() -> Path:
    """The library that resolves an exported object's symbols while the exporter links it in memory."""
    return _package_folder("nvidia_cutlass_dsl") / "cu13" / "lib" / "libcute_dsl_runtime.so"


@functools.cache
def tool(name: str) -> str:
    """Path of ptxas, nvdisasm or cuobjdump from the NVIDIA wheels. Raises ToolchainError."""
    path = _package_folder("nvidia") / "cu13" / "bin" / name
    if not path.is_file():
        raise ToolchainError(f"{name} is not installed; pip install 'msa-ops[build]'")
    path.chmod(path.stat().st_mode | 0o111)  # wheels lose the bit when unpacked by some installers
    return str(path)


@functools.cache
def tool_version(name: str) -> str:
    text = subprocess.run([tool(name), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"V(\d+\.\d+\.\d+)", text)
    if found is None:
        raise ToolchainError(f"{name} --version prints no version")
    return found.group(1)


def _package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ToolchainError(f"{package} is not installed; pip install 'msa-ops[build]'")
    return Path(next(iter(spec.submodule_search_locations)))


def requirements() -> list[str]:
    """What the extra `build` of this distribution asks for."""
    return [
        requirement.partition(";")[0].strip()
        for requirement in importlib.metadata.requires("msa-ops") or ()
        if re.search(r"extra\s*==\s*.build.", requirement)
    ]


if __name__ == "__main__":
    print(" ".join(requirements()))
