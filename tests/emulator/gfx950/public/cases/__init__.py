"""A case is one kernel on one shape, with its reference."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from tests.emulator.gfx950.public.hip import Hip
from tests.emulator.gfx950.public.mend import Insert


@dataclass(frozen=True)
class Case:
    """run: launches the kernel and compares; raises AssertionError; gives the figures to print.

    alarm: kind of the EmulatorFault (kinds, if schedules differ in them), or "wrong result", that the kernel
        as compiled deserves; docs/emulator_gfx950.md says why. only_some_schedules: under others it may be right.
    mend: what the kernel lacks; with it, as another case NAME_mended, it must be right and without an alarm.
    """

    name: str
    what: str
    run: Callable[[Hip], str]
    alarm: str | tuple[str, ...] | None = None
    only_some_schedules: bool = False
    mend: tuple[Insert, ...] = ()


def all_cases() -> list[Case]:
    made: list[Case] = []
    for module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        made += importlib.import_module(f"{__name__}.{module}").CASES
    for case in [case for case in made if case.mend]:
        place = made.index(case)
        mended = replace(
            case, name=f"{case.name}_mended", what="with what it lacks put in", alarm=None, only_some_schedules=False
        )
        made[place : place + 1] = replace(case, mend=()), mended
    return made


def compare(
    found: torch.Tensor, expected: torch.Tensor, *, absolute: float | torch.Tensor, relative: float = 0.0
) -> str:
    """The largest error; raises AssertionError if one is above absolute + relative * |expected|, or not finite."""
    difference = (found.double() - expected.double()).abs()
    allowed = absolute + relative * expected.double().abs()
    worst = difference.max().item()
    bad = ~(difference <= allowed)
    assert not bad.any(), f"{int(bad.sum())} of {bad.numel()} wrong, largest error {worst:.3g}"
    return f"largest error {worst:.2g}"


def cosine(found: torch.Tensor, expected: torch.Tensor, least: float) -> str:
    """The cosine between the two; raises AssertionError below `least`."""
    value = torch.nn.functional.cosine_similarity(found.double().flatten(), expected.double().flatten(), dim=0).item()
    assert value >= least, f"cosine {value:.6f}"
    return f"cosine {value:.6f}"
