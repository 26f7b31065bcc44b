"""What the public kernels are called with. `all_cases` lists them."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msa_ops.emulator import JitSession


@dataclass(frozen=True)
class Case:
    """run: takes the folder of the examples and the session; raises if the result is wrong; says what was compared."""

    name: str
    chip: str
    run: Callable[[Path, JitSession], str]


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


def load(folder: Path, path: str) -> Any:
    """The example as a module; modules beside it and under the folder of all can be imported, too."""
    file = folder / path
    for place in (folder, file.parents[1], file.parent):
        sys.path.insert(0, str(place))
    return importlib.import_module(file.stem)


def all_cases() -> Iterator[Case]:
    for module in pkgutil.iter_modules(__path__):
        yield from importlib.import_module(f"{__name__}.{module.name}").CASES
