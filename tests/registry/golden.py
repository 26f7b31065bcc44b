"""`python -m tests.registry.golden`: rewrites the checked-in table of op x platform -> choice and reasons."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import mock

import msa_ops
from msa_ops.registry import SIMULATED, STORE, backend

GOLDEN = Path(__file__).parent.parent / "golden" / "selection.txt"

OLDER_TOOLKIT = "sm_100a, cuda=12.9"


def all_kernels() -> frozenset[tuple[str, str]]:
    """What a build with every kernel holds."""
    backends = (record for op in STORE.ops() for record in STORE.backends(op) if record.compiled)
    return frozenset((record.op, arch) for record in backends for arch in record.archs)


def table() -> str:
    """Built-in backends only; every op's default call on every simulated platform, with all kernels built."""
    with mock.patch.object(backend, "built_kernels", all_kernels):
        return _table()


def _table() -> str:
    lines = []
    for op in STORE.ops():
        for chip in (*SIMULATED, OLDER_TOOLKIT):
            explanation = msa_ops.explain(op, chip)
            lines.append(f"{op} @ {chip}: {explanation.choice or 'nothing'}")
            for verdict in explanation.verdicts:
                if verdict.provider != "msa_ops":
                    continue
                lines.append(f"    {verdict.backend}: {verdict.state}")
                lines += [f"        [{refusal.code}] {refusal.message}" for refusal in verdict.refusals]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    GOLDEN.write_text(table())
    sys.exit(0)
