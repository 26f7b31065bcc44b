"""Quantised caches against a bf16 one, on a prompt long enough for selection. docs/model.md has the full figures."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from msa_ops.model import Model, load
from tests.model.geometry import checkpoint, logits, tiny

TOKENS = torch.randint(0, 512, (1000,), generator=torch.Generator().manual_seed(0)).tolist()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    config = tiny(
        hidden_size=256, vocab_size=512, num_heads=4, sparse_layers=(True,) * 3, moe_layers=(False, True, True)
    )
    return load(checkpoint(tmp_path_factory.mktemp("checkpoint"), config))


@pytest.fixture(scope="module")
def bf16(model: Model) -> Tensor:
    return logits(model, TOKENS, kv_format="bf16", index_format="bf16")


@pytest.mark.parametrize(
    ("kv_format", "index_format", "rounding", "relative", "kl"),
    [
        ("nvfp4", "nvfp4", "exact", 0.06, 0.01),
        ("nvfp4", "nvfp4", "e4m3", 0.06, 0.01),
        ("fp8", "fp8", "exact", 0.04, 0.005),
        ("nvfp4", "bf16", "exact", 0.06, 0.01),
    ],
)
def test_logits_are_close(
    model: Model, bf16: Tensor, kv_format: str, index_format: str, rounding: str, relative: float, kl: float
) -> None:
    result = logits(model, TOKENS, kv_format=kv_format, index_format=index_format, rounding=rounding)
    error = (result - bf16).norm(dim=-1) / bf16.norm(dim=-1)
    divergence = (bf16.log_softmax(-1).exp() * (bf16.log_softmax(-1) - result.log_softmax(-1))).sum(-1)
    assert 1e-4 < error.mean() < relative
    assert divergence.mean() < kl
