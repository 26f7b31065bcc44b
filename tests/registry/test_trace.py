from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from msa_ops.registry import STORE, trace


@pytest.fixture
def args() -> object:
    return STORE.op("rms_norm").generate(0, tokens=2, hidden=8)


def test_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MSA_OPS_LOG", raising=False)
    monkeypatch.delenv("MSA_OPS_DUMP", raising=False)
    assert trace.from_environment() is None


def test_levels(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, args: object) -> None:
    caplog.set_level(logging.INFO, logger="msa_ops")
    for level, expected in (("1", "rms_norm -> reference"), ("2", "x=bfloat16[2, 8]")):
        monkeypatch.setenv("MSA_OPS_LOG", level)
        found = trace.from_environment()
        assert found is not None
        found("rms_norm", "reference", args)
        assert expected in caplog.records[-1].getMessage()


def test_dump_is_readable_names_the_process_and_stops_at_its_budget(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path, args: object
) -> None:
    monkeypatch.setenv("MSA_OPS_DUMP", str(tmp_path))
    monkeypatch.setenv("MSA_OPS_LOG", "0")
    found = trace.from_environment()
    assert found is not None
    found.budget = 60  # one call holds 2 * 8 + 8 elements of two bytes
    found("rms_norm", "reference", args)
    found("rms_norm", "reference", args)
    (file,) = tmp_path.glob("*/*_rms_norm.pt")
    assert torch.equal(torch.load(file)["args"]["x"], args.x)
    assert "not dumped" in caplog.text


@pytest.mark.parametrize(
    ("name", "value"),
    [("MSA_OPS_LOG", "3"), ("MSA_OPS_LOG", "yes"), ("MSA_OPS_DUMP_MIB", "-1"), ("MSA_OPS_DUMP_MIB", "\u00b2")],
)
def test_unknown_values_are_errors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str) -> None:
    monkeypatch.setenv("MSA_OPS_DUMP", str(tmp_path))
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=name):
        trace.from_environment()


def test_a_folder_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, args: object) -> None:
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("MSA_OPS_DUMP", str(tmp_path / "file"))
    found = trace.from_environment()
    assert found is not None
    with pytest.raises(ValueError, match=r"^MSA_OPS_DUMP: .*file"):
        found("rms_norm", "reference", args)
