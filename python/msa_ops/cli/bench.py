"""`msa-ops bench`: times ops x backends x workloads, after checking that the results are right."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from msa_ops.cli.device import check_device

MOST = 1_000_000


def add_parser(verbs: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "bench",
        help="time ops on workloads; wrong results get no time",
        description="Exit code: 0 something was timed and nothing was wrong, 1 a result was wrong, a backend failed or "
        "nothing could be timed, 2 bad input. What a backend or the machine refuses is listed.",
    )
    parser.add_argument(
        "workload",
        nargs="*",
        help="a .toml file, or a name such as decode_m31 ('names' lists them); default: cpu_smoke on a CPU, h200 on "
        "a GPU, or the one case of --op and --set",
    )
    parser.add_argument("--op", action="append", default=[], metavar="OP[,OP]", help="only these ops")
    parser.add_argument("--tag", action="append", default=[], help="only cases with this tag; may be repeated")
    parser.add_argument("--case", metavar="TEXT", help="only cases with this text in their name")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="with --op and no workload: one case"
    )
    parser.add_argument("--backend", action="append", default=[], metavar="NAME[,NAME]", help="default: all that can")
    parser.add_argument("--device", help="cpu, cuda or cuda:N; default: cuda if there is one")
    parser.add_argument("--timer", default="auto", choices=("auto", "wall", "graph", "event"))
    cache = parser.add_mutually_exclusive_group()
    cache.add_argument("--cold", dest="cold", action="store_true", default=None, help="cold cache (default on a GPU)")
    cache.add_argument("--warm", dest="cold", action="store_false", help="warm cache (default on a CPU)")
    parser.add_argument("--samples", type=int, help="samples of each case; default: as many as --seconds allow")
    parser.add_argument("--seconds", type=float, default=0.2, help="time for each case and backend (default 0.2)")
    parser.add_argument("--repeats", type=int, default=1, help="measure all cases so many times (for A/A baselines)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", metavar="FILE", help="write the result file for `msa-ops compare`; an older result is replaced"
    )
    parser.add_argument("--json", action="store_true", help="print the result file instead of the table")
    return parser


def run(args: argparse.Namespace) -> int:
    from msa_ops.bench import result, runner, table, workload

    if args.workload == ["names"]:
        print("\n".join(f"{name:16}{workload.load(str(path)).description}" for name, path in workload.names().items()))
        return 0
    for name in ("samples", "repeats", "seconds"):
        value = getattr(args, name)
        if value is not None and not 0 < value <= MOST:
            raise ValueError(f"--{name}: {value}; accepted: positive numbers up to {MOST:,}")
    if not 0 <= args.seed < 2**63:
        raise ValueError(f"--seed: {args.seed}; accepted: 0 to 2^63 - 1")
    device = default_device() if args.device is None else args.device
    check_device(device)
    if args.out:
        result.check_path(args.out)
    cases = chosen_cases(args, "cpu_smoke" if device == "cpu" else "h200")
    options = runner.Options(
        device=device,
        backends=tuple(split(args.backend)),
        timer=args.timer,
        cold=args.cold,
        samples=args.samples,
        seconds=args.seconds,
        repeats=args.repeats,
        seed=args.seed,
    )

    def progress(record: result.Record) -> None:
        if sys.stderr.isatty():
            print(f"{record.case} {record.backend}: {record.status}", file=sys.stderr)

    report = runner.run(cases, options, progress)
    if args.out:
        result.write(report, args.out)
    if args.json:
        print(result.to_json(report), end="")
    else:
        from msa_ops.cli.table import format_table

        print(format_table(table.HEADER, table.bench_rows(report)))
        unsteady = table.unsteady_line(report.records)
        print(
            "\n".join(["", table.roof_line(report), *([unsteady] if unsteady else []), *table.reasons(report.records)])
        )
    timed = any(record.status == "ok" for record in report.records)
    return 1 if report.failed or not timed else 0


def chosen_cases(args: argparse.Namespace, default: str) -> Any:
    """The workload that the arguments `workload`, --op, --tag, --case and --set describe."""
    from msa_ops.bench import workload

    ops = split(args.op)
    if args.set:
        if args.workload or len(ops) != 1:
            raise ValueError("--set: accepted with one --op and no workload")
        return workload.single(ops[0], args.set)
    loaded = [workload.load(name) for name in args.workload or [default]]
    cases = {case.name: case for one in loaded for case in one.cases}
    together = workload.Workload(
        "+".join(one.name for one in loaded), "; ".join(one.description for one in loaded), tuple(cases.values())
    )
    return workload.select(together, ops=ops, tags=split(args.tag), text=args.case)


def split(texts: list[str]) -> list[str]:
    """["a,b", "c"] -> ["a", "b", "c"]."""
    return [part for text in texts for part in text.split(",") if part]


def default_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
