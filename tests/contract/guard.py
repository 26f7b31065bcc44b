"""Guard bytes around memory that an op may write, so that a stray store is seen."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

GUARD = 4096  # bytes on either side
PATTERN = 0xA5


@contextlib.contextmanager
def guarded(shape: tuple[int, ...], dtype: torch.dtype, fill: int = 0xC3) -> Iterator[Tensor]:
    """A contiguous tensor between two guards; leaving the block fails if a guard byte changed.

    The tensor itself starts as bytes of `fill`, so that elements which were never written stand out.
    """
    size = torch.Size(shape).numel() * dtype.itemsize
    padded = -(-size // 16) * 16
    memory = torch.full((2 * GUARD + padded,), PATTERN, dtype=torch.uint8)
    body = memory[GUARD : GUARD + size]
    body.fill_(fill)
    yield body.view(dtype).view(shape)
    assert bool((memory[:GUARD] == PATTERN).all()), "bytes before the tensor were overwritten"
    assert bool((memory[GUARD + size :] == PATTERN).all()), "bytes behind the tensor were overwritten"
