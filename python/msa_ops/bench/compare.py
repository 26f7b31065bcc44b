"""Comparison of stored results. Works on the files alone; docs/benchmarks.md states the rule in full."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from msa_ops.bench.decode import FormatError
from msa_ops.bench.noise import MIN_SAMPLES, NoiseModel, centre, quartiles, trend
from msa_ops.bench.result import Record, Report

TREND_Z = 3.0  # a drift is believed if chance gives such a trend once in 400 runs or less
MAJORITY = 2 / 3  # share of repeated new runs that must agree


class Verdict(StrEnum):
    SAME = "SAME"
    FASTER = "FASTER"
    SLOWER = "SLOWER"
    AMBIGUOUS = "AMBIGUOUS"
    NEW = "NEW"
    MISSING = "MISSING"
    INVALID = "INVALID"


@dataclass(frozen=True)
class Finding:
    """The verdict on one case and backend. Times are medians in seconds; `change` and `band` are relative."""

    case: str
    backend: str
    verdict: Verdict
    reason: str
    weight: float = 1.0
    base: float | None = None
    new: float | None = None
    band: float | None = None

    @property
    def change(self) -> float | None:
        return self.new / self.base - 1 if self.base and self.new is not None else None


_Key = tuple[str, str]
_ENVIRONMENT = ("device", "device_name", "threads")


def compare(
    baselines: Sequence[Report], new: Report, model: NoiseModel | None = None, *, any_environment: bool = False
) -> list[Finding]:
    """Findings for every case and backend of either side, in the order of the new report, then of the baseline.

    `baselines`: one or more runs of the same code; each record of a case counts as one run.
    Raises FormatError if the runs come from different machines and `any_environment` is false.
    """
    if not baselines:
        raise FormatError("compare: no baseline")
    if not any_environment:
        for report in baselines:
            _check_environment(report, new)
    model = model or NoiseModel()
    for position, report in enumerate(baselines):
        if any(_same_run(report, other) for other in baselines[:position]):
            raise FormatError(
                "compare: a baseline is given twice; accepted: each run once, or the noise looks too small"
            )
    old_records = _by_key(record for report in baselines for record in report.records)
    new_records = _by_key(new.records)
    findings = [_judge(key, old_records.get(key, []), records, model) for key, records in new_records.items()]
    findings += [
        Finding(*key, Verdict.MISSING, "measured in the baseline only", records[0].weight, _median(records))
        for key, records in old_records.items()
        if key not in new_records and any(record.status == "ok" for record in records)
    ]
    if not findings:
        raise FormatError("compare: neither side has a result; nothing to compare")
    return findings


def _same_run(one: Report, other: Report) -> bool:
    """The same samples in the same order: copies of one file."""
    return bool(one.records) and [r.samples for r in one.records] == [r.samples for r in other.records]


def speedup(findings: Iterable[Finding]) -> float | None:
    """Weighted geometric mean of base time / new time over the cases timed on both sides; None if there are none."""
    timed = [finding for finding in findings if finding.base and finding.new and finding.weight > 0]
    total = sum(finding.weight for finding in timed)
    if not total:
        return None
    return math.exp(sum(f.weight * math.log(f.base / f.new) for f in timed if f.base and f.new) / total)


def exit_code(findings: Sequence[Finding], *, fail_on_ambiguous: bool = False, fail_on_missing: bool = False) -> int:
    """2 if a result is invalid (or missing, if asked for), else 1 for a regression, else 3 if asked for, else 0."""
    verdicts = {finding.verdict for finding in findings}
    if Verdict.INVALID in verdicts or (fail_on_missing and Verdict.MISSING in verdicts):
        return 2
    if Verdict.SLOWER in verdicts:
        return 1
    return 3 if fail_on_ambiguous and Verdict.AMBIGUOUS in verdicts else 0


def _judge(key: _Key, old: Sequence[Record], new: Sequence[Record], model: NoiseModel) -> Finding:
    weight = new[0].weight
    for record in new:
        problem = _problem(record)
        if problem:
            return Finding(*key, Verdict.INVALID, problem, weight, _median(old))
    good = [record for record in old if not _problem(record)]
    if not good:
        reason = f"the baseline has no time: {_problem(old[0])}" if old else "not in the baseline"
        return Finding(*key, Verdict.NEW, reason, weight, None, _median(new))
    versions = sorted({record.op_version for record in [*good, *new]})
    if len(versions) > 1:
        return Finding(*key, Verdict.INVALID, f"versions {', '.join(map(str, versions))} of the op", weight)
    methods = {(record.timer, record.cold) for record in [*good, *new]}
    if len(methods) > 1:
        described = ", ".join(sorted(f"{timer} timer, {cold} cache" for timer, cold in methods))
        return Finding(*key, Verdict.INVALID, f"measured in different ways: {described}", weight)
    each = [_judge_run(good, record, model) for record in new]
    base = centre([record.samples for record in good])[1]
    middle = statistics.median(quartiles(record.samples)[1] for record in new)
    band = max(band for _, _, band in each)
    verdict, reason = each[0][:2]
    if len(each) > 1:
        verdict, reason = _majority([one[:2] for one in each])
    return Finding(*key, verdict, reason, weight, base, middle, band)


def _judge_run(old: Sequence[Record], new: Record, model: NoiseModel) -> tuple[Verdict, str, float]:
    """Verdict, reason and band for one new run against all runs of the baseline."""
    usable = [record.samples for record in old if len(record.samples) >= MIN_SAMPLES]
    band = model.band(usable or [record.samples for record in old], new.samples)
    if len(new.samples) < MIN_SAMPLES or not usable:
        fewest = len(new.samples) if usable else max(len(record.samples) for record in old)
        return Verdict.AMBIGUOUS, f"{fewest} samples; {MIN_SAMPLES} are needed", band
    shifts = [found / expected - 1 for found, expected in zip(quartiles(new.samples), centre(usable), strict=True)]
    if all(abs(shift) <= band for shift in shifts):
        return Verdict.SAME, "", band
    if not (all(shift > band for shift in shifts) or all(shift < -band for shift in shifts)):
        low, middle, high = (f"{100 * shift:+.1f}%" for shift in shifts)
        return Verdict.AMBIGUOUS, f"quartiles moved by {low}, {middle}, {high}: not as one", band
    drift, z = trend(new.samples)
    if abs(drift) > band and abs(z) >= TREND_Z:
        return Verdict.AMBIGUOUS, f"drifts by {100 * drift:+.1f}% within the run", band
    verdict = Verdict.SLOWER if shifts[1] > 0 else Verdict.FASTER
    clocks = [record.clock_mhz for record in old if record.clock_mhz]
    if clocks and new.clock_mhz:
        before = statistics.median(clocks)
        in_cycles = (1 + shifts[1]) * new.clock_mhz / before - 1
        if not (in_cycles > band if verdict is Verdict.SLOWER else in_cycles < -band):
            reason = f"the clock explains it: {new.clock_mhz:.0f} against {before:.0f} MHz"
            return Verdict.AMBIGUOUS, reason, band
    return verdict, "", band


def _majority(runs: Sequence[tuple[Verdict, str]]) -> tuple[Verdict, str]:
    """What at least two thirds of the runs say, else AMBIGUOUS."""
    verdicts = [verdict for verdict, _ in runs]
    leading = max(verdicts, key=lambda verdict: (verdicts.count(verdict), verdict))
    tally = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
    if verdicts.count(leading) >= MAJORITY * len(verdicts):
        own = next(reason for verdict, reason in runs if verdict is leading)
        agreed = "" if verdicts.count(leading) == len(verdicts) else f"of {len(verdicts)} runs: {tally}"
        return leading, own or agreed
    return Verdict.AMBIGUOUS, f"{len(verdicts)} runs disagree: {tally}"


def _problem(record: Record) -> str:
    """Why the record has no usable time, or nothing."""
    if record.status != "ok":
        return f"{record.status}: {record.reason}" if record.reason else record.status
    if not record.samples:
        return "no samples"
    if any(not (sample > 0 and math.isfinite(sample)) for sample in record.samples):
        return "a sample is not a positive number"
    return ""


def _by_key(records: Iterable[Record]) -> Mapping[_Key, list[Record]]:
    """Records by case and backend, without those that the machine or the backend refused."""
    found: dict[_Key, list[Record]] = {}
    for record in records:
        if record.status != "refused":
            found.setdefault((record.case, record.backend), []).append(record)
    return found


def _median(records: Sequence[Record]) -> float | None:
    times = [record.median for record in records if record.median is not None]
    return statistics.median(times) if times else None


def _check_environment(base: Report, new: Report) -> None:
    for name in _ENVIRONMENT:
        before, after = getattr(base.environment, name), getattr(new.environment, name)
        if before != after:
            raise FormatError(
                f"environment.{name}: {before!r} in the baseline, {after!r} in the new result; accepted: runs of one "
                "machine (--any-environment compares all the same)"
            )
