"""`python -m msa_ops.build`: compiles the kernels of the given architectures for CMake to link."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msa_ops import whole_file
from msa_ops.build import budgets
from msa_ops.build.driver import CompileError, compile_all
from msa_ops.build.toolchain import ToolchainError
from msa_ops.build.unit import built_archs, families, units


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m msa_ops.build", description=__doc__)
    parser.add_argument("--arch", action="append", help=f"may be repeated; default: {', '.join(built_archs())}")
    parser.add_argument("--out", type=Path, default=Path("build/kernels"), help="folder for the objects")
    parser.add_argument("--cache", type=Path, default=Path("build/kernel-cache"), help="folder of the compile cache")
    parser.add_argument("--jobs", type=int, help="processes at a time; default: the cores")
    parser.add_argument("--op", action="append", help="only kernels of this op; may be repeated")
    parser.add_argument(
        "--line-info",
        action="store_true",
        help="kernels of CuTe-DSL with lines of their sources, for faults of the emulator",
    )
    parser.add_argument("--verbose", action="store_true", help="print what each kernel uses")
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--check-budgets", type=Path, metavar="FOLDER", help="fail if a kernel is over its budget")
    budget.add_argument("--write-budgets", type=Path, metavar="FOLDER", help="make what the kernels use their budgets")
    args = parser.parse_args(argv)
    archs = list(dict.fromkeys(args.arch or built_archs()))
    try:
        _check("--arch", archs, built_archs())
        _check("--op", args.op or (), sorted({family.op for family in families()}))
        wanted = [unit for unit in units(archs) if not args.op or unit.family.op in args.op]
        if not wanted:
            raise ValueError(f"--op: no kernel of {', '.join(args.op)} for {', '.join(archs)}")
        limits = _budgets(archs, args.check_budgets, args.write_budgets)
        metadata = compile_all(wanted, args.out, args.cache, args.jobs, line_info=args.line_info)
    except (CompileError, ToolchainError, ValueError, OSError) as error:
        print(f"msa_ops.build: error: {error}", file=sys.stderr)
        return 2
    for entry in metadata if args.verbose else ():
        print(entry["name"], *(f"{key}={value}" for key, value in budgets.measured(entry).items()))
    for arch in archs:
        of_arch = [entry for entry in metadata if entry["arch"] == arch]
        if args.write_budgets:
            found = budgets.updated(of_arch, limits[arch], args.op)
            whole_file.write(args.write_budgets / f"{arch}.json", json.dumps(found, indent=1) + "\n")
        elif args.check_budgets:
            wanted_budgets = {
                name: budget
                for name, budget in limits[arch].items()
                if not args.op or name.partition("__")[0] in args.op
            }
            over = budgets.violations(of_arch, wanted_budgets)
            if over:
                print("\n".join(["msa_ops.build: error: not as budgeted:", *over]), file=sys.stderr)
                return 1
    return 0


def _budgets(archs: Iterable[str], checked: Path | None, written: Path | None) -> dict[str, dict[str, dict[str, Any]]]:
    """The budgets of each arch that the options name; before anything is compiled, for that takes long."""
    folder = checked or written
    if folder is None:
        return {}
    if not folder.is_dir():
        raise ValueError(f"{'--check-budgets' if checked else '--write-budgets'}: {folder} is no folder")
    files = {arch: folder / f"{arch}.json" for arch in archs}
    return {arch: budgets.read(file) if checked or file.exists() else {} for arch, file in files.items()}


def _check(option: str, given: Iterable[str], accepted: Sequence[str]) -> None:
    """Raises ValueError for the first that is not accepted."""
    for one in given:
        if one not in accepted:
            raise ValueError(f"{option}: {one!r}; accepted: {', '.join(accepted)}")


if __name__ == "__main__":
    sys.exit(main())
