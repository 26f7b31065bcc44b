"""The choice of a backend: filter, then band, then declared order, then name. Total and deterministic.

The choice depends on the platform, the override in force and the op's facts, and on nothing else; these are the
key of the cache. When no backend in reach looks at facts, they are not even computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msa_ops.registry.backend import Backend
from msa_ops.registry.errors import BackendRefusedError, NoBackendError, UnknownBackendError
from msa_ops.registry.overrides import Override
from msa_ops.registry.platform import Platform
from msa_ops.registry.refusal import Refusal
from msa_ops.registry.store import STORE, Store

MAX_CHOICES = 4096
"""Facts whose choice is remembered for an op, platform and override; a server sees new shapes for ever."""


class _Candidates:
    """Backends that the platform and the override leave, best first, with the choices made so far."""

    def __init__(self, backends: list[Backend]) -> None:
        self.backends = backends
        self.needs_facts = not backends or backends[0].needs_facts
        self.by_facts: dict[Any, Backend] = {}


class _Cache:
    """Candidates found while the store had one generation."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.candidates: dict[tuple[str, Platform, Override], _Candidates] = {}


class Selector:
    """Selection over one store. Thread-safe: a cache belongs to one state of the store, and is replaced with it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._cache = _Cache(-1)

    def choose(self, op: str, platform: Platform, override: Override, facts: Callable[[], Any]) -> Backend:
        """The backend for a call.

        Raises UnknownBackendError, BackendRefusedError (asked for by name and refused) or NoBackendError, each
        with all reasons.
        """
        cache = self._cache
        generation = self.store.generation
        if cache.generation != generation:
            # What another thread still computes from the store as it was goes into the cache that it took.
            cache = self._cache = _Cache(generation)
        key = (op, platform, override)
        candidates = cache.candidates.get(key)
        if candidates is None:
            candidates = cache.candidates[key] = self._candidates(op, platform, override)
        if not candidates.needs_facts:
            return candidates.backends[0]
        values = facts()
        backend = candidates.by_facts.get(values)
        if backend is None:
            if len(candidates.by_facts) >= MAX_CHOICES:
                candidates.by_facts.clear()
            backend = candidates.by_facts[values] = self._first(op, platform, override, candidates, values)
        return backend

    def refusals(self, backend: Backend, platform: Platform, facts: Any, automatic: bool) -> tuple[Refusal, ...]:
        """All reasons why the backend cannot serve the call; with `automatic`, also why it is not chosen unasked."""
        reasons = backend.platform_refusals(platform) + backend.call_refusals(platform, facts)
        return reasons + (backend.automatic_refusals(platform) if automatic else ())

    def require_known(self, op: str, override: Override) -> None:
        """Raises UnknownBackendError if the override names a backend that the op does not have."""
        known = [backend.name for backend in self.store.backends(op)]
        if override.backend is not None and override.backend not in known:
            raise UnknownBackendError(
                f"backend {override.backend!r} of {op} (asked for by {override.source}) is unknown; "
                f"known: {', '.join(known)}"
            )

    def _candidates(self, op: str, platform: Platform, override: Override) -> _Candidates:
        backends = self.store.backends(op)
        if override.backend is not None:
            self.require_known(op, override)
            named = [backend for backend in backends if backend.name == override.backend]
            return (
                _Candidates(named) if override.unsafe or not named[0].platform_refusals(platform) else _Candidates([])
            )
        return _Candidates(
            [
                backend
                for backend in backends
                if not backend.platform_refusals(platform) and not backend.automatic_refusals(platform)
            ]
        )

    def _first(self, op: str, platform: Platform, override: Override, candidates: _Candidates, facts: Any) -> Backend:
        for backend in candidates.backends:
            if override.unsafe or not backend.call_refusals(platform, facts):
                return backend
        from msa_ops.registry.explain import explain_with

        text = explain_with(self, op, platform, facts, override).reasons()
        if override.backend is not None:
            raise BackendRefusedError(
                f"{op}: backend {override.backend!r}, asked for by {override.source}, cannot serve this call on "
                f"{platform}:\n{text}"
            )
        raise NoBackendError(f"{op}: no backend can serve this call on {platform}:\n{text}")


SELECTOR = Selector(STORE)
