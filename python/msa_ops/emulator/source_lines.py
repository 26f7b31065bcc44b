"""From a line of PTX to the line of the source that it was made of, if the text has line information."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from msa_ops._C import EmulatorFault

_FILE = re.compile(r"^\s*\.file\s+(\d+)\s+\"([^\"]*)\"", re.MULTILINE)
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\b")


def source_of(ptx: str, line: int) -> str | None:
    """FILE:LINE of a line of the text, counted from 1: what the last `.loc` before it in its kernel says. None if there
    is none."""
    lines = ptx.splitlines()
    for text in reversed(lines[: max(0, line)]):
        if found := _LOC.match(text):
            files = dict(_FILE.findall(ptx))
            name = files.get(found[1])
            return None if name is None or found[2] == "0" else f"{name}:{found[2]}"
        if ".entry" in text:
            return None
    return None


def has_kernel(ptx: str, kernel: str) -> bool:
    return re.search(rf"\.entry\s+{re.escape(kernel)}\b", ptx) is not None


@contextlib.contextmanager
def told(*texts: str) -> Iterator[None]:
    """An EmulatorFault that leaves the block has `source`: the line of the source, or None; and says it in a note."""
    try:
        yield
    except EmulatorFault as fault:
        found = [source_of(text, fault.line) for text in texts if fault.line and has_kernel(text, fault.kernel)]
        fault.source = next(filter(None, found), None)
        if fault.source is not None:
            fault.add_note(f"source: {fault.source}")
        raise
