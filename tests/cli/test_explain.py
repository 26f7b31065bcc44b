from __future__ import annotations

import json

import pytest

from msa_ops.cli.main import main
from msa_ops.registry import SIMULATED, STORE


def test_all_ops_on_all_chips_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "all", "--chip", "all", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) == len(STORE.ops()) * len(SIMULATED)
    for entry in found:
        assert entry["choice"] == ("reference" if entry["platform"] == "cpu (simulated)" else entry["choice"])
        assert all(b["refusals"] for b in entry["backends"] if b["state"] == "refused")


def test_a_platform_alone_means_all_ops(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--chip", "gfx950"]) == 0
    text = capsys.readouterr().out
    assert all(f"{op} on gfx950" in text for op in STORE.ops())
    assert "flydsl_gfx950 (msa_ops, specialized)" in text


def test_the_former_name_of_the_chip_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "rms_norm", "--platform", "gfx950", "--chip", "sm_90a"]) == 0
    text = capsys.readouterr().out
    assert "rms_norm on gfx950" in text and "rms_norm on sm_90a" in text


def test_text_gives_reason_and_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "rms_norm", "--chip", "gfx950", "--set", "hidden=5"]) == 0
    text = capsys.readouterr().out
    assert "hidden=5" in text and "[not_automatic]" in text and "MSA_OPS_BACKEND=rms_norm=reference" in text


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "rms_nrom"],
        ["explain", "rms_norm", "--chip", "sm_42"],
        ["explain", "rms_norm", "--set", "colour=red"],
        ["explain", "rms_norm", "--set", "hidden"],
        ["explain", "rms_norm", "--set", "hidden=wide"],
        ["explain", "rms_norm", "--set", "gemma=maybe"],
        ["explain", "rms_norm", "--set", "hidden=-1"],
        ["explain", "rms_norm", "--set", "dtype=bananas"],
        ["explain", "indexer", "--set", "q_dtype=float8_e4m3fnuz"],
        ["list", "nothing"],
    ],
)
def test_mistakes_end_in_one_line_and_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("msa-ops: error: ") and len(captured.err.splitlines()) == 1


def test_unknown_verb_ends_in_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["dance"])
    assert stop.value.code == 2
