from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.contract.target import Target, assert_close
from tests.silicon.cases import LONGEST, Case, call, outputs, written

LENGTHS = (0, 1, 127, 128, 129, 2047, 2048, 2049, LONGEST)


def captured(case: Case, backend: str, args: Any, outs: list[Tensor]) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call(case, backend, args, outs)  # loads the kernel
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        call(case, backend, args, outs)
    return graph


def check(case: Case, args: Any, outs: list[Tensor], what: str) -> None:
    expected = case.spec.reference(args)
    for name, out, value, bound in zip(case.spec.outputs, outs, expected, case.spec.tolerance(args), strict=True):
        assert_close(out.cpu(), value.cpu(), bound, f"{what}: {name}")


def test_replay_is_the_eager_call(target: Target, case: Case) -> None:
    eager, replayed = case.args(2), case.args(2)
    expected, outs = outputs(case, eager), outputs(case, replayed)
    call(case, target.backend, eager, expected)
    graph = captured(case, target.backend, replayed, outs)
    for out in outs:
        out.view(torch.uint8).fill_(0x5A)
    graph.replay()
    torch.cuda.synchronize()
    for found, value in zip(written(case, replayed, outs), written(case, eager, expected), strict=True):
        assert torch.equal(found.view(torch.uint8), value.view(torch.uint8))


def test_replays_at_other_lengths(target: Target, case: Case) -> None:
    """Captured once, then replayed with the lengths in `seq_lens` changed in place."""
    if not case.ragged:
        pytest.skip("takes no lengths")
    args = case.args(3)
    outs = outputs(case, args)
    graph = captured(case, target.backend, args, outs)
    batch = args.seq_lens.numel()
    lengths = torch.tensor(LENGTHS, dtype=torch.int32, device="cuda")
    for turn, length in enumerate(LENGTHS):
        mixed = lengths.roll(turn).repeat(batch)[:batch]
        for name, value in (("equal", torch.full_like(args.seq_lens, length)), ("mixed", mixed)):
            args.seq_lens.copy_(value)
            for out in outs:
                out.view(torch.uint8).fill_(0x5A)
            graph.replay()
            torch.cuda.synchronize()
            check(case, args, outs, f"{name} lengths, {length}")
