from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import msa_ops
from tests.contract.target import Target
from tests.silicon.cases import Case, call, outputs, written


def public(case: Case, backend: str, args: Any, out: Any = None) -> tuple[Tensor, ...]:
    """The public function as a decode loop calls it."""
    values = {name: getattr(args, name) for name in args.__dataclass_fields__ if name != "workspace"}
    if case.op in ("sparse_attention", "dense_attention"):
        values["return_lse"] = True
    results = getattr(msa_ops, case.op)(**values, backend=backend, out=out)
    return results if isinstance(results, tuple) else (results,)


def test_a_repeated_call_uses_the_tensors_that_it_is_given(target: Target, case: Case) -> None:
    """The second call is one look-up and the launch: with other tensors at other addresses, and results made anew."""
    import importlib

    replays = importlib.import_module(f"msa_ops.ops.{case.op}").OP.replays
    with torch.no_grad():
        before = len(replays)
        first = case.args(8)
        made = public(case, target.backend, first)
        public(case, target.backend, first, tuple(outputs(case, first)) if len(made) > 1 else outputs(case, first)[0])
        assert len(replays) == before + 2, "kept for calls to come"
        for seed in (9, 10):
            args, again = case.args(seed), case.args(seed)
            expected = outputs(case, args)
            call(case, target.backend, args, expected)
            results = list(public(case, target.backend, again))
            for one, other in zip(written(case, again, results), written(case, args, expected), strict=True):
                assert torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))
            given = outputs(case, again)
            public(case, target.backend, again, tuple(given) if len(given) > 1 else given[0])
            for one, other in zip(given, expected, strict=True):
                assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))
        assert len(replays) == before + 2
