"""What the quantize and dequantize contracts have in common: calls with guarded results, shapes, layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.contract.guard import guarded
from tests.contract.oracles import block_scaled
from tests.contract.target import Target

ROWS = (1, 5, 32, 127, 128, 129)
"""vllm#55456: sizes around the tiles of 128 rows."""


def fp32(x: Tensor) -> NDArray:
    return x.float().cpu().numpy()


def as_bytes(x: Tensor) -> NDArray:
    return x.contiguous().view(torch.uint8).cpu().numpy()


def run(target: Target, args: Any) -> list[Tensor]:
    """Results through out=, between guard bytes; those of the functional call must have the same bits."""
    functional = target.run(args)
    shapes = [(tuple(t.shape), t.dtype) for t in target.spec.meta(args)]
    found = []
    with guarded(*shapes[0]) as first:
        if len(shapes) == 1:
            target.run(args, (first,))
            found = [first.clone()]
        else:
            with guarded(*shapes[1]) as second:
                target.run(args, (first, second))
                found = [first.clone(), second.clone()]
    for ours, other in zip(found, functional, strict=True):
        assert np.array_equal(as_bytes(ours), as_bytes(other)), "out= and the functional call differ"
    return found


def same_bytes(found: Tensor, expected: NDArray, what: str) -> None:
    assert np.array_equal(as_bytes(found), expected.reshape(found.shape)), f"{what}: bits differ"


def same_values(found: Tensor, expected: NDArray) -> None:
    """`expected` is fp64 and is rounded once to the dtype of the result; NaN equals NaN."""
    wanted = torch.from_numpy(np.ascontiguousarray(expected)).to(found.dtype).view(found.shape)
    both = found.isnan() & wanted.isnan()
    assert bool(((found == wanted) | both).all()), "values differ"


def linear_scales(stored: Tensor, shape: tuple[int, ...], group: int, layout: str) -> NDArray:
    """Linear scales [..., n / group] as uint8, read back with the oracle's converter; padding must be 0."""
    rows, columns = int(np.prod(shape[:-1])), shape[-1] // group
    flat = as_bytes(stored).flatten()
    places = block_scaled.offsets(rows, columns, layout)
    assert flat.size == block_scaled.stored(np.zeros((rows, columns), np.uint8), layout).size
    padding = np.ones(flat.size, bool)
    padding[places.flatten()] = False
    assert not flat[padding].any(), "padding is not 0"
    return flat[places].reshape(*shape[:-1], columns)
