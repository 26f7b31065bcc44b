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

    expected = {}
    for seed in (8, 9, 10):
        args = case.args(seed)
        expected[seed] = outputs(case, args)
        call(case, target.backend, args, expected[seed])
        expected[seed] = [value.clone() for value in written(case, args, expected[seed])]
    with torch.no_grad():
        for seed in (8, 9, 10):
            args, again = case.args(seed), case.args(seed)
            made = list(public(case, target.backend, args))
            outs = outputs(case, again)
            public(case, target.backend, again, tuple(outs) if len(outs) > 1 else outs[0])
            for found in (written(case, args, made), written(case, again, outs)):
                assert bool(same(found, expected[seed])), seed
            monkeypatch.setattr(dispatcher, "run_signed", not_again)
