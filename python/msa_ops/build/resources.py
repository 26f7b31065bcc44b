"""What a compiled kernel uses, read from its machine code: registers, spills, memories, instruction histogram."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from msa_ops.build import toolchain


@dataclass(frozen=True)
class Resources:
    """Registers a thread; bytes of stack, spilled local memory and static shared memory; SASS opcodes counted."""

    registers: int
    stack: int
    local: int
    static_shared_memory: int
    max_threads: int
    instructions: dict[str, int] = field(hash=False)


def of_cubin(cubin: Path) -> Resources:
    """Raises ValueError if the dump is empty or not understood: an empty dump must not pass an assertion on it."""
    usage = subprocess.run(
        [toolchain.tool("cuobjdump"), "--dump-resource-usage", str(cubin)],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": str(Path(toolchain.tool("nvdisasm")).parent)},
    ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", usage)
    if found is None:
        raise ValueError(f"{cubin.name}: no resource usage in {usage!r}")
    registers, stack, shared, local = map(int, found.groups())
    sass = subprocess.run([toolchain.tool("nvdisasm"), "-c", str(cubin)], capture_output=True, text=True, check=True)
    instructions = histogram(sass.stdout)
    if not instructions:
        raise ValueError(f"{cubin.name}: the disassembly is empty")
    threads = re.search(r"\.maxntid\s+(\d+)", cubin.with_suffix(".ptx").read_text())
    return Resources(registers, stack, local, shared, int(threads.group(1)) if threads else 0, instructions)


def histogram(sass: str) -> dict[str, int]:
    """Opcode with its modifiers -> count, from nvdisasm's text."""
    opcodes = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*(?:\.[A-Za-z0-9_]+)*)", sass)
    return dict(sorted(Counter(opcodes).items()))
