"""What can be wrong with a checkpoint folder. Each message is one line and says what is accepted."""

from __future__ import annotations

from collections.abc import Sequence

LISTED = 6
"""Names of a category that a message spells out; the exception's attributes hold all of them."""


class ModelError(ValueError):
    """The model cannot be built from what was given."""


class ConfigError(ModelError):
    """config.json is unreadable, or says something that this model does not do."""


class CheckpointError(ModelError):
    """The tensors cannot be read, or do not fit the config.

    missing, unexpected, misshapen: complete lists of tensors, each an entry of text; empty when the files
    themselves cannot be read.
    """

    def __init__(
        self,
        message: str,
        missing: Sequence[str] = (),
        unexpected: Sequence[str] = (),
        misshapen: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.missing, self.unexpected, self.misshapen = list(missing), list(unexpected), list(misshapen)


class MissingPackageError(ModelError, ImportError):
    """A package of the extra `model` is not installed."""


def listing(names: Sequence[str]) -> str:
    """The first names, and how many more there are, in one line: what does not print is escaped."""
    text = ", ".join(name if name.isprintable() else ascii(name) for name in names[:LISTED])
    return f"{text} and {len(names) - LISTED} more" if len(names) > LISTED else text
