"""What is particular to kernels in FlyDSL: their tools, what a compilation leaves, and the table of code objects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msa_ops.build import code_object, isa, toolchain
from msa_ops.build.unit import Unit
from msa_ops.registry import platform as platforms

WORKER = "msa_ops.build.flydsl_worker"
KINDS = ("hsaco", "s", "json")
SOURCES = ("flydsl_worker.py", "flydsl_adapter.py")

METADATA = 2
"""To be raised when `describe` finds other things in the same files."""

REGISTERS = 512
"""Vector registers of a lane, in one file with the accumulation registers; a wave gets multiples of 8."""
WAVES = 8
"""Waves that a SIMD unit holds at most. There are four such units in a compute unit."""


def versions() -> tuple[str, ...]:
    return toolchain.flydsl_version(), toolchain.distribution_version("ziglang"), f"metadata {METADATA}"


def problem_of_output(output: str) -> str | None:
    """FlyDSL prints diagnostics of what it then leaves out of the kernel: all but its list of dumps is a failure."""
    rest = [line for line in output.splitlines() if line.strip() and not line.startswith("[flydsl.compile] ")]
    return f"it printed {rest[0]!r}" if rest else None


def complete(metadata: dict[str, Any], folder: Path) -> str | None:
    """The cache holds all that is known of a kernel."""
    return None


def describe(unit: Unit, work: Path) -> dict[str, Any]:
    """What goes into the metadata, from the files in `work`. Raises ValueError for a kernel that must not be built."""
    found = code_object.kernels((work / f"{unit.name}.hsaco").read_bytes())
    if len(found) != 1:
        raise ValueError(f"{len(found)} kernels in one code object; expected 1")
    kernel = found[0]
    text = (work / f"{unit.name}.s").read_text()
    problems = isa.violations(text)
    if getattr(unit.config, "cross_gpu_flags", False):
        problems += isa.flag_violations(text)
    arguments = code_object.arguments(kernel)
    if len(arguments) != len(unit.family.arguments):
        problems.append(f"{len(arguments)} kernel arguments; the family names {len(unit.family.arguments)}")
    dynamic = unit.family.shared_memory(unit.config)
    shared, chip = kernel["group_segment_fixed_size"] + dynamic, platforms.parse(unit.arch)
    if shared > chip.shared_memory:
        problems.append(f"{shared} bytes of LDS; {unit.arch} has {chip.shared_memory}")
    spilled = kernel["vgpr_spill_count"], kernel["sgpr_spill_count"], kernel["private_segment_fixed_size"]
    if any(spilled):
        problems.append(f"spills: {spilled[0]} vector, {spilled[1]} scalar registers, {spilled[2]} bytes a lane")
    if re.findall(r"\.vgpr_count: +(\d+)", text) != [str(kernel["vgpr_count"])]:
        problems.append(f"the ISA text does not belong to the code object with {kernel['vgpr_count']} registers")
    threads = kernel["max_flat_workgroup_size"]
    if kernel.get("reqd_workgroup_size") != [threads, 1, 1]:
        problems.append(f"block of {kernel.get('reqd_workgroup_size')}; expected a known size in one dimension")
    waves = waves_per_simd(kernel["vgpr_count"], shared, threads, chip.shared_memory)
    if waves * 4 * 64 < threads:
        problems.append(f"a block of {threads} threads does not fit: {waves} waves a SIMD unit")
    if problems:
        raise ValueError("\n".join(problems))
    loop = isa.main_loop(text)
    return {
        "entry": kernel["name"],
        "dsl": f"flydsl {toolchain.flydsl_version()}",
        "parameters": [list(argument) for argument in arguments],
        "threads": threads,
        "registers": kernel["vgpr_count"],
        "accumulation_registers": kernel["agpr_count"],
        "scalar_registers": kernel["sgpr_count"],
        "static_shared_memory": kernel["group_segment_fixed_size"],
        "dynamic_shared_memory": dynamic,
        "waves_per_simd": waves,
        "main_loop": loop,
        "main_loop_vector": isa.of_kind(loop, "v_") - isa.of_kind(loop, "v_mfma"),
        "instructions": isa.histogram(text),
    }


def waves_per_simd(registers: int, shared_memory: int, threads: int, shared_memory_of_chip: int) -> int:
    """Waves that fit into a SIMD unit beside each other: the occupancy."""
    by_registers = min(WAVES, REGISTERS // max(-(-registers // 8) * 8, 8))
    waves = -(-threads // 64)
    blocks = by_registers * 4 // waves
    if shared_memory:
        blocks = min(blocks, shared_memory_of_chip // shared_memory)
    return blocks * waves // 4 if blocks else 0


def table(metadata: Sequence[dict[str, Any]], folder: Path) -> str:
    """C++ source with the code objects as data."""
    arrays, rows = [], []
    for entry in metadata:
        name = entry["name"]
        if not re.fullmatch(r"\w+", name):
            raise ValueError(f"{name}: not a name in C++")
        code = (folder / entry["arch"] / f"{name}.hsaco").read_bytes()
        lines = [", ".join(map(str, code[i : i + 32])) for i in range(0, len(code), 32)]
        arrays += [f"alignas(4096) const unsigned char {name}[] = {{", *(f"    {line}," for line in lines), "};"]
        parameters = ", ".join(f"{{{offset}, {size}}}" for offset, size in entry["parameters"])
        rows.append(
            f'    {{"{name}", "{entry["arch"]}", "{entry["entry"]}", {name}, sizeof({name}), {entry["threads"]}, '
            f"{{{parameters}}}}},"
        )
    return "\n".join(
        [
            "// Written by python -m msa_ops.build.",
            '#include "code_objects.hpp"',
            "",
            "namespace msa_ops {",
            "namespace {",
            "",
            *arrays,
            "",
            "}  // namespace",
            "",
            "extern const std::vector<CodeObject> kCodeObjects;",
            "const std::vector<CodeObject> kCodeObjects{",
            *rows,
            "};",
            "",
            "}  // namespace msa_ops",
            "",
        ]
    )
