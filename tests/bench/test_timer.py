from __future__ import annotations

import itertools
import statistics
import time

import pytest
import torch

from msa_ops.bench import timer

CPU = torch.device("cpu")


def test_wall_timer_measures_a_sleep() -> None:
    sample = timer.WallTimer().prepare([lambda: time.sleep(0.004)])
    began = time.perf_counter()
    samples = [sample() for _ in range(3)]
    assert 0.004 <= statistics.median(samples) <= sum(samples) <= time.perf_counter() - began


def test_wall_timer_repeats_short_calls_within_a_sample() -> None:
    count = 0

    def short() -> None:
        nonlocal count
        count += 1

    sample = timer.WallTimer().prepare([short])
    before = count
    seconds = sample()
    assert count - before > 100
    assert seconds < 1e-4


def test_wall_timer_goes_round_its_calls_evenly() -> None:
    """Also across samples: no argument set is used twice before all were used once."""
    order: list[int] = []
    calls = [lambda position=position: (order.append(position), time.sleep(5e-4)) for position in range(3)]
    sample = timer.WallTimer().prepare(calls)
    order.clear()
    for _ in range(4):
        sample()
    assert order == [position % 3 for position in range(len(order))] and len(order) >= 4


def test_flush_runs_before_each_sample_and_is_not_timed() -> None:
    log: list[str] = []
    sample = timer.WallTimer().prepare(
        [lambda: log.append("call")], flush=lambda: (log.append("flush"), time.sleep(0.02))
    )
    log.clear()
    assert sample() < 0.01 and sample() < 0.01
    assert log == ["flush", "call", "flush", "call"]


def test_order_is_balanced() -> None:
    log = ""

    def sampler(name: str) -> timer.Sample:
        def sample() -> float:
            nonlocal log
            log += name
            return 1.0

        return sample

    taken = timer.take([sampler("A"), sampler("B"), sampler("C")], 4, 0.0, 1, 1)
    assert log == "ABCCBAABCCBA"
    assert taken == [[1.0] * 4] * 3


@pytest.mark.parametrize(("seconds", "least", "most", "expected"), [(0.0, 7, 50, 7), (60.0, 1, 9, 9)])
def test_number_of_samples_is_bounded(seconds: float, least: int, most: int, expected: int) -> None:
    counter = itertools.count()
    taken = timer.take([lambda: float(next(counter))], None, seconds, least, most)
    assert taken == [[float(value) for value in range(expected)]]


def test_no_call_is_no_sample() -> None:
    assert timer.take([], None, 0.2, 10, 20) == []


def test_timers_of_a_device() -> None:
    assert timer.make("wall", CPU).name == "wall"
    for name in ("graph", "event", "sundial"):
        with pytest.raises(ValueError, match=f"timer: '{name}' on cpu; accepted: wall"):
            timer.make(name, CPU)
    assert timer.make("graph", torch.device("cuda", 0)).name == "graph"
    with pytest.raises(ValueError, match="accepted: graph, event"):
        timer.make("wall", torch.device("cuda", 0))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["graph", "event"])
@pytest.mark.parametrize("sets", [1, 3])
@pytest.mark.parametrize("flushed", [False, True])
def test_cuda_timers_agree_with_a_long_loop(name: str, sets: int, flushed: bool) -> None:
    """A copy of 256 MiB: 1000 of them, enqueued at once, tell what one takes."""
    device = torch.device("cuda", 0)
    tensors = [torch.zeros(256 << 20, dtype=torch.uint8, device=device) for _ in range(sets)]
    target = torch.empty_like(tensors[0])
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    target.copy_(tensors[0])
    start.record()
    for _ in range(1000):
        target.copy_(tensors[0])
    end.record()
    torch.cuda.synchronize()
    expected = start.elapsed_time(end) * 1e-6
    scratch = torch.zeros(128 << 20, dtype=torch.uint8, device=device)
    sample = timer.make(name, device).prepare(
        [lambda tensor=tensor: target.copy_(tensor) for tensor in tensors],
        (lambda: scratch.add_(1)) if flushed else None,
    )
    assert statistics.median(sample() for _ in range(15)) == pytest.approx(expected, rel=0.1)
