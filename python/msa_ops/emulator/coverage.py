"""The executed opcodes as docs/emulator_coverage.md shows them: `python -m msa_ops.emulator.coverage`.

An opcode is an instruction's name and modifiers. Those that differ in one modifier alone are written together:

  .a          the modifier
  {.a .b}     one of them
  [.a .b]     one of them, or none
  n{8..256:8} a number from 8 to 256 in steps of 8; x{1 2 4} one of these numbers
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from msa_ops.emulator.run import opcodes

Choices = tuple[frozenset[str], ...]
"""For each place the modifiers that may stand there; "" is none."""
LONGEST_LINE = 110


def _merge_alike(rows: set[Choices]) -> set[Choices]:
    """Rows that differ in one place become one, as long as there are any."""
    while True:
        before = rows
        for place in range(max(map(len, rows))):
            groups: dict[tuple[int, Choices], frozenset[str]] = {}
            for row in rows:
                if place >= len(row):
                    groups[(-1, row)] = frozenset()
                    continue
                key = (place, (*row[:place], *row[place + 1 :]))
                groups[key] = groups.get(key, frozenset()) | row[place]
            rows = {rest if at < 0 else (*rest[:place], found, *rest[place:]) for (at, rest), found in groups.items()}
        if rows == before:
            return rows


def _merge_missing(rows: set[Choices]) -> set[Choices]:
    """A row without one modifier of another row makes that one optional."""
    for row in sorted(rows, key=lambda row: (-len(row), [sorted(choices) for choices in row])):
        for place in range(len(row)):
            shorter = (*row[:place], *row[place + 1 :])
            if row in rows and shorter in rows and shorter != row:
                rows = rows - {row, shorter} | {(*row[:place], row[place] | {""}, *row[place + 1 :])}
                break
    return rows


def patterns(names: Iterable[str]) -> dict[str, list[Choices]]:
    """By instruction: rows whose combinations are exactly the opcodes."""
    by_instruction: dict[str, set[Choices]] = {}
    for name in names:
        head, *form = name.split(" ")
        instruction, *modifiers = head.split(".")
        tokens = [f".{modifier}" for modifier in modifiers] + [f" {word}" for word in form]
        by_instruction.setdefault(instruction, set()).add(tuple(frozenset([token]) for token in tokens))
    made = {}
    for instruction, rows in sorted(by_instruction.items()):
        while True:
            merged = _merge_missing(_merge_alike(rows))
            if merged == rows:
                break
            rows = merged
        made[instruction] = sorted(rows, key=lambda row: [sorted(choices) for choices in row])
    return made


def _numbers(found: list[int]) -> str:
    steps = {b - a for a, b in itertools.pairwise(found)}
    if len(found) > 3 and len(steps) == 1:
        return f"{found[0]}..{found[-1]}:{steps.pop()}"
    return " ".join(map(str, found))


def _with_numbers(tokens: Sequence[str]) -> list[str]:
    """Tokens that differ in one number are written as one."""
    left, made = sorted(tokens), []
    while left:
        best, wording = [left[0]], left[0]
        for match in re.finditer(r"\d+", left[0]):
            start, end = left[0][: match.start()], left[0][match.end() :]
            alike = [token for token in left if re.fullmatch(re.escape(start) + r"[1-9]\d*" + re.escape(end), token)]
            # A type's width is part of its name.
            if len(alike) > max(len(best), 2) and not re.fullmatch(r"[ .][bsuf]", start):
                numbers = sorted(int(token[len(start) : len(token) - len(end)]) for token in alike)
                best, wording = alike, f"{start}{{{_numbers(numbers)}}}{end}"
        made.append(wording)
        left = [token for token in left if token not in best]
    return made


def wording(row: Choices) -> str:
    """A row as text."""
    made = ""
    for choices in row:
        words = _with_numbers([token for token in choices if token])
        if "" in choices:
            made += f"[{' '.join(word.strip() for word in words)}]"
        else:
            made += words[0] if len(words) == 1 else f"{{{' '.join(word.strip() for word in words)}}}"
    return made


def document() -> str:
    """All rows as Markdown."""
    lines = []
    for instruction, rows in patterns(opcodes()).items():
        lines += [f"### {instruction}", "", "```"]
        for row in rows:
            lines += _wrapped(f"{instruction}{wording(row)}")
        lines += ["```", ""]
    return "\n".join(lines).rstrip() + "\n"


def _wrapped(text: str) -> list[str]:
    """In lines that go on with four blanks, broken at blanks."""
    lines = []
    while len(text) > LONGEST_LINE:
        at = text.rfind(" ", 8, LONGEST_LINE)
        if at < 0:
            break
        lines.append(text[:at])
        text = "    " + text[at + 1 :]
    return [*lines, text]


if __name__ == "__main__":
    print(document(), end="")
