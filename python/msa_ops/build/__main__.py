"""`python -m msa_ops.build`: compiles the kernels of the given architectures for CMake to link."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from msa_ops.build.driver import CompileError, compile_all
from msa_ops.build.toolchain import ToolchainError
from msa_ops.build.unit import units

DEFAULT_ARCHS = ("sm_90a",)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m msa_ops.build", description=__doc__)
    parser.add_argument("--arch", action="append", help=f"may be repeated; default: {', '.join(DEFAULT_ARCHS)}")
    parser.add_argument("--out", type=Path, default=Path("build/kernels"), help="folder for the objects")
    parser.add_argument("--cache", type=Path, default=Path("build/kernel-cache"), help="folder of the compile cache")
    parser.add_argument("--jobs", type=int, help="processes at a time; default: the cores")
    args = parser.parse_args(argv)
    try:
        metadata = compile_all(units(args.arch or DEFAULT_ARCHS), args.out, args.cache, args.jobs)
    except (CompileError, ToolchainError, ValueError) as error:
        print(f"msa_ops.build: error: {error}", file=sys.stderr)
        return 2
    for entry in metadata:
        print(
            f"{entry['name']}: {entry['registers']} registers, "
            f"{entry['static_shared_memory'] + entry['dynamic_shared_memory']} B shared memory, "
            f"{sum(entry['instructions'].values())} instructions"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
