from __future__ import annotations

from msa_ops.cli.table import format_table


def test_numbers_align_right_and_text_left() -> None:
    text = format_table(["op", "us"], [["moe", "1.5"], ["indexer", "12.0"]])
    assert text.splitlines() == ["op         us", "-------  ----", "moe       1.5", "indexer  12.0"]


def test_without_rows() -> None:
    assert format_table(["a", "b"], []) == "a  b\n-  -"
