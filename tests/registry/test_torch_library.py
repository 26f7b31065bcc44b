"""The two ways into an op, straight to the registry and through torch's dispatcher, take and refuse the same."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import msa_ops
from msa_ops.ops import rms_norm
from msa_ops.registry import STORE

OPS = STORE.ops()


def arguments() -> tuple[Tensor, Tensor]:
    return torch.randn(4, 64, generator=torch.Generator().manual_seed(0)), torch.zeros(64)


def values(args: Any) -> dict[str, Any]:
    return {name: getattr(args, name) for name in args.__dataclass_fields__}


def results_of(op: str, args: Any) -> tuple[Tensor, ...]:
    """Results and written arguments of a call by the way that a user's call takes."""
    entry = vars(__import__(f"msa_ops.ops.{op}", fromlist=["OP"]))["OP"].call
    results = entry(**values(args))
    written = (getattr(args, name) for name in STORE.op(op).mutates)
    return (*((results,) if isinstance(results, Tensor) else results), *(w for w in written if w is not None))


def same_bits(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(
        one.detach().contiguous().view(torch.uint8), other.detach().contiguous().view(torch.uint8)
    )


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("gemma", "False"),
        ("gemma", 0),
        ("eps", "1e-6"),
        ("eps", [1e-6]),
        ("eps", True),
        ("eps", torch.tensor(1e-6)),
        ("eps", None),
        ("backend", 3),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(keyword: str, value: object) -> None:
    x, weight = arguments()
    msa_ops.rms_norm(x, weight)  # a plan exists for values that compare equal
    with pytest.raises(ValueError, match=rf"^{keyword}: "):
        msa_ops.rms_norm(x, weight, **{keyword: value})


@pytest.mark.parametrize("topk", [True, 16.0, "16", None, 2**70, -(2**70)])
def test_integers_are_integers(topk: object) -> None:
    scores, count = torch.zeros(3, 4, 40), torch.full((3,), 40, dtype=torch.int32)
    for good in (1, 16):
        msa_ops.select_blocks(scores, count, topk=good)  # True == 1 and 16.0 == 16 must not find these plans
    with pytest.raises(ValueError, match=r"^topk: "):
        msa_ops.select_blocks(scores, count, topk=topk)
    with pytest.raises(ValueError, match=r"^init_blocks: .*64 bits"):
        msa_ops.select_blocks(scores, count, init_blocks=2**63)


def test_values_that_torch_would_convert_are_converted() -> None:
    class Layout(StrEnum):
        THK = "THK"

    scores, count = torch.randn(3, 4, 40), torch.full((3,), 40, dtype=torch.int32)
    expected = msa_ops.select_blocks(scores, count, topk=3)
    assert torch.equal(msa_ops.select_blocks(scores, count, topk=np.int64(3), topk_layout=Layout.THK), expected)
    x, weight = arguments()
    assert torch.equal(msa_ops.rms_norm(x, weight, eps=np.float32(1)), msa_ops.rms_norm(x, weight, eps=1))


def test_missing_tensors_are_refused_by_name() -> None:
    x, weight = arguments()
    for call in (msa_ops.rms_norm, torch.ops.msa_ops.rms_norm):
        with pytest.raises(ValueError, match=r"x: None; accepted: a tensor"):
            call(None, weight)
        with pytest.raises(ValueError, match=r"weight: None; accepted: a tensor"):
            call(x, None)


@pytest.mark.parametrize("out", ["a", (None,), [3], 3])
def test_out_takes_tensors_alone(out: object) -> None:
    x, weight = arguments()
    with pytest.raises(ValueError, match=r"^out: .*accepted: tensors \(out\)"):
        msa_ops.rms_norm(x, weight, out=out)


def test_tensors_that_are_not_strided_memory_go_to_torch() -> None:
    x, weight = arguments()
    with pytest.raises(NotImplementedError, match=r"SparseCPU"):
        msa_ops.rms_norm(x.to_sparse(), weight)
    negative = torch._neg_view(x)  # its memory holds x; a kernel that reads memory needs it resolved first
    seen: list[Tensor] = []
    run = rms_norm.OP.dispatcher.run
    rms_norm.OP.dispatcher.run = lambda call, *rest: seen.append(call.x) or run(call, *rest)
    try:
        result = msa_ops.rms_norm(negative, weight)
    finally:
        del rms_norm.OP.dispatcher.run
    assert torch.equal(result, -msa_ops.rms_norm(x, weight))
    assert not seen[0].is_neg()


def test_a_traced_call_is_one_node() -> None:
    x, weight = arguments()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = torch.jit.trace(lambda x: msa_ops.rms_norm(x, weight), (x,)).graph
    assert "msa_ops::rms_norm" in str(graph)


@pytest.fixture(params=["float64", "bfloat16"])
def default_dtype(request: pytest.FixtureRequest) -> Iterator[torch.dtype]:
    yield getattr(torch, request.param)
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("op", OPS)
def test_results_do_not_hang_on_the_default_dtype(op: str, default_dtype: torch.dtype) -> None:
    """Serving frameworks set it to bf16."""
    spec = STORE.op(op)
    expected, args = results_of(op, spec.generate(1)), spec.generate(1)
    torch.set_default_dtype(default_dtype)
    for result, wanted in zip(results_of(op, args), expected, strict=True):
        assert same_bits(result, wanted)


@pytest.mark.parametrize("op", OPS)
def test_results_do_not_hang_on_the_mode_of_the_caller(op: str) -> None:
    spec = STORE.op(op)
    expected = results_of(op, spec.generate(1))
    for mode in (torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode(), torch.device("meta")):
        args = spec.generate(1)
        with mode:
            results = results_of(op, args)
        for result, wanted in zip(results, expected, strict=True):
            assert same_bits(result, wanted), mode


@pytest.mark.parametrize("op", OPS)
def test_autograd_sees_nothing_inside(op: str) -> None:
    """A parameter of a model may ask for a gradient; what a reference does in torch is not recorded for it."""
    spec = STORE.op(op)
    expected, args = results_of(op, spec.generate(1)), spec.generate(1)
    for name, value in values(args).items():
        if isinstance(value, Tensor) and value.is_floating_point() and name not in spec.mutates:
            setattr(args, name, value.requires_grad_())
    results = results_of(op, args)
    for result, wanted in zip(results, expected, strict=True):
        assert same_bits(result, wanted)
        assert not result.requires_grad


def test_a_backward_through_an_op_alone_is_an_error() -> None:
    """Not a gradient that is quietly missing."""
    x, weight = torch.randn(4, 64, requires_grad=True), torch.zeros(64)
    for run in (msa_ops.rms_norm, torch.compile(msa_ops.rms_norm, backend="aot_eager", fullgraph=True)):
        with pytest.raises(RuntimeError, match="does not require grad"):
            run(x, weight).sum().backward()


@pytest.mark.parametrize("value", [[1.0], 1.0, "x", (torch.ones(8),)])
def test_what_is_no_tensor_is_named(value: object) -> None:
    with pytest.raises(ValueError, match=f"weight: {type(value).__name__}; accepted: a tensor"):
        msa_ops.rms_norm(torch.ones(2, 8), value)
