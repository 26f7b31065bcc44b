"""The compile cache: for each key a folder with the files of one kernel and their digests, as `sha256sum` writes them.

An entry is moved into place whole. One that lacks files, or whose files are not what was written, is made anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

DIGESTS = "sha256"


def fill(target: Path, cache: Path, key: str, names: Sequence[str], build: Callable[[Path], str | None]) -> str | None:
    """Brings the files `names` of the entry `key` into `target`; without a whole entry `build` writes them first.

    build: writes the files into the folder that it is given; what it returns is the text of a failure, which enters
        nothing into the cache and is returned. Files in `target` that are right already are left alone.
    """
    found = _read(cache / key, names)
    if found is None:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            problem = build(Path(work))
            if problem:
                return problem
            found = {name: (Path(work) / name).read_bytes() for name in names}
        _store(cache, key, found)
    for name, content in found.items():
        file = target / name
        if not file.is_file() or file.read_bytes() != content:
            file.write_bytes(content)
    return None


def _read(entry: Path, names: Sequence[str]) -> dict[str, bytes] | None:
    """The files of an entry; None if it is not there or not whole."""
    try:
        lines = (entry / DIGESTS).read_text().splitlines()
        found = {name: (entry / name).read_bytes() for name in names}
    except (OSError, UnicodeDecodeError):
        return None
    return found if lines == _digests(found) else None


def _digests(files: dict[str, bytes]) -> list[str]:
    return [f"{hashlib.sha256(content).hexdigest()}  {name}" for name, content in sorted(files.items())]


def _store(cache: Path, key: str, files: dict[str, bytes]) -> None:
    """Other builds may do the same at the same time: whoever is first has the same files."""
    sealed = Path(tempfile.mkdtemp(dir=cache))
    for name, content in files.items():
        (sealed / name).write_bytes(content)
    (sealed / DIGESTS).write_text("\n".join(_digests(files)) + "\n")
    entry = cache / key
    if entry.exists() and _read(entry, list(files)) is None:
        broken = Path(tempfile.mkdtemp(dir=cache))
        with contextlib.suppress(FileNotFoundError):  # another build was first
            os.rename(entry, broken / key)
        shutil.rmtree(broken)
    try:
        os.rename(sealed, entry)
    except OSError:
        shutil.rmtree(sealed)
        if _read(entry, list(files)) is None:
            raise
