"""Which backend the user asked for: the call's argument, else the innermost context, else the environment.

An override narrows the choice to one name. It never skips a capability check, unless the caller says `unsafe`
too, which exists for bringing up new hardware.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import NamedTuple

from msa_ops.registry.errors import UnknownBackendError, UnknownOpError
from msa_ops.registry.store import STORE

ENVIRONMENT = "MSA_OPS_BACKEND"
UNSAFE_ENVIRONMENT = "MSA_OPS_UNSAFE"
ALL_OPS = "*"


class Override(NamedTuple):
    """The backend asked for (None: automatic), where the wish came from, and whether checks are skipped."""

    backend: str | None
    source: str
    unsafe: bool


AUTOMATIC = Override(None, "automatic", False)

_context: ContextVar[Mapping[str, Override]] = ContextVar("msa_ops_backend", default=MappingProxyType({}))


@contextlib.contextmanager
def use_backend(backends: str | Mapping[str, str], *, unsafe: bool = False) -> Iterator[None]:
    """Within the block, ops run on the named backends: one name for all ops, or a mapping op -> name.

    An unknown op raises UnknownOpError here. Backends are checked when the op is called: an unknown name raises
    UnknownBackendError, a backend that cannot serve the call raises BackendRefusedError. `unsafe=True` skips the
    capability checks.
    """
    wishes = {ALL_OPS: backends} if isinstance(backends, str) else dict(backends)
    _check_ops(wishes, "use_backend")
    merged = dict(_context.get())
    if ALL_OPS in wishes:
        merged.clear()
    merged.update({op: Override(name, "use_backend", unsafe) for op, name in wishes.items()})
    token = _context.set(merged)
    try:
        yield
    finally:
        _context.reset(token)


_parsed: tuple[str, str, dict[str, Override]] = ("", "", {})


def parse_environment(text: str, unsafe: bool) -> dict[str, Override]:
    """ "indexer=cute_sm100,*=reference" -> overrides. Raises UnknownBackendError for anything else."""
    wishes = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        op, sign, name = part.partition("=")
        if not sign:
            op, name = ALL_OPS, part
        if not op.strip() or not name.strip():
            raise UnknownBackendError(f"{ENVIRONMENT}: {part!r} is not of the form op=backend, *=backend or backend")
        wishes[op.strip()] = Override(name.strip(), ENVIRONMENT, unsafe)
    return wishes


def _from_environment(op: str) -> Override:
    global _parsed
    text = os.environ.get(ENVIRONMENT)
    if not text:
        return AUTOMATIC
    unsafe = os.environ.get(UNSAFE_ENVIRONMENT, "")
    if (text, unsafe) != _parsed[:2]:
        wishes = parse_environment(text, unsafe == "1")
        _check_ops(wishes, ENVIRONMENT)
        _parsed = (text, unsafe, wishes)
    wishes = _parsed[2]
    return wishes.get(op) or wishes.get(ALL_OPS) or AUTOMATIC


def _check_ops(wishes: Mapping[str, object], source: str) -> None:
    unknown = sorted(set(wishes) - {ALL_OPS, *STORE.ops()})
    if unknown:
        raise UnknownOpError(f"{source}: unknown op {', '.join(unknown)}; known: {', '.join(STORE.ops())}")


def context_variable() -> ContextVar[Mapping[str, Override]]:
    """What contexts ask for; what the call and the environment say is not in it."""
    return _context


def current(op: str, call: str | None = None) -> Override:
    """The override in force for a call of `op` whose `backend` argument is `call`."""
    context = _context.get()
    if call is not None:
        return Override(call, "the call", False)
    if context:
        wish = context.get(op) or context.get(ALL_OPS)
        if wish is not None:
            return wish
    return _from_environment(op)
