from __future__ import annotations

from tests.registry import golden


def test_selection_is_as_checked_in() -> None:
    """A change here is a change of what users run: read it, then `python -m tests.registry.golden`."""
    assert golden.table() == golden.GOLDEN.read_text()
