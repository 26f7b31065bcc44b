"""See the package's docstring. Without a case: the list of them."""

from __future__ import annotations

import argparse
import os
import runpy
import shlex
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch

from msa_ops.build import toolchain
from tests.emulator.gfx950.public.cases import Case, all_cases
from tests.emulator.gfx950.public.hip import Hip
from tests.emulator.gfx950.public.host import stand_in_for_absent_packages, take_plain_types
from tests.emulator.gfx950.public.mend import mend
from tests.emulator.gfx950.public.pytest_run import public_tests


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.emulator.gfx950.public")
    parser.add_argument("flydsl", type=Path, help="a checkout of FlyDSL")
    parser.add_argument("case", nargs="*", help="names of cases, or 'all'")
    parser.add_argument(
        "--seed", type=_seed, action="append", help="of a random schedule, or 'fair', the default; may be given again"
    )
    parser.add_argument("--pytest", help="instead of cases: arguments of pytest, run on FlyDSL's own tests")
    parser.add_argument("--script", help="instead of cases: a script of the checkout, run as it is, with its arguments")
    parser.add_argument(
        "--accept",
        type=_known,
        action="append",
        default=[],
        metavar="KIND[@FIRST-LAST]",
        help="pass over this kind of fault, at these instructions: the case must be right for the rest",
    )
    parser.add_argument("--mend", help="with --pytest: put in what the kernel of this case lacks")
    parser.add_argument("--bitcode", type=Path, help="folder of ROCm's device libraries (ocml.bc, ...), which some use")
    parser.add_argument("--keep", type=Path, help="folder for the code objects")
    parser.add_argument("--limit", type=float, default=2e9, help="wave instructions after which a launch is given up")
    options = parser.parse_intermixed_args()
    if options.pytest:
        with tempfile.TemporaryDirectory() as work:
            _set_up(options.flydsl.resolve(), Path(work), options.bitcode)
            if options.mend is not None:
                _mend(f"{options.mend}_mended", Path(work))
            return public_tests(
                options.flydsl.resolve(),
                shlex.split(options.pytest),
                Hip(Path(work), keep=options.keep, max_instructions=int(options.limit), accept=options.accept),
                options.seed,
            )
    if options.script:
        with tempfile.TemporaryDirectory() as work:
            _set_up(options.flydsl.resolve(), Path(work), options.bitcode)
            hip = Hip(Path(work), keep=options.keep, max_instructions=int(options.limit), accept=options.accept)
            return _script(
                options.flydsl / shlex.split(options.script)[0], shlex.split(options.script)[1:], hip, options.seed
            )
    cases = {case.name: case for case in all_cases()}
    if not options.case:
        print("\n".join(f"{case.name:32} {case.what}" for case in cases.values()))
        return 0
    chosen = list(cases) if options.case == ["all"] else options.case
    runs = [(name, seed) for name in chosen for seed in options.seed or [None]]
    if len(runs) > 1:  # FlyDSL keeps what one trace made for the next, and some kernels cannot be traced again
        failed = [run for run in runs if subprocess.run(_command(options, *run), check=False).returncode != 0]
        print(f"failed: {failed}" if failed else f"all {len(runs)} passed")
        return bool(failed)
    ((name, seed),) = runs
    with tempfile.TemporaryDirectory() as work:
        _set_up(options.flydsl.resolve(), Path(work), options.bitcode)
        _mend(name, Path(work))
        hip = Hip(Path(work), keep=options.keep, max_instructions=int(options.limit), accept=options.accept)
        return not _run(cases[name], hip, seed)


def _script(file: Path, arguments: list[str], hip: Hip, seeds: list[int | None] | None) -> int:
    """Runs a script, which says itself whether its results are right; 0 if it launched and nothing was wrong."""
    from tests.emulator.gfx950.public.host import cpu_as_gpu

    hip.seed = seeds[0] if seeds else None
    sys.argv = [str(file), *arguments]
    with cpu_as_gpu():
        runpy.run_path(str(file), run_name="__main__")
    hip.raise_error()
    instructions = sum(launch.wave_instructions for launch in hip.launches)
    print(f"{file.name}: {len(hip.launches)} launches, {instructions:,} wave instructions")
    return not hip.launches


