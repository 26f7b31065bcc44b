"""`python -m tests.ops.schemas`: rewrites the checked-in schemas; a changed schema needs a new version."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msa_ops  # noqa: F401
from msa_ops.registry import STORE

GOLDEN = Path(__file__).parent.parent / "golden" / "schemas.txt"


def check_versions(old: list[str], new: list[str]) -> list[str]:
    """Names whose schema changed while the version stood still."""

    def table(lines: list[str]) -> dict[str, tuple[int, str]]:
        found = {}
        for line in lines:
            version, name, rest = re.fullmatch(r"v(\d+) ([\w.]+)(\(.*)", line).groups()
            found[name] = (int(version), rest)
        return found

    before, after = table(old), table(new)
    return [
        name
        for name, (version, text) in after.items()
        if name in before and before[name][1] != text and before[name][0] >= version
    ]


def lines() -> list[str]:
    """What the file must hold."""
    return [f"v{s.version} {t}" for s in map(STORE.op, STORE.ops()) for t in (s.schema, s.out_schema)]


def main() -> int:
    new = lines()
    old = GOLDEN.read_text().splitlines() if GOLDEN.exists() else []
    stuck = check_versions(old, new)
    if stuck:
        print(f"changed without a new version: {', '.join(stuck)}", file=sys.stderr)
        return 1
    GOLDEN.write_text("\n".join(new) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
