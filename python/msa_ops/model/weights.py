"""Stacks of matrices in the storage formats of checkpoints. Nothing is expanded at load: ops read the stored form."""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor, nn
from torch.nn import functional

import msa_ops


class WeightFormat(StrEnum):
    """How a matrix is stored. `columns` is the dimension that is summed over.

    none: values in the model's dtype. mxfp8: E4M3 values, an E8M0 byte for 32 columns. nvfp4: two E2M1 codes a byte,
    an E4M3 scale for 16 columns, and one fp32 scale for a matrix.
    """

    NONE = "none"
    MXFP8 = "mxfp8"
    NVFP4 = "nvfp4"

    @property
    def group(self) -> int:
        """Columns that share a scale."""
        return {"none": 1, "mxfp8": 32, "nvfp4": 16}[self.value]


class Matrices(nn.Module):
    """`count` matrices of [rows, columns], all in one format.

    values: [count, rows, columns], or [count, rows, columns / 2] uint8 in NVFP4.
    scale: [count, rows, columns / group] uint8 (MXFP8) or float8_e4m3fn (NVFP4).
    global_scale: NVFP4 only, fp32 [count] or [count, 2] (for either half of the rows); it multiplies, while the
        `weight_global_scale` of compressed-tensors divides.
    """

    def __init__(
        self,
        count: int,
        rows: int,
        columns: int,
        weight_format: WeightFormat,
        dtype: torch.dtype,
        device: str | torch.device,
        halves: int = 1,
    ) -> None:
        super().__init__()
        self.rows, self.columns, self.format, self.dtype = rows, columns, weight_format, dtype
        packed = weight_format is WeightFormat.NVFP4
        stored = {"none": dtype, "mxfp8": torch.float8_e4m3fn, "nvfp4": torch.uint8}[weight_format.value]
        self.values: Tensor
        self.scale: Tensor | None
        self.global_scale: Tensor | None
        shape = (count, rows, columns // 2 if packed else columns)
        self.register_buffer("values", torch.empty(shape, dtype=stored, device=device))
        scale, global_scale = None, None
        if weight_format is not WeightFormat.NONE:
            scale_dtype = torch.float8_e4m3fn if packed else torch.uint8
            groups = columns // weight_format.group
            scale = torch.empty(count, rows, groups, dtype=scale_dtype, device=device)
        if packed:
            global_scale = torch.empty((count,) if halves == 1 else (count, halves), device=device)
        self.register_buffer("scale", scale)
        self.register_buffer("global_scale", global_scale)

    def dequantize(self, index: int) -> Tensor:
        """One matrix [rows, columns] in the model's dtype."""
        if self.scale is None:
            return self.values[index]
        if self.global_scale is None:
            return msa_ops.dequantize_mxfp8(self.values[index], self.scale[index], dtype=self.dtype)
        parts = self.global_scale[index].reshape(-1)
        codes = self.values[index].chunk(len(parts))
        scales = self.scale[index].view(torch.uint8).chunk(len(parts))
        return torch.cat(
            [
                msa_ops.dequantize_nvfp4(code, scale, global_scale=part, dtype=self.dtype)
                for code, scale, part in zip(codes, scales, parts, strict=True)
            ]
        )


class Linear(Matrices):
    """One matrix that multiplies from the right: y = x @ values.T."""

    def __init__(
        self, rows: int, columns: int, weight_format: WeightFormat, dtype: torch.dtype, device: str | torch.device
    ) -> None:
        super().__init__(1, rows, columns, weight_format, dtype, device)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.dequantize(0))
