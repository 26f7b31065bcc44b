"""See the package's docstring."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import traceback
from pathlib import Path
from unittest import mock

import torch

from msa_ops.emulator import JitSession, jit
from tests.emulator.public.cases import Case, all_cases, change, forget
from tests.emulator.public.host import cpu_as_gpu


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.emulator.public")
    parser.add_argument("cutlass", type=Path, help="a checkout of NVIDIA/cutlass")
    parser.add_argument("case", nargs="*", help="names of cases, or 'all'")
    parser.add_argument("--seed", help="schedule: a number, or 'order'; several by commas", default="order,1,2")
    parser.add_argument("--limit", type=float, default=2e9, help="warp instructions after which a launch is given up")
    parser.add_argument("--keep", type=Path, help="an existing folder for the PTX of what was compiled")
    options = parser.parse_intermixed_args()
    cases = {case.name: case for case in all_cases()}
    if not options.case:
        print("\n".join(f"{case.name:40} {case.chip}" for case in cases.values()))
        return 0
    unknown = [name for name in options.case if name not in cases and name != "all"]
    if unknown:
        parser.error(f"no case is called {', '.join(unknown)}")
    chosen = list(cases) if "all" in options.case else options.case
    seeds = [None if one == "order" else int(one) for one in options.seed.split(",")]
    if len(chosen) == 1:
        case, cutlass, limit = cases[chosen[0]], options.cutlass.resolve(), int(options.limit)
        passed = [_run(case, cutlass, seed, limit, options.keep) for seed in seeds]
        return not all(passed)
    failed = []  # each in a process of its own: examples of one name would be one module
    for name in chosen:
        command = [sys.executable, "-m", __package__, str(options.cutlass), name, "--seed", options.seed]
        command += ["--keep", str(options.keep)] if options.keep else []
        if subprocess.run([*command, "--limit", str(options.limit)], check=False).returncode != 0:
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else f"all {len(chosen)} passed")
    return bool(failed)


def _run(case: Case, cutlass: Path, seed: int | None, limit: int, keep: Path | None) -> bool:
    torch.manual_seed(0)
    started = time.perf_counter()
    said: list[str] = []
    problem = ""
    found: set[str] = set()

    def add_changed(session: JitSession, code: bytes, ptx: str) -> None:
        text, held = change(ptx, case.mend)
        found.update(held)
        add_module(session, code, text)

    add_module = JitSession._add_module
    with (
        mock.patch.object(JitSession, "_add_module", add_changed),
        jit(case.chip, seed=seed, max_instructions=limit) as session,
        cpu_as_gpu(session),
    ):
        try:
            session.run(lambda: said.append(case.run(cutlass / "examples" / "python" / "CuTeDSL", session)))
            missing = [pattern for pattern, _ in case.mend if pattern not in found]
            if not session.launches:
                problem = "nothing was launched"
            elif missing:
                problem = f"nothing to mend: no text holds {missing[0]}"
        except Exception as error:
            traceback.print_exc(limit=-6)
            problem = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    forget(cutlass)
    for i, text in enumerate(session.texts if keep else ()):
        assert keep is not None
        (keep / f"{case.name}_{i}.ptx").write_text(text)
    instructions = sum(launch.report.total_warp_instructions for launch in session.launches)
    print(
        f"{case.name} {case.chip} seed {seed}: {'FAILED' if problem else 'passed'} {problem or said[0]}; "
        f"{len(session.launches)} launches, {instructions:,} warp instructions, {time.perf_counter() - started:.0f} s",
        flush=True,
    )
    return not problem


if __name__ == "__main__":
    raise SystemExit(main())
