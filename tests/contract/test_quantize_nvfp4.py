from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from msa_ops.ops import quantize_nvfp4 as op
from tests.contract import scaled_cases
from tests.contract.oracles import block_scaled
from tests.contract.target import Target

OP = "quantize_nvfp4"
LAYOUTS = ("linear", "token_quads", "swizzle_128x4")


def check(target: Target, args: Any) -> None:
    codes, scales = scaled_cases.run(target, args)
    scale = None if args.global_scale is None else args.global_scale.item()
    expected, expected_scales = block_scaled.nvfp4_quantize(
        scaled_cases.fp32(args.x), scale, args.scale_floor, args.division
    )
    found = scaled_cases.linear_scales(scales, tuple(args.x.shape), 16, args.scale_layout)
    assert np.array_equal(found, expected_scales), "scales: bits differ"
    scaled_cases.same_bytes(codes, expected, "codes")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("variant", op.SPEC.variants)
def test_every_variant(target: Target, variant: str, dtype: str) -> None:
    check(target, op.generate(0, variant=variant, dtype=dtype))


@pytest.mark.parametrize("division", ["divide", "reciprocal"])
@pytest.mark.parametrize("global_scale", [None, 0.0137, 3.0])
@pytest.mark.parametrize("scale_floor", [0.0, 2.0**-9, 2.0**-6])
def test_other_writers(target: Target, scale_floor: float, global_scale: float | None, division: str) -> None:
    for variant in ("plain", "tiny", "ties", "zero_groups"):
        check(
            target,
            op.generate(
                1,
                dtype="float32",
                variant=variant,
                scale_floor=scale_floor,
                global_scale=global_scale,
                division=division,
            ),
        )


@pytest.mark.parametrize("rows", scaled_cases.ROWS)
@pytest.mark.parametrize("columns", [16, 128, 144])
def test_sizes_of_the_swizzle(target: Target, rows: int, columns: int) -> None:
    check(target, op.generate(2, rows=rows, columns=columns, scale_layout="swizzle_128x4"))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(4, 3, 64), (8, 64), (2, 2, 2, 16)])
def test_leading_dimensions_are_rows(target: Target, shape: tuple[int, ...], layout: str) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    check(target, op.Args(x, scale_layout=layout))


def test_one_dimension(target: Target) -> None:
    check(target, op.Args(torch.arange(-16.0, 16.0)))
    check(target, op.Args(torch.arange(-16.0, 16.0), scale_layout="swizzle_128x4"))


def test_every_decision_point_at_every_scale(target: Target) -> None:
    """0.25 .. 5 times each of 126 scales, with both fp32 neighbours, signs both ways; exact arithmetic decides."""
    scales = block_scaled.E4M3[1:127].astype(np.float32)[:, None]
    points = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], np.float32)
    middle = scales * points
    below, above = np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(1e9))
    groups = [np.concatenate([6 * scales, v, -v, 0 * scales], 1) for v in (below, middle, above)]
    x = np.concatenate(groups, 1)
    codes, found = scaled_cases.run(target, op.Args(torch.from_numpy(x)))
    assert np.array_equal(found.numpy(), np.arange(1, 127, dtype=np.uint8).repeat(3).reshape(126, 3))
    quotients = x.astype(np.float64) / scales  # fp64 keeps the sides of 24-bit numbers apart
    scaled_cases.same_bytes(codes, block_scaled.pack(block_scaled.e2m1_codes(quotients)), "codes")


@pytest.mark.parametrize("bad", [0.0, -2.0, float("nan"), float("inf")])
def test_useless_global_scale_makes_every_scale_nan(target: Target, bad: float) -> None:
    codes, scales = scaled_cases.run(target, op.generate(4, global_scale=bad))
    assert (scales == 0x7F).all() and not codes.any()


def test_nan_stays_in_its_place(target: Target) -> None:
    """A NaN or an infinity changes its own group alone."""
    clean = op.generate(5, dtype="float32")
    dirty = op.Args(clean.x.clone())
    dirty.x[3, 20], dirty.x[7, 64] = torch.nan, torch.inf
    (codes, scales), (other, other_scales) = scaled_cases.run(target, clean), scaled_cases.run(target, dirty)
    touched = (scales != other_scales).nonzero().tolist()
    assert touched in ([[7, 4]], [[3, 1], [7, 4]])
    same = torch.ones(12, 8, dtype=torch.bool)
    same[3, 1] = same[7, 4] = False
    assert torch.equal(codes.view(12, 8, 8)[same], other.view(12, 8, 8)[same])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(4, 24)}, "x: last dimension 24; accepted: multiples of 16"),
        ({"x": torch.zeros(())}, "x: a scalar; accepted: at least one dimension"),
        ({"x": torch.zeros(4, 16, dtype=torch.float64)}, "x: dtype float64; accepted: float32, bfloat16, float16"),
        ({"x": torch.zeros(16, 4).t()}, "x: strides"),
        ({"global_scale": torch.ones(2)}, "global_scale: float32"),
        ({"global_scale": torch.ones((), dtype=torch.float64)}, "global_scale: float64"),
        ({"scale_floor": -1.0}, "scale_floor: -1.0; accepted: 0.0 to 448.0"),
        ({"scale_floor": float("nan")}, "scale_floor: nan"),
        ({"division": "fast"}, "division: 'fast'; accepted: divide, reciprocal"),
        ({"scale_layout": "rows"}, "scale_layout: 'rows'; accepted: linear, token_quads, swizzle_128x4"),
        (
            {"x": torch.zeros(6, 16), "scale_layout": "token_quads"},
            "token_quads with 6 rows; accepted:",
        ),
    ],
)
def test_bad_input_is_refused(target: Target, change: dict[str, Any], message: str) -> None:
    args = {"x": torch.zeros(4, 16), **change}
    with pytest.raises(ValueError) as caught:
        target.run(op.Args(**args))
    assert message in str(caught.value)
