"""Arguments, facts and costs of route_experts. Results are checked in tests/contract."""

from __future__ import annotations

import pytest
import torch

import msa_ops
from msa_ops.ops import route_experts as op


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": torch.zeros(4)}, r"logits: shape \[4\]; accepted: \[any, any\]"),
        ({"logits": torch.zeros(4, 8, dtype=torch.float64)}, "logits: dtype float64; accepted: float32"),
        ({"logits": torch.zeros(8, 4).T}, "logits: strides"),
        ({"logits": torch.zeros(2, 1025), "bias": None}, "logits: 1025 experts; accepted: 1 to 1024"),
        ({"logits": torch.zeros(2, 0), "bias": None}, "logits: 0 experts"),
        ({"bias": torch.zeros(7)}, r"bias: shape \[7\]; accepted: \[8\]"),
        ({"bias": torch.zeros(8, dtype=torch.bfloat16)}, "bias: dtype bfloat16; accepted: float32"),
        ({"bias": torch.zeros(16)[::2]}, "bias: strides"),
        ({"top_k": 0}, "top_k: 0; accepted: 1 to 8"),
        ({"top_k": 9}, "top_k: 9; accepted: 1 to 8"),
        ({"scoring": "tanh"}, "scoring: 'tanh'; accepted: sigmoid, softmax"),
        ({"scaling": float("nan")}, "scaling: nan"),
    ],
)
def test_wrong_arguments_are_named(change: dict, message: str) -> None:
    arguments = {"logits": torch.zeros(4, 8), "bias": torch.zeros(8), "top_k": 2, **change}
    with pytest.raises(ValueError, match=message):
        msa_ops.route_experts(**arguments)


def test_order_puts_nan_last_and_equals_by_id() -> None:
    nan, inf = float("nan"), float("inf")
    row = torch.tensor([[-0.0, nan, 0.0, -inf, 2.0, nan, inf, 2.0]])
    assert op.order(row).tolist() == [[6, 4, 7, 0, 2, 3, 1, 5]]


def test_facts_and_cost() -> None:
    args = op.generate(0, tokens=5, num_experts=16, top_k=3, dtype="bfloat16")
    assert op.facts(args) == op.Facts("bfloat16", 8, 16, 3)
    cost = op.cost(args)
    assert (cost.bytes_read, cost.bytes_written) == (5 * 16 * 2 + 16 * 4, 5 * 3 * 8)


def test_out_is_filled_and_returned() -> None:
    args = op.generate(1)
    expected = msa_ops.route_experts(args.logits, args.bias)
    out = (torch.empty(16, 4), torch.empty(16, 4, dtype=torch.int32))
    assert msa_ops.route_experts(args.logits, args.bias, out=out) == out
    assert all(map(torch.equal, out, expected))


def test_compiled_call_is_one_node_and_gives_the_same() -> None:
    args = op.generate(2)
    compiled = torch.compile(msa_ops.route_experts, fullgraph=True, backend="aot_eager", dynamic=True)
    for one, other in zip(compiled(args.logits, args.bias), msa_ops.route_experts(args.logits, args.bias), strict=True):
        assert torch.equal(one, other)
