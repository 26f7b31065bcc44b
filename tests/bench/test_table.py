from __future__ import annotations

from msa_ops.bench import table
from tests.bench import synthetic

STEADY = [1e-3, 1.1e-3, 0.9e-3] * 3
WILD = [1e-3, 1e-3, 1e-3, 9e-3, 9e-3, 9e-3, 2e-3]


def test_steady_rows_are_not_named() -> None:
    assert table.unsteady_line([synthetic.record(STEADY), synthetic.record(status="refused")]) is None


def test_rows_with_a_wide_spread_are_counted() -> None:
    line = table.unsteady_line([synthetic.record(samples) for samples in (WILD, STEADY, WILD)])
    assert line is not None and "in 2 rows" in line


def test_the_spread_of_a_row_is_half_the_middle_half() -> None:
    (row,) = table.bench_rows(synthetic.report(synthetic.record([1e-3, 1e-3, 2e-3, 3e-3, 3e-3])))
    assert row[table.HEADER.index("spread")] == "50.0%"
