"""What a compiled kernel follows from: the files of its sources, and the key of its place in the compile cache."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
from pathlib import Path

from msa_ops.build.languages import LANGUAGES
from msa_ops.build.unit import Unit

METADATA_VERSION = 2
"""To be raised when files of the cache would differ although sources and tools are the same."""


def cache_key(unit: Unit, *, line_info: bool = False) -> str:
    """Everything that the object depends on: sources, configuration, arch, tools, and how the worker calls them."""
    digest = hashlib.sha256()
    for part in (
        METADATA_VERSION,
        unit.name,
        unit.arch,
        repr(unit.config),
        *LANGUAGES[unit.family.language].versions(),
        *(["line info"] if line_info else []),
    ):
        digest.update(f"{part}\0".encode())
    for source in sources(unit):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def source_hash(unit: Unit) -> str:
    digest = hashlib.sha256()
    for source in sources(unit):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def sources(unit: Unit) -> list[Path]:
    """The op's folder and what it imports of other ops', the shared atoms, and the modules that compile and inspect."""
    spec = importlib.util.find_spec(unit.family.module)
    assert spec is not None and spec.origin is not None
    op_folder = Path(spec.origin).parent
    here = Path(__file__).parent
    own, shared = sorted(op_folder.glob("*.py")), sorted((op_folder.parent / "common").glob("*.py"))
    return [
        *own,
        *_imported_of_others(op_folder.parent, {*own, *shared}),
        *shared,
        *(here / name for name in LANGUAGES[unit.family.language].SOURCES),
    ]


def _imported_of_others(root: Path, known: set[Path]) -> list[Path]:
    """Kernel modules in folders of `root` that the known ones import, and what those import."""
    found: set[Path] = set()
    left = list(known)
    while left:
        for parts in _imports(left.pop()):
            path = root.joinpath(*parts).with_suffix(".py")
            if path not in known | found and path.is_file():
                found.add(path)
                left.append(path)
    return sorted(found)


@functools.cache
def _imports(source: Path) -> tuple[tuple[str, ...], ...]:
    """Names behind msa_ops.cute or msa_ops.flydsl that a file imports: modules, or things inside of modules."""
    names = []
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(tuple(name.split(".")[2:]) for name in names if name.startswith(("msa_ops.cute.", "msa_ops.flydsl.")))
