"""Checks of arguments that every op shares. Each raises ValueError naming the argument and what is accepted.

They look at metadata only and so hold under fake tensors; addresses are looked at on real tensors alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
FP32 = torch.finfo(torch.float32)
ALIGNMENT = 16  # bytes; what vectorised and bulk loads need


def tensor(name: str, value: Tensor, shape: Sequence[int | None], *dtypes: torch.dtype) -> None:
    """The tensor has one of `dtypes` (any if none is given) and the shape, whose None entries are free."""
    if dtypes and value.dtype not in dtypes:
        raise ValueError(f"{name}: dtype {_short(value.dtype)}; accepted: {', '.join(map(_short, dtypes))}")
    if value.dim() != len(shape) or any(
        size is not None and found != size for size, found in zip(shape, value.shape, strict=True)
    ):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name}: shape {list(value.shape)}; accepted: [{wanted}]")


def contiguous_rows(name: str, value: Tensor) -> None:
    """The last dimension is contiguous; others may stride freely."""
    if value.dim() and value.shape[-1] > 1 and value.stride(-1) != 1:
        raise ValueError(f"{name}: strides {value.stride()}; accepted: 1 in the last dimension")


def choice(name: str, value: Any, accepted: Sequence[Any]) -> None:
    if value not in accepted:
        raise ValueError(f"{name}: {value!r}; accepted: {', '.join(map(str, accepted))}")


def between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name}: {value}; accepted: {low} to {high}")


def positive_fp32(name: str, value: float, high: float = FP32.max) -> None:
    """A factor that kernels hold as a normal fp32 number."""
    if not FP32.tiny <= value <= high:
        raise ValueError(f"{name}: {value}; accepted: a positive number, {FP32.tiny:.3g} to {high:,.6g}")


def multiple(name: str, value: int, factor: int) -> None:
    if value % factor:
        raise ValueError(f"{name}: {value}; accepted: multiples of {factor}")


def scalar(name: str, value: Tensor | None) -> None:
    """An optional fp32 scalar that stays on the device."""
    if value is not None and (value.dtype != torch.float32 or value.numel() != 1):
        raise ValueError(f"{name}: {_short(value.dtype)}{list(value.shape)}; accepted: one fp32 element, or None")


def cache_pages(name: str, value: Tensor, page_bytes: int) -> None:
    """uint8 pages [num_pages, >= page_bytes] whose start and stride are multiples of 16 bytes."""
    if value.dtype != torch.uint8 or value.dim() != 2:
        raise ValueError(f"{name}: {_short(value.dtype)}{list(value.shape)}; accepted: uint8 [num_pages, page bytes]")
    if value.shape[1] != page_bytes:
        raise ValueError(f"{name}: pages of {value.shape[1]} bytes; accepted: {page_bytes} for these formats and heads")
    if value.stride(1) != 1 or value.stride(0) < page_bytes or value.stride(0) % ALIGNMENT:
        raise ValueError(
            f"{name}: strides {value.stride()}; accepted: a page stride of at least {page_bytes} that is a multiple "
            f"of {ALIGNMENT}, then 1"
        )
    if not is_fake(value) and value.data_ptr() % ALIGNMENT:
        raise ValueError(f"{name}: starts at address {value.data_ptr():#x}; accepted: multiples of {ALIGNMENT} bytes")


def ragged(num_tokens: int, block_table: Tensor, seq_lens: Tensor, cu_seqlens_q: Tensor | None) -> None:
    """The arguments of a ragged batch: block_table [B, blocks], seq_lens [B], cu_seqlens_q [B + 1] or None."""
    tensor("seq_lens", seq_lens, (None,), torch.int32)
    batch = seq_lens.shape[0]
    tensor("block_table", block_table, (batch, None), torch.int32)
    contiguous_rows("block_table", block_table)
    if cu_seqlens_q is not None:
        tensor("cu_seqlens_q", cu_seqlens_q, (batch + 1,), torch.int32)
    elif num_tokens % batch if batch else num_tokens:
        raise ValueError(
            f"cu_seqlens_q: None with {num_tokens} query tokens for {batch} requests; accepted: None only if all "
            "requests have the same number of query tokens"
        )


def dtype_named(name: str) -> torch.dtype:
    """torch's dtype of this name. Raises ValueError."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"dtype: {name!r}; accepted: a dtype of torch, such as bfloat16 or float8_e4m3fn")
    return found


def is_fake(value: Any) -> bool:
    """True for tensors without memory: fake, functional or meta ones."""
    return isinstance(value, FakeTensor) or torch._is_functional_tensor(value) or value.device.type == "meta"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
