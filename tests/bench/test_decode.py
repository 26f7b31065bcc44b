from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from msa_ops.bench.decode import FormatError, decode, describe, matches


@dataclass
class Inner:
    width: int
    note: str | None = None


@dataclass
class Outer:
    name: str
    scale: float
    inner: Inner
    parts: list[Inner] = field(default_factory=list)
    table: dict[str, Any] = field(default_factory=dict)
    pair: tuple[int, ...] = ()
    flag: bool = False


def test_nested_records() -> None:
    data = {
        "name": "a",
        "scale": 2,
        "inner": {"width": 3},
        "parts": [{"width": 4, "note": "n"}],
        "table": {"x": [1, {"y": 2}]},
        "pair": [1, 2],
        "flag": True,
    }
    expected = Outer("a", 2.0, Inner(3), [Inner(4, "n")], {"x": [1, {"y": 2}]}, (1, 2), True)
    assert decode(Outer, data, "f.json") == expected
    assert isinstance(decode(Outer, data, "f.json").scale, float)


GOOD: dict[str, Any] = {"name": "a", "scale": 1.5, "inner": {"width": 3}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nmae": "b"}, r"^f\.toml: unknown key 'nmae'; did you mean 'name'\? \(accepted: .*scale"),
        ({"scale": "1.5"}, r"^f\.toml: scale: '1.5'; accepted: a number$"),
        ({"scale": True}, "scale: True; accepted: a number"),
        ({"flag": 1}, "flag: 1; accepted: true or false"),
        ({"inner": 5}, "inner: 5; accepted: a table"),
        ({"inner": {}}, "inner: key 'width' is missing"),
        ({"inner": {"width": 1.0}}, r"inner\.width: 1.0; accepted: an integer"),
        ({"inner": {"width": True}}, r"inner\.width: True; accepted: an integer"),
        ({"inner": {"width": 1, "note": 3}}, r"inner\.note: 3; accepted: a string"),
        ({"parts": [{"width": 1}, {"wdth": 1}]}, r"parts\[1\]: unknown key 'wdth'; did you mean 'width'"),
        ({"parts": {"width": 1}}, "parts: .*; accepted: a list of"),
        ({"pair": [1, "2"]}, r"pair\[1\]: '2'; accepted: an integer"),
    ],
)
def test_errors_name_file_and_key(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message) as error:
        decode(Outer, {**GOOD, **change}, "f.toml")
    assert "\n" not in str(error.value)


def test_missing_key() -> None:
    with pytest.raises(FormatError, match=r"f\.toml: key 'scale' is missing"):
        decode(Outer, {"name": "a", "inner": {"width": 1}}, "f.toml")


def test_annotations_of_generators() -> None:
    assert matches([1, 2], Sequence[int] | None) and matches(None, Sequence[int] | None)
    assert not matches([1, "a"], Sequence[int] | None) and not matches("ab", Sequence[str])
    assert describe(Sequence[int] | None) == "a list of integers"
    assert describe(float | None) == "a number"
