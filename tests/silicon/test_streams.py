from __future__ import annotations

import torch

from tests.contract.target import Target
from tests.silicon.cases import Case, call, outputs, same, written

TURNS = 50


def test_two_streams_at_once(target: Target, case: Case) -> None:
    """Calls on different inputs in two streams do not disturb each other."""
    both = [case.args(4), case.args(5)]
    expected = []
    for args in both:
        outs = outputs(case, args)
        call(case, target.backend, args, outs)
        expected.append([value.clone() for value in written(case, args, outs)])
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    results = [[outputs(case, args) for _ in range(TURNS)] for args in both]
    torch.cuda.synchronize()
    for turn in range(TURNS):
        for args, stream, outs in zip(both, streams, results, strict=True):
            with torch.cuda.stream(stream):
                call(case, target.backend, args, outs[turn])
    torch.cuda.synchronize()
    for args, outs, value in zip(both, results, expected, strict=True):
        for one in outs:
            assert bool(same(written(case, args, one), value))
