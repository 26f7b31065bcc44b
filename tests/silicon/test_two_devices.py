"""Calls on a device that is not the current one, whose results they make themselves."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

import msa_ops
from tests.contract.target import Target
from tests.silicon.cases import Case, same

TURNS = 8  # from the fourth call on a graph is launched


def _moved(args: Any, device: str) -> Any:
    found = {field.name: getattr(args, field.name) for field in fields(args)}
    return replace(args, **{name: value.to(device) for name, value in found.items() if isinstance(value, Tensor)})


def _call(case: Case, target: Target, args: Any) -> list[Tensor]:
    values = {field.name: getattr(args, field.name) for field in fields(args) if field.name != "workspace"}
    if case.op in ("sparse_attention", "dense_attention"):
        values["return_lse"] = True
    results = getattr(msa_ops, case.op)(**values, backend=target.backend)
    made = list(results) if isinstance(results, tuple) else [results]
    return made + [values[name] for name in case.spec.mutates if values.get(name) is not None]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
@torch.no_grad()
def test_results_are_made_on_the_device_of_the_call(target: Target, case: Case) -> None:
    """In turn with calls on the current device, which keep graphs and workspaces of their own."""
    args = case.args(9)
    here = [_moved(args, "cuda:0") for _ in range(2)]
    there = [_moved(args, "cuda:1") for _ in range(2)]
    expected = [value.cpu().clone() for value in _call(case, target, here[0])]
    kept = []
    for turn in range(TURNS):
        for sets in (here, there):
            results = _call(case, target, sets[turn % 2])
            device = getattr(sets[0], fields(sets[0])[0].name).device
            assert all(value.device == device for value in results)
            kept.append(results)
        assert torch.cuda.current_device() == 0
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    for results in kept:
        assert bool(same([value.cpu() for value in results], expected))
