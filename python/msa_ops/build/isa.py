"""AMD GPU assembly as the compiler prints it: a histogram, and rules that the text must keep."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

FEWEST = 20
"""A kernel with fewer instructions was optimised away after an error that FlyDSL did not report."""

SYSTEM_SCOPE = re.compile(r"\bsc0\b.*\bsc1\b")


def instructions(text: str) -> list[str]:
    """The instructions of all kernels in order, without labels, directives and comments."""
    lines = (line.partition(";")[0].strip() for line in text.splitlines())
    return [line for line in lines if re.match(r"(v|s|ds|buffer|global|flat|scratch)_", line)]


def histogram(text: str) -> dict[str, int]:
    """Mnemonic without its encoding suffix -> count."""
    names = (re.sub(r"_e(32|64)$", "", line.split()[0]) for line in instructions(text))
    return dict(sorted(Counter(names).items()))


def main_loop(text: str) -> dict[str, int]:
    """Histogram of the part between two labels that has the most matrix products and, among equals, the most loads; of
    those the shortest, since masks make a copy of the loop longer.

    Empty if the kernel multiplies no matrices.
    """
    parts = [histogram(part) for part in re.split(r"^[.\w]+:", text, flags=re.MULTILINE)]

    def weight(found: dict[str, int]) -> tuple[int, int, int]:
        loads = of_kind(found, "global_load") + of_kind(found, "buffer_load")
        return of_kind(found, "v_mfma"), loads, -of_kind(found, "v_")

    best = max(parts, key=weight)
    return best if weight(best)[0] else {}


def of_kind(found: dict[str, int], prefix: str) -> int:
    return sum(count for name, count in found.items() if name.startswith(prefix))


def violations(text: str) -> list[str]:
    """What no kernel may contain."""
    found = instructions(text)
    lines = []
    if len(found) < FEWEST:
        lines.append(f"{len(found)} instructions: nothing is left of the kernel")
    libraries = sorted(set(re.findall(r"__oc[km]l\w*", text)))
    if libraries:
        lines.append(f"calls the device library: {', '.join(libraries)}")
    for line in found:
        name = line.split()[0]
        if name.startswith("scratch_"):
            lines.append(f"spills: {line}")
        if name.startswith(("s_swappc", "s_setpc")):
            lines.append(f"calls a function: {line}")
        if name.startswith("v_pk_fma_f32") and re.search(r"op_sel:\[[01,]*1", line):
            # Sporadically wrong on gfx950: ROCm/rocMLIR#2459.
            lines.append(f"v_pk_fma_f32 with low op_sel bits: {line}")
    return lines


def flag_violations(text: str) -> list[str]:
    """What is missing around flags that other GPUs read or write, which are the accesses with sc0 and sc1.

    A store at system scope must come after a write-back and a wait for it; a load must be followed by its wait and an
    invalidation before another access of memory. Source: LLVM's memory model of gfx942, system scope.
    """
    found = instructions(text)
    lines = []
    flags = 0
    for i, line in enumerate(found):
        name = line.split()[0]
        if not name.startswith(("global_", "flat_", "buffer_")) or not SYSTEM_SCOPE.search(line):
            continue
        if "_store" in name:
            flags += 1
            if not _released(found[:i]):
                lines.append(f"store without buffer_wbl2 sc0 sc1 and a wait before it: {line}")
        elif "_load" in name:
            flags += 1
            if not _acquired(found[i + 1 :]):
                lines.append(f"load without a wait and buffer_inv sc0 sc1 behind it: {line}")
    return lines if flags else [*lines, "no access at system scope"]


def _released(before: Sequence[str]) -> bool:
    waited = False
    for line in reversed(before):
        if line.startswith("s_waitcnt") and "vmcnt(0)" in line:
            waited = True
        elif line.startswith("buffer_wbl2") and SYSTEM_SCOPE.search(line):
            return waited
        elif re.match(r"(global|flat|buffer)_(store|atomic)", line):
            return False
    return False


def _acquired(after: Sequence[str]) -> bool:
    waited = False
    for line in after:
        if line.startswith("s_waitcnt") and "vmcnt(0)" in line:
            waited = True
        elif line.startswith("buffer_inv") and SYSTEM_SCOPE.search(line):
            return waited
        elif re.match(r"(global|flat|buffer|ds)_(load|store|atomic|read|write)", line):
            return False
    return False
