"""What the public kernels are called with. `all_cases` lists them."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msa_ops.emulator import JitSession


@dataclass(frozen=True)
class Case:
    """run: takes the folder of the examples and the session; raises if the result is wrong; says what was compared.
    mend: of a kernel whose alarm is its own fault, what it lacks; see `mended`."""

    name: str
    chip: str
    run: Callable[[Path, JitSession], str]
    mend: tuple[tuple[str, str], ...] = ()


def example(name: str, chip: str, path: str, function: str = "run", **keywords: Any) -> Case:
    """Calls a function of an example that computes, compares with its own reference, and raises if they differ.

    path: of the module, below the folder of the examples. keywords: the function's; values that are functions are
    called with `cutlass`, since CuTe-DSL must not be imported before the chip is chosen.
    """

    def run(folder: Path, session: JitSession) -> str:
        module = load(folder, path)
        import cutlass

        getattr(module, function)(
            **{key: value(cutlass) if callable(value) else value for key, value in keywords.items()}
        )
        return f"by its own reference, tolerance {keywords.get('tolerance', 'its own')}"

    return Case(name, chip, run)


def mended(case: Case, *changes: tuple[str, str]) -> Case:
    """The same with changes in the PTX: what a kernel with an alarm lacks. If the alarm goes away by that, it was about
    that, and everything else is checked as strictly as ever.

    changes: regular expressions that one of the session's texts must hold, and what comes instead.
    """
    return replace(case, name=f"{case.name}_mended", mend=changes)


def change(text: str, changes: tuple[tuple[str, str], ...]) -> tuple[str, set[str]]:
    """The text with what `changes` says, and which of their expressions it held."""
    found = set()
    for pattern, instead in changes:
        text, count = re.subn(pattern, instead, text)
        if count:
            found.add(pattern)
    return text, found


def load(folder: Path, path: str) -> Any:
    """The example as a module; modules beside it and under the folder of all can be imported, too."""
    file = folder / path
    for place in (folder, folder / "cute", file.parents[1], file.parent):
        sys.path.insert(0, str(place))
    return importlib.import_module(file.stem)


def forget(folder: Path) -> None:
    """Lets modules of the folder be imported anew: some keep the tensors of their last call."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(f"{folder}/"):
            del sys.modules[name]


def all_cases() -> Iterator[Case]:
    for module in pkgutil.iter_modules(__path__):
        yield from importlib.import_module(f"{__name__}.{module.name}").CASES
