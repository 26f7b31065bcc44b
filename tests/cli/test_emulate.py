"""`msa-ops emulate`: verdicts, counts, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from msa_ops import _C
from msa_ops.cli.main import main

CASE = ["emulate", "--op", "quantize_nvfp4", "--set", "rows=3", "--set", "columns=64"]


def needs_kernels() -> None:
    if not any(name.startswith("quantize_nvfp4__") and arch == "sm_90a" for name, arch in _C.compiled_kernels()):
        pytest.skip("this build of msa_ops holds no kernels")


def test_right_result_with_report_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs_kernels()
    file = tmp_path / "counts.json"
    assert main([*CASE, "--schedules", "2", "--report", "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("quantize_nvfp4[columns=64,rows=3] cute_sm90 on sm_90a, in turn: right (1 launches, ")
    assert [line.split(": right")[0].split(", ")[-1] for line in lines[:3]] == ["in turn", "random 0", "random 1"]
    assert any(line.startswith("mov.b32 ") for line in lines)
    found = json.loads(file.read_text())
    assert [one["right"] for one in found["runs"]] == [True] * 3
    assert [one["fault"] for one in found["runs"]] == [None] * 3
    (launch,) = found["runs"][0]["launches"]
    assert launch["global_bytes_read"] == 3 * 64 * 2 and launch["global_bytes_written"] == 3 * (32 + 4)


def test_gfx950_reports_the_same_counts_and_waits_by_what_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not any(name.startswith("quantize_nvfp4__") for name, _ in _C.code_objects()):
        pytest.skip("this build of msa_ops holds no code objects")
    file = tmp_path / "counts.json"
    assert main([*CASE, "--chip", "gfx950", "--report", "--json", str(file)]) == 0
    (launch,) = json.loads(file.read_text())["runs"][0]["launches"]
    assert launch["global_requests"] > 0 and launch["global_sectors"] >= 3 * 64 * 2 / 32
    assert sum(launch["instructions_of_warp"].values()) == sum(launch["warp_instructions"].values())
    assert set(launch["waits_for"]) == {"barrier", "vmcnt", "lgkmcnt"} and launch["waits_for"]["vmcnt"] > 0
    assert f"vmcnt {launch['waits_for']['vmcnt']}" in capsys.readouterr().out


def test_wrong_result_and_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needs_kernels()
    from msa_ops.emulator import kernel_text

    honest = kernel_text.ptx
    monkeypatch.setattr(kernel_text, "ptx", lambda name: honest(name).replace("st.global.b8", "// st.global.b8"))
    assert main(CASE) == 1
    assert "scales: 12 of 12 elements wrong" in capsys.readouterr().out
    monkeypatch.setattr(kernel_text, "ptx", lambda name: honest(name).replace("shl.b64", "add.s64"))
    file = tmp_path / "counts.json"
    assert main([*CASE, "--json", str(file)]) == 1
    assert "misaligned: read of 16 bytes" in (printed := capsys.readouterr().out)
    (run,) = json.loads(file.read_text())["runs"]
    fault = run["fault"]
    assert (fault["kind"], fault["block"], fault["source"]) == ("misaligned", [0, 0, 0], None)
    assert (fault["warp"], fault["lane"]) == (0, 0) and fault["address"] % 16 != 0
    assert fault["kernel"].startswith("quantize_nvfp4__") and fault["entry"].startswith("kernel_cutlass_")
    assert f"[kernel {fault['kernel']}, line {fault['line']} `{fault['instruction']}`, " in printed
    text = kernel_text.ptx(fault["kernel"]).splitlines()
    assert fault["instruction"] in " ".join(text[fault["line"] - 1].split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--op", "nonsense"], "unknown op 'nonsense'"),
        (["--op", "layer_step"], "--op: 'layer_step' is several ops; accepted: dense_attention, "),
        (["--op", "quantize_nvfp4", "--set", "dtype=foo"], "dtype: 'foo'; accepted: a dtype of torch"),
        (["--op", "indexer", "--set", "q_dtype=Tensor"], "dtype: 'Tensor'; accepted: a dtype of torch"),
        (["--op", "select_blocks", "--set", "max_blocks=0"], "max_blocks: 0; accepted: 1 to"),
        (["--op", "rms_norm", "--backend", "reference"], "error: rms_norm: 'reference' launches no kernel"),
        (["--op", "rms_norm", "--set", "tokens=-1"], "--set.tokens: -1; accepted: numbers from 0"),
        (["--op", "indexer", "--set", "seq_len=99999999999"], "--set seq_len: 99,999,999,999 in all; accepted: up to"),
        (["--op", "indexer", "--set", "seq_lens=[9999999,9999999]"], "--set seq_lens: 19,999,998 in all; accepted: up"),
        (["--op", "indexer", "--set", "seq_len=9999999"], "--set: 3 requests of 9,999,999 tokens; accepted: up to"),
        (["--op", "rms_norm", "--json", "."], ".: a folder; accepted: a file to write"),
        (["--op", "rms_norm", "--json", ""], "'': no name of a file to write"),
        (["--op", "rms_norm", "--json", "no/such.json"], "no/such.json: its folder does not exist"),
        (["--op", "rms_norm"], "rms_norm has no kernel for sm_90a that could be emulated; ops with kernels for it: "),
        (["--op", "rms_norm", "--chip", "sm_1"], "unknown chip 'sm_1'"),
        (["--op", "rms_norm", "--arch", "sm_2"], "unknown chip 'sm_2'"),  # the option's former name
        (["--op", "rms_norm", "--backend", "reference", "--chip", "cpu"], "arch: 'cpu'; accepted: sm_90a"),
        (["--op", "rms_norm", "--schedules", "-1"], "--schedules: -1; accepted: 0 to 1000"),
        (["--op", "rms_norm", "--seed", "-1"], "--seed: -1; accepted:"),
    ],
)
def test_bad_input(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emulate", *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert not printed.out  # before anything ran


@pytest.mark.parametrize("built", [True, False])
def test_kernels_that_this_build_lacks(
    built: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("msa_ops.registry.backend.built_kernels", lambda: {("indexer", "sm_100a")} if built else set())
    assert main(["emulate", "--op", "rms_norm", "--chip", "B200"]) == 2
    printed = capsys.readouterr().err
    assert "ops with kernels for it: indexer" in printed
    assert ("this build of msa_ops holds none of these kernels, `make wheel` makes one that does" in printed) != built


def test_a_case_without_work(capsys: pytest.CaptureFixture[str]) -> None:
    needs_kernels()
    assert main(["emulate", "--op", "quantize_nvfp4", "--set", "rows=0"]) == 2
    assert "'cute_sm90' launches no kernel on sm_90a; the case gives it nothing to do" in capsys.readouterr().err


def test_another_file_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs_kernels()
    file = tmp_path / "notes.md"
    file.write_text("notes")
    assert main([*CASE, "--json", str(file)]) == 2
    assert "exists and is not a result of `msa-ops emulate`" in capsys.readouterr().err
    assert file.read_text() == "notes"
    file.write_text("")
    assert main([*CASE, "--json", str(file)]) == 0 == main([*CASE, "--json", str(file)])


def test_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emulate", "--op", "rms_norm", "--keys"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "an integer" in rows["tokens"]
    from msa_ops.bench import workload
    from msa_ops.registry import STORE

    assert set(workload.dimensions(STORE.op("rms_norm").generate)) <= set(rows)
