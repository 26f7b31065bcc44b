"""Compiles units in parallel processes, with a content-addressed cache, and writes the tables that CMake links.

A unit fails if its compiler fails or prints an error, if it spills registers, if its shared memory exceeds what the
chip has, or if its disassembly is empty.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from msa_ops import whole_file
from msa_ops.build import cute_kernels, flydsl_kernels
from msa_ops.build.unit import Unit
from msa_ops.emulator.kernel_text import ARCHIVE

METADATA_VERSION = 2
"""To be raised when files of the cache would differ although sources and tools are the same."""

LANGUAGES: dict[str, Any] = {"cute": cute_kernels, "flydsl": flydsl_kernels}


class CompileError(RuntimeError):
    """Some units failed; the message holds each one's name and output."""


def compile_all(units: Sequence[Unit], folder: Path, cache: Path, jobs: int | None = None) -> list[dict[str, Any]]:
    """Compiles what the cache lacks into `folder`/<arch>/ and returns the metadata of all units.

    Raises CompileError after all units were tried.
    """
    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        results = []
        for unit, result in zip(units, pool.map(lambda unit: _compile(unit, folder, cache), units), strict=True):
            results.append(result)
            print(f"{len(results)}/{len(units)} {unit.name}{' failed' if isinstance(result, str) else ''}", flush=True)
    failures = [result for result in results if isinstance(result, str)]
    if failures:
        raise CompileError("\n\n".join(failures))
    wanted = {f"{unit.arch}/{unit.name}" for unit in units}
    for stale in folder.glob("*/*"):
        if f"{stale.parent.name}/{stale.stem}" not in wanted:
            stale.unlink()
    metadata = [result for result in results if not isinstance(result, str)]
    (folder / "kernel_table.cpp").write_text(cute_kernels.table(_of(units, metadata, "cute")))
    (folder / "code_objects.cpp").write_text(flydsl_kernels.table(_of(units, metadata, "flydsl"), folder))
    write_texts(folder)
    whole_file.write(folder / "kernels.json", json.dumps(metadata, indent=1, sort_keys=True) + "\n")
    return metadata


def _of(units: Sequence[Unit], metadata: Sequence[dict[str, Any]], language: str) -> list[dict[str, Any]]:
    return [entry for unit, entry in zip(units, metadata, strict=True) if unit.family.language == language]


def write_texts(folder: Path) -> None:
    """The PTX of all kernels in one archive, which the wheel holds for the emulator. Equal texts give equal bytes."""
    with tarfile.open(folder / ARCHIVE, "w:xz", preset=9) as archive:
        for path in sorted(folder.glob("*/*.ptx"), key=lambda path: path.name):
            info = tarfile.TarInfo(path.name)
            info.size = path.stat().st_size
            with path.open("rb") as file:
                archive.addfile(info, file)


def cache_key(unit: Unit) -> str:
    """Everything that the object depends on: sources, configuration, arch, tools, and how the worker calls them."""
    digest = hashlib.sha256()
    for part in (
        METADATA_VERSION,
        unit.name,
        unit.arch,
        repr(unit.config),
        *LANGUAGES[unit.family.language].versions(),
    ):
        digest.update(f"{part}\0".encode())
    for source in sources(unit):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def sources(unit: Unit) -> list[Path]:
    """The op's folder and what it imports of other ops', the shared atoms, and the modules that compile and inspect."""
    spec = importlib.util.find_spec(unit.family.module)
    assert spec is not None and spec.origin is not None
    op_folder = Path(spec.origin).parent
    here = Path(__file__).parent
    own, shared = sorted(op_folder.glob("*.py")), sorted((op_folder.parent / "common").glob("*.py"))
    return [
        *own,
        *_imported_of_others(op_folder.parent, {*own, *shared}),
        *shared,
        *(here / name for name in LANGUAGES[unit.family.language].SOURCES),
    ]


def _imported_of_others(root: Path, known: set[Path]) -> list[Path]:
    """Kernel modules in folders of `root` that the known ones import, and what those import."""
    found: set[Path] = set()
    left = list(known)
    while left:
        for parts in _imports(left.pop()):
            path = root.joinpath(*parts).with_suffix(".py")
            if path not in known | found and path.is_file():
                found.add(path)
                left.append(path)
    return sorted(found)


@functools.cache
def _imports(source: Path) -> tuple[tuple[str, ...], ...]:
    """Names behind msa_ops.cute or msa_ops.flydsl that a file imports: modules, or things inside of modules."""
    names = []
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(tuple(name.split(".")[2:]) for name in names if name.startswith(("msa_ops.cute.", "msa_ops.flydsl.")))


def source_hash(unit: Unit) -> str:
    digest = hashlib.sha256()
    for source in sources(unit):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _compile(unit: Unit, folder: Path, cache: Path) -> dict[str, Any] | str:
    """Metadata, or the text of the failure."""
    entry = cache / cache_key(unit)
    if not (entry / f"{unit.name}.json").is_file():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            problem = _build(unit, Path(work))
            if problem:
                return f"{unit.name}: {problem}"
            if not entry.exists():
                os.replace(_sealed(Path(work)), entry)
    target = folder / unit.arch
    target.mkdir(parents=True, exist_ok=True)
    for kind in LANGUAGES[unit.family.language].KINDS:
        shutil.copy2(entry / f"{unit.name}.{kind}", target / f"{unit.name}.{kind}")
    metadata: dict[str, Any] = json.loads((target / f"{unit.name}.json").read_text())
    problem = LANGUAGES[unit.family.language].complete(metadata, target)
    return f"{unit.name}: {problem}" if problem else metadata


def _sealed(work: Path) -> Path:
    """The finished files in a folder that can be moved into place in one step."""
    sealed = Path(tempfile.mkdtemp(dir=work.parent))
    for file in work.iterdir():
        os.replace(file, sealed / file.name)
    return sealed


def _build(unit: Unit, work: Path) -> str | None:
    """Compiles into the folder; the text of the failure, if it is one."""
    language = LANGUAGES[unit.family.language]
    command = [sys.executable, "-m", language.WORKER, unit.family.module, unit.config.name]
    command += [unit.arch, unit.name, str(work)]
    done = subprocess.run(command, capture_output=True, text=True)
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
