"""Columns of tensor memory that a kernel for Blackwell takes, read from its PTX."""

from __future__ import annotations

import re

COLUMNS = 512
"""Of a multiprocessor."""


def columns(ptx: str) -> int:
    """Sum over the kernel's tcgen05.alloc. Raises ValueError if the text does not say how many columns one takes."""
    total = 0
    for count in re.findall(r"tcgen05\.alloc[\w.:]*\s+\[[^\]]+\],\s*([^;\s]+)\s*;", ptx):
        total += int(count, 0) if count[0].isdigit() else _constant(ptx, count)
    if len(re.findall(r"tcgen05\.alloc\b", ptx)) > 0 and total == 0:
        raise ValueError("tcgen05.alloc whose operands are not understood")
    return total


def _constant(ptx: str, register: str) -> int:
    """Value of a register that is written once, by a mov of a number."""
    writes = re.findall(rf"^\s*(?:@\S+\s+)?(\S+)\s+{re.escape(register)},\s*([^;]+);", ptx, re.MULTILINE)
    if (
        len(writes) != 1
        or not writes[0][0].startswith("mov.")
        or not re.fullmatch(r"-?(0x)?[0-9a-fA-F]+", writes[0][1])
    ):
        raise ValueError(f"tcgen05.alloc takes {register} columns, which is no constant")
    return int(writes[0][1], 0)
