"""What is particular to kernels in CuTe-DSL: their tools, what a compilation leaves, and the table that CMake links."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from msa_ops.build import resources, tensor_memory, toolchain
from msa_ops.build.unit import Unit
from msa_ops.registry import platform as platforms

WORKER = "msa_ops.build.worker"
KINDS = ("o", "ptx", "cubin", "json")
SOURCES = ("worker.py", "resources.py")


def versions() -> tuple[str, ...]:
    return toolchain.dsl_version(), toolchain.tool_version("nvdisasm"), toolchain.tool_version("cuobjdump")


def problem_of_output(output: str) -> str | None:
    """The reason why a compiler that ended well has failed all the same."""
    return "it printed an error" if re.search(r"\berror\b", output, re.IGNORECASE) else None


def describe(unit: Unit, work: Path) -> dict[str, Any]:
    """What goes into the metadata, from the files in `work`. Raises ValueError for a kernel that must not be built."""
    used = resources.of_cubin(work / f"{unit.name}.cubin")
    dynamic = unit.family.shared_memory(unit.config)
    problem = over_budget(used, dynamic, unit.arch)
    if problem:
        raise ValueError(problem)
    return {
        "entry": _entry_symbol(work / f"{unit.name}.o"),
        "dynamic_shared_memory": dynamic,
        "dsl": toolchain.dsl_version(),
        **asdict(used),
    }


def complete(metadata: dict[str, Any], folder: Path) -> str | None:
    """Adds what the cache does not hold, from the kernel's files in `folder`; the reason why it must not be built."""
    try:
        columns = tensor_memory.columns((folder / f"{metadata['name']}.ptx").read_text())
    except ValueError as error:
        return str(error)
    metadata["tensor_memory_columns"] = columns
    most = tensor_memory.COLUMNS
    return f"{columns} columns of tensor memory; a multiprocessor has {most}" if columns > most else None


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
