"""docs/emulator.md shows the executor's own table of opcodes."""

from __future__ import annotations

from pathlib import Path

from msa_ops.emulator import opcodes
from msa_ops.emulator.coverage import rows, table

DOCUMENT = Path(__file__).parents[2] / "docs" / "emulator.md"


def test_document_holds_the_table() -> None:
    assert table() in DOCUMENT.read_text(), "replace the table by the output of python -m msa_ops.emulator.coverage"


def test_rows_are_exactly_the_opcodes() -> None:
    made = [
        instruction + ("" if modifier == "none" else modifier) + ("" if type_ == "none" else type_)
        for instruction, modifiers, types in rows(opcodes())
        for modifier in modifiers.split(", ")
        for type_ in types.split(", ")
    ]
    assert sorted(made) == opcodes()
