"""Hands out page ids of a pool to sequences."""

from __future__ import annotations

from collections.abc import Iterable


class OutOfPagesError(RuntimeError):
    """More pages were asked for than are free; nothing was allocated."""


class PageAllocator:
    """A free list over pages 0 to num_pages - 1, on the host; not safe for several threads.

    A fresh allocator hands out ascending ids; the page freed last is handed out first, as it may still be in a cache.
    """

    def __init__(self, num_pages: int) -> None:
        if num_pages < 0:
            raise ValueError(f"num_pages: {num_pages}; accepted: 0 or more")
        self.num_pages = num_pages
        self._free = list(range(num_pages - 1, -1, -1))
        self._used = bytearray(num_pages)

    @property
    def available(self) -> int:
        """Pages that are free."""
        return len(self._free)

    def allocate(self, n: int) -> list[int]:
        """`n` page ids, all or nothing. Raises OutOfPagesError if fewer are free, ValueError if n < 0."""
        if n < 0:
            raise ValueError(f"n: {n}; accepted: 0 or more")
        if n > self.available:
            raise OutOfPagesError(f"{n} pages wanted, {self.available} of {self.num_pages} free")
        ids = [self._free.pop() for _ in range(n)]
        for page in ids:
            self._used[page] = 1
        return ids

    def free(self, ids: Iterable[int]) -> None:
        """Takes pages back, all or none. Raises ValueError for a page that is not allocated or is given twice."""
        pages = list(ids)
        if len(set(pages)) != len(pages):
            raise ValueError(f"ids: {pages}; accepted: each page once")
        for page in pages:
            if not 0 <= page < self.num_pages:
                raise ValueError(f"ids: {page}; accepted: 0 to {self.num_pages - 1}")
            if not self._used[page]:
                raise ValueError(f"ids: {page} is free already; accepted: allocated pages")
        for page in pages:
            self._used[page] = 0
        self._free.extend(pages)
