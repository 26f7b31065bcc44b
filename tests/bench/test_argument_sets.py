from __future__ import annotations

import pytest
import torch

from msa_ops.bench import argument_sets
from msa_ops.bench.argument_sets import Cold, plan_cold
from msa_ops.registry import STORE

MB = 1 << 20


@pytest.mark.parametrize(
    ("call", "one_set", "cache", "free", "expected"),
    [
        (40 * MB, 40 * MB, 50 * MB, 1000 * MB, Cold("rotate", 4)),  # the other three fill twice 50 MB
        (200 * MB, 200 * MB, 50 * MB, 1000 * MB, Cold("rotate", 2)),
        (1, 1, 50 * MB, 1000 * MB, Cold("flush")),  # too many sets
        (40 * MB, 400 * MB, 50 * MB, 1000 * MB, Cold("flush")),  # too much memory
        (40 * MB, 40 * MB, 0, 1000 * MB, Cold("warm")),  # no cache
    ],
)
def test_plan(call: int, one_set: int, cache: int, free: int, expected: Cold) -> None:
    assert plan_cold(call, one_set, cache, free) == expected


def test_rotation_displaces_the_cache() -> None:
    """Between two uses of one set, more than two caches of other bytes are touched, and no set is in excess."""
    for call in (1, 3, 10, 33, 99, 100, 101, 500):
        plan = plan_cold(call, call, 100, 1 << 40)
        if plan.method == "rotate":
            assert (plan.sets - 1) * call >= 200 > (plan.sets - 2) * call
    assert str(plan_cold(100, 100, 100, 1 << 40)) == "rotate:3"


@pytest.mark.parametrize("variant", ["plain", "strided"])
def test_copies_keep_values_and_strides_and_share_no_memory(variant: str) -> None:
    args = STORE.op("rms_norm").generate(0, tokens=3, hidden=32, variant=variant)
    copy = argument_sets.copy(args)
    assert copy.eps == args.eps and copy.residual is None
    assert torch.equal(copy.x, args.x) and copy.x.stride() == args.x.stride()
    before = args.x.clone()
    copy.x.fill_(0)
    assert torch.equal(args.x, before)


def test_copy_of_empty_and_expanded_tensors() -> None:
    args = STORE.op("rms_norm").generate(0, tokens=0, hidden=32)
    assert argument_sets.copy(args).x.shape == (0, 32)
    args.x = torch.arange(4.0).expand(3, 4)
    copy = argument_sets.copy(args).x
    assert torch.equal(copy, args.x) and copy.stride() == (0, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int32, torch.uint8])
def test_poison(dtype: torch.dtype) -> None:
    out = torch.zeros(3, 5).to(dtype)
    argument_sets.poison(out)
    if dtype.is_floating_point:
        assert bool(out.float().isnan().all())
    else:
        assert bool((out.view(torch.uint8) == 0xC3).all())


def test_call_goes_through_dispatch_and_fills_outputs() -> None:
    spec = STORE.op("rms_norm")
    args = spec.generate(0, tokens=3, hidden=32)
    outs = argument_sets.poisoned_outputs(spec, args)
    assert bool(outs[0].isnan().all())
    argument_sets.make_call(spec, "reference", args, outs)()
    assert torch.equal(outs[0], spec.reference(args)[0])
    args.eps = -1.0
    with pytest.raises(ValueError, match="eps"):
        argument_sets.make_call(spec, "reference", args, outs)()
