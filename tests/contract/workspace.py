"""How much scratch a backend asks for, so that a test can put guards around exactly that much."""

from __future__ import annotations

from typing import Any

from msa_ops.registry import STORE
from tests.contract.target import Target


def workspace_bytes(target: Target, args: Any) -> int:
    """Bytes of workspace that the backend of `target` wants for this call; 0 if it wants none."""
    backend = next(b for b in STORE.backends(target.op) if b.name == target.backend)
    return backend.workspace_bytes(target.platform, target.spec.facts(args))
