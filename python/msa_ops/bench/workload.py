"""Workload files: which op is measured on which inputs. TOML, strict; docs/benchmarks.md describes the format."""

from __future__ import annotations

import inspect
import itertools
import math
import re
import tomllib
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msa_ops
from msa_ops.bench import kinds
from msa_ops.bench.decode import FormatError, decode, describe, matches, suggest
from msa_ops.bench.result import LARGEST_WEIGHT

MOST_CASES = 10_000
_RESERVED = ("seed", "device")
_PACKAGE = Path(msa_ops.__file__).parent
SEARCH_PATH = (_PACKAGE.parents[1] / "perf" / "workloads", _PACKAGE / "bench" / "workloads", Path("perf/workloads"))
"""Where a workload given by name is looked for: the source tree, the wheel, the working directory."""


@dataclass(frozen=True)
class Case:
    """One op, or several (`kinds`), on one set of dimensions. `dims` are keyword arguments of the op's `generate`."""

    op: str
    dims: Mapping[str, Any]
    weight: float = 1.0
    tags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Identity of the case in result files: independent of the workload file and of the order of keys."""
        return f"{self.op}[{','.join(f'{key}={_text(value)}' for key, value in sorted(self.dims.items()))}]"

    @property
    def settings(self) -> list[str]:
        """`dims` as "key=value" in the form that `--set` reads."""
        return [f"{key}={_text(value)}" for key, value in sorted(self.dims.items())]


@dataclass(frozen=True)
class Workload:
    name: str
    description: str
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class _Entry:
    """A [[case]] table. `sweep` multiplies it: the first key varies slowest."""

    op: str
    dims: dict[str, Any] = field(default_factory=dict)
    sweep: dict[str, list[Any]] = field(default_factory=dict)
    weight: float = 1.0
    weights: list[float] | None = None
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _File:
    description: str
    case: list[_Entry]


def names() -> dict[str, Path]:
    """Workloads that can be given by name."""
    found: dict[str, Path] = {}
    for folder in SEARCH_PATH:
        for path in sorted(folder.glob("*.toml")):
            found.setdefault(path.stem, path)
    return found


def load(name: str) -> Workload:
    """A workload by file name or by the name of one that comes with msa_ops. Raises FormatError."""
    path = Path(name)
    if path.suffix != ".toml" and not path.is_file():
        known = names()
        if name not in known:
            raise FormatError(f"workload {name!r}: no such file or name{suggest(name, known)}")
        path = known[name]
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: not TOML: {error}") from None
    return parse(text, str(path), path.stem)


def parse(text: str, where: str, name: str) -> Workload:
    """The workload in `text`; `where` (a file name) begins every message. Raises FormatError."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FormatError(f"{where}: not TOML: {error}") from None
    except RecursionError:
        raise FormatError(f"{where}: not TOML: nested too deeply") from None
    file = decode(_File, data, where)
    cases: dict[str, Case] = {}
    for position, entry in enumerate(file.case):
        place = f"{where}: case[{position}]"
        for case in _expand(entry, place):
            if case.name in cases:
                raise FormatError(f"{place}: {case.name} is in the file already")
            cases[case.name] = case
    if not cases:
        raise FormatError(f"{where}: no cases")
    return Workload(name, file.description, tuple(cases.values()))


def single(op: str, settings: Sequence[str]) -> Workload:
    """A workload of one case from "key=value" texts. Values are TOML; a bare word is a string. Raises FormatError."""
    dims: dict[str, Any] = {}
    for setting in settings:
        key, sign, text = setting.partition("=")
        if not sign:
            raise FormatError(f"--set {setting!r}: accepted: KEY=VALUE")
        if key in dims:
            raise FormatError(f"--set: {key!r} is given twice")
        dims[key] = _value(text)
    _check_op(op, "--op")
    _check_dims(op, dims, "--set")
    return Workload(op, "given on the command line", (Case(op, dims),))


