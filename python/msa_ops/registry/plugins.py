"""Backends of other packages, found through the entry-point group `msa_ops.backends`.

An entry point names a callable without arguments that returns an iterable of `Backend` records. A provider that
raises, or returns something else, is reported by `explain` and changes nothing else. `MSA_OPS_PLUGINS` holds the
names that may load, comma-separated; unset means all, empty means none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points

from msa_ops.registry.backend import OWN, Backend
from msa_ops.registry.refusal import Code, Refusal
from msa_ops.registry.store import STORE, Store

GROUP = "msa_ops.backends"
ALLOWED_ENVIRONMENT = "MSA_OPS_PLUGINS"

_lock = threading.RLock()
_loaded = False
_loading = False


def load_once() -> None:
    """Loads the plugins of this process, the first time it is called."""
    global _loaded, _loading
    if _loaded:
        return
    with _lock:
        if _loaded or _loading:  # a plugin that calls an op while it loads finds what is registered so far
            return
        _loading = True
        try:
            load(STORE, entry_points(group=GROUP), os.environ.get(ALLOWED_ENVIRONMENT))
            _loaded = True
        finally:
            _loading = False


def load(store: Store, points: Iterable[EntryPoint], allowed: str | None) -> None:
    """Registers what each entry point returns; failures go to the store, never to the caller."""
    names = None if allowed is None else {name.strip() for name in allowed.split(",")}
    for point in sorted(points, key=lambda point: (point.name, point.value)):
        if names is not None and point.name not in names:
            store.add_failure(
                point.name,
                Refusal(
                    Code.PLUGIN,
                    f"plugin {point.name} is not in {ALLOWED_ENVIRONMENT}",
                    f"add {point.name} to {ALLOWED_ENVIRONMENT}",
                ),
            )
            continue
        try:
            _register_all(store, point)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # any fault of a plugin must stay its own, also a sys.exit in its import
            store.add_failure(
                point.name,
                Refusal(
                    Code.PLUGIN,
                    f"plugin {point.name} ({point.value}) failed: {type(error).__name__}: {error}",
                    f"repair or uninstall it, or leave it out of {ALLOWED_ENVIRONMENT}",
                ),
            )


def _register_all(store: Store, point: EntryPoint) -> None:
    records = []
    for record in point.load()():
        if not isinstance(record, Backend):
            raise TypeError(f"returned {type(record).__name__}, not Backend records")
        store.op(record.op)
        # A record that names no provider does not pass for one of this package.
        records.append(replace(record, provider=point.name) if record.provider == OWN else record)
    added: list[Backend] = []
    try:
        for record in records:
            before = store.generation
            store.add_backend(record)
            if store.generation != before:
                added.append(record)
    except BaseException:
        for record in added:  # all or nothing
            store.remove_backend(record.op, record.name)
        raise
