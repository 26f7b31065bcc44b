"""Files that are there whole or not at all: `write`."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write(path: str | os.PathLike[str], text: str) -> None:
    """Writes a text file in UTF-8, so that whoever looks sees the old content or the new one: into a file beside it,
    which takes its place. A device or a pipe is written to as it is.

    Raises OSError; then an older file is as it was.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        target.write_text(text, encoding="utf-8")
        return
    target = target.resolve()  # a link stays one
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _umask() -> int:
    current = os.umask(0o022)
    os.umask(current)
    return current
