"""What is registered: ops, their backends, and the providers that failed. Import of this module registers nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from msa_ops.registry.backend import ANY_ARCH, Backend, Band
from msa_ops.registry.errors import RegistrationError, UnknownOpError
from msa_ops.registry.op import OpSpec
from msa_ops.registry.refusal import Refusal

REFERENCE = "reference"


class Store:
    """Ops and backends by name. `generation` grows with every change, so that caches can notice."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._ops: dict[str, OpSpec] = {}
        self._backends: dict[str, dict[str, Backend]] = {}
        self._failures: dict[str, Refusal] = {}
        self._frozen = False
        self.generation = 0

    def add_op(self, spec: OpSpec) -> None:
        """Registers the op and its reference as the backend "reference", automatic on the CPU alone."""
        with self._lock:
            if self._ops.setdefault(spec.name, spec) is not spec:
                raise RegistrationError(f"op {spec.name!r} is registered already")
            self._backends[spec.name] = {}
        self.add_backend(
            Backend(
                op=spec.name,
                name=REFERENCE,
                target=f"{spec.reference.__module__}:{spec.reference.__name__}",
                archs=frozenset({ANY_ARCH}),
                automatic=frozenset({"cpu"}),
                band=Band.REFERENCE,
                graph_safe=False,
                functional=True,
            )
        )

    def add_backend(self, backend: Backend) -> None:
        """Registers a backend. The same record again is a no-op; a different one under its name is an error."""
        with self._lock:
            if backend.op not in self._ops:
                raise UnknownOpError(f"op {backend.op!r} is unknown; known: {', '.join(sorted(self._ops))}")
            present = self._backends[backend.op].get(backend.name)
            if present == backend:
                return
            if present is not None:
                raise RegistrationError(
                    f"op {backend.op!r} has another backend {backend.name!r} already (from {present.provider})"
                )
            if self._frozen:
                raise RegistrationError(f"the registry is frozen: {backend.op}={backend.name} comes too late")
            spec = self._ops[backend.op]
            if backend.workspace is not None and "workspace" not in spec.args.__dataclass_fields__:
                raise RegistrationError(
                    f"backend {backend.name!r} wants a workspace; {backend.op} has no such argument"
                )
            facts = spec.facts_type.__dataclass_fields__
            for name, _ in backend.limits:
                if name not in facts:
                    raise RegistrationError(
                        f"backend {backend.name!r} limits {name!r}; {backend.op} has the facts {', '.join(facts)}"
                    )
            self._backends[backend.op][backend.name] = backend
            self.generation += 1

    def remove_backend(self, op: str, name: str) -> None:
        """Takes a backend back; meant for tests and for reloading a plugin."""
        with self._lock:
            del self._backends[op][name]
            self.generation += 1

    def add_failure(self, provider: str, refusal: Refusal) -> None:
        with self._lock:
            self._failures[provider] = refusal
            self.generation += 1

    def freeze(self) -> None:
        """From here on new backends are refused, so that a captured graph and an eager call choose alike."""
        with self._lock:
            self._frozen = True

    @property
    def frozen(self) -> bool:
        return self._frozen

    def op(self, name: str) -> OpSpec:
        try:
            return self._ops[name]
        except KeyError:
            raise UnknownOpError(f"op {name!r} is unknown; known: {', '.join(sorted(self._ops))}") from None

    def ops(self) -> list[str]:
        return sorted(self._ops)

    def backends(self, op: str) -> list[Backend]:
        """Backends of the op, best first."""
        self.op(op)
        with self._lock:
            return sorted(self._backends[op].values(), key=lambda backend: backend.sort_key)

    def failures(self) -> Iterable[tuple[str, Refusal]]:
        """Providers whose backends could not be registered, with the reason."""
        with self._lock:
            return sorted(self._failures.items())


STORE = Store()
