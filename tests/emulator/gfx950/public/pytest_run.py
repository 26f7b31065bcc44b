"""FlyDSL's own tests on the emulator."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.gfx950.public.hip import Hip


class _Plugin:
    def __init__(self, hip: Hip) -> None:
        self.hip = hip
        self.lines: list[str] = []

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: Any) -> Iterator[None]:
        self.hip.launches, self.hip.error = [], None
        outcome = yield
        instructions = sum(launch.wave_instructions for launch in self.hip.launches)
        seconds = sum(launch.seconds for launch in self.hip.launches)
        self.lines.append(
            f"{item.nodeid}: {len(self.hip.launches)} launches, {instructions:,} wave instructions in {seconds:.2f} s"
        )
        if self.hip.error is not None:
            self.lines[-1] += f"\n    {type(self.hip.error).__name__}: {self.hip.error}"
            outcome.force_exception(self.hip.error)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for line in self.lines:
            terminalreporter.write_line(line)


def _once(function: Any, *args: Any, **kwargs: Any) -> tuple[Any, float]:
    for name in ("num_iters", "num_warmup", "testGraph", "num_rotate_args", "needTrace"):
        kwargs.pop(name, None)
    return function(*args, **kwargs), 1.0


def public_tests(flydsl: Path, arguments: Sequence[str], hip: Hip, seeds: Sequence[int] | None) -> int:
    """Runs pytest in FlyDSL's checkout with these arguments, with the first of the seeds; its exit status."""
    import tests.test_common as common  # of FlyDSL
    from tests.emulator.gfx950.public.host import cpu_as_gpu

    # Its timing loops would repeat what one launch shows.
    common.run_perftest = _once  # type: ignore[attr-defined]
    hip.seed = seeds[0] if seeds else None
    os.chdir(flydsl)
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:logging", "-rfE", "--tb=short", "-q", *arguments]
    with cpu_as_gpu():
        return int(pytest.main(options, plugins=[_Plugin(hip)]))
