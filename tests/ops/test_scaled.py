from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import msa_ops
from msa_ops.ops import scaled


@pytest.mark.parametrize("rows", [1, 5, 32, 127, 128, 129])
@pytest.mark.parametrize("layout", ["linear", "token_quads", "swizzle_128x4"])
def test_fakes_and_results_have_the_same_shapes(rows: int, layout: str) -> None:
    """vllm#55456: one size function for the fake and for what is written."""
    if layout == "token_quads" and rows % 4:
        with pytest.raises(ValueError, match="token_quads"):
            scaled.scale_shape((rows, 144), 16, layout)
        return
    real = msa_ops.quantize_nvfp4(torch.zeros(rows, 144), scale_layout=layout)
    with FakeTensorMode():
        fake = msa_ops.quantize_nvfp4(torch.zeros(rows, 144), scale_layout=layout)
    for a, b in zip(real, fake, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride()
    assert real[1].shape == scaled.scale_shape((rows, 144), 16, layout)


@pytest.mark.parametrize("layout", ["linear", "token_quads", "swizzle_128x4"])
@pytest.mark.parametrize("shape", [(8, 64), (2, 4, 80), (4, 0), (0, 32)])
def test_store_and_load_are_inverse(shape: tuple[int, ...], layout: str) -> None:
    scales = torch.randint(0, 256, (*shape[:-1], shape[-1] // 16)).to(torch.uint8)
    stored = scaled.store_scales(scales, layout)
    assert stored.shape == scaled.scale_shape(shape, 16, layout)
    assert torch.equal(scaled.load_scales(stored, shape, 16, layout), scales)
    assert torch.equal(scaled.load_scales(stored.view(torch.float8_e4m3fn), shape, 16, layout), scales)


def test_compiled_with_dynamic_rows() -> None:
    """A compiled caller sees padded sizes for every number of rows without compiling anew for each."""

    @torch.compile(backend="eager", dynamic=True, fullgraph=True)
    def caller(x: torch.Tensor) -> torch.Tensor:
        codes, scales = msa_ops.quantize_nvfp4(x, scale_layout="swizzle_128x4")
        return msa_ops.dequantize_nvfp4(codes, scales, scale_layout="swizzle_128x4")

    for rows in (2, 127, 128, 129):
        x = torch.randn(rows, 64)
        codes, scales = msa_ops.quantize_nvfp4(x)
        assert torch.equal(caller(x), msa_ops.dequantize_nvfp4(codes, scales))
