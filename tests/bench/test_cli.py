"""The verbs bench, compare and roofline, as `msa-ops` runs them: arguments, output, exit codes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from msa_ops.bench import result, runner
from msa_ops.bench.roof import Roof
from msa_ops.cli import bench, compare, roofline
from tests.bench.fake_backends import registered
from tests.bench.synthetic import normal, record, report


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="msa-ops")
    verbs = made.add_subparsers(dest="verb", required=True)
    for module in (bench, compare, roofline):
        module.add_parser(verbs).set_defaults(run=module.run)
    return made


def call(*words: str) -> int:
    """The exit code; bad input raises ValueError, which the command turns into one line and exit code 2."""
    args = parser().parse_args(words)
    code: int = args.run(args)
    return code


@pytest.fixture(autouse=True)
def _quick_roof(monkeypatch: pytest.MonkeyPatch) -> None:
    roof = Roof("cpu", {"read": 1e10}, {"fp32": 1e11}, True)
    monkeypatch.setattr(runner.roof, "measure", lambda device, cache: roof)


SMALL = ("bench", "--op", "rms_norm", "--set", "tokens=4", "--set", "hidden=64", "--device", "cpu", "--samples", "6")


def test_bench_prints_a_table_and_writes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "r.json")
    assert call(*SMALL, "--out", path) == 0
    text = capsys.readouterr().out
    assert "% of roof" in text and "hidden=64 tokens=4" in text and "roof of" in text
    stored = result.read(path)
    assert [r.case for r in stored.records] == ["rms_norm[hidden=64,tokens=4]"]
    assert len(stored.records[0].samples) == 6


def test_bench_json_is_the_result_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*SMALL, "--json") == 0
    assert result.from_plain(json.loads(capsys.readouterr().out), "stdout").records[0].status == "ok"


def test_bench_fails_for_a_wrong_backend(capsys: pytest.CaptureFixture[str]) -> None:
    with registered("wrong"):
        assert call(*SMALL) == 1
    assert "fake_wrong: incorrect: out:" in capsys.readouterr().out


def test_bench_fails_if_nothing_could_be_timed(capsys: pytest.CaptureFixture[str]) -> None:
    with registered("picky"):
        assert call("bench", "--op", "rms_norm", "--set", "hidden=96", "--backend", "fake_picky") == 1
    assert "refused" in capsys.readouterr().out


def test_bench_of_a_file_and_filters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        'description = "d"\n[[case]]\nop = "rms_norm"\ndims = { hidden = 64 }\nsweep = { tokens = [1, 2, 3] }\n'
        'tags = ["x"]\n[[case]]\nop = "route_experts"\ndims = { tokens = 2 }\n'
    )
    common = ("bench", str(path), "--device", "cpu", "--samples", "5", "--json")
    for words, count in (((), 4), (("--op", "rms_norm"), 3), (("--tag", "x", "--case", "tokens=2"), 1)):
        assert call(*common, *words) == 0
        assert len(json.loads(capsys.readouterr().out)["records"]) == count


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bench", "nothing"), "no such file or name"),
        (("bench", "nothing.toml"), "nothing.toml"),
        (("bench", "cpu_smoke", "--op", "rms"), "unknown op 'rms'"),
        (("bench", "cpu_smoke", "--op", "rms_norm", "--set", "tokens=1"), "--set: accepted with one --op"),
        (("bench", "--set", "tokens=1"), "--set: accepted with one --op"),
        ((*SMALL, "--backend", "nothing"), "backend 'nothing'"),
        ((*SMALL, "--seconds", "0"), "--seconds: 0.0; accepted: positive numbers"),
        ((*SMALL, "--seconds", "nan"), "--seconds: nan"),
        ((*SMALL, "--seed", "-1"), "--seed: -1; accepted: 0 to 2^63 - 1"),
        ((*SMALL, "--seed", str(2**64)), "--seed: 18446744073709551616"),
        ((*SMALL, "--device", "abacus"), "--device: 'abacus'"),
        ((*SMALL, "--device", "cuda:77"), "--device: 'cuda:77'"),
        ((*SMALL, "--out", "/nowhere/r.json"), "its folder does not exist"),
        ((*SMALL, "--out", __file__), "is not a result of `msa-ops bench`; it stays as it is"),
        ((*SMALL, "--repeats", "-1"), "--repeats: -1"),
        ((*SMALL, "--timer", "event"), "timer: 'event' on cpu"),
        (("roofline", "cpu_smoke", "--chip", "b20"), "did you mean 'b200'"),
        (("compare", "nothing.json", "nothing.json"), "nothing.json"),
        (("compare", __file__, __file__), "not JSON"),
    ],
)
def test_mistakes_are_one_line(words: tuple[str, ...], message: str) -> None:
    with pytest.raises((ValueError, OSError)) as error:
        call(*words)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_the_command_turns_a_typo_into_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from msa_ops.cli.main import main

    path = tmp_path / "typo.toml"
    path.write_text('description = "d"\n[[case]]\nop = "rms_norm"\ndims = { tokns = 4 }\n')
    assert main(["bench", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert "typo.toml: case[0].dims: rms_norm has no 'tokns'; did you mean 'tokens'?" in captured.err


def store(folder: Path, name: str, factor: float = 1.0, **changes: object) -> str:
    path = str(folder / f"{name}.json")
    samples = [factor * sample for sample in normal(name)] if changes.get("status", "ok") == "ok" else []
    result.write(report(record(samples, **changes)), path)
    return path


def test_compare_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = store(tmp_path, "base")
    more = [word for run in range(3) for word in ("--baseline", store(tmp_path, f"base{run}"))]
    slower = store(tmp_path, "slower", 1.2)
    wrong = store(tmp_path, "wrong", status="incorrect", reason="out: 1 of 2")
    few = str(tmp_path / "few.json")
    result.write(report(record(normal(0, 3))), few)
    gone = store(tmp_path, "gone", case="another[]")
    for words, code, text in (
        ((store(tmp_path, "same"),), 0, "SAME"),
        ((store(tmp_path, "faster", 0.8),), 0, "FASTER"),
        ((slower,), 1, "SLOWER"),
        ((slower, "--floor", "30"), 0, "SAME"),
        ((wrong,), 2, "INVALID"),
        ((few,), 0, "AMBIGUOUS"),
        ((few, "--fail-on-ambiguous"), 3, "AMBIGUOUS"),
        ((gone,), 0, "MISSING"),
        ((gone, "--fail-on-missing"), 2, "NEW"),
    ):
        assert call("compare", base, *words, *more) == code, words
        assert text in capsys.readouterr().out


def test_compare_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("compare", store(tmp_path, "base"), store(tmp_path, "slower", 2.0), "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["exit_code"] == 1 and found["speedup"] == pytest.approx(0.5, rel=0.02)
    assert found["findings"][0]["verdict"] == "SLOWER"
    assert found["findings"][0]["change"] == pytest.approx(1.0, abs=0.03)


def test_two_runs_of_bench_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the verdict on a busy machine, the two files belong together."""
    paths = [str(tmp_path / f"{name}.json") for name in "ab"]
    for path in paths:
        assert call(*SMALL, "--repeats", "3", "--out", path) == 0
    assert call("compare", *paths) in (0, 1)
    assert "rms_norm[hidden=64,tokens=4]" in capsys.readouterr().out


