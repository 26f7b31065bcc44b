from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from msa_ops.ops import dequantize_nvfp4 as op
from tests.contract import scaled_cases
from tests.contract.oracles import block_scaled
from tests.contract.target import Target, assert_close

OP = "dequantize_nvfp4"
LAYOUTS = ("linear", "token_quads", "swizzle_128x4")


def check(target: Target, args: Any) -> None:
    (found,) = scaled_cases.run(target, args)
    codes = args.codes.numpy()
    rows, columns = int(np.prod(codes.shape[:-1])), codes.shape[-1] // 8
    flat = scaled_cases.as_bytes(args.scales).flatten()
    scales = flat[block_scaled.offsets(rows, columns, args.scale_layout)].reshape(*codes.shape[:-1], columns)
    expected = block_scaled.nvfp4_dequantize(codes, scales, args.rounding)
    if args.global_scale is None:
        scaled_cases.same_values(found, expected)
    else:
        wanted = torch.from_numpy(expected * np.float64(args.global_scale.item()))
        assert_close(found, wanted.to(found.dtype), target.spec.tolerance(args)[0])


@pytest.mark.parametrize("rounding", ["exact", "e4m3"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("variant", op.SPEC.variants)
def test_every_variant(target: Target, variant: str, dtype: str, rounding: str) -> None:
    check(target, op.generate(0, variant=variant, dtype=dtype, rounding=rounding))


@pytest.mark.parametrize("rounding", ["exact", "e4m3"])
def test_all_codes_times_all_scale_bytes(target: Target, rounding: str) -> None:
    codes = torch.from_numpy(block_scaled.pack(np.arange(16, dtype=np.uint8))).expand(256, 8).contiguous()
    scales = torch.arange(256, dtype=torch.uint8).unsqueeze(1)
    check(target, op.Args(codes, scales, rounding=rounding))


@pytest.mark.parametrize("rounding", ["exact", "e4m3"])
@pytest.mark.parametrize("global_scale", [1.0, 0.0137, 2.0**-20])
def test_global_scale_comes_after_the_rounding(target: Target, global_scale: float, rounding: str) -> None:
    for dtype in ("float32", "bfloat16"):
        check(target, op.generate(1, global_scale=global_scale, rounding=rounding, dtype=dtype))


@pytest.mark.parametrize("rows", scaled_cases.ROWS)
@pytest.mark.parametrize("columns", [16, 128, 144])
def test_sizes_of_the_swizzle(target: Target, rows: int, columns: int) -> None:
    check(target, op.generate(2, rows=rows, columns=columns, scale_layout="swizzle_128x4"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_give_the_same_values(target: Target, layout: str) -> None:
    linear = op.generate(3, rows=20)
    stored = torch.from_numpy(block_scaled.stored(linear.scales.numpy(), layout, padding=0x7F))
    stored = stored.view(20, 8) if layout == "linear" else stored
    (expected,), (found,) = target.run(linear), target.run(op.Args(linear.codes, stored, scale_layout=layout))
    assert torch.equal(found, expected), "padding of NaN must not be read"


def test_a_nan_scale_makes_its_group_nan(target: Target) -> None:
    args = op.generate(4)
    args.scales[2, 5] = 0x7F
    (found,) = target.run(args)
    expected = torch.zeros(12, 128, dtype=torch.bool)
    expected[2, 80:96] = True
    assert torch.equal(found.isnan(), expected)


BYTES = torch.zeros(4, 8, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codes": BYTES[:, :4]}, "codes: last dimension 4; accepted: multiples of 8"),
        ({"codes": BYTES.float()}, "codes: dtype float32; accepted: uint8"),
        ({"scales": BYTES[:, :2]}, "scales: shape [4, 2]; accepted: [4, 1]"),
        ({"scales": torch.zeros(4, 1)}, "scales: dtype float32; accepted: uint8, float8_e4m3fn"),
        ({"scale_layout": "swizzle_128x4"}, "512 bytes (128 x 4) in swizzle_128x4"),
        ({"scales": torch.zeros(508, dtype=torch.uint8), "scale_layout": "swizzle_128x4"}, "scales: shape [508]"),
        ({"codes": BYTES[:3], "scales": BYTES[:3, :1], "scale_layout": "token_quads"}, "token_quads with 3 rows"),
        ({"scales": torch.zeros(8, dtype=torch.uint8)[::2], "scale_layout": "token_quads"}, "strides (2,)"),
        ({"scale_layout": "rows"}, "scale_layout: 'rows'"),
        ({"global_scale": torch.ones(2)}, "global_scale: float32"),
        ({"rounding": "bf16"}, "rounding: 'bf16'; accepted: exact, e4m3"),
        ({"dtype": torch.float64}, "dtype: 'float64'; accepted: float32, bfloat16, float16"),
    ],
)
def test_bad_input_is_refused(target: Target, change: dict[str, Any], message: str) -> None:
    args = {"codes": BYTES, "scales": BYTES[:, :1], **change}
    with pytest.raises(ValueError) as caught:
        target.run(op.Args(**args))
    assert message in str(caught.value)
