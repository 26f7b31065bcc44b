"""Verdicts on synthetic samples. Seconds; a case of 100 us with 1 % of normal noise unless said otherwise."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from msa_ops.bench.compare import Finding, Verdict, compare, exit_code, speedup
from msa_ops.bench.decode import FormatError
from msa_ops.bench.result import Report
from tests.bench.synthetic import normal, record, report

BASE = [report(record(normal(("base", run)))) for run in range(4)]


def judge(samples: Sequence[float], baselines: Sequence[Report] = BASE, **changes: object) -> Finding:
    (finding,) = compare(baselines, report(record(samples, **changes)))
    return finding


def scaled(factor: float, seed: object = "new", **settings: float) -> list[float]:
    return [factor * sample for sample in normal(seed, **settings)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [
        (1.0, Verdict.SAME),
        (1.005, Verdict.SAME),
        (1.1, Verdict.SLOWER),
        (0.9, Verdict.FASTER),
        (3.0, Verdict.SLOWER),
        (0.1, Verdict.FASTER),
    ],
)
def test_clear_cases(factor: float, verdict: Verdict) -> None:
    finding = judge(scaled(factor))
    assert finding.verdict is verdict
    assert finding.change == pytest.approx(factor - 1, abs=0.02)
    assert finding.band == pytest.approx(0.02, abs=0.01)


def test_false_alarms_are_rare_and_regressions_are_found() -> None:
    """300 comparisons of equal code, with noise between runs, and 300 of code that is 10 % slower."""

    def a_run(seed: object, factor: float = 1.0) -> Report:
        shift = 1 + 0.01 * random.Random(f"between {seed}").gauss(0, 1)
        return report(record(scaled(factor * shift, seed)))

    alarms, found = 0, 0
    for trial in range(300):
        baselines = [a_run((trial, run)) for run in range(5)]
        (same,) = compare(baselines, a_run((trial, "same")))
        (slower,) = compare(baselines, a_run((trial, "slower"), 1.1))
        alarms += same.verdict in (Verdict.SLOWER, Verdict.FASTER)
        found += slower.verdict is Verdict.SLOWER
    assert alarms <= 12, "4 %"
    assert found >= 270, "90 %"


def test_one_outlier_changes_nothing() -> None:
    for factor, verdict in ((1.0, Verdict.SAME), (1.1, Verdict.SLOWER)):
        samples = scaled(factor)
        samples[7] = 50e-4
        assert judge(samples).verdict is verdict
    spoiled = [report(record([*normal(("base", run)), 80e-4])) for run in range(4)]
    assert judge(scaled(1.0), spoiled).verdict is Verdict.SAME


@pytest.mark.parametrize("share", [0.3, 0.4, 0.5, 0.6, 0.7])
def test_bimodal_samples_are_ambiguous(share: float) -> None:
    """Some samples as before, the others 30 % slower: whether it is a regression, this run cannot tell."""
    modes = [1.3] * round(40 * share) + [1.0] * (40 - round(40 * share))
    random.Random(5).shuffle(modes)
    samples = [sample * mode for sample, mode in zip(normal("new", 40), modes, strict=True)]
    finding = judge(samples)
    assert finding.verdict is Verdict.AMBIGUOUS and "not as one" in finding.reason


def test_a_bimodal_baseline_is_the_same_as_itself() -> None:
    def two_modes(seed: object) -> list[float]:
        generator = random.Random(str(seed))
        return [sample * generator.choice((1.0, 1.3)) for sample in normal(seed, 40)]

    baselines = [report(record(two_modes(run))) for run in range(5)]
    verdicts = [judge(two_modes(("new", trial)), baselines).verdict for trial in range(30)]
    assert verdicts.count(Verdict.SLOWER) + verdicts.count(Verdict.FASTER) <= 1


def test_drift_within_the_run_is_ambiguous() -> None:
    """From 5 % to 30 % slower: all quartiles moved, but nothing says where it would have ended."""
    samples = [sample * (1.05 + 0.25 * step / 29) for step, sample in enumerate(normal("new"))]
    finding = judge(samples)
    assert finding.verdict is Verdict.AMBIGUOUS and "drifts by +" in finding.reason
    warming = [sample * (1.05 + 0.25 * step / 29) for step, sample in enumerate(normal("new"))][::-1]
    assert "drifts by -" in judge(warming).reason


def test_throttled_halfway_is_ambiguous() -> None:
    samples = [sample * (1.4 if step >= 15 else 1.0) for step, sample in enumerate(normal("new"))]
    assert judge(samples).verdict is Verdict.AMBIGUOUS


def test_throttled_throughout_is_told_by_the_clock() -> None:
    baselines = [report(record(normal(run), clock_mhz_before=1980.0, clock_mhz_after=1980.0)) for run in range(4)]
    throttled = judge(scaled(1.4), baselines, clock_mhz_before=1400.0, clock_mhz_after=1420.0)
    assert throttled.verdict is Verdict.AMBIGUOUS
    assert throttled.reason == "the clock explains it: 1410 against 1980 MHz"
    assert judge(scaled(1.4), baselines, clock_mhz_before=1980.0, clock_mhz_after=1970.0).verdict is Verdict.SLOWER
    boosted = judge(scaled(0.8), baselines, clock_mhz_before=2475.0, clock_mhz_after=2475.0)
    assert boosted.verdict is Verdict.AMBIGUOUS
    assert judge(scaled(1.4), baselines).verdict is Verdict.SLOWER, "no clock was read"


@pytest.mark.parametrize("factor", [1.0, 1.5, 0.5])
def test_three_samples_say_nothing(factor: float) -> None:
    finding = judge(scaled(factor, count=3))
    assert finding.verdict is Verdict.AMBIGUOUS and finding.reason == "3 samples; 5 are needed"
    few = [report(record(normal(run, 3))) for run in range(4)]
    finding = judge(scaled(factor), few)
    assert finding.verdict is Verdict.AMBIGUOUS and finding.reason == "3 samples; 5 are needed"


def test_a_noisy_case_needs_a_larger_change() -> None:
    """The same 6 % are a regression where runs agree, and nothing where they differ by more."""
    noisy = [report(record(scaled(1 + shift, run))) for run, shift in enumerate((0.0, 0.05, -0.05, 0.03, -0.04))]
    assert judge(scaled(1.06)).verdict is Verdict.SLOWER
    assert judge(scaled(1.06), noisy).verdict is Verdict.SAME


def test_a_single_baseline_has_a_wider_band() -> None:
    assert judge(scaled(1.04), BASE[:1]).verdict is Verdict.SAME
    assert judge(scaled(1.04)).verdict is Verdict.SLOWER
    assert judge(scaled(1.1), BASE[:1]).verdict is Verdict.SLOWER


def test_repeated_records_of_one_file_are_runs_of_their_own() -> None:
    together = report(*(r.records[0] for r in BASE))
    assert judge(scaled(1.04), [together]).verdict is Verdict.SLOWER


def test_repeated_new_runs_vote() -> None:
    def vote(*factors: float) -> Finding:
        new = report(*(record(scaled(factor, ("new", position))) for position, factor in enumerate(factors)))
        (finding,) = compare(BASE, new)
        return finding

    assert vote(1.1, 1.1, 1.1).verdict is Verdict.SLOWER
    assert vote(1.1, 1.0, 1.1).verdict is Verdict.SLOWER
    assert vote(1.1, 1.0, 1.1).reason == "of 3 runs: 2 SLOWER, 1 SAME"
    assert vote(1.1, 1.0).verdict is Verdict.AMBIGUOUS
    assert vote(1.1, 1.0, 0.9).verdict is Verdict.AMBIGUOUS
    assert vote(1.0, 1.0, 1.1).verdict is Verdict.SAME


def test_new_missing_and_invalid() -> None:
    base = report(record(normal(0), "a"), record(normal(0), "b"), record((), "d", status="incorrect", reason="out: 3"))
    new = report(
        record(normal(1), "a"),
        record(normal(1), "c"),
        record(normal(1), "d"),
        record((), "e", status="incorrect", reason="out: 4 of 8"),
        record((), "f", status="error", reason="RuntimeError: no"),
        record((), "g", status="refused", reason="[arch] no"),
        record((), "h"),
    )
    findings = {finding.case: finding for finding in compare([base], new)}
    assert {case: finding.verdict.value for case, finding in findings.items()} == {
        "a": "SAME",
        "b": "MISSING",
        "c": "NEW",
        "d": "NEW",
        "e": "INVALID",
        "f": "INVALID",
        "h": "INVALID",
    }
    assert findings["e"].reason == "incorrect: out: 4 of 8" and findings["h"].reason == "no samples"
    assert findings["d"].reason == "the baseline has no time: incorrect: out: 3"


def test_a_result_that_became_wrong_is_invalid_not_missing() -> None:
    finding = judge((), status="incorrect", reason="out: 4 of 8")
    assert finding.verdict is Verdict.INVALID and finding.base is not None and finding.new is None


def test_a_backend_that_refuses_now_is_missing() -> None:
    (finding,) = compare(BASE, report(record((), status="refused", reason="[arch] no")))
    assert finding.verdict is Verdict.MISSING


@pytest.mark.parametrize("bad", [0.0, -1e-4])
def test_times_that_cannot_be(bad: float) -> None:
    assert judge([*normal(0), bad]).verdict is Verdict.INVALID


def test_other_methods_do_not_compare() -> None:
    finding = judge(normal(0), timer="event")
    assert finding.verdict is Verdict.INVALID and "event timer" in finding.reason
    assert judge(normal(0), cold="rotate:4").verdict is Verdict.INVALID


def test_other_machines_do_not_compare_unless_told() -> None:
    other = report(record(scaled(2.0)), device_name="another CPU")
    with pytest.raises(FormatError, match="device_name: 'a CPU' in the baseline, 'another CPU' in the new"):
        compare(BASE, other)
    assert compare(BASE, other, any_environment=True)[0].verdict is Verdict.SLOWER
    with pytest.raises(FormatError, match="threads"):
        compare(BASE, report(record(normal(0)), threads=2))
    compare(BASE, report(record(normal(0)), torch="2.14.0", git_sha="1" * 40))


def test_backends_of_a_case_are_judged_apart() -> None:
    base = report(record(normal(0)), record(normal(1), backend="kernel"))
    new = report(record(normal(2)), record(scaled(2.0), backend="kernel"))
    assert {f.backend: f.verdict.value for f in compare([base], new)} == {"reference": "SAME", "kernel": "SLOWER"}


def test_speedup_is_a_weighted_geometric_mean() -> None:
    def finding(base: float, new: float, weight: float) -> Finding:
        return Finding("a", "b", Verdict.SAME, "", weight, base, new)

    assert speedup([finding(2.0, 1.0, 3), finding(1.0, 2.0, 1)]) == pytest.approx(2**0.5)
    assert speedup([finding(2.0, 1.0, 1), finding(1.0, 8.0, 0)]) == pytest.approx(2.0), "weight 0 does not count"
    assert speedup([Finding("a", "b", Verdict.NEW, "")]) is None


def finding_of(*verdicts: Verdict) -> list[Finding]:
    return [Finding("a", "b", verdict, "") for verdict in verdicts]


@pytest.mark.parametrize(
    ("verdicts", "plain", "strict"),
    [
        ((), 0, 0),
        ((Verdict.SAME, Verdict.FASTER, Verdict.NEW), 0, 0),
        ((Verdict.SAME, Verdict.SLOWER), 1, 1),
        ((Verdict.INVALID,), 2, 2),
        ((Verdict.INVALID, Verdict.SLOWER), 2, 2),
        ((Verdict.AMBIGUOUS,), 0, 3),
        ((Verdict.AMBIGUOUS, Verdict.SLOWER), 1, 1),
        ((Verdict.MISSING, Verdict.SAME), 0, 2),
        ((Verdict.MISSING, Verdict.SLOWER), 1, 2),
    ],
)
def test_exit_codes(verdicts: tuple[Verdict, ...], plain: int, strict: int) -> None:
    assert exit_code(finding_of(*verdicts)) == plain
    assert exit_code(finding_of(*verdicts), fail_on_ambiguous=True, fail_on_missing=True) == strict


def test_other_versions_of_an_op_do_not_compare() -> None:
    found = judge(scaled(1.0), op_version=2)
    assert found.verdict is Verdict.INVALID and "versions 1, 2 of the op" in found.reason


def test_a_baseline_given_twice_and_nothing_at_all() -> None:
    with pytest.raises(FormatError, match="a baseline is given twice"):
        compare([*BASE, BASE[0]], report(record(scaled(1.0))))
    with pytest.raises(FormatError, match="nothing to compare"):
        compare([report()], report())
