from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from msa_ops.ops import dequantize_mxfp4 as op
from tests.contract import scaled_cases
from tests.contract.oracles import block_scaled
from tests.contract.target import Target

OP = "dequantize_mxfp4"


def check(target: Target, args: Any) -> None:
    (found,) = scaled_cases.run(target, args)
    data = scaled_cases.as_bytes(args.codes)
    rows, columns = int(np.prod(data.shape[:-1])), data.shape[-1] // 16
    flat = scaled_cases.as_bytes(args.scales).flatten()
    scales = flat[block_scaled.offsets(rows, columns, args.scale_layout)].reshape(*data.shape[:-1], columns)
    with np.errstate(over="ignore"):
        expected = block_scaled.mx_dequantize(data, scales, "mxfp4").astype(np.float32)
    scaled_cases.same_values(found, expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("variant", op.SPEC.variants)
def test_every_variant(target: Target, variant: str, dtype: str) -> None:
    check(target, op.generate(0, variant=variant, dtype=dtype))


def test_all_bytes_times_all_scale_bytes(target: Target) -> None:
    data = torch.arange(256, dtype=torch.uint8).expand(256, 256).contiguous()
    scales = torch.arange(256, dtype=torch.uint8).unsqueeze(1).expand(256, 16).contiguous()
    check(target, op.Args(data, scales))


@pytest.mark.parametrize("rows", scaled_cases.ROWS)
@pytest.mark.parametrize("columns", [32, 128, 160])
def test_sizes_of_the_swizzle(target: Target, rows: int, columns: int) -> None:
    check(target, op.generate(2, rows=rows, columns=columns, scale_layout="swizzle_128x4"))


def test_padding_is_not_read(target: Target) -> None:
    linear = op.generate(3, rows=20)
    stored = torch.from_numpy(block_scaled.stored(linear.scales.numpy(), "swizzle_128x4", padding=0xFF))
    args = op.Args(linear.codes, stored, scale_layout="swizzle_128x4")
    (expected,), (found,) = target.run(linear), target.run(args)
    assert torch.equal(found, expected)


def test_a_nan_scale_makes_its_group_nan(target: Target) -> None:
    args = op.generate(4)
    args.scales[2, 1] = 0xFF
    (found,) = target.run(args)
    expected = torch.zeros(12, 128, dtype=torch.bool)
    expected[2, 32:64] = True
    assert torch.equal(found.isnan(), expected)


BYTES = torch.zeros(4, 16, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codes": BYTES[:, :8]}, "codes: last dimension 8; accepted: multiples of"),
        ({"codes": BYTES.float()}, "codes: dtype float32; accepted:"),
        ({"scales": BYTES[:, :2]}, "scales: shape [4, 2]; accepted: [4, 1]"),
        ({"scales": torch.zeros(4, 1)}, "scales: dtype float32; accepted: uint8, float8_e8m0fnu"),
        ({"scale_layout": "swizzle_128x4"}, "512 bytes (128 x 4) in swizzle_128x4"),
        ({"scales": torch.zeros(508, dtype=torch.uint8), "scale_layout": "swizzle_128x4"}, "scales: shape [508]"),
        ({"scale_layout": "token_quads"}, "scale_layout: 'token_quads'; accepted: linear, swizzle_128x4"),
        ({"dtype": torch.float64}, "dtype: 'float64'; accepted: float32, bfloat16, float16"),
    ],
)
def test_bad_input_is_refused(target: Target, change: dict[str, Any], message: str) -> None:
    args = {"codes": BYTES, "scales": BYTES[:, :1], **change}
    with pytest.raises(ValueError) as caught:
        target.run(op.Args(**args))
    assert message in str(caught.value)
