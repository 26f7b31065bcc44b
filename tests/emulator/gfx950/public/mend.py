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

    def apply(self, folder: Path) -> None:
        """Imports the module with the statement in it; its text lies in `folder`, where FlyDSL reads it again."""
        if self.module in sys.modules:
            raise RuntimeError(f"{self.module} is imported already")
        found = importlib.util.find_spec(self.module)
        if found is None or found.origin is None:
            raise ModuleNotFoundError(self.module)
        source = Path(found.origin).read_bytes()
        if (digest := hashlib.sha256(source).hexdigest()[:12]) != self.digest:
            raise RuntimeError(f"{found.origin} is another version: {digest}, not {self.digest}")
        lines = source.decode().splitlines()
        line = lines[self.line - 1]
        lines[self.line - 1 : self.line - 1 + self.instead] = [
            line[: len(line) - len(line.lstrip())] + part for part in self.code.splitlines()
        ]
        file = Path(tempfile.mkdtemp(dir=folder)) / Path(found.origin).name
        file.write_text("\n".join(lines) + "\n")
        spec = importlib.util.spec_from_file_location(self.module, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[self.module] = module
        spec.loader.exec_module(module)
        parent, _, name = self.module.rpartition(".")
        setattr(importlib.import_module(parent), name, module)
