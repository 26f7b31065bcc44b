"""Compiles units in parallel processes, with a content-addressed cache, and writes the tables that CMake links.

A unit fails if its compiler fails or prints an error, if it spills registers, if its shared memory exceeds what the
chip has, or if its disassembly is empty.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from msa_ops import whole_file
from msa_ops.build import compile_cache, cute_kernels, flydsl_kernels
from msa_ops.build.languages import LANGUAGES
from msa_ops.build.sources import METADATA_VERSION, cache_key, source_hash
from msa_ops.build.unit import Unit, built_archs
from msa_ops.emulator.kernel_text import ARCHIVE

STEERING = ("CUTE_DSL_", "CUTLASS_", "FLYDSL_", "LLVM_", "MLIR_", "NVVM_", "PTXAS_")
"""How names of variables begin that steer the compilers."""


class CompileError(RuntimeError):
    """Some units failed; the message holds each one's name and output."""


def compile_all(
    units: Sequence[Unit], folder: Path, cache: Path, jobs: int | None = None, *, line_info: bool = False
) -> list[dict[str, Any]]:
    """Compiles what the cache lacks into `folder`/<arch>/ and returns the metadata of all units.

    line_info: CuTe-DSL kernels with lines of their sources, for faults of the emulator and profilers.

    Raises CompileError after all units were tried.
    """
    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        results = []
        compiled = pool.map(lambda unit: _compile(unit, folder, cache, line_info), units)
        for unit, result in zip(units, compiled, strict=True):
            results.append(result)
            print(f"{len(results)}/{len(units)} {unit.name}{' failed' if isinstance(result, str) else ''}", flush=True)
    failures = [result for result in results if isinstance(result, str)]
    if failures:
        raise CompileError("\n\n".join(failures))
    _drop_stale(folder, units)
    metadata = [result for result in results if not isinstance(result, str)]
    (folder / "kernel_table.cpp").write_text(cute_kernels.table(_of(units, metadata, "cute")))
    (folder / "code_objects.cpp").write_text(flydsl_kernels.table(_of(units, metadata, "flydsl"), folder))
    write_texts(folder, [folder / entry["arch"] / f"{entry['name']}.ptx" for entry in _of(units, metadata, "cute")])
    whole_file.write(folder / "kernels.json", json.dumps(metadata, indent=1, sort_keys=True) + "\n")
    return metadata


def _drop_stale(folder: Path, units: Sequence[Unit]) -> None:
    """Removes files of kernels that an earlier build left in the folder; nothing that no build writes."""
    wanted = {f"{unit.arch}/{unit.name}" for unit in units}
    kinds = {kind for language in LANGUAGES.values() for kind in language.KINDS}
    for arch in built_archs():
        for kind in kinds:
            for file in folder.glob(f"{arch}/*__*__{arch}.{kind}"):
                if f"{arch}/{file.stem}" not in wanted:
                    file.unlink()


def _of(units: Sequence[Unit], metadata: Sequence[dict[str, Any]], language: str) -> list[dict[str, Any]]:
    return [entry for unit, entry in zip(units, metadata, strict=True) if unit.family.language == language]


def write_texts(folder: Path, texts: Sequence[Path]) -> None:
    """The PTX files in one archive, which the wheel holds for the emulator. Equal texts give equal bytes."""
    with tarfile.open(folder / ARCHIVE, "w:xz", preset=9) as archive:
        for path in sorted(texts, key=lambda path: path.name):
            info = tarfile.TarInfo(path.name)
            info.size = path.stat().st_size
            with path.open("rb") as file:
                archive.addfile(info, file)


def _compile(unit: Unit, folder: Path, cache: Path, line_info: bool) -> dict[str, Any] | str:
    """Metadata, or the text of the failure."""
    language = LANGUAGES[unit.family.language]
    target = folder / unit.arch
    target.mkdir(parents=True, exist_ok=True)
    names = [f"{unit.name}.{kind}" for kind in language.KINDS]
    problem = compile_cache.fill(
        target, cache, cache_key(unit, line_info=line_info), names, lambda work: _build(unit, work, line_info)
    )
    if not problem:
        metadata: dict[str, Any] = json.loads((target / f"{unit.name}.json").read_text())
        problem = language.complete(metadata, target)
    return f"{unit.name}: {problem}" if problem else metadata


def _environment(line_info: bool) -> dict[str, str]:
    """Without what would make compilers write something else than the cache key says."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(STEERING)}
    return {**kept, "CUTE_DSL_LINEINFO": "1"} if line_info else kept


def _build(unit: Unit, work: Path, line_info: bool) -> str | None:
    """Compiles into the folder; the text of the failure, if it is one."""
    language = LANGUAGES[unit.family.language]
    command = [sys.executable, "-m", language.WORKER, unit.family.module, unit.config.name]
    command += [unit.arch, unit.name, str(work)]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(line_info))
    output = done.stdout + done.stderr
    problem = f"exit code {done.returncode}" if done.returncode else language.problem_of_output(output)
    if problem:
        return f"the compiler failed: {problem}\n{output.strip()}"
    try:
        described = language.describe(unit, work)
    except ValueError as error:
        return str(error)
    metadata = {
        "version": METADATA_VERSION,
        "name": unit.name,
        "op": unit.family.op,
        "arch": unit.arch,
        "config": asdict(unit.config),
        "arguments": list(unit.family.arguments),
        "source_hash": source_hash(unit),
        **described,
    }
    (work / f"{unit.name}.json").write_text(json.dumps(metadata, indent=1, sort_keys=True))
    return None