def _mend(name: str, folder: Path) -> None:
    (case,) = (case for case in all_cases() if case.name == name)
    mend(case.mend, folder)


def _seed(text: str) -> int | None:
    return None if text == "fair" else int(text)


def _known(text: str) -> tuple[str, int, int]:
    kind, _, places = text.partition("@")
    first, _, last = places.partition("-")
    return kind, int(first or "0", 0), int(last or first or "0xffffffff", 0)


def _command(options: argparse.Namespace, name: str, seed: int | None) -> list[str]:
    """A process for one case under one schedule."""
    command = [sys.executable, "-m", __package__, str(options.flydsl), name, "--limit", str(options.limit)]
    command += ["--seed", "fair" if seed is None else str(seed)]
    for kind, first, last in options.accept:
        command += ["--accept", f"{kind}@{first}-{last}"]
    for option in ("bitcode", "keep"):
        if getattr(options, option) is not None:
            command += [f"--{option}", str(getattr(options, option))]
    return command


def _set_up(flydsl: Path, work: Path, bitcode: Path | None) -> None:
    """FlyDSL compiles for gfx950 with our linker, and its checkout can be imported beside our own tests."""
    import tests

    linker = work / "rocm" / "llvm" / "bin" / "ld.lld"
    linker.parent.mkdir(parents=True)
    linker.write_text(f'#!/bin/sh\nexec "{toolchain.zig()}" ld.lld "$@"\n')
    linker.chmod(0o755)
    if bitcode is not None:
        (work / "rocm" / "amdgcn").mkdir()
        (work / "rocm" / "amdgcn" / "bitcode").symlink_to(bitcode.resolve())
    os.environ.update(
        FLYDSL_GPU_ARCH="gfx950",
        ARCH="gfx950",
        ROCM_PATH=str(work / "rocm"),
        FLYDSL_RUNTIME_ENABLE_CACHE="0",
        FLYDSL_RUNTIME_CACHE_DIR=str(work / "cache"),  # some tests switch it on
    )
    stand_in_for_absent_packages()
    take_plain_types()
    sys.path.insert(0, str(flydsl))
    tests.__path__.append(str(flydsl / "tests"))


def _run(case: Case, hip: Hip, seed: int | None) -> bool:
    from tests.emulator.gfx950.public.host import cpu_as_gpu

    hip.launches, hip.error, hip.seed = [], None, seed
    torch.manual_seed(0)
    started = time.perf_counter()
    problem: BaseException | None = None
    result = ""
    try:
        with cpu_as_gpu():
            result = case.run(hip)
        hip.raise_error()
    except Exception as error:
        problem = hip.error or error
        if hip.error is None and not isinstance(error, AssertionError):
            traceback.print_exc(limit=-4, chain=False)
    alarms = case.alarm is not None and not hip.accept
    if alarms and (problem is not None or not case.only_some_schedules):
        found = "wrong result" if isinstance(problem, AssertionError) else getattr(problem, "kind", None)
        result = f"with the alarm that it deserves: {problem}"
        deserved = (case.alarm,) if isinstance(case.alarm, str) else case.alarm or ()
        problem = None if found in deserved else RuntimeError(f"no alarm of the kind {case.alarm!r}: {problem}")
    elif problem is None and not hip.launches:
        problem = RuntimeError("nothing was launched")
    instructions = sum(launch.wave_instructions for launch in hip.launches)
    seconds = sum(launch.seconds for launch in hip.launches)
    schedule = "fair" if seed is None else f"seed {seed}"
    print(
        f"{case.name}, {schedule}: {'FAILED' if problem else 'passed'} {result}; {len(hip.launches)} launches, "
        f"{instructions:,} wave instructions in {seconds:.2f} s ({instructions / max(seconds, 1e-9) / 1e6:.2f} M/s), "
        f"{time.perf_counter() - started:.0f} s in all",
        flush=True,
    )
    if problem is not None:
        print(f"    {type(problem).__name__}: {str(problem).splitlines()[0]}", flush=True)
    return problem is None


if __name__ == "__main__":
    raise SystemExit(main())
