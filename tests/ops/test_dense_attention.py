"""The Python entry of dense_attention: results, out= and return_lse. For the maths see test_paged_softmax."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch

import msa_ops
from msa_ops.ops.dense_attention import generate


def arguments(seed: int, **dims: Any) -> dict[str, Any]:
    args = generate(seed, num_heads=4, num_kv_heads=2, **dims)
    return {field.name: getattr(args, field.name) for field in fields(args)}


def test_return_lse_gives_a_pair() -> None:
    values = arguments(1)
    out = msa_ops.dense_attention(**values)
    pair = msa_ops.dense_attention(**values, return_lse=True)
    assert torch.equal(out, pair[0]) and pair[1].shape == out.shape[:2]


def test_out_alone_and_as_a_pair() -> None:
    values = arguments(2)
    expected = msa_ops.dense_attention(**values, return_lse=True)
    out = torch.full_like(expected[0], torch.nan)
    assert msa_ops.dense_attention(**values, out=out) is out
    assert torch.equal(out, expected[0])
    pair = (torch.full_like(expected[0], torch.nan), torch.full_like(expected[1], torch.nan))
    msa_ops.dense_attention(**values, out=pair)
    assert torch.equal(pair[0], expected[0]) and torch.equal(pair[1], expected[1])


def test_wrong_out_is_refused() -> None:
    values = arguments(3)
    with pytest.raises(ValueError, match="out"):
        msa_ops.dense_attention(**values, out=torch.empty(6, 4, 127, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match="out: shares memory with q"):
        msa_ops.dense_attention(**values, out=values["q"])
