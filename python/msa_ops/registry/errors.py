"""Exceptions of the registry. Bad input is a ValueError; what no backend can do is a NotImplementedError."""

from __future__ import annotations


class UnknownBackendError(ValueError):
    """A backend was asked for by a name that nobody registered for the op."""


class UnknownOpError(ValueError):
    """An op name that the registry does not hold."""


class RegistrationError(ValueError):
    """A record that contradicts what is registered already, or that is malformed."""


class BackendRefusedError(NotImplementedError):
    """A backend that was asked for by name cannot serve this call; the message lists all reasons."""


class NoBackendError(NotImplementedError):
    """No backend can serve this call; the message lists every backend and all its reasons."""


class BackendLoadError(RuntimeError):
    """The chosen backend's module or function could not be imported."""
