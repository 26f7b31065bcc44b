"""Inputs and byte and flop counts of the attention ops, against counts by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from msa_ops.ops import dense_attention, sparse_attention
from msa_ops.ops.attention_inputs import block_choice, scramble


def choice(lengths: list[int], q_len: int, topk: int, **options: Any) -> torch.Tensor:
    seq_lens = torch.tensor(lengths, dtype=torch.int32)
    return block_choice(1, seq_lens, None, len(lengths) * q_len, heads=3, topk=topk, max_blocks=40, **options)


@pytest.mark.parametrize("topk", [1, 4, 16])
@pytest.mark.parametrize("overlap", [0.0, 0.7])
def test_ids_are_ascending_distinct_and_in_range(topk: int, overlap: float) -> None:
    lengths = [0, 5, 128, 129, 700, 2049, 5000]
    ids = choice(lengths, 2, topk, overlap=overlap)
    for token in range(2 * len(lengths)):
        n = max(lengths[token // 2] - 2 + token % 2, -1) // 128 + 1
        for row in ids[token].tolist():
            kept = row[: min(n, topk)]
            assert kept == sorted(set(kept)) and all(0 <= i < n for i in kept)
            assert row[len(kept) :] == [-1] * (topk - len(kept))
            assert not kept or kept[-1] == n - 1


def test_overlap_makes_the_tokens_of_a_request_choose_alike() -> None:
    apart, alike = (choice([5000, 5000], 8, 16, overlap=share) for share in (0.0, 1.0))
    assert all(torch.equal(alike[token], alike[token // 8 * 8]) for token in range(16))
    assert not torch.equal(alike[0], alike[8]) and not torch.equal(apart[0], apart[1])


def test_neighbours_choose_alike_in_groups() -> None:
    ids = choice([5000, 5000], 8, 16, neighbours=4)
    assert all(torch.equal(ids[token], ids[token // 4 * 4]) for token in range(16))
    assert all(not torch.equal(ids[token], ids[token + 4]) for token in range(0, 12, 4))
    with pytest.raises(ValueError, match="neighbours: 0"):
        choice([5000], 4, 16, neighbours=0)


def test_scramble_keeps_ids_and_adds_useless_ones() -> None:
    ids = choice([5000], 4, 16)
    turned = scramble(2, ids, holes=False)
    assert torch.equal(turned.sort(-1).values, ids) and not torch.equal(turned, ids)
    holes = scramble(2, ids, holes=True)
    useless = (holes < 0) | (holes >= 40)
    assert 0.05 < useless.float().mean() < 0.5


def test_cost_counts_each_selected_page_once_a_request_and_head() -> None:
    args = sparse_attention.generate(
        1, num_heads=8, num_kv_heads=2, seq_lens=[400, 300, 0], q_lens=[2, 1, 1], topk=3, spare_pages=4
    )
    args.block_ids = torch.tensor(
        [
            [[0, 3, 0], [1, -1, -1]],  # at 398; head 0: blocks 0 and 3 (15 tokens of it), head 1: block 1
            [[0, 2, 3], [-1, 1, 2]],  # at 399; 0, 2, 3 (16 tokens); 1, 2
            [[2, 3, 900], [1, 0, -7]],  # at 299; 2 (44 tokens; 3 is not visible); 0, 1
            [[0, 1, 2], [0, 1, 2]],  # at -1: nothing
        ],
        dtype=torch.int32,
    )
    cost = sparse_attention.cost(args)
    tokens = (128 + 128 + 16) + (128 + 128) + 44 + 256
    pairs = (128 + 15) + 128 + (128 + 128 + 16) + 256 + 44 + 256
    assert cost.flops == 4 * 128 * 4 * pairs
    cache = tokens * 2 * (64 + 8)
    small = 4 * 8 * 128 * 2 + 24 * 4 + (3 + 4) * 4
    assert cost.bytes_read == cache + small + -(-tokens // 128) * 4
    assert cost.bytes_written == 4 * 8 * (128 * 2 + 4)


def test_cost_of_dense_attention() -> None:
    args = dense_attention.generate(
        2, num_heads=8, num_kv_heads=2, seq_lens=[400, 1, 0], q_lens=[3, 1, 2], kv_format="fp8", q_dtype="float8_e4m3fn"
    )
    cost = dense_attention.cost(args)
    assert cost.flops == 4 * 128 * 8 * (398 + 399 + 400 + 1)
    tokens = 2 * (400 + 1)
    assert cost.bytes_read == tokens * 2 * 128 + 6 * 8 * 128 + (3 + 4) * 4 + -(-tokens // 128) * 4
    assert cost.bytes_written == 6 * 8 * (128 * 2 + 4)


def test_a_decode_step_reads_what_the_formats_say() -> None:
    """16 blocks of 4 heads in NVFP4: 16 * 128 * 576 bytes a request, beside queries and ids."""
    args = sparse_attention.generate(3, batch=2, q_len=1, seq_len=4096, topk=16)
    assert sparse_attention.cost(args).bytes_read == pytest.approx(2 * 16 * 128 * 576, rel=0.02)


def test_nan_variant_poisons_something_that_is_seen() -> None:
    args = dense_attention.generate(4, variant="nan", seq_len=2000, num_heads=4, num_kv_heads=1)
    out = dense_attention.reference(args)[0]
    assert bool(out.isnan().any())
