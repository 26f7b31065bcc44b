from __future__ import annotations

import random

import pytest

from msa_ops.cache.allocator import OutOfPagesError, PageAllocator


def test_pages_are_distinct_and_come_back() -> None:
    pages = PageAllocator(5)
    first, second = pages.allocate(2), pages.allocate(3)
    assert (first, second) == ([0, 1], [2, 3, 4])
    assert pages.available == 0
    pages.free(first)
    assert sorted(pages.allocate(2)) == first
    assert pages.allocate(0) == []


def test_exhaustion_is_clear_and_changes_nothing() -> None:
    pages = PageAllocator(3)
    pages.allocate(1)
    with pytest.raises(OutOfPagesError, match="3 pages wanted, 2 of 3 free"):
        pages.allocate(3)
    assert pages.available == 2
    assert pages.allocate(2) == [1, 2]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([0, 0], "each page once"),
        ([1, 3], "3 is free already"),
        ([0, 4], "accepted: 0 to 3"),
        ([-1], "accepted: 0 to 3"),
    ],
)
def test_a_refused_free_changes_nothing(ids: list[int], message: str) -> None:
    pages = PageAllocator(4)
    pages.allocate(3)
    with pytest.raises(ValueError, match=message):
        pages.free(ids)
    assert pages.available == 1
    pages.free([0, 1, 2])
    with pytest.raises(ValueError, match="1 is free already"):
        pages.free([1])


def test_negative_counts_are_refused() -> None:
    for call in (lambda: PageAllocator(-1), lambda: PageAllocator(1).allocate(-1)):
        with pytest.raises(ValueError, match="-1; accepted: 0 or more"):
            call()


def test_random_traffic_never_hands_a_page_out_twice() -> None:
    chance, pages, held = random.Random(0), PageAllocator(17), []
    for _ in range(500):
        if held and chance.random() < 0.5:
            pages.free(iter(held.pop(chance.randrange(len(held)))))
        else:
            count = chance.randrange(6)
            if count > pages.available:
                with pytest.raises(OutOfPagesError):
                    pages.allocate(count)
            else:
                held.append(pages.allocate(count))
        used = [page for ids in held for page in ids]
        assert len(set(used)) == len(used) == 17 - pages.available
        assert set(used) <= set(range(17))
