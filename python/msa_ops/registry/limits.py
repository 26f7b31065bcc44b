"""What a backend accepts for one fact of a call, stated as data so that the refusal can say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


class Limit(Protocol):
    def accepts(self, value: Any) -> bool: ...

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class OneOf:
    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:
        object.__setattr__(self, "values", values)

    def accepts(self, value: Any) -> bool:
        return value in self.values

    def __str__(self) -> str:
        return ", ".join(str(value) for value in self.values)


@dataclass(frozen=True)
class Between:
    """Both ends included."""

    low: float
    high: float

    def accepts(self, value: Any) -> bool:
        return bool(self.low <= value <= self.high)

    def __str__(self) -> str:
        return f"{self.low} to {self.high}"


@dataclass(frozen=True)
class MultipleOf:
    factor: int

    def accepts(self, value: Any) -> bool:
        return bool(value % self.factor == 0)

    def __str__(self) -> str:
        return f"multiples of {self.factor}"
