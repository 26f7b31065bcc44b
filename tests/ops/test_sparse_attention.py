"""The Python entry of sparse_attention: results, out= and return_lse. For the maths see test_paged_softmax."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch

import msa_ops
from msa_ops.ops.sparse_attention import generate


def arguments(seed: int, **dims: Any) -> dict[str, Any]:
    args = generate(seed, num_heads=4, num_kv_heads=2, **dims)
    return {field.name: getattr(args, field.name) for field in fields(args)}


def test_return_lse_gives_a_pair() -> None:
    values = arguments(1)
    out = msa_ops.sparse_attention(**values)
    pair = msa_ops.sparse_attention(**values, return_lse=True)
    assert torch.equal(out, pair[0]) and pair[1].shape == out.shape[:2]


def test_out_alone_and_as_a_pair() -> None:
    values = arguments(2)
    expected = msa_ops.sparse_attention(**values, return_lse=True)
    out = torch.full_like(expected[0], torch.nan)
    assert msa_ops.sparse_attention(**values, out=out) is out
    assert torch.equal(out, expected[0])
    pair = (torch.full_like(expected[0], torch.nan), torch.full_like(expected[1], torch.nan))
    again = msa_ops.sparse_attention(**values, out=pair, return_lse=True)
    assert again[0] is pair[0] and again[1] is pair[1]
    assert torch.equal(pair[0], expected[0]) and torch.equal(pair[1], expected[1])


def test_out_that_overlaps_an_input_is_refused() -> None:
    values = arguments(3)
    with pytest.raises(ValueError, match="out: shares memory with q"):
        msa_ops.sparse_attention(**values, out=values["q"])


def test_an_index_selection_feeds_it() -> None:
    """Ids of select_blocks as they come, forced blocks 0, 1 and 2 of either kind, in both layouts."""
    values = arguments(4, seq_len=900, q_len=3)
    tokens = values["q"].shape[0]
    scores = torch.randn(tokens, 2, 8, generator=torch.Generator().manual_seed(5))
    counts = torch.full((tokens,), 8, dtype=torch.int32)
    for forced in (0, 1, 2):
        results = []
        for layout in ("THK", "HTK"):
            ids = msa_ops.select_blocks(
                scores, counts, topk=4, init_blocks=forced, local_blocks=forced, topk_layout=layout
            )
            results.append(msa_ops.sparse_attention(**values | {"block_ids": ids, "topk_layout": layout}))
        assert torch.equal(*results)


@pytest.mark.parametrize("return_lse", [False, True])
def test_compiles_into_one_graph(return_lse: bool) -> None:
    values = arguments(6)

    def call(q: torch.Tensor) -> Any:
        return msa_ops.sparse_attention(**values | {"q": q * 2}, return_lse=return_lse)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(values["q"]), call(values["q"]), rtol=0, atol=0)
