"""`whole_file.write`: the old content or the new one, never a part."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from msa_ops import whole_file


def test_new_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    whole_file.write(file, "one\n")
    assert file.read_text() == "one\n"
    file.chmod(0o640)
    whole_file.write(file, "zwei ü\n")
    assert file.read_text(encoding="utf-8") == "zwei ü\n" and stat.S_IMODE(file.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["a.json"]


def test_failure_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        whole_file.write(file, "x" * 100_000 + "\ud800")
    assert file.read_text() == "old" and os.listdir(tmp_path) == ["a.json"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    whole_file.write(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"


def test_a_device_is_written_to() -> None:
    whole_file.write("/dev/null", "x")
    assert not Path("/dev/null").is_file()
