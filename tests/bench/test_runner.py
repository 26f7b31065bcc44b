from __future__ import annotations

import re
import shlex
import statistics
import sys

import pytest

from msa_ops.bench import environment, runner, workload
from msa_ops.bench.decode import FormatError
from msa_ops.bench.result import Record, Report
from msa_ops.bench.roof import Roof
from msa_ops.bench.runner import Options
from msa_ops.bench.table import HEADER, bench_rows, reasons
from msa_ops.registry import STORE, Backend, Band
from tests.bench.fake_backends import registered

CASE = workload.single("rms_norm", ["tokens=4", "hidden=64"])


@pytest.fixture(autouse=True)
def _quick_roof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its measurement has a test of its own."""
    roof = Roof("cpu", {"read": 1e10}, {"fp32": 1e11}, True)
    monkeypatch.setattr(runner.roof, "measure", lambda device, cache: roof)


def run(cases: workload.Workload = CASE, **options: object) -> Report:
    settings: dict[str, object] = {"samples": 6, **options}
    return runner.run(cases, Options(**settings))  # type: ignore[arg-type]


def by_backend(report: Report) -> dict[str, Record]:
    return {record.backend: record for record in report.records}


def test_a_correct_backend_is_timed_next_to_the_reference() -> None:
    with registered("right"):
        records = by_backend(run())
    assert set(records) == {"reference", "fake_right"}
    spec = STORE.op("rms_norm")
    cost = spec.cost(spec.generate(0, tokens=4, hidden=64))
    for record in records.values():
        assert record.status == "ok" and len(record.samples) == 6 and all(s > 0 for s in record.samples)
        assert (record.bytes_read, record.bytes_written, record.flops) == (
            cost.bytes_read,
            cost.bytes_written,
            cost.flops,
        )
        assert record.roof_seconds == max(cost.bytes / 1e10, cost.flops / 1e11)
        assert record.percent_of_roof == pytest.approx(100 * record.roof_seconds / statistics.median(record.samples))
        assert (record.timer, record.cold) == ("wall", "warm")
        assert [check.name for check in record.checks] == ["out"] and record.checks[0].passed
        assert len(record.source_hash) == 16


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("wrong", "incorrect", "out: .* elements beyond tolerance, largest error"),
        ("unwritten", "incorrect", "out: 64 of 256 elements"),
        ("spoils_input", "incorrect", "x: . of 512 elements"),
        ("lazy", "incorrect", "in the timed calls: out: 256 of 256"),
        ("raises", "error", "RuntimeError: out of luck"),
    ],
)
def test_a_wrong_result_has_no_time(name: str, status: str, reason: str) -> None:
    with registered("right", name):
        report = run()
    record = by_backend(report)[f"fake_{name}"]
    assert record.status == status and record.samples == [] and record.percent_of_roof is None
    assert re.match(reason, record.reason), record.reason
    assert "\n" not in record.reason
    assert by_backend(report)["fake_right"].status == "ok", "the others are measured all the same"
    assert report.failed
    assert any(record.reason in line for line in reasons(report.records))


def test_refusals_are_records_with_their_reasons() -> None:
    with registered("picky"):
        cases = workload.single("rms_norm", ["tokens=4", "hidden=96"])
        refused = by_backend(run(cases))["fake_picky"]
        accepted = by_backend(run())["fake_picky"]
    assert refused.status == "refused" and "hidden is 96; accepted: 64" in refused.reason and not refused.samples
    assert accepted.status == "ok"


def test_named_backends_only() -> None:
    with registered("right", "wrong"):
        assert set(by_backend(run(backends=("fake_right",)))) == {"fake_right"}
        with pytest.raises(FormatError, match="'fake_rihgt'; did you mean 'fake_right'"):
            run(backends=("fake_rihgt",))


def test_workspace_is_given_and_recorded() -> None:
    backend = Backend(
        op="select_blocks",
        name="fake_workspace",
        target="tests.bench.fake_backends:select_blocks_with_workspace",
        workspace="tests.bench.fake_backends:workspace",
        archs=frozenset({"cpu"}),
        automatic=frozenset(),
        band=Band.PORTABLE,
    )
    STORE.add_backend(backend)
    try:
        found = by_backend(run(workload.single("select_blocks", [])))["fake_workspace"]
    finally:
        STORE.remove_backend("select_blocks", backend.name)
    assert (found.status, found.workspace_bytes) == ("ok", 1024)


def test_ops_that_write_their_arguments_are_checked_and_timed() -> None:
    cases = workload.single("rms_norm", ["tokens=4", "hidden=64", "residual=true"])
    with registered("right", "forgets_residual"):
        records = by_backend(run(cases))
    assert records["fake_right"].status == "ok"
    assert records["fake_forgets_residual"].status == "incorrect" and "residual" in (
        records["fake_forgets_residual"].reason
    )


def test_cold_cache_rotates_or_flushes_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "cache_bytes", lambda device: 4096)
    big = workload.single("rms_norm", ["tokens=16", "hidden=64"])
    assert by_backend(run(big, cold=True))["reference"].cold == "rotate:3"
    tiny = workload.single("rms_norm", ["tokens=1", "hidden=8"])
    assert by_backend(run(tiny, cold=True))["reference"].cold == "flush"


def test_repeats_and_seed_are_records_of_their_own() -> None:
    report = run(repeats=3, seed=5)
    assert [(record.repeat, record.seed) for record in report.records] == [(0, 5), (1, 5), (2, 5)]


def test_reproduce_command_gives_the_case_again() -> None:
    from msa_ops.cli import bench
    from tests.bench.test_cli import parser

    record = run(seed=3).records[0]
    words = shlex.split(record.reproduce)
    assert words[:2] == ["msa-ops", "bench"]
    args = parser().parse_args(words[1:])
    assert [case.name for case in bench.chosen_cases(args, "none").cases] == [record.case]
    assert (args.backend, args.device, args.seed) == (["reference"], "cpu", 3)


def test_a_case_that_does_not_fit_is_refused_without_making_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "free_bytes", lambda device: 10_000_000)
    cases = workload.single("indexer", ["batch=64", "seq_len=100000", "q_len=1"])
    record = run(cases).records[0]
    assert record.status == "refused" and "GB of memory; 0.0 GB are free" in record.reason


def test_a_bad_case_stops_everything_before_it_starts() -> None:
    bad = workload.Workload("w", "d", (*CASE.cases, workload.Case("indexer", {"index_format": "nvfp5"})))
    seen: list[Record] = []
    with pytest.raises(FormatError, match="nvfp5"):
        runner.run(bad, Options(samples=1), seen.append)
    assert not seen


def test_other_devices_and_timers() -> None:
    with pytest.raises(ValueError, match="device: 'meta'; accepted: cpu, cuda"):
        run(device="meta")
    with pytest.raises(ValueError, match="timer: 'graph' on cpu"):
        run(timer="graph")


def test_environment_of_this_run() -> None:
    found = run().environment
    assert found.device == "cpu" and found.threads >= 1 and found.cpu
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert found.git_sha is None or len(found.git_sha) == 40


def test_rows_for_the_console() -> None:
    with registered("wrong"):
        rows = bench_rows(run())
    assert all(len(row) == len(HEADER) for row in rows)
    timed, wrong = sorted(rows, key=lambda row: row[2] == "fake_wrong")
    assert timed[:3] == ("rms_norm", "hidden=64 tokens=4", "reference") and timed[-1] == "ok"
    assert wrong[3:] == ("-",) * 6 + ("incorrect",)


@pytest.mark.slow
def test_smoke_workload_is_correct_and_quick() -> None:
    """Every op has a time for its reference on this machine."""
    report = run(workload.load("cpu_smoke"), samples=None, seconds=0.05)
    assert {record.op for record in report.records} == set(STORE.ops())
    assert not report.failed, reasons(report.records)
