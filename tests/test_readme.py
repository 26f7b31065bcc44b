"""The README's support matrix is what the registry says. `python -m tests.test_readme` rewrites it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from unittest import mock

from msa_ops.cli.list_ops import support_matrix
from msa_ops.registry import SIMULATED, STORE, backend
from tests.registry.golden import all_kernels

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"(<!-- support matrix:[^\n]*-->\n).*?(<!-- end of support matrix -->)", re.DOTALL)


def table() -> str:
    with mock.patch.object(backend, "built_kernels", all_kernels):
        matrix = support_matrix(STORE.ops())
    lines = ["| op | " + " | ".join(SIMULATED) + " |", "|---" * (len(SIMULATED) + 1) + "|"]
    lines += [
        f"| `{op}` | " + " | ".join(choice or "-" for choice in row.values()) + " |" for op, row in matrix.items()
    ]
    return "\n".join(lines) + "\n"


def test_support_matrix_is_true() -> None:
    found = BLOCK.search(README.read_text())
    assert found is not None
    assert found.group(0) == found.group(1) + table() + found.group(2)


if __name__ == "__main__":
    text = README.read_text()
    README.write_text(BLOCK.sub(lambda block: block.group(1) + table() + block.group(2), text))
    sys.exit(0)
