from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchao.prototype.mx_formats.utils import from_blocked, to_blocked

from msa_ops.formats import scale_layout
from msa_ops.formats.scale_layout import ScaleLayout
from tests.contract.oracles import block_scaled

DTYPES = (torch.uint8, torch.float8_e4m3fn, torch.float8_e8m0fnu)


def numbered(*shape: int) -> torch.Tensor:
    """Bytes 1, 2, ... so that no scale looks like padding."""
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 255 + 1).to(torch.uint8).view(shape)


@st.composite
def matrices(draw: st.DrawFn) -> tuple[ScaleLayout, int, int]:
    layout = draw(st.sampled_from(list(ScaleLayout)))
    rows = draw(st.integers(0, 70).map(lambda n: n * 4) if layout == ScaleLayout.TOKEN_QUADS else st.integers(0, 280))
    return layout, rows, draw(st.integers(0, 13))


@given(matrices(), st.sampled_from(DTYPES), st.sampled_from([(), (1,), (3,), (2, 2)]))
@settings(max_examples=150, deadline=None)
def test_round_trip(matrix: tuple[ScaleLayout, int, int], dtype: torch.dtype, lead: tuple[int, ...]) -> None:
    layout, rows, columns = matrix
    scales = numbered(*lead, rows, columns).view(dtype)
    data = scale_layout.from_linear(scales, layout)
    assert data.dtype == dtype and data.shape == (*lead, np.prod(scale_layout.padded_shape(layout, rows, columns)))
    again = scale_layout.to_linear(data, layout, rows, columns)
    assert again.dtype == dtype and torch.equal(again.view(torch.uint8), scales.view(torch.uint8))


@given(matrices())
@settings(max_examples=100, deadline=None)
def test_offsets_are_distinct_and_inside(matrix: tuple[ScaleLayout, int, int]) -> None:
    layout, rows, columns = matrix
    found = scale_layout.offsets(layout, rows, columns).flatten()
    assert found.unique().numel() == rows * columns
    if found.numel():
        assert found.min() >= 0 and found.max() < np.prod(scale_layout.padded_shape(layout, rows, columns))


@given(matrices())
@settings(max_examples=60, deadline=None)
def test_bytes_lie_where_the_manuals_say(matrix: tuple[ScaleLayout, int, int]) -> None:
    layout, rows, columns = matrix
    scales = numbered(rows, columns)
    expected = block_scaled.stored(scales.numpy(), layout.value)
    assert scale_layout.from_linear(scales, layout).tolist() == expected.tolist()


@pytest.mark.parametrize("rows", [1, 5, 32, 127, 128, 129])
@pytest.mark.parametrize("columns", [1, 4, 8, 9])
def test_sizes_of_the_swizzle(rows: int, columns: int) -> None:
    """vllm#55456: a buffer that is not rounded up to whole tiles of 128 x 4."""
    tall, wide = scale_layout.padded_shape(ScaleLayout.SWIZZLE_128X4, rows, columns)
    assert tall % 128 == 0 and wide % 4 == 0 and 0 <= tall - rows < 128 and 0 <= wide - columns < 4
    short = torch.zeros(tall * wide - 1, dtype=torch.uint8)
    with pytest.raises(ValueError, match=f"scales: {tall * wide - 1} bytes; accepted: {tall * wide} for"):
        scale_layout.to_linear(short, ScaleLayout.SWIZZLE_128X4, rows, columns)


@pytest.mark.parametrize(("rows", "columns"), [(128, 8), (4, 4), (256, 16)])
def test_token_quads_are_the_interleaving_of_v_scales(rows: int, columns: int) -> None:
    """The general form of other caches: row (t // 4) * 4 + s // (S / 4), column (s % (S / 4)) * 4 + t % 4."""
    scales = numbered(rows, columns)
    stored = scale_layout.from_linear(scales, ScaleLayout.TOKEN_QUADS).view(rows, columns)
    quarter = columns // 4
    for t in range(rows):
        for s in range(columns):
            assert stored[t // 4 * 4 + s // quarter, s % quarter * 4 + t % 4] == scales[t, s]


def test_swizzle_agrees_with_torchao() -> None:
    for rows, columns in ((1, 1), (127, 5), (128, 4), (129, 8), (300, 12)):
        scales = numbered(rows, columns)
        stored = scale_layout.from_linear(scales, ScaleLayout.SWIZZLE_128X4)
        assert torch.equal(stored, to_blocked(scales))
        assert torch.equal(from_blocked(stored, rows, columns), scales)


def test_linear_is_the_identity() -> None:
    scales = numbered(7, 3)
    assert torch.equal(scale_layout.from_linear(scales, ScaleLayout.LINEAR), scales.flatten())


def test_what_a_layout_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="scale_layout: token_quads with 6 rows; accepted: a multiple of 4"):
        scale_layout.from_linear(numbered(6, 4), ScaleLayout.TOKEN_QUADS)
    with pytest.raises(ValueError, match="scale_layout: 'rows'; accepted: linear, token_quads, swizzle_128x4"):
        scale_layout.offsets("rows", 4, 4)
    with pytest.raises(ValueError, match="scales: 9 bytes; accepted: 8 for 4 x 2 in token_quads"):
        scale_layout.to_linear(numbered(9), ScaleLayout.TOKEN_QUADS, 4, 2)
