"""What is compiled: one kernel family in one configuration for one architecture.

A family is a module `msa_ops.cute.<op>.<name>` or `msa_ops.flydsl.<op>.<name>` with a neighbour `<name>_configs` that
imports no kernel language:

  FAMILY      the module that traces the kernel, and the archs it is for
  CONFIGS     frozen dataclasses of compile-time choices, each with a `name`
  supports    config, platform -> refusals; the one predicate of compiler, tuner and registry
  ARGUMENTS   names of the launcher's arguments, in order
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msa_ops.registry import Refusal
from msa_ops.registry import platform as platforms

KERNEL_PACKAGES = ("msa_ops.cute", "msa_ops.flydsl")


@dataclass(frozen=True)
class Family:
    """A kernel family as its `configs` module declares it."""

    op: str
    module: str
    archs: tuple[str, ...]
    arguments: tuple[str, ...]
    configs: tuple[Any, ...]
    supports: Callable[[Any, platforms.Platform], Iterable[Refusal]]
    shared_memory: Callable[[Any], int]
    """Bytes beyond what the code object itself declares."""

    @property
    def language(self) -> str:
        """ "cute" or "flydsl"."""
        return self.module.split(".")[1]


@dataclass(frozen=True)
class Unit:
    """One compilation."""

    family: Family
    config: Any
    arch: str

    @property
    def name(self) -> str:
        """Unique in a build, and the prefix of the object's symbols."""
        return f"{self.family.op}__{self.config.name}__{self.arch}"


def families() -> Iterator[Family]:
    """All kernel families of this package, in the order of their languages and names."""
    for name in KERNEL_PACKAGES:
        package = importlib.import_module(name)
        found = {file for folder in package.__path__ for file in Path(folder).glob("*/*_configs.py")}
        for file in sorted(found, key=lambda file: (file.parent.name, file.stem)):
            yield importlib.import_module(f"{name}.{file.parent.name}.{file.stem}").FAMILY


def built_archs() -> tuple[str, ...]:
    """Every arch that some family has kernels for, in the order of the platforms' names."""
    return tuple(arch for arch in platforms.SIMULATED if any(arch in family.archs for family in families()))


def units(archs: Iterable[str]) -> list[Unit]:
    """Every configuration that its family supports on each of `archs`. Raises ValueError for an unknown arch."""
    found = []
    for arch in archs:
        platform = platforms.parse(arch)
        for family in families():
            if arch in family.archs:
                found += [
                    Unit(family, config, arch)
                    for config in family.configs
                    if not list(family.supports(config, platform))
                ]
    names = [unit.name for unit in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"configurations share a name: {', '.join(twice)}")
    return found
