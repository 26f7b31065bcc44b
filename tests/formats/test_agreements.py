from __future__ import annotations

from tests.formats import agreements


def test_documented_table_is_what_is_measured() -> None:
    """`python -m tests.formats.agreements` rewrites it."""
    assert agreements.documented() == agreements.table()


def test_rows_are_distinct_and_cover_every_other_library() -> None:
    rows = agreements.rows()
    assert len({(row.subject, row.other) for row in rows}) == len(rows)
    assert {row.other for row in rows} == {agreements.AO, agreements.CT, agreements.ML}


def test_a_difference_is_seen() -> None:
    a = agreements.BYTES
    assert agreements.equal(a, a) == "equal (256)"
    assert agreements.equal(a, a.flip(0)) == "256 of 256 differ"
    nan = agreements.e8m0.from_bytes(a)
    assert agreements.equal(nan, -nan) == "255 of 256 differ", "NaN equals NaN, whatever its sign"
