"""The reference of the attention ops, held more tightly than kernels: against torch in fp64, and by its own laws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from msa_ops.cache.page import main_page
from msa_ops.ops import dense_attention, paged_softmax, sparse_attention
from msa_ops.ops.batches import Batch, poison
from tests.contract.oracles.attention_of_args import attention_of_args

SMALL: dict[str, Any] = {"num_heads": 4, "num_kv_heads": 2, "batch": 3, "seq_len": 300, "q_dtype": "float32"}


def close(results: tuple[Tensor, ...], expected: tuple[Tensor, ...], rtol: float = 2e-5, atol: float = 2e-5) -> None:
    for result, right in zip(results, expected, strict=True):
        torch.testing.assert_close(result.double(), right.double(), rtol=rtol, atol=atol)


def by_torch(a: Any, ids: Tensor | None) -> Tensor:
    """scaled_dot_product_attention in fp64 with an explicit mask; fp32 pages in planes. [T, Hq, 128]."""
    tokens, heads = a.q.shape[:2]
    page = main_page("fp32", a.num_kv_heads)
    results = torch.zeros(tokens, heads, 128, dtype=torch.float64)
    starts = a.cu_seqlens_q.tolist()
    for b, length in enumerate(a.seq_lens.tolist()):
        pages = a.block_table[b, : -(-length // 128)].long()
        k, v = (
            page.view(a.kv_cache, member)[pages]
            .contiguous()
            .view(torch.float32)
            .transpose(0, 1)
            .flatten(1, 2)[:, :length]
            for member in ("k", "v")
        )
        rows = slice(starts[b], starts[b + 1])
        q = a.q[rows].transpose(0, 1).double()
        mask = torch.ones(q.shape[1], length, dtype=torch.bool).tril(length - q.shape[1])
        mask = mask.expand(a.num_kv_heads, -1, -1)
        if ids is not None:
            named = torch.zeros(q.shape[1], a.num_kv_heads, len(pages) + 1, dtype=torch.bool)
            named.scatter_(
                2, torch.where((ids[rows] >= 0) & (ids[rows] < len(pages)), ids[rows], len(pages)).long(), True
            )
            mask = mask & named[..., :-1].repeat_interleave(128, -1).transpose(0, 1)[..., :length]
        group = heads // a.num_kv_heads
        k, v, mask = (x.repeat_interleave(group, 0) for x in (k, v, mask))
        if q.shape[1]:
            out = torch.nn.functional.scaled_dot_product_attention(q, k.double(), v.double(), mask)
            results[rows] = out.transpose(0, 1)
    return results


@pytest.mark.parametrize("variant", ["ragged", "chunked"])
def test_against_torch(variant: str) -> None:
    args = dense_attention.generate(1, **SMALL, q_len=20, variant=variant, kv_format="fp32")
    torch.testing.assert_close(dense_attention.reference(args)[0].double(), by_torch(args, None), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("variant", ["ragged", "chunked", "holes"])
def test_chosen_blocks_against_torch(variant: str) -> None:
    args = sparse_attention.generate(
        2, **{**SMALL, "seq_len": 700}, q_len=20, topk=3, variant=variant, kv_format="fp32"
    )
    expected = by_torch(args, args.block_ids).nan_to_num(nan=0.0)  # torch gives NaN for a row of no key
    torch.testing.assert_close(sparse_attention.reference(args)[0].double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rounding", ["exact", "e4m3"])
@pytest.mark.parametrize("kv_format", ["fp32", "bf16", "fp8", "nvfp4"])
@pytest.mark.parametrize("variant", ["scaled", "padding", "bad_pages", "too_long", "holes"])
def test_against_brute_force(kv_format: str, rounding: str, variant: str) -> None:
    """With fp32 queries nothing but the order of fp32 sums may differ."""
    args = sparse_attention.generate(
        3, **SMALL, kv_format=kv_format, rounding=rounding, variant=variant, v_scale_layout="token_quads"
    )
    close(sparse_attention.reference(args), attention_of_args(args))


def test_the_roundings_differ() -> None:
    args = sparse_attention.generate(3, **SMALL)
    exact, rounded = (sparse_attention.reference(replace(args, rounding=r))[0] for r in ("exact", "e4m3"))
    assert 1e-3 < (exact - rounded).abs().max() < 0.5


def test_a_block_that_is_named_twice_counts_once() -> None:
    args = sparse_attention.generate(4, **SMALL, topk=2)
    twice = replace(args, block_ids=torch.cat((args.block_ids, args.block_ids), -1))
    assert torch.equal(sparse_attention.reference(twice)[0], sparse_attention.reference(args)[0])


def test_the_order_of_ids_changes_no_bit() -> None:
    args = sparse_attention.generate(5, **{**SMALL, "seq_len": 900}, topk=4)
    turned = replace(args, block_ids=args.block_ids.flip(-1))
    for one, other in zip(sparse_attention.reference(args), sparse_attention.reference(turned), strict=True):
        assert torch.equal(one, other)


def test_rows_are_cut_to_bound_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same result when one, a few or all query tokens are computed together."""
    args = sparse_attention.generate(6, **SMALL, q_len=30, variant="chunked")
    whole = sparse_attention.reference(args)
    shapes = []
    softmax_rows = paged_softmax._softmax_rows

    def spy(q: Tensor, k: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        shapes.append((q.shape[0], k.shape[1]))
        return softmax_rows(q, k, *rest)

    monkeypatch.setattr(paged_softmax, "_softmax_rows", spy)
    for bound, most in ((1, 1), (4 * 384 * 7, 4 * 384 * 7), (2**40, 2**40)):
        shapes.clear()
        monkeypatch.setattr(paged_softmax, "SCORES_AT_ONCE", bound)
        close(sparse_attention.reference(args), whole)
        assert sum(rows for rows, _ in shapes) == args.q.shape[0]
        assert all(rows == 1 or rows * keys * 4 <= most for rows, keys in shapes)
    assert len(shapes) == 3, "one part a request, if nothing bounds it"


@pytest.mark.parametrize("op", [sparse_attention, dense_attention])
def test_only_pages_in_use_are_read(op: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that no row can see are not dequantised; those that some row sees are, once for K and once for V."""
    args = op.generate(7, **{**SMALL, "seq_len": 1500}, kv_format="bf16")
    read: list[int] = []
    read_pages = paged_softmax.read_pages

    def spy(cache: Tensor, page: Any, member: str, page_ids: Tensor, **options: Any) -> Tensor:
        read.extend(page_ids.tolist() if member == "v" else [])
        return read_pages(cache, page, member, page_ids, **options)

    monkeypatch.setattr(paged_softmax, "read_pages", spy)
    op.reference(args)
    assert len(read) == len(set(read))
    if op is dense_attention:
        assert len(read) == 3 * 12
    else:
        named = {(b, i) for b in range(3) for i in args.block_ids[2 * b : 2 * b + 2].flatten().tolist()}
        assert set(read) == {int(args.block_table[b, i]) for b, i in named}


@pytest.mark.parametrize("member", ["k", "v"])
def test_a_visible_nan_is_not_hidden(member: str) -> None:
    """It shows in every row and head that sees it, from its position on."""
    args = dense_attention.generate(8, **SMALL, kv_format="bf16", seq_lens=[200], q_lens=[60])
    view = main_page("bf16", 2).view(args.kv_cache, member).view(torch.bfloat16)
    view[int(args.block_table[0, 1]), 1, 30, 5] = torch.nan  # token 158
    out, lse = dense_attention.reference(args)
    expected = torch.zeros(60, 4, 128, dtype=torch.bool)
    expected[158 - 140 :, 2:] = True
    if member == "v":
        expected[..., :5] = expected[..., 6:] = False  # a NaN in one dim of V stays in that dim
        assert bool(lse.isfinite().all())
    else:
        assert torch.equal(lse.isnan(), expected[..., 0])
    assert torch.equal(out.isnan(), expected)


def test_infinite_values_follow_ieee() -> None:
    """+inf in V gives +inf in rows that see it; with -inf in the same dim, NaN."""
    args = dense_attention.generate(9, **SMALL, kv_format="bf16", seq_lens=[100], q_lens=[4])
    view = main_page("bf16", 2).view(args.kv_cache, "v").view(torch.bfloat16)
    page = int(args.block_table[0, 0])
    view[page, 0, 3, 0] = torch.inf
    view[page, 0, 98, 0] = -torch.inf
    out = dense_attention.reference(args)[0]
    assert out[:2, :2, 0].tolist() == [[torch.inf] * 2] * 2
    assert bool(out[2:, :2, 0].isnan().all())
    assert bool(out[..., 1:].isfinite().all()) and bool(out[:, 2:].isfinite().all())


def test_scores_of_minus_infinity_carry_no_weight() -> None:
    """A row whose visible scores are all -inf gives 0 and -inf, as one that sees nothing does."""
    args = dense_attention.generate(10, **SMALL, kv_format="bf16", seq_lens=[40], q_lens=[1])
    view = main_page("bf16", 2).view(args.kv_cache, "k").view(torch.bfloat16)
    view[:, :, :, 0] = -torch.inf
    q = args.q.clone()
    q[..., 0] = 1.0
    out, lse = dense_attention.reference(replace(args, q=q))
    assert bool((out == 0).all()) and bool((lse == -torch.inf).all())


def test_everything_unwritten_may_be_nan() -> None:
    """The only written token of a pool of NaN bytes: its value comes back."""
    args = dense_attention.generate(11, **SMALL, kv_format="nvfp4", seq_lens=[1], q_lens=[1])
    page = main_page("nvfp4", 2)
    made = Batch(args.block_table, args.seq_lens, None, 1, args.kv_cache.shape[0], "")
    poison(args.kv_cache, page, ~made.written())
    close(dense_attention.reference(args), attention_of_args(args))


def test_bad_cu_seqlens_do_not_fault() -> None:
    """Starts that fall, exceed T or begin late: no exception, and other requests keep their rows."""
    args = dense_attention.generate(12, **SMALL, seq_lens=[50, 60, 70], q_lens=[2, 2, 2])
    good = dense_attention.reference(args)[0]
    for starts in ([0, 2, 4, 600], [0, 2, 1, 6], [1, 2, 4, 6], [-5, 2, 4, 6]):
        out = dense_attention.reference(replace(args, cu_seqlens_q=torch.tensor(starts, dtype=torch.int32)))[0]
        assert bool(out.isfinite().all())
        if starts[1:3] == [2, 4]:
            assert torch.allclose(out[2:4], good[2:4], atol=1e-5)
