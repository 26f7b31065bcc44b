from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from msa_ops.cache.access import read_pages
from msa_ops.cache.page import index_page, main_page
from msa_ops.formats.scale_layout import ScaleLayout
from msa_ops.ops import batches, ragged

FORMATS = ("fp32", "bf16", "fp8", "nvfp4")


@pytest.mark.parametrize("variant", batches.VARIANTS)
def test_batches_are_consistent_and_seeded(variant: str) -> None:
    batch = batches.ragged_batch(5, variant=variant, batch=6, q_len=4, seq_len=900)
    again = batches.ragged_batch(5, variant=variant, batch=6, q_len=4, seq_len=900)
    assert torch.equal(batch.block_table, again.block_table) and torch.equal(batch.seq_lens, again.seq_lens)
    assert batch.block_table.dtype == batch.seq_lens.dtype == torch.int32
    if batch.cu_seqlens_q is not None:
        steps = batch.cu_seqlens_q.diff()
        assert batch.cu_seqlens_q[0] == 0 and bool((steps >= 0).all())
        assert batch.num_tokens >= batch.cu_seqlens_q[-1]
    width = batch.block_table.shape[1]
    used = torch.arange(width) < (batch.seq_lens.unsqueeze(1) + 127).div(128, rounding_mode="floor")
    ids = batch.block_table[used]
    inside = (ids >= 0) & (ids < batch.num_pages)
    if variant == "bad_pages":
        assert 0 < int(inside.sum()) < len(ids)
    else:
        assert bool(inside.all())
        if variant != "too_long":
            assert len(ids.unique()) == len(ids), "two requests share a page"


def test_variants_are_what_they_say() -> None:
    def make(variant: str) -> batches.Batch:
        return batches.ragged_batch(1, variant=variant, batch=8, seq_len=700, q_len=3)

    assert make("plain").cu_seqlens_q is None
    padding = make("padding")
    assert 0 in padding.seq_lens.tolist() and padding.num_tokens > padding.cu_seqlens_q[-1]
    assert int(make("short").seq_lens.max()) <= 3
    too_long = make("too_long")
    assert int(too_long.seq_lens.max()) > too_long.block_table.shape[1] * 128
    garbage = make("garbage")
    behind = torch.arange(garbage.block_table.shape[1]) * 128 >= garbage.seq_lens.unsqueeze(1)
    assert int(garbage.block_table[behind].min()) == -(2**31)
    assert garbage.block_table.stride(0) > garbage.block_table.shape[1]
    chunked = make("chunked")
    _, position = ragged.token_positions(chunked.num_tokens, chunked.seq_lens, chunked.cu_seqlens_q)
    starts = position[chunked.cu_seqlens_q[:-1].long()]
    assert bool((starts % 128 != 0).any()) and int(chunked.cu_seqlens_q.diff().max()) > 3


def test_given_lengths_are_taken() -> None:
    batch = batches.ragged_batch(0, seq_lens=[5, 300], q_lens=[2, 1], max_blocks=9)
    assert batch.seq_lens.tolist() == [5, 300] and batch.cu_seqlens_q.tolist() == [0, 2, 3]
    assert batch.block_table.shape == (2, 9)
    with pytest.raises(ValueError, match="q_lens"):
        batches.ragged_batch(0, seq_lens=[5, 300], q_lens=[2])
    with pytest.raises(ValueError, match="variant"):
        batches.ragged_batch(0, variant="nice")


@pytest.mark.parametrize("index_format", FORMATS)
@pytest.mark.parametrize("content", batches.CONTENTS)
def test_caches_hold_valid_values_of_unit_size(content: str, index_format: str) -> None:
    page = index_page(index_format)
    cache = batches.paged_cache(3, page, batches.ragged_batch(3), content=content)
    dtype = {"fp32": np.float32, "bf16": ml_dtypes.bfloat16, "fp8": ml_dtypes.float8_e4m3fn}
    data = np.ascontiguousarray(page.view(cache, "k").numpy())
    if index_format == "nvfp4":
        codes = np.stack((data & 15, data >> 4), axis=-1).reshape(*data.shape[:-1], 128)
        scales = np.ascontiguousarray(page.view(cache, "k_scale").numpy()).view(ml_dtypes.float8_e4m3fn)
        values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32) * np.repeat(scales.astype(np.float32), 16, -1)
    else:
        values = data.view(dtype[index_format]).astype(np.float32)
    assert np.isfinite(values).all()
    assert 0.5 < values.std() < 3.5
    if content == "integers":
        assert (values * 2 == np.round(values * 2)).all() and np.abs(values).max() <= 6


@pytest.mark.parametrize("layout", list(ScaleLayout))
def test_poison_hits_the_tokens_it_names(layout: str) -> None:
    """What it overwrites reads as NaN through the layout, and nothing else does."""
    batch = batches.ragged_batch(4, variant="garbage", seq_len=300)
    page = main_page("nvfp4", 2)
    cache = batches.paged_cache(4, page, batch, k_scale_layout=layout, v_scale_layout=layout)
    assert cache.stride(0) > page.bytes
    for member in ("k", "v"):
        values = read_pages(cache, page, member, torch.arange(batch.num_pages), scale_layout=layout)
        expected = ~batch.written()[:, None, :, None].expand(-1, 2, -1, 128)
        assert torch.equal(values.isnan(), expected)


@pytest.mark.parametrize("index_format", FORMATS)
def test_poison_is_nan_in_every_format(index_format: str) -> None:
    batch = batches.ragged_batch(4, variant="garbage", seq_len=300)
    page = index_page(index_format)
    values = read_pages(batches.paged_cache(4, page, batch), page, "k", torch.arange(batch.num_pages))
    assert torch.equal(values.isnan(), ~batch.written()[:, None, :, None].expand_as(values))
    assert 0 < int(batch.written().sum()) == int(batch.seq_lens.sum())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3fn"])
def test_queries(dtype: str) -> None:
    values = batches.query(0, 5, 3, dtype=dtype)
    assert values.shape == (5, 3, 128) and values.dtype == getattr(torch, dtype)
    whole = batches.query(0, 5, 3, dtype=dtype, content="integers").float()
    assert torch.equal(whole, whole.round()) and whole.abs().max() == 3
