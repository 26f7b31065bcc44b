"""Compiles one unit in a process of its own: `python -m msa_ops.build.worker MODULE CONFIG ARCH PREFIX FOLDER`.

A process a unit, because CuTe-DSL latches settings at its first compile and because a diagnostic printed by native
code must be seen. The folder receives PREFIX.o, PREFIX.ptx, PREFIX.cubin and PREFIX.symbols.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import tempfile
from pathlib import Path

from msa_ops.build import toolchain

# The default host target is the build machine itself, AVX-512 and all; a wheel must run on any x86-64 of its platform.
HOST_TARGET = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64-v2"


def main(module: str, config_name: str, arch: str, prefix: str, folder: str) -> None:
    toolchain.dsl_version()
    ctypes.CDLL(str(toolchain.runtime_library()), ctypes.RTLD_GLOBAL)
    with tempfile.TemporaryDirectory() as dump:
        os.environ.update(CUTE_DSL_KEEP="ptx,cubin", CUTE_DSL_DUMP_DIR=dump, CUTE_DSL_NO_CACHE="1", CUTE_DSL_ARCH=arch)
        import cutlass.cute as cute

        kernels = importlib.import_module(module)
        family = importlib.import_module(f"{module}_configs").FAMILY
        config = next(config for config in family.configs if config.name == config_name)
        host, arguments = kernels.trace(config)
        options = f"--gpu-arch {arch} --host-target '{HOST_TARGET}' {getattr(config, 'compile_options', '')}"
        compiled = cute.compile(host, *arguments, options=options)
        target = Path(folder)
        compiled.export_to_c(file_path=folder, file_name=prefix, function_prefix=prefix)
        (target / f"{prefix}.h").unlink()
        for kind in ("ptx", "cubin"):
            dumped = list(Path(dump).glob(f"*.{kind}"))
            if len(dumped) != 1:
                raise RuntimeError(f"{len(dumped)} {kind} files were dumped; expected one kernel a unit")
            (target / f"{prefix}.{kind}").write_bytes(dumped[0].read_bytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
