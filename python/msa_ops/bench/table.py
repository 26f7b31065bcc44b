"""Reports as rows of text, for the console and for the demo."""

from __future__ import annotations

from collections.abc import Iterable

from msa_ops.bench.result import Record, Report

HEADER = ("op", "case", "backend", "us", "spread", "GB/s", "Gflop/s", "% of roof", "bound", "status")


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


def microseconds(seconds: float) -> str:
    value = seconds * 1e6
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def _row(record: Record) -> tuple[str, ...]:
    dims = record.case.removeprefix(record.op).strip("[]").replace(",", " ")
    median = record.median
    if median is None:
        return (record.op, dims, record.backend, "-", "-", "-", "-", "-", "-", record.status)
    ordered = sorted(record.samples)
    spread = (ordered[(3 * len(ordered)) // 4] - ordered[len(ordered) // 4]) / 2 / median
    percent = f"{record.percent_of_roof:.1f}" if record.percent_of_roof is not None else "-"
    return (
        record.op,
        dims,
        record.backend,
        microseconds(median),
        f"{100 * spread:.1f}%",
        f"{record.bytes / median / 1e9:,.2f}",
        f"{record.flops / median / 1e9:,.2f}",
        percent,
        f"{record.bound}{' (in cache)' if record.in_cache else ''}",
        record.status,
    )
