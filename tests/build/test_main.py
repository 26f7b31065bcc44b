"""What `python -m msa_ops.build` refuses before it compiles anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from msa_ops.build.__main__ import main
from msa_ops.build.unit import built_archs, families


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--op", "foo"], "--op: 'foo'; accepted: dense_attention, "),
        (["--arch", "sm_80"], f"--arch: 'sm_80'; accepted: {', '.join(built_archs())}\n"),
        (["--arch", "cpu"], "--arch: 'cpu'; accepted: "),
    ],
)
def test_names_that_nothing_is_built_for(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_op_without_a_kernel_for_the_chip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archs: dict[str, set[str]] = {}
    for family in families():
        archs.setdefault(family.op, set()).update(family.archs)
    op, arch = next((op, arch) for op, found in archs.items() for arch in built_archs() if arch not in found)
    assert main(["--op", op, "--arch", arch, "--out", str(tmp_path / "out")]) == 2
    assert f"--op: no kernel of {op} for {arch}" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--check-budgets", "--write-budgets"])
def test_budgets_are_looked_at_before_anything_is_compiled(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--arch", "sm_90a", "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache"), option]
    assert main([*arguments, str(tmp_path / "none")]) == 2
    assert f"{option}: {tmp_path / 'none'} is no folder" in capsys.readouterr().err
    (tmp_path / "sm_90a.json").write_text("[]")
    assert main([*arguments, str(tmp_path)]) == 2
    assert "sm_90a.json: a list; accepted: a table of budgets" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["sm_90a.json"]


@pytest.mark.parametrize("option", ["--out", "--cache"])
def test_a_folder_that_is_a_file(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    folders = {"--out": str(tmp_path / "out"), "--cache": str(tmp_path / "cache"), option: str(file)}
    arguments = [part for pair in folders.items() for part in pair]
    assert main(["--arch", "sm_90a", "--op", "select_blocks", *arguments]) == 2
    assert str(file) in capsys.readouterr().err
    assert file.read_text() == "mine"
