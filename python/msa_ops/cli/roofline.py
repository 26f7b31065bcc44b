"""`msa-ops roofline`: bytes, operations and the least time of every case of a workload, on any chip."""

from __future__ import annotations

import argparse
import json
from typing import Any

from msa_ops.cli.bench import chosen_cases


def add_parser(verbs: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "roofline",
        help="bytes, flops and time at the roof of a workload, on any chip",
        description="Bytes, flops and time at the roof of every case of a workload, on any chip. Lengths, pages and "
        "chosen blocks are drawn for each case as a benchmark draws them, since they decide what is read: about 0.1 "
        "seconds of processor time a case, and 3 once for the parts of torch that know shapes without memory. "
        "decode_m31 has 80 cases and takes 10 seconds; --op, --tag and --case choose fewer.",
    )
    parser.add_argument("workload", nargs="*", help="as for bench; default: decode_m31")
    parser.add_argument(
        "--chip",
        action="append",
        default=[],
        help="H100, H200, B200, B300, Rubin, MI350X, MI355X, an architecture such as sm_103a, or 'this' (measures this "
        "machine); may be repeated; default: h200",
    )
    parser.add_argument("--op", action="append", default=[], metavar="OP[,OP]", help="only these ops")
    parser.add_argument("--tag", action="append", default=[], help="only cases with this tag; may be repeated")
    parser.add_argument("--case", metavar="TEXT", help="only cases with this text in their name")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="with --op and no workload: one case"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    from msa_ops.bench import chips, runner
    from msa_ops.bench.table import microseconds
    from msa_ops.cli.table import format_table

    workload = chosen_cases(args, "decode_m31")
    roofs = [_this_machine() if name == "this" else chips.chip(name) for name in args.chip or ["h200"]]
    roofs = list({one.name: one for one in roofs}.values())  # an architecture and its chip are the same roof
    rows: list[dict[str, Any]] = []
    outlines = runner.outline_cases(workload)
    for case in workload.cases:
        cost = outlines[case.name].cost
        precision = outlines[case.name].precision
        for one in roofs:
            seconds, bound = one.bound(cost, precision)
            rows.append(
                {
                    "case": case.name,
                    "chip": one.name,
                    "bytes_read": cost.bytes_read,
                    "bytes_written": cost.bytes_written,
                    "flops": cost.flops,
                    "precision": precision,
                    "roof_seconds": seconds,
                    "bound": bound,
                }
            )
    if args.json:
        plain = [vars(one) for one in roofs]
        print(json.dumps({"roofs": plain, "cases": rows}, indent=1))
        return 0
    header = ["case", "chip", "MB", "Gflop", "flop/byte", "us at the roof", "bound"]
    print(
        format_table(
            header,
            [
                [
                    row["case"],
                    row["chip"],
                    f"{(row['bytes_read'] + row['bytes_written']) / 1e6:,.3f}",
                    f"{row['flops'] / 1e9:,.3f}",
                    f"{row['flops'] / max(row['bytes_read'] + row['bytes_written'], 1):,.1f}",
                    microseconds(row["roof_seconds"]),
                    f"{row['bound']} ({row['precision']})" if row["bound"] == "compute" else row["bound"],
                ]
                for row in rows
            ],
        )
    )
    print()
    for one in roofs:
        rates = ", ".join(f"{kind} {rate / 1e12:,.2f}" for kind, rate in one.rates.items())
        kind = "measured" if one.measured else "nominal"
        print(
            f"{one.name} ({kind}): {one.bytes_per_second / 1e12:,.3f} TB/s; {rates} Tflop/s. {'; '.join(one.sources)}"
        )
    return 0


def _this_machine() -> Any:
    import torch

    from msa_ops.bench import environment, roof
    from msa_ops.cli.bench import default_device

    device = torch.device(default_device())
    return roof.measure(device, environment.cache_bytes(device))