def test_roofline_of_a_decode_step(capsys: pytest.CaptureFixture[str]) -> None:
    """Index keys: 128 requests x 200,000 tokens x 72 B at H200's 4.8 TB/s and B300's 8 TB/s take 384 and 230 us."""
    words = ("decode_m31", "--op", "indexer", "--case", "batch=128,index_format=nvfp4,num_heads=4,q_len=8,seq_len=2000")
    assert call("roofline", *words, "--chip", "h200", "--chip", "sm_103a", "--chip", "sm_90a", "--json") == 0
    cases = json.loads(capsys.readouterr().out)["cases"]
    assert len({(case["case"], case["chip"]) for case in cases}) == len(cases)
    times = {case["chip"]: case["roof_seconds"] for case in cases if case["bound"] == "memory"}
    assert times["h200"] == pytest.approx(128 * 200_000 * 72 / 4.8e12, rel=0.01)
    assert times["b300"] == pytest.approx(128 * 200_000 * 72 / 8e12, rel=0.01)


def test_roofline_table_and_this_machine(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    roof = Roof("cpu", {"read": 1e10}, {"fp32": 1e11}, True, ["measured in this run"])
    monkeypatch.setattr("msa_ops.bench.roof.measure", lambda device, cache: roof)
    assert call("roofline", "--op", "rms_norm", "--set", "hidden=64", "--chip", "this", "--chip", "b200") == 0
    text = capsys.readouterr().out
    assert "us at the roof" in text and "cpu (measured): 0.010 TB/s" in text and "b200 (nominal): 8.000 TB/s" in text


def test_names_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("bench", "names") == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} >= {"cpu_smoke", "decode_m31", "h200", "prefill_m31"}
    assert all(len(line.split()) > 3 for line in lines)