def select(
    workload: Workload, *, ops: Sequence[str] = (), tags: Sequence[str] = (), text: str | None = None
) -> Workload:
    """The cases with one of `ops`, one of `tags`, and `text` in the name. Raises FormatError if none is left."""
    for op in ops:
        _check_op(op, "--op")
    cases = [
        case
        for case in workload.cases
        if (not ops or case.op in ops)
        and (not tags or set(tags) & set(case.tags))
        and (text is None or text in case.name)
    ]
    if not cases:
        raise FormatError(
            f"workload {workload.name!r}: no case is left of {len(workload.cases)}; it has the ops "
            f"{', '.join(sorted({case.op for case in workload.cases}))} and the tags "
            f"{', '.join(sorted({tag for case in workload.cases for tag in case.tags})) or 'none'}"
        )
    return Workload(workload.name, workload.description, tuple(cases))


def dimensions(generate: Callable[..., Any]) -> dict[str, Any]:
    """Keyword arguments of an op's `generate` that a workload may set, with their annotations."""
    hints = typing.get_type_hints(generate)
    return {
        name: hints.get(name, Any)
        for name, parameter in inspect.signature(generate).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name not in _RESERVED
    }


def _expand(entry: _Entry, place: str) -> list[Case]:
    _check_op(entry.op, f"{place}.op")
    _check_dims(entry.op, entry.dims, f"{place}.dims")
    for key, values in entry.sweep.items():
        if key in entry.dims:
            raise FormatError(f"{place}.sweep: {key!r} is in dims too")
        if not values:
            raise FormatError(f"{place}.sweep.{key}: an empty list")
        for value in values:
            _check_dims(entry.op, {key: value}, f"{place}.sweep")
    count = math.prod(map(len, entry.sweep.values()))
    if count > MOST_CASES:
        raise FormatError(f"{place}.sweep: {count} combinations; accepted: up to {MOST_CASES}")
    points = list(itertools.product(*entry.sweep.values()))
    weights = entry.weights if entry.weights is not None else [entry.weight] * len(points)
    if len(weights) != len(points):
        raise FormatError(f"{place}.weights: {len(weights)} numbers; accepted: {len(points)}, one for each combination")
    for weight in weights:
        if not 0 <= weight <= LARGEST_WEIGHT:
            raise FormatError(f"{place}.weight: {weight}; accepted: numbers from 0 to {LARGEST_WEIGHT:g}")
    return [
        Case(entry.op, {**entry.dims, **dict(zip(entry.sweep, point, strict=True))}, weight, tuple(entry.tags))
        for point, weight in zip(points, weights, strict=True)
    ]


def _check_op(op: str, place: str) -> None:
    known = kinds.names()
    if op not in known:
        raise FormatError(f"{place}: unknown op {op!r}{suggest(op, known)}")


def _check_dims(op: str, dims: Mapping[str, Any], place: str) -> None:
    kind = kinds.kind_of(op)
    known = dimensions(kind.generate)
    for key, value in dims.items():
        if key in _RESERVED:
            raise FormatError(f"{place}.{key}: set by the command line; accepted: {', '.join(known)}")
        if key not in known:
            raise FormatError(f"{place}: {op} has no {key!r}{suggest(key, known)}")
        if not matches(value, known[key]):
            raise FormatError(f"{place}.{key}: {value!r:.60}; accepted: {describe(known[key])}")
        if any(type(one) is int and one < 0 for one in (value if isinstance(value, list | tuple) else (value,))):
            raise FormatError(f"{place}.{key}: {value!r:.60}; accepted: numbers from 0")
        if key == "variant" and value not in kind.variants:
            raise FormatError(f"{place}.variant: {value!r}{suggest(value, kind.variants)}")


def _value(text: str) -> Any:
    try:
        found = tomllib.loads(f"value = {text}")
        if len(found) == 1:
            return found["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        if re.fullmatch(r"[\w.+-]+", text):
            return text
    raise FormatError(f"--set: {text!r:.60} is neither a TOML value, such as 3, true or [100, 200], nor a word")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_text, value))}]"
    return str(value)
