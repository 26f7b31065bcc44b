"""Why a backend cannot serve a call: one code, one sentence, one hint."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Code(StrEnum):
    """Machine-readable reasons; the values are stable and appear in JSON."""

    ARCH = "arch"  # compiled for other chips
    FEATURE = "feature"  # the chip lacks an instruction or unit
    VERSION = "version"  # a driver, toolkit or package is too old
    PACKAGE = "package"  # a Python package is not installed
    ARGUMENT = "argument"  # a property of the call is not supported
    NOT_AUTOMATIC = "not_automatic"  # only chosen by name
    NOT_BUILT = "not_built"  # this wheel does not hold the kernels
    PLUGIN = "plugin"  # a third-party provider failed or is not allowed


@dataclass(frozen=True)
class Refusal:
    """One reason. `message` states what was found and what is accepted; `hint` states what to do about it."""

    code: Code
    message: str
    hint: str

    def __str__(self) -> str:
        return f"[{self.code}] {self.message} ({self.hint})"
