"""Plain data (from TOML or JSON) to dataclasses, strictly: unknown keys, missing keys and wrong types are errors.

A message is one line and names the place: "FILE: case[2].dims: a string; accepted: a table".
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class FormatError(ValueError):
    """A file that does not have the documented form; the message names file and key."""


def decode(kind: type[T], data: object, where: str) -> T:
    """`data` as the dataclass `kind`. `where` begins every message. Raises FormatError."""
    value: T = _decode(kind, data, where)
    return value


def matches(value: object, hint: Any) -> bool:
    """True if `value` may stand where the annotation says `hint`; an int may stand for a float, a list for a tuple."""
    try:
        _decode(hint, value, "")
    except FormatError:
        return False
    return True


def describe(hint: Any) -> str:
    """The annotation in words."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe(argument) for argument in arguments if argument is not type(None))
    if origin in (list, tuple) or _is_sequence(origin):
        return f"a list of {_PLURALS.get(arguments[0], describe(arguments[0]))}"
    if origin is dict or dataclasses.is_dataclass(hint):
        return "a table"
    return _NAMES.get(hint, str(hint))


def suggest(name: str, known: Iterable[str]) -> str:
    """ "; did you mean 'batch'?" or nothing, and what is accepted."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"{hint} (accepted: {', '.join(names) or 'none'})"


_NAMES: dict[Any, str] = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}
_PLURALS: dict[Any, str] = {str: "strings", int: "integers", float: "numbers", bool: "true or false"}


def _is_sequence(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Sequence) and origin is not str


def _decode(hint: Any, data: object, where: str) -> Any:
    if hint is Any:
        return data
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(hint, data, where)
    if dataclasses.is_dataclass(hint):
        return _decode_record(hint, data, where)
    if origin in (list, tuple) or _is_sequence(origin):
        if not isinstance(data, list):
            raise _wrong(hint, data, where)
        items = [_decode(arguments[0], item, f"{where}[{position}]") for position, item in enumerate(data)]
        return items if origin is list else tuple(items)
    if origin is dict:
        if not isinstance(data, dict):
            raise _wrong(hint, data, where)
        return {key: _decode(arguments[1], item, f"{where}.{key}") for key, item in data.items()}
    if hint is float and isinstance(data, int) and not isinstance(data, bool):
        try:
            return float(data)
        except OverflowError:
            raise _wrong(hint, data, where) from None
    if hint is type(None):
        accepted = data is None
    else:
        accepted = isinstance(data, hint) and (hint is bool or not isinstance(data, bool))
    if not accepted:
        raise _wrong(hint, data, where)
    return data


def _decode_union(hint: Any, data: object, where: str) -> Any:
    arguments = typing.get_args(hint)
    if data is None and type(None) in arguments:
        return None
    choices = [argument for argument in arguments if argument is not type(None)]
    if len(choices) == 1:
        return _decode(choices[0], data, where)
    for choice in choices:
        if matches(data, choice):
            return _decode(choice, data, where)
    raise _wrong(hint, data, where)


def _decode_record(kind: Any, data: object, where: str) -> Any:
    if not isinstance(data, dict):
        raise _wrong(kind, data, where)
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key in data:
        if key not in fields:
            raise FormatError(f"{where}: unknown key {key!r}{suggest(str(key), fields)}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in data:
            raise FormatError(f"{where}: key {name!r} is missing")
    separator = ": " if where.endswith((".toml", ".json")) else "."
    return kind(**{key: _decode(hints[key], item, f"{where}{separator}{key}") for key, item in data.items()})


def _wrong(hint: Any, data: object, where: str) -> FormatError:
    return FormatError(f"{where}: {data!r:.60}; accepted: {describe(hint)}")
