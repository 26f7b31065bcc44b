"""Timers. Each prepares a list of calls and then gives samples: seconds of one call.

wall: the host's clock, for the CPU. event: CUDA events around one call. graph: CUDA events around the replay of a
CUDA graph that holds all calls. A list of several calls works on argument sets at different addresses and is gone
round, so that no call finds its data in the cache (see `cold`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

Call = Callable[[], object]
Sample = Callable[[], float]

WARM_UP_SECONDS = 0.02
SHORTEST_SAMPLE = 1e-3  # seconds; shorter calls are repeated within a sample, so that the clock's grain vanishes
CALLS_IN_GRAPH = 20
QUEUE_CYCLES = 1_000_000  # about 0.5 ms; keeps the device busy while the host issues what is measured


class Timer(Protocol):
    """`name` and `device` go into the result file."""

    name: str
    device: torch.device

    def prepare(self, calls: Sequence[Call], flush: Call | None = None) -> Sample:
        """Warms up and gives a function that takes one sample.

        `flush` displaces the cache before each sample, outside the measured time; a sample is then one call.
        """
        ...


class WallTimer:
    """`time.perf_counter` around calls that return when their work is done."""

    name = "wall"
    device = torch.device("cpu")

    def prepare(self, calls: Sequence[Call], flush: Call | None = None) -> Sample:
        begin = time.perf_counter()
        done = 0
        while done < len(calls) or time.perf_counter() - begin < WARM_UP_SECONDS:
            calls[done % len(calls)]()
            done += 1
        each = (time.perf_counter() - begin) / done
        count = 1 if flush else max(1, round(SHORTEST_SAMPLE / max(each, 1e-9)))
        position = 0

        def sample() -> float:
            nonlocal position
            if flush:
                flush()
            order = [calls[(position + step) % len(calls)] for step in range(count)]
            position += count
            start = time.perf_counter()
            for call in order:
                call()
            return (time.perf_counter() - start) / count

        return sample


class EventTimer:
    """CUDA events around one call that the host issues. Work before it keeps the device busy until all is issued."""

    name = "event"

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def prepare(self, calls: Sequence[Call], flush: Call | None = None) -> Sample:
        for call in (*calls, calls[0], calls[0]):
            call()
        torch.cuda.synchronize(self.device)
        position = 0

        def sample() -> float:
            nonlocal position
            call = calls[position % len(calls)]
            position += 1
            start, end = _events()
            if flush:
                flush()
            torch.cuda._sleep(QUEUE_CYCLES)
            start.record()
            call()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) * 1e-3

        return sample


class GraphTimer:
    """CUDA events around the replay of a graph, divided by the calls in it: no launch gaps in the time."""

    name = "graph"

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def prepare(self, calls: Sequence[Call], flush: Call | None = None) -> Sample:
        rounds = 1 if flush else max(1, -(-CALLS_IN_GRAPH // len(calls)))
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):  # loading and first-call work must not fall into the capture
            for call in (*calls, calls[0], calls[0]):
                call()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(rounds):
                for call in calls:
                    call()
        graph.replay()
        torch.cuda.synchronize(self.device)

        def sample() -> float:
            start, end = _events()
            if flush:
                flush()
            torch.cuda._sleep(QUEUE_CYCLES)
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) * 1e-3 / (rounds * len(calls))

        return sample


def _events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def make(name: str, device: torch.device) -> Timer:
    """The timer called `name` for a device. Raises ValueError."""
    accepted = ("wall",) if device.type == "cpu" else ("graph", "event")
    if name not in accepted:
        raise ValueError(f"timer: {name!r} on {device.type}; accepted: {', '.join(accepted)}")
    if name == "wall":
        return WallTimer()
    return GraphTimer(device) if name == "graph" else EventTimer(device)


def take(samples: Sequence[Sample], count: int | None, seconds: float, least: int, most: int) -> list[list[float]]:
    """Samples of several prepared lists of calls, in balanced order (A B B A A B ...).

    `count` samples each; None: for `seconds` each, but at least `least` and at most `most`.
    """
    taken: list[list[float]] = [[] for _ in samples]
    begin = time.perf_counter()
    turn = 0
    while True:
        if count is not None:
            finished = turn >= count
        else:
            late = time.perf_counter() - begin > seconds * len(samples)
            finished = turn >= most or (turn >= least and late)
        if finished:
            return taken
        order = range(len(samples)) if turn % 2 == 0 else range(len(samples) - 1, -1, -1)
        for position in order:
            taken[position].append(samples[position]())
        turn += 1
