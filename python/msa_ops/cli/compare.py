"""`msa-ops compare`: verdicts on stored results."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msa_ops.bench.compare import Finding


def add_parser(verbs: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "compare",
        help="compare stored results of bench",
        description="Verdicts: SAME, FASTER, SLOWER, AMBIGUOUS, NEW, MISSING, INVALID. "
        "Exit code: 0 clean, 1 a regression, 2 an invalid result or bad input, 3 ambiguous (with --fail-on-ambiguous).",
    )
    parser.add_argument("base", help="result file of the baseline")
    parser.add_argument("new", help="result file to judge")
    parser.add_argument(
        "--baseline",
        action="append",
        default=[],
        metavar="FILE",
        help="another run of the baseline, for the noise model; may be repeated; three runs in all are wanted",
    )
    parser.add_argument("--floor", type=float, default=2.0, metavar="PERCENT", help="smallest band (default 2)")
    parser.add_argument(
        "--single-floor", type=float, default=5.0, metavar="PERCENT", help="the same with under three runs (default 5)"
    )
    parser.add_argument("--factor", type=float, default=3.0, help="band over the measured noise (default 3)")
    parser.add_argument("--fail-on-ambiguous", action="store_true", help="exit code 3 if a verdict is AMBIGUOUS")
    parser.add_argument("--fail-on-missing", action="store_true", help="exit code 2 if a verdict is MISSING")
    parser.add_argument("--any-environment", action="store_true", help="compare results of different machines")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    from msa_ops.bench import result
    from msa_ops.bench.compare import compare, exit_code, speedup
    from msa_ops.bench.noise import NoiseModel

    model = NoiseModel(args.floor / 100, args.single_floor / 100, args.factor)
    baselines = [result.read(path) for path in [args.base, *args.baseline]]
    findings = compare(baselines, result.read(args.new), model, any_environment=args.any_environment)
    code = exit_code(findings, fail_on_ambiguous=args.fail_on_ambiguous, fail_on_missing=args.fail_on_missing)
    overall = speedup(findings)
    if args.json:
        plain = [{**vars(finding), "change": finding.change} for finding in findings]
        print(json.dumps({"findings": plain, "speedup": overall, "exit_code": code}, indent=1, allow_nan=False))
        return code
    print(_table(findings))
    counts = Counter(finding.verdict.value for finding in findings)
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    if overall is not None:
        print(f"speed-up, weighted geometric mean: {overall:.3f}")
    return code


def _table(findings: list[Finding]) -> str:
    from msa_ops.bench.table import microseconds
    from msa_ops.cli.table import format_table

    rows = [
        [
            finding.case,
            finding.backend,
            "-" if finding.base is None else microseconds(finding.base),
            "-" if finding.new is None else microseconds(finding.new),
            "-" if finding.change is None else f"{100 * finding.change:+.1f}%",
            "-" if finding.band is None else f"{100 * finding.band:.1f}%",
            finding.verdict.value,
            finding.reason,
        ]
        for finding in findings
    ]
    return format_table(["case", "backend", "base us", "new us", "change", "band", "verdict", "reason"], rows)
