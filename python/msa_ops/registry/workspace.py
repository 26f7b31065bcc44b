"""How much memory a call works in, for those who bring it themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msa_ops.registry.explain import question
from msa_ops.registry.platform import Platform


def workspace_bytes(
    op: str,
    platform: str | Platform | None = None,
    facts: Mapping[str, Any] | None = None,
    *,
    call: Mapping[str, Any] | None = None,
) -> int:
    """Bytes that the call's argument `workspace` must have at least; 0 if its backend needs none.

    The arguments are those of `explain`. Only metadata counts: shapes, dtypes, `max_seqlen_q`, and not what a tensor
    holds. Raises what `explain` raises, and NoBackendError if nothing can serve the call.
    """
    from msa_ops.registry.selection import SELECTOR

    chip, values, override = question(op, platform, facts, call)
    return SELECTOR.choose(op, chip, override, lambda: values).workspace_bytes(chip, values)
