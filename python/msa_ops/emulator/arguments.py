"""Arguments of a launch that are no memory: numbers as kernels take them, the launch's shape, and how it is run."""

from __future__ import annotations

import operator
import struct
import sys
from collections.abc import Sequence
from typing import Any

MAX_INSTRUCTIONS = 10**10
"""Warp instructions after which a launch is given up: it would take an hour."""

MOST_THREADS = 1024
_LARGEST = 2**64 - 1


def whole(name: str, value: Any, least: int, most: int) -> int:
    """The value as an int. Raises ValueError if it is none, or outside of least to most."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        kind = "" if number is not None else "integers, "
        raise ValueError(f"{name}: {value!r}; accepted: {kind}{least} to {most}")
    return number


def check_options(
    *, max_instructions: int, seed: int | None = None, threads: int = 1, sum_order: int | None = None, shared: int = 0
) -> None:
    """Raises ValueError naming the option that is not accepted."""
    whole("max_instructions", max_instructions, 1, _LARGEST)
    whole("threads", threads, 1, MOST_THREADS)
    whole("shared memory", shared, 0, 2**31 - 1)
    for name, value in (("seed", seed), ("sum_order", sum_order)):
        if value is not None:
            whole(name, value, 0, _LARGEST)


def text(name: str, value: Any) -> str:
    """The value, a string. Raises TypeError for anything else, ValueError for one that C++ cannot take."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: {type(value).__name__}; accepted: str")
    if "\0" in value:
        raise ValueError(f"{name}: a NUL at {value.index(chr(0))}, where texts end for a driver")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name}: {value[error.start]!r} at {error.start}, which is half a character") from None
    return value


def flag(name: str, value: Any) -> bool:
    """The value, true or false. Raises TypeError for anything else."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}: {type(value).__name__}; accepted: True or False")
    return value


def several(name: str, value: Any) -> Sequence[Any]:
    """The value, a sequence of other values. Raises TypeError for anything else, strings and bytes among it."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        raise TypeError(f"{name}: {type(value).__name__}; accepted: a list or tuple")
    return value


def three(name: str, value: int | Sequence[int]) -> tuple[int, int, int]:
    """One to three positive numbers, x first; those that are missing are 1."""
    given: Any = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    try:
        numbers = [operator.index(number) for number in given]
    except TypeError:
        numbers = []
    if not 1 <= len(numbers) <= 3 or any(not 1 <= number < 1 << 32 for number in numbers):
        raise ValueError(f"{name}: {value!r}; accepted: one to three positive numbers")
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def plain(value: Any) -> Any:
    """A number of NumPy as Python's, since it has no memory that a kernel could use; everything else as it is."""
    numpy = sys.modules.get("numpy")
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


def float_bytes(name: str, value: float, size: int) -> bytes:
    """fp32 or fp64, by size. Raises ValueError for another size, and for a number that fp32 does not hold."""
    if size not in (4, 8):
        raise ValueError(f"{name}: a float; the parameter has {size} bytes, accepted: 4 or 8")
    try:
        return struct.pack("<f" if size == 4 else "<d", value)
    except OverflowError:
        raise ValueError(f"{name}: {value!r} does not fit into fp32") from None
