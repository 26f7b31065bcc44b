"""Which bytes a view covers (emulator/device/footprint.hpp), against a list of all its bytes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from msa_ops._C import Footprint


def covered(element: int, steps: list[tuple[int, int]]) -> list[bool]:
    starts = [0]
    for stride, count in steps:
        starts = sorted({start + stride * i for start in starts for i in range(count)})
    found = [False] * (starts[-1] + element)
    for start in starts:
        found[start : start + element] = [True] * element
    return found


def check(element: int, steps: list[tuple[int, int]]) -> Footprint:
    made = Footprint(element, steps)
    truth = covered(element, steps)
    assert made.bytes == len(truth)
    assert bool(made.steps) or all(truth)
    assert covered(made.run, made.steps) == truth
    gaps = [(first, first + len(list(group))) for first, group in _groups(truth)]
    for offset, inside in enumerate(truth):
        first, end, found = made.segment(offset)
        assert found == inside
        assert first <= offset < end
        if inside:
            assert all(truth[first:end])
        else:
            assert (first, end) in gaps
    return made


def _groups(truth: list[bool]) -> list[tuple[int, list[bool]]]:
    at, found = 0, []
    for value, group in itertools.groupby(truth):
        members = list(group)
        if not value:
            found.append((at, members))
        at += len(members)
    return found


@pytest.mark.parametrize(
    ("element", "steps", "run", "folded"),
    [
        (4, [], 4, []),
        (4, [(4, 8)], 32, []),
        (4, [(32, 3), (4, 8)], 96, []),
        (4, [(4, 3), (12, 5)], 60, []),  # transposed
        (4, [(0, 7), (4, 2)], 8, []),  # expanded
        (4, [(100, 1), (4, 2)], 8, []),
        (2, [(2, 9), (2, 4)], 24, []),  # windows
        (4, [(512, 4), (4, 64)], 256, [(512, 4)]),
        (4, [(8, 16)], 4, [(8, 16)]),
        (4, [(128, 4), (8, 16)], 4, [(8, 64)]),  # every second word of all rows
        (4, [(16, 3), (8, 4)], 4, [(8, 8)]),  # windows of every second word
        (2, [(4096, 2), (512, 3), (2, 10)], 20, [(512, 3), (4096, 2)]),
        (4, [(24, 3), (8, 3)], 4, [(8, 9)]),
        (4, [(20, 3), (8, 3)], 4, [(8, 3), (20, 3)]),  # the last word of one is beside the first one of the next
        (1, [(2, 4), (3, 4)], 1, [(2, 4), (3, 4)]),  # copies interlace
    ],
)
def test_views(element: int, steps: list[tuple[int, int]], run: int, folded: list[tuple[int, int]]) -> None:
    made = check(element, steps)
    assert (made.run, made.steps) == (run, folded)


@pytest.mark.parametrize("seed", range(300))
def test_any_strides(seed: int) -> None:
    draw = np.random.default_rng(seed)
    element = int(draw.integers(1, 5))
    steps = [(int(draw.integers(0, 40)), int(draw.integers(1, 6))) for _ in range(draw.integers(0, 5))]
    check(element, steps)


def test_pages_are_no_list() -> None:
    """A layer's pages in a pool of 10 billion pages."""
    made = Footprint(1, [(1_658_880, 10**10), (1, 18_432)])
    assert made.segment(1_658_880 * 10**9 + 18_431) == (1_658_880 * 10**9, 1_658_880 * 10**9 + 18_432, True)
    assert made.segment(1_658_880 * 10**9 + 18_432) == (1_658_880 * 10**9 + 18_432, 1_658_880 * (10**9 + 1), False)


def test_no_elements() -> None:
    assert Footprint(4, [(4, 0), (8, 2)]).bytes == 0
    with pytest.raises(ValueError, match="outside"):
        Footprint(4, [(4, 3)]).segment(12)
