"""Every op inside a graph that inductor compiles, with static and with dynamic shapes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import msa_ops
from msa_ops.registry import STORE
from tests.ops.test_every_op import bytes_of, clone, values


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("op", STORE.ops())
def test_inductor_gives_what_eager_gives(op: str, dynamic: bool) -> None:
    args = STORE.op(op).generate(6)
    eager, compiled = clone(args), clone(args)
    entry = getattr(msa_ops, op)
    expected = entry(**values(eager))
    torch._dynamo.reset()
    found = torch.compile(lambda **call: entry(**call), fullgraph=True, dynamic=dynamic)(**values(compiled))
    expected, found = ((r,) if isinstance(r, Tensor) else r for r in (expected, found))
    for a, b in zip(expected, found, strict=True):
        assert a.dtype == b.dtype and torch.equal(bytes_of(a), bytes_of(b))
    for name in STORE.op(op).mutates:
        if getattr(args, name) is not None:
            assert torch.equal(bytes_of(getattr(eager, name)), bytes_of(getattr(compiled, name))), name
