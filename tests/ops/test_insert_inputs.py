"""Inputs of the insert ops: slots that do not collide, variants that are what they say, large cases that stay small."""

from __future__ import annotations

import pytest
import torch

from msa_ops.ops.insert_inputs import VARIANTS
from msa_ops.ops.qk_norm_rope_insert import Args, generate


def existing(a: Args) -> torch.Tensor:
    return (a.slot_mapping >= 0) & (a.slot_mapping < a.kv_cache.shape[0] * 128)


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_slot_comes_twice(variant: str) -> None:
    a = generate(0, batch=4, q_len=130, seq_len=300, variant=variant)
    slots = a.slot_mapping[existing(a)]
    assert slots.unique().numel() == slots.numel() > 0
    assert bool(existing(a).all()) == (variant not in ("padding", "beyond_capacity"))


def test_slots_follow_positions() -> None:
    """Within a page, a token's place is its position modulo 128; requests own pages of their own."""
    a = generate(1, batch=3, q_len=200, seq_len=1_000)
    assert torch.equal(a.slot_mapping % 128, a.positions % 128)
    owners = (a.slot_mapping // 128).view(3, 200)
    assert len({int(page) for row in owners for page in row.unique()}) == sum(row.unique().numel() for row in owners)


def test_long_sequences_make_few_pages() -> None:
    a = generate(2, batch=8, q_len=8, seq_len=200_000)
    assert a.kv_cache.shape[0] <= 8 * 2 + 2
    assert int(a.positions.max()) == 199_999 < a.cos_sin_cache.shape[0]


def test_variants() -> None:
    assert generate(3, variant="bad_positions").positions.min() < 0
    strided = generate(3, variant="strided")
    assert strided.qkv.stride(0) > strided.qkv.shape[1] and strided.kv_cache.stride(0) > strided.kv_cache.shape[1]
    pool = generate(3, variant="pool")
    assert pool.kv_cache.untyped_storage().data_ptr() == pool.index_cache.untyped_storage().data_ptr()
    assert generate(3, variant="dense").index_cache is None
    scales = generate(3, variant="scaled")
    assert len({float(s) for s in (scales.k_scale, scales.v_scale, scales.index_k_scale)}) == 3


@pytest.mark.parametrize(("q_len", "seq_len"), [(5, 4), (-1, 4), (0, 0)])
def test_bad_lengths(q_len: int, seq_len: int) -> None:
    with pytest.raises(ValueError, match="q_len"):
        generate(0, q_len=q_len, seq_len=seq_len)
