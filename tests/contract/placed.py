"""Tensors made in place on a target's device, for properties that a copy to the device would lose."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from tests.contract.far_pages import sparse_pages
from tests.contract.target import Target


def wider(target: Target, value: Tensor, before: int, behind: int, fill: int) -> Tensor:
    """`value` [rows, columns] as a column slice of a wider buffer on the device, so that its row stride is larger."""
    rows, columns = value.shape
    buffer = torch.full((rows, before + columns + behind), fill, dtype=value.dtype, device=target.device)
    view = buffer[:, before : before + columns]
    view.copy_(value)
    return view


@contextlib.contextmanager
def far_cache(target: Target, num_pages: int, page_bytes: int, page_stride: int) -> Iterator[Tensor]:
    """uint8 [num_pages, page_bytes] of many gigabytes: sparse memory on the CPU, real memory elsewhere."""
    if target.device == "cpu":
        with sparse_pages(num_pages, page_bytes, page_stride) as cache:
            yield cache
        return
    memory = torch.empty(num_pages * page_stride, dtype=torch.uint8, device=target.device)
    yield memory.as_strided((num_pages, page_bytes), (page_stride, 1))
