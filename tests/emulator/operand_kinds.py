"""Every instruction with registers and literals of every type in place of each operand, and which of them ptxas takes.

`python -m tests.emulator.operand_kinds` compares all of them with the emulator's parser and prints what differs.
"""

from __future__ import annotations

import collections
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msa_ops import _C
from msa_ops.build import toolchain
from msa_ops.emulator import PtxError, UnsupportedPtx

TARGETS = ("sm_90a", "sm_100a", "sm_103a")
REGISTERS = {
    2: ("b16", "u16", "s16", "f16"),
    4: ("b32", "u32", "s32", "f32", "f16x2"),
    8: ("b64", "u64", "s64", "f64"),
}
LITERALS = {"an integer": "1", "0f": "0f3F800000", "0d": "0d3FF0000000000000"}
BYTES = {
    "b8": 1,
    "u8": 1,
    "s8": 1,
    "b16": 2,
    "u16": 2,
    "s16": 2,
    "f16": 2,
    "bf16": 2,
    "b64": 8,
    "u64": 8,
    "s64": 8,
    "f64": 8,
}
# Instructions with operands that have to be certain numbers, which ptxas checks with the types.
CERTAIN_NUMBERS = (
    "applypriority", "bar", "barrier", "cp", "createpolicy", "discard", "elect", "fence", "lop3", "mma.sp", "nanosleep",
    "pmevent", "setmaxnreg", "tcgen05", "tensormap", "wgmma",
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    opcode: str
    place: int  # of the operand that is another one; -1: none
    kind: str
    text: str


def lines(opcode: str, form: str) -> Iterator[Line]:
    """The instruction with registers of bits, and with each other type of that width for one operand at a time."""
    if " of call" in opcode or opcode.split(".")[0] in ("call", "bra", "brx") or opcode.startswith(CERTAIN_NUMBERS):
        return
    name, operands = opcode.split(" ")[0], []
    for spec in form.split():
        made = _operand(name, spec)
        if made is None:
            return
        if made != ():
            operands.append(made)

    def text(place: int, kind: str) -> str:
        return f"{name} {', '.join(_text(*one, at, kind if at == place else '') for at, one in enumerate(operands))};"

    yield Line(opcode, -1, "", text(-1, ""))
    for place, (width, _count, spec) in enumerate(operands):
        for kind in REGISTERS.get(width, ()):
            yield Line(opcode, place, kind, text(place, kind))
        for kind in (
            LITERALS if width in REGISTERS and not spec.startswith("=") and opcode.split(".")[0] != "bfe" else ()
        ):
            yield Line(opcode, place, kind, text(place, kind))


def refused_by_ptxas(texts: Sequence[str], target: str) -> set[int]:
    """Numbers of the instructions that ptxas refuses, by one run for many; where it stops, it runs for halves."""
    kinds = [kind for some in REGISTERS.values() for kind in some] + ["b8", "b128", "pred"]
    head = f".version 9.0\n.target {target}\n.address_size 64\n.visible .entry k() {{\n"
    head += " ".join(f".reg .{kind} %{kind}_<99>;" for kind in kinds) + "\nnonsense;\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "all.ptx"
        path.write_text(head + "\n".join(texts) + "\nnonsense;\nret;\n}\n")
        done = subprocess.run([toolchain.tool("ptxas"), "-arch", target, path, "-o", path.with_suffix(".cubin")],
                              capture_output=True, text=True)  # fmt: skip
    found = {int(line) - 7 for line in re.findall(r", line (\d+); (?:error|fatal)", done.stdout + done.stderr)}
    if len(texts) in found:
        return {number for number in found if 0 <= number < len(texts)}
    if len(texts) == 1:
        return {0}
    half = len(texts) // 2
    return refused_by_ptxas(texts[:half], target) | {half + at for at in refused_by_ptxas(texts[half:], target)}


def refused_by_emulator(text: str, target: str) -> bool:
    names = " ".join(
        f".reg .{kind} %{kind}_{number};" for kind, number in sorted(set(re.findall(r"%(\w+?)_(\d+)", text)))
    )
    try:
        module = (
            f".version 9.0\n.target {target}\n.address_size 64\n.visible .entry k() {{\n{names}\n{text}\nret;\n}}\n"
        )
        _C.ptx_parameters(module, "k")
    except (PtxError, UnsupportedPtx):
        return True
    return False


def differences(forms: Sequence[tuple[str, str]]) -> tuple[int, list[tuple[Line, bool]]]:
    """How many instructions were compared, and those that either the emulator or ptxas (then true) refuses alone."""
    left, compared, found = list(forms), 0, []
    for target in TARGETS:
        plain = [next(lines(*form), None) for form in left]
        known = [(form, line) for form, line in zip(left, plain, strict=True) if line is not None]
        refused = refused_by_ptxas([line.text for _, line in known], target)
        taken = [form for at, (form, _) in enumerate(known) if at not in refused]
        left = [form for at, (form, _) in enumerate(known) if at in refused]
        every = [line for form in taken for line in lines(*form)]
        refused = refused_by_ptxas([line.text for line in every], target) if every else set()
        compared += len(every)
        found += [(line, at in refused) for at, line in enumerate(every)
                  if refused_by_emulator(line.text, target) != (at in refused)]  # fmt: skip
    return compared, found


def _operand(name: str, spec: str) -> tuple[int, int, str] | tuple[()] | None:
    """Width in bytes (0: a predicate, 99: an address), number of registers, spec; nothing if it may be missing."""
    letters = spec.lstrip("=~")
    if letters.endswith("?") and "|" not in letters:
        return ()
    if letters[0] in "AGST":
        return (99 if letters[0] in "AG" else 98, 1, spec)
    if letters[0] == "p":
        return (0, 1, spec)
    if letters[0] == "v":
        elements = re.search(r"\.v(\d)\b", name)
        return (
            BYTES.get(name.split(".")[-1], 16 if name.endswith("b128") else 4),
            int(elements[1]) if elements else 1,
            spec,
        )
    if found := re.fullmatch(r"w?(\d)(?:\*(\d+))?(?:\|p\??)?", letters):
        return (int(found[1]), int(found[2] or 0) or 1, spec) if not found[2] else (int(found[1]), -int(found[2]), spec)
    return None


def _text(width: int, count: int, spec: str, at: int, kind: str) -> str:
    if width in (98, 99):
        return "[%b64_90]" if width == 99 else "[%b32_90]"
    kind = kind or {0: "pred", 1: "b8", 2: "b16", 4: "b32", 8: "b64", 16: "b128"}[width]
    single = LITERALS.get(kind)
    names = [single or f"%{kind}_{(9 * at + i) % 89}" for i in range(abs(count))]
    text = "{" + ", ".join(names) + "}" if abs(count) > 1 or count < 0 else names[0]
    return text + (f"|%pred_{at + 80}" if "|" in spec and not spec.endswith("?") else "")


if __name__ == "__main__":
    total, different = differences(_C.emulated_forms())
    print(f"{total} instructions, {len(different)} differ")
    kinds = collections.Counter(
        (line.opcode.split(".")[0], line.place, line.kind, by_ptxas) for line, by_ptxas in different
    )
    examples = {(line.opcode.split(".")[0], line.place, line.kind, by_ptxas): line.text for line, by_ptxas in different}
    for key, count in sorted(kinds.items()):
        print(count, *key[:3], "ptxas refuses" if key[3] else "ptxas takes", examples[key])
    sys.exit(bool(different))
