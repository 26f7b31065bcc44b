"""Compiles one FlyDSL unit in a process: `python -m msa_ops.build.flydsl_worker MODULE CONFIG ARCH NAME FOLDER`.

A process a unit, so that a diagnostic printed by native code is seen. The folder receives NAME.hsaco, the linked code
object, and NAME.s, its ISA.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path

from msa_ops.build import flydsl_adapter


def main(module: str, config_name: str, arch: str, name: str, folder: str) -> None:
    kernels = importlib.import_module(module)
    family = importlib.import_module(f"{module}_configs").FAMILY
    config = next(config for config in family.configs if config.name == config_name)
    with tempfile.TemporaryDirectory() as work:
        code, text = flydsl_adapter.compile_kernel(lambda: kernels.trace(config), arch, Path(work))
    (Path(folder) / f"{name}.hsaco").write_bytes(code)
    (Path(folder) / f"{name}.s").write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
