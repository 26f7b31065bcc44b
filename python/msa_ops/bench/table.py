"""Reports as rows of text, for the console and for the demo."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msa_ops.bench.result import Record, Report

HEADER = ("op", "case", "backend", "us", "spread", "GB/s", "Gflop/s", "% of roof", "bound", "status")

UNSTEADY = 0.5
"""A spread above which rows are named below the table."""


def bench_rows(report: Report) -> list[tuple[str, ...]]:
    """One row a record, under HEADER: median microseconds, half the interquartile range in percent, and the roof."""
    return [_row(record) for record in report.records]


def reasons(records: Iterable[Record]) -> list[str]:
    """One line for every record that has no time, saying why."""
    return [f"{record.case} {record.backend}: {record.status}: {record.reason}" for record in records if record.reason]


def roof_line(report: Report) -> str:
    bandwidth = ", ".join(f"{kind} {value / 1e9:,.1f}" for kind, value in report.roof.bandwidth.items())
    rates = ", ".join(f"{kind} {value / 1e9:,.0f}" for kind, value in report.roof.rates.items())
    return f"roof of {report.environment.device_name}, measured in this run: {bandwidth} GB/s; {rates} Gflop/s"


def unsteady_line(records: Iterable[Record]) -> str | None:
    """What to know of rows whose samples are too far apart to be compared; None if there are none."""
    count = sum(record.median is not None and _spread(record.samples, record.median) > UNSTEADY for record in records)
    if not count:
        return None
    return (
        f"spread over {100 * UNSTEADY:.0f} % in {count} rows: the machine does other work, and these times say little"
        " (on a CPU, OMP_WAIT_POLICY=PASSIVE keeps torch's threads from spinning)"
    )


def _spread(samples: Sequence[float], median: float) -> float:
    """Half the interquartile range, relative to the median."""
    ordered = sorted(samples)
    return (ordered[(3 * len(ordered)) // 4] - ordered[len(ordered) // 4]) / 2 / median


def microseconds(seconds: float) -> str:
    value = seconds * 1e6
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def _row(record: Record) -> tuple[str, ...]:
    dims = record.case.removeprefix(record.op).strip("[]").replace(",", " ")
    median = record.median
    if median is None:
        return (record.op, dims, record.backend, "-", "-", "-", "-", "-", "-", record.status)
    percent = f"{record.percent_of_roof:.1f}" if record.percent_of_roof is not None else "-"
    return (
        record.op,
        dims,
        record.backend,
        microseconds(median),
        f"{100 * _spread(record.samples, median):.1f}%",
        f"{record.bytes / median / 1e9:,.2f}",
        f"{record.flops / median / 1e9:,.2f}",
        percent,
        f"{record.bound}{' (in cache)' if record.in_cache else ''}",
        record.status,
    )
