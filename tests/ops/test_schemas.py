"""A schema that was ever checked in keeps its meaning: another text needs another version."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.ops.schemas import GOLDEN, check_versions, lines

ROOT = Path(__file__).parents[2]


def test_the_file_holds_these_schemas_and_no_others() -> None:
    assert GOLDEN.read_text().splitlines() == lines()


@pytest.mark.parametrize(
    ("old", "new", "stuck"),
    [
        (["v1 a(Tensor x) -> Tensor"], ["v1 a(Tensor x, int k=1) -> Tensor"], ["a"]),
        (["v2 a(Tensor x) -> Tensor"], ["v1 a(Tensor x, int k=1) -> Tensor"], ["a"]),
        (["v1 a(Tensor x) -> Tensor"], ["v2 a(Tensor x, int k=1) -> Tensor"], []),
        (["v1 a(Tensor x) -> Tensor"], ["v1 a(Tensor x) -> Tensor", "v1 a.out(Tensor x) -> ()"], []),
        (["v1 a.out(Tensor x) -> ()"], ["v1 a.out(Tensor y) -> ()"], ["a.out"]),
    ],
)
def test_a_changed_schema_needs_a_larger_version(old: list[str], new: list[str], stuck: list[str]) -> None:
    assert check_versions(old, new) == stuck


def git(*command: str) -> str:
    return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_no_version_ever_had_another_schema() -> None:
    """Against the history of the file, so that neither editing nor deleting it hides a change."""
    path = GOLDEN.relative_to(ROOT).as_posix()
    try:
        commits = git("log", "--format=%H", "--", path).split()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    texts = [git("show", f"{commit}:{path}") for commit in commits if git("ls-tree", commit, "--", path)]
    meanings: dict[tuple[str, str], set[str]] = {}
    for line in [*lines(), *(line for text in texts for line in text.splitlines())]:
        version, name, rest = re.fullmatch(r"(v\d+) ([\w.]+)(\(.*)", line).groups()
        meanings.setdefault((name, version), set()).add(rest)
    changed = [f"{name} {version}" for (name, version), found in meanings.items() if len(found) > 1]
    assert not changed, f"changed without a new version: {', '.join(changed)}"
