"""What a faulty public kernel lacks, put into it when its module is imported.

A kernel with an alarm that it deserves shows little about the rest of it. With the one barrier or wait that it lacks
everything else is checked as strictly as ever, and the result too; and if the alarm goes away by that one statement, it
was about that.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Insert:
    """A statement before a line of a module, as far indented as the line.

    module: its name. digest: the first 12 hexadecimal digits of the SHA-256 of its source: lines are those of one
    version. line: counted from 1. code: the statement. instead: of the line, which must be a statement of its own.
    """

    module: str
    digest: str
    line: int
    code: str
    instead: bool = False


def mend(inserts: Iterable[Insert], folder: Path) -> None:
    """Imports the modules with the statements in them; their texts lie in `folder`, where FlyDSL reads them again."""
    modules: dict[str, list[Insert]] = {}
    for insert in inserts:
        modules.setdefault(insert.module, []).append(insert)
    for module, changes in modules.items():
        _import(module, changes, folder)


def _import(name: str, inserts: list[Insert], folder: Path) -> None:
    if name in sys.modules:
        raise RuntimeError(f"{name} is imported already")
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(name)
    source = Path(found.origin).read_bytes()
    digest = hashlib.sha256(source).hexdigest()[:12]
    lines = source.decode().splitlines()
    for insert in sorted(inserts, key=lambda insert: -insert.line):
        if digest != insert.digest:
            raise RuntimeError(f"{found.origin} is another version: {digest}, not {insert.digest}")
        line = lines[insert.line - 1]
        lines[insert.line - 1 : insert.line - 1 + insert.instead] = [
            line[: len(line) - len(line.lstrip())] + part for part in insert.code.splitlines()
        ]
    file = Path(tempfile.mkdtemp(dir=folder)) / Path(found.origin).name
    file.write_text("\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    parent, _, last = name.rpartition(".")
    setattr(importlib.import_module(parent), last, module)
