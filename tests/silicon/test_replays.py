from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from torch import Tensor

import msa_ops
from tests.contract.target import Target
from tests.silicon.cases import Case, call, outputs, same, written


def public(case: Case, backend: str, args: Any, out: Any = None) -> tuple[Tensor, ...]:
    """The public function as a decode loop calls it."""
    values = {name: getattr(args, name) for name in args.__dataclass_fields__ if name != "workspace"}
    if case.op in ("sparse_attention", "dense_attention"):
        values["return_lse"] = True
    results = getattr(msa_ops, case.op)(**values, backend=backend, out=out)
    return results if isinstance(results, tuple) else (results,)


def test_a_repeated_call_uses_the_tensors_that_it_is_given(
    target: Target, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call is one look-up and the launch: with other tensors at other addresses, and results made anew."""
    dispatcher = importlib.import_module(f"msa_ops.ops.{case.op}").OP.dispatcher

    def not_again(*args: object) -> None:
        raise AssertionError("a call of known metadata went the long way")

    expected = expected_of(case, target.backend, (8, 9, 10))
    with torch.no_grad():
        for seed in (8, 9, 10):
            args, again = case.args(seed), case.args(seed)
            made = list(public(case, target.backend, args))
            outs = outputs(case, again)
            public(case, target.backend, again, given(outs))
            for found in (written(case, args, made), written(case, again, outs)):
                assert bool(same(found, expected[seed])), seed
            monkeypatch.setattr(dispatcher, "run_signed", not_again)


def expected_of(case: Case, backend: str, seeds: tuple[int, ...]) -> dict[int, list[Tensor]]:
    """What calls by the long way write."""
    found = {}
    for seed in seeds:
        args = case.args(seed)
        outs = outputs(case, args)
        call(case, backend, args, outs)
        found[seed] = [value.clone() for value in written(case, args, outs)]
    return found


def given(outs: list[Tensor]) -> Any:
    return tuple(outs) if len(outs) > 1 else outs[0]


@torch.no_grad()
def test_a_captured_call_keeps_its_tensors(target: Target, case: Case) -> None:
    """A call of known metadata goes into a graph of torch's, with a workspace of the graph's; calls of equal metadata
    outside of it, before and after, change nothing there.
    """
    expected = expected_of(case, target.backend, (8, 9))
    others = [case.args(9) for _ in range(4)]
    for args in others[:2]:
        public(case, target.backend, args, given(outputs(case, args)))
    captured = case.args(8)
    outs = outputs(case, captured)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        public(case, target.backend, captured, given(outs))
    for args in others[2:]:
        found = outputs(case, args)
        public(case, target.backend, args, given(found))
        for out in outs:
            out.view(torch.uint8).fill_(0x5A)
        graph.replay()
        torch.cuda.synchronize()
        assert bool(same(written(case, captured, outs), expected[8]))
        assert bool(same(written(case, args, found), expected[9]))


@torch.no_grad()
def test_calls_in_two_streams(target: Target, case: Case) -> None:
    """Workspaces made by the calls, and the arguments of launches, are each call's own while others are in flight."""
    seeds = (8, 9)
    expected = expected_of(case, target.backend, seeds)
    streams = {seed: torch.cuda.Stream() for seed in seeds}
    args = {seed: [case.args(seed), case.args(seed)] for seed in seeds}
    calls = [(seed, args[seed][turn % 2]) for turn in range(20) for seed in seeds]
    results = [outputs(case, each) for _, each in calls]
    torch.cuda.synchronize()
    for (seed, each), outs in zip(calls, results, strict=True):
        with torch.cuda.stream(streams[seed]):
            public(case, target.backend, each, given(outs))
    torch.cuda.synchronize()
    for (seed, each), outs in zip(calls, results, strict=True):
        assert bool(same(written(case, each, outs), expected[seed]))


@torch.no_grad()
def test_results_at_places_that_return(target: Target, case: Case) -> None:
    """Results kept until the next are made are at two places in turn, for which there are two graphs. A place held the
    results of another of the three sets of arguments before, so that a launch with another call's addresses shows.
    """
    seeds = (8, 9, 10)
    expected = expected_of(case, target.backend, seeds)
    args = {seed: case.args(seed) for seed in seeds}
    for calls in range(36, 42):
        kept: list[tuple[int, tuple[Tensor, ...]]] = []
        for turn in range(calls):
            seed = seeds[turn % 3]
            kept = [*kept[-1:], (seed, public(case, target.backend, args[seed]))]
        for seed, results in kept:
            found = written(case, args[seed], list(results))
            assert bool(same(found, expected[seed])), (calls, seed)


@torch.inference_mode()
def test_results_are_of_the_mode_in_force(target: Target, case: Case) -> None:
    args = case.args(8)
    for _ in range(3):
        assert all(result.is_inference() for result in public(case, target.backend, args))
    with torch.inference_mode(False), torch.no_grad():
        assert not any(result.is_inference() for result in public(case, target.backend, case.args(8)))
