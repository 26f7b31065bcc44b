"""docs/emulator_coverage.md says which opcodes are executed: all of them, and no others."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from msa_ops.emulator import opcodes
from msa_ops.emulator.coverage import document

DOCUMENT = Path(__file__).parents[2] / "docs" / "emulator_coverage.md"


def numbers(text: str) -> list[str]:
    if ".." in text:
        first, last, step = map(int, re.split(r"\.\.|:", text))
        return [str(number) for number in range(first, last + 1, step)]
    return text.split(" ")


def tokens(word: str) -> list[str]:
    """The modifiers that a word stands for."""
    parts = re.split(r"\{(.*?)\}", word)
    choices = [[part] if i % 2 == 0 else numbers(part) for i, part in enumerate(parts)]
    made = ["".join(chosen) for chosen in itertools.product(*choices)]
    return [token if token.startswith(".") else f" {token}" for token in made]


def words(text: str) -> list[str]:
    """Divided at blanks outside of braces."""
    return re.findall(r"(?:\{[^{}]*\}|[^ {}])+", text)


def expand(line: str) -> list[str]:
    """The opcodes of a line of the document."""
    instruction = re.match(r"\w+", line)
    assert instruction
    choices: list[list[str]] = []
    rest = line[instruction.end() :]
    while rest:
        if rest[0] == "[":
            inside, rest = rest[1:].split("]", 1)
            choices.append(["", *(token for word in words(inside) for token in tokens(word))])
        elif rest[0] == "{":
            depth, end = 1, 1
            while depth > 0:
                depth += {"{": 1, "}": -1}.get(rest[end], 0)
                end += 1
            choices.append([token for word in words(rest[1 : end - 1]) for token in tokens(word)])
            rest = rest[end:]
        else:
            match = re.match(r"[ .](?:[\w:]|\{[\d .:]+\})+", rest)
            assert match, rest
            choices.append(tokens(match.group().strip()))
            rest = rest[match.end() :]
    return [instruction.group() + "".join(chosen) for chosen in itertools.product(*choices)]


def test_document_is_what_the_executor_says() -> None:
    assert DOCUMENT.read_text().endswith(document()), "append the output of python -m msa_ops.emulator.coverage"


def test_lines_are_exactly_the_opcodes() -> None:
    lines = [line for block in re.findall(r"```\n(.*?)```", document(), re.DOTALL) for line in
             block.replace("\n    ", " ").splitlines()]  # fmt: skip
    made = [opcode for line in lines for opcode in expand(line)]
    assert len(made) == len(set(made))
    assert sorted(made) == opcodes()
