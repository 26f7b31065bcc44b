"""A progress bar where one is wanted and tqdm is there; otherwise the same calls do nothing."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any


class Progress:
    """`with Progress(total, "loading") as bar: bar.update(n)`.

    On a terminal it redraws; into a file it prints every ten seconds. Without tqdm it is silent.
    """

    def __init__(self, total: int, what: str, unit: str = "it", *, show: bool = True) -> None:
        self._bar: Any = None
        if not show:
            return
        try:
            from tqdm import tqdm
        except ImportError:
            return
        interval = 0.1 if sys.stderr.isatty() else 10.0
        self._bar = tqdm(
            total=total, desc=what, unit=unit, unit_scale=unit == "B", mininterval=interval, maxinterval=interval
        )

    def update(self, n: int = 1) -> None:
        if self._bar is not None:
            self._bar.update(n)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
