"""A call begins while the kernel before it in the stream still writes the call's inputs, lengths and tables too."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.contract.target import Target
from tests.silicon.cases import LONGEST, Case, call, outputs, same, written
from tests.silicon.late_writer import LateWriter

LENGTHS = (0, 1, 127, 128, 129, 2047, 2048, 2049, LONGEST)
REPEATS = 40


def memory(args: Any) -> list[Tensor]:
    """The bytes of all tensors of a call; those that share memory once."""
    storages = {}
    for name in args.__dataclass_fields__:
        if isinstance(value := getattr(args, name), Tensor):
            storages.setdefault(value.untyped_storage().data_ptr(), value.untyped_storage())
    return [torch.empty(0, dtype=torch.uint8, device="cuda").set_(one) for one in storages.values()]


def turns(case: Case, batch: int) -> list[tuple[Tensor, Tensor]]:
    """Lengths before and after the late write."""
    lengths = torch.tensor(LENGTHS, dtype=torch.int32, device="cuda")
    return [(lengths.roll(turn).repeat(batch)[:batch], lengths.roll(3 * turn + 1).repeat(batch)[:batch])
            for turn in range(len(LENGTHS))]  # fmt: skip


@torch.no_grad()
def test_inputs_written_late_by_the_kernel_before(target: Target, case: Case) -> None:
    before, after, args = case.args(8), case.args(9), case.args(9)
    expected = outputs(case, after)
    outs = outputs(case, args)
    old, new = [[one.clone() for one in memory(each)] for each in (before, after)]
    writer = LateWriter(memory(args), new)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call(case, target.backend, args, outs)  # loads the kernels
        writer.launch()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for place, value in zip(memory(args), old, strict=True):
            place.copy_(value)
        writer.launch()
        call(case, target.backend, args, outs)
    fresh = [one.clone() for one in new]
    for lengths in turns(case, args.seq_lens.numel()) if case.ragged else [None]:
        for place, value in zip(memory(after), fresh, strict=True):
            place.copy_(value)
        if lengths is not None:
            before.seq_lens.copy_(lengths[0])
            after.seq_lens.copy_(lengths[1])
        for places, each in ((old, before), (new, after)):
            for place, value in zip(places, memory(each), strict=True):
                place.copy_(value)
        for out in expected:
            out.view(torch.uint8).fill_(0xA5)
        call(case, target.backend, after, expected)
        wanted = [value.clone() for value in written(case, after, expected)]
        equal = torch.ones((), dtype=torch.bool, device="cuda")
        for _ in range(REPEATS):
            for out in outs:
                out.view(torch.uint8).fill_(0x5A)
            torch.cuda.synchronize()
            graph.replay()
            torch.cuda.synchronize()
            equal &= same(written(case, args, outs), wanted)
        assert bool(equal), f"lengths before and after: {lengths}"
