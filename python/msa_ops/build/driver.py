"""Compiles units in parallel processes, with a content-addressed cache, and writes the table that CMake links.

A unit fails if its compiler fails or prints an error, if it spills registers, if its shared memory exceeds what the
chip has, or if its disassembly is empty.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from msa_ops.build import resources, toolchain
from msa_ops.build.unit import Unit
from msa_ops.registry import platform as platforms

METADATA_VERSION = 1
KINDS = ("o", "ptx", "cubin", "json")


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
    (folder / "kernel_table.cpp").write_text(table(metadata))
    (folder / "kernels.json").write_text(json.dumps(metadata, indent=1, sort_keys=True) + "\n")
    return metadata


def cache_key(unit: Unit) -> str:
    """Everything that the object depends on: sources, configuration, arch, tools, and how the worker calls them."""
    digest = hashlib.sha256()
    for part in (
        METADATA_VERSION,
        unit.name,
        unit.arch,
        repr(unit.config),
        toolchain.dsl_version(),
        toolchain.tool_version("nvdisasm"),
        toolchain.tool_version("cuobjdump"),
    ):
        digest.update(f"{part}\0".encode())
    for source in sources(unit):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def sources(unit: Unit) -> list[Path]:
    """The op's folder, the shared atoms, and the modules of this package that compile and inspect."""
    spec = importlib.util.find_spec(unit.family.module)
    assert spec is not None and spec.origin is not None
    op_folder = Path(spec.origin).parent
    here = Path(__file__).parent
    return [
        *sorted(op_folder.glob("*.py")),
        *sorted((op_folder.parent / "common").glob("*.py")),
        *(here / name for name in ("worker.py", "resources.py", "driver.py")),
    ]


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
    for kind in KINDS:
        shutil.copy2(entry / f"{unit.name}.{kind}", target / f"{unit.name}.{kind}")
    metadata: dict[str, Any] = json.loads((target / f"{unit.name}.json").read_text())
    return metadata


def _sealed(work: Path) -> Path:
    """The finished files in a folder that can be moved into place in one step."""
    sealed = Path(tempfile.mkdtemp(dir=work.parent))
    for file in work.iterdir():
        os.replace(file, sealed / file.name)
    return sealed


def _build(unit: Unit, work: Path) -> str | None:
    command = [sys.executable, "-m", "msa_ops.build.worker", unit.family.module, unit.config.name]
    command += [unit.arch, unit.name, str(work)]
    done = subprocess.run(command, capture_output=True, text=True)
    output = done.stdout + done.stderr
    if done.returncode or re.search(r"\berror\b", output, re.IGNORECASE):
        return f"the compiler failed\n{output.strip()}"
    try:
        used = resources.of_cubin(work / f"{unit.name}.cubin")
    except ValueError as error:
        return str(error)
    dynamic = unit.family.shared_memory(unit.config)
    problem = over_budget(used, dynamic, unit.arch)
    if problem:
        return problem
    entry = _entry_symbol(work / f"{unit.name}.o")
    metadata = {
        "version": METADATA_VERSION,
        "name": unit.name,
        "op": unit.family.op,
        "arch": unit.arch,
        "config": asdict(unit.config),
        "arguments": list(unit.family.arguments),
        "entry": entry,
        "dynamic_shared_memory": dynamic,
        "source_hash": source_hash(unit),
        "dsl": toolchain.dsl_version(),
        **asdict(used),
    }
    (work / f"{unit.name}.json").write_text(json.dumps(metadata, indent=1, sort_keys=True))
    return None


def over_budget(used: resources.Resources, dynamic_shared_memory: int, arch: str) -> str | None:
    """The reason why the kernel cannot run well, or at all, on the chip."""
    chip = platforms.parse(arch)
    total = used.static_shared_memory + dynamic_shared_memory
    if total > chip.shared_memory:
        return f"{total} bytes of shared memory; {arch} has {chip.shared_memory}"
    spills = {op: n for op, n in used.instructions.items() if op.split(".")[0] in ("LDL", "STL")}
    if used.local or spills:
        return f"spills: {used.local} bytes of local memory, {spills}"
    if used.registers * used.max_threads > 65_536:
        return f"{used.registers} registers x {used.max_threads} threads exceed the register file"
    return None


def _entry_symbol(object_file: Path) -> str:
    """The launcher's C entry in the object's symbol table."""
    names = sorted(set(re.findall(rb"_mlir_\w+__mlir_ciface_\w+", object_file.read_bytes())))
    if len(names) != 1:
        raise ValueError(f"{object_file.name}: {len(names)} launcher symbols")
    return names[0].decode()


def table(metadata: Sequence[dict[str, Any]]) -> str:
    """C++ source of the kernel table."""
    declarations, rows = [], []
    for entry in metadata:
        prefix = f"_mlir_{entry['name']}"
        declarations += [
            f"void {prefix}_cuda_init(void**);",
            f"void {prefix}_cuda_load_to_device(void**);",
            f"void {entry['entry']}(void**, std::int32_t);",
        ]
        rows.append(
            f'    {{"{entry["name"]}", "{entry["arch"]}", {len(entry["arguments"])}, {prefix}_cuda_init, '
            f"{prefix}_cuda_load_to_device, {entry['entry']}}},"
        )
    return "\n".join(
        [
            "// Written by python -m msa_ops.build.",
            '#include "compiled_kernels.hpp"',
            "",
            'extern "C" {',
            *declarations,
            "}",
            "",
            "namespace msa_ops {",
            "",
            "extern const std::vector<CompiledKernel> kCompiledKernels;",
            "const std::vector<CompiledKernel> kCompiledKernels{",
            *rows,
            "};",
            "",
            "}  // namespace msa_ops",
            "",
        ]
    )
