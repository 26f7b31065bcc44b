from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from msa_ops.ops import quantize_mxfp8 as op
from tests.contract import scaled_cases
from tests.contract.oracles import block_scaled
from tests.contract.target import Target

OP = "quantize_mxfp8"
RULES = ("floor", "ceil", "even", "rceil")


def check(target: Target, args: Any) -> None:
    values, scales = scaled_cases.run(target, args)
    expected, expected_scales = block_scaled.mx_quantize(scaled_cases.fp32(args.x), "mxfp8", args.scale_rounding)
    found = scaled_cases.linear_scales(scales, tuple(args.x.shape), 32, args.scale_layout)
    assert np.array_equal(found, expected_scales), "scales: bits differ"
    scaled_cases.same_bytes(values, expected, "values")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("variant", op.SPEC.variants)
def test_every_variant(target: Target, variant: str, rule: str) -> None:
    for dtype in ("float32", "bfloat16", "float16"):
        check(target, op.generate(0, variant=variant, dtype=dtype, scale_rounding=rule))


@pytest.mark.parametrize("rule", RULES)
def test_every_exponent(target: Target, rule: str) -> None:
    """ROCm/aiter#3212: groups whose maximum sits where a rule changes its mind, from fp32's smallest to its largest."""
    mantissas = np.array([1, 1.25, 1.5, 1.75, 1.875, 1.9375])
    amax = (mantissas * 2.0 ** np.arange(-149.0, 128.0)[:, None]).astype(np.float32).flatten()
    amax = np.concatenate([np.nextafter(amax, np.float32(0)), amax, np.nextafter(amax, np.float32(np.inf))])
    shares = np.linspace(-1, 1, 32, dtype=np.float32)
    check(target, op.Args(torch.from_numpy(amax[:, None] * shares), scale_rounding=rule))


@pytest.mark.parametrize("rows", scaled_cases.ROWS)
@pytest.mark.parametrize("columns", [32, 128, 160])
def test_sizes_of_the_swizzle(target: Target, rows: int, columns: int) -> None:
    check(target, op.generate(2, rows=rows, columns=columns, scale_layout="swizzle_128x4"))


@pytest.mark.parametrize("layout", ["linear", "swizzle_128x4"])
@pytest.mark.parametrize("shape", [(4, 3, 64), (64,), (2, 2, 2, 32)])
def test_leading_dimensions_are_rows(target: Target, shape: tuple[int, ...], layout: str) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    check(target, op.Args(x, scale_layout=layout))


def test_nan_stays_in_its_group(target: Target) -> None:
    clean = op.generate(5, dtype="float32")
    dirty = op.Args(clean.x.clone())
    dirty.x[3, 40] = torch.nan
    (data, scales), (other, other_scales) = scaled_cases.run(target, clean), scaled_cases.run(target, dirty)
    assert (scales != other_scales).nonzero().tolist() == [[3, 1]] and other_scales[3, 1] == 0xFF
    changed = scaled_cases.as_bytes(data) != scaled_cases.as_bytes(other)
    assert changed[3].reshape(4, -1)[1].any()
    changed[3].reshape(4, -1)[1] = False
    assert not changed.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(4, 48)}, "x: last dimension 48; accepted: multiples of 32"),
        ({"x": torch.zeros(())}, "x: a scalar; accepted: at least one dimension"),
        ({"x": torch.zeros(4, 32, dtype=torch.float64)}, "x: dtype float64; accepted: float32, bfloat16, float16"),
        ({"x": torch.zeros(32, 32).t()}, "x: strides"),
        ({"scale_rounding": "nearest"}, "scale_rounding: 'nearest'; accepted: floor, ceil, even, rceil"),
        ({"scale_layout": "token_quads"}, "scale_layout: 'token_quads'; accepted: linear, swizzle_128x4"),
    ],
)
def test_bad_input_is_refused(target: Target, change: dict[str, Any], message: str) -> None:
    args = {"x": torch.zeros(4, 32), **change}
    with pytest.raises(ValueError) as caught:
        target.run(op.Args(**args))
    assert message in str(caught.value)
