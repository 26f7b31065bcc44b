"""norm_rope: pairing, positions, the table."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers.models.minimax_m3_vl.configuration_minimax_m3_vl import MiniMaxM3VLTextConfig
from transformers.models.minimax_m3_vl.modeling_minimax_m3_vl import MiniMaxM3VLRotaryEmbedding

from msa_ops.ops.norm_rope import cos_sin_table, norm_heads, rotate, rows_at


def heads(seed: int, tokens: int = 6, count: int = 2) -> torch.Tensor:
    return torch.randn(tokens, count, 128, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("rotary_dim", [2, 64, 96, 128])
def test_pairs_turn_as_complex_numbers(rotary_dim: int) -> None:
    x, positions = heads(0), torch.tensor([0, 1, 2, 100, 1_000, 4_095])
    turned = rotate(x, rows_at(cos_sin_table(4_096, rotary_dim, theta=10_000.0), positions)).numpy()
    half = rotary_dim // 2
    angle = positions.numpy()[:, None, None] * 10_000.0 ** (-2.0 * np.arange(half) / rotary_dim)
    pairs = (x[..., :half].numpy() + 1j * x[..., half:rotary_dim].numpy()) * np.exp(1j * angle)
    np.testing.assert_allclose(turned[..., :half], pairs.real, atol=2e-3)
    np.testing.assert_allclose(turned[..., half:rotary_dim], pairs.imag, atol=2e-3)
    assert (turned[..., rotary_dim:] == x[..., rotary_dim:].numpy()).all()


def test_position_zero_changes_nothing() -> None:
    x = heads(1)
    assert torch.equal(rotate(x, cos_sin_table(1, 64).expand(6, 64)), x)


def test_products_depend_on_distance_alone() -> None:
    q, k = heads(2, 1), heads(3, 1)
    table = cos_sin_table(3_000, 64)

    def product(i: int, j: int) -> torch.Tensor:
        return (rotate(q, table[i : i + 1]) * rotate(k, table[j : j + 1])).sum(-1)

    torch.testing.assert_close(product(17, 5), product(2_017, 2_005), rtol=1e-3, atol=1e-3)
    assert not torch.allclose(product(17, 5), product(17, 6), rtol=1e-2)


def test_table_is_that_of_transformers() -> None:
    """Also where fp32 angles are far from exact ones."""
    config = MiniMaxM3VLTextConfig(
        rope_parameters={"rope_type": "default", "rope_theta": 5e6, "partial_rotary_factor": 0.5}
    )
    positions = torch.tensor([0, 1, 4_095, 65_535, 131_071])
    cos, sin = MiniMaxM3VLRotaryEmbedding(config)(torch.zeros(1), positions[None])
    table = cos_sin_table(131_072, 64)[positions]
    torch.testing.assert_close(table, torch.cat((cos[0, :, :32], sin[0, :, :32]), -1), rtol=0, atol=1e-7)


def test_positions_outside_take_the_nearest_row() -> None:
    table = cos_sin_table(10, 4)
    rows = rows_at(table, torch.tensor([-(2**40), -1, 3, 9, 10, 2**40]))
    assert torch.equal(rows, table[[0, 0, 3, 9, 9, 9]])
    assert torch.equal(rows_at(table, torch.tensor([3, -5], dtype=torch.int32)), table[[3, 0]])


def test_heads_are_normed_apart() -> None:
    x = heads(4)
    x[:, 1] *= 1_000
    weight = torch.linspace(-0.5, 0.5, 128)
    normed = norm_heads(x, weight, 1e-6, gemma=True)
    torch.testing.assert_close((normed / (1 + weight)).square().mean(-1), torch.ones(6, 2), rtol=1e-4, atol=0)
    assert torch.equal(norm_heads(x[:, :1], weight, 1e-6, gemma=True), normed[:, :1])
