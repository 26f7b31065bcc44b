"""Aligned plain-text tables."""

from __future__ import annotations

from collections.abc import Sequence


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, two blanks apart; numbers align right."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    right = [bool(rows) and all(_is_number(row[column]) for row in rows) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = (
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        )
        return "  ".join(cells).rstrip()

    return "\n".join([line(header), "  ".join("-" * width for width in widths), *map(line, rows)])


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").replace("%", "").lstrip("+-").isdigit() or text in ("", "-")
