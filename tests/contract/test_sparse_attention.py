"""The contract of sparse_attention, on every backend that this machine can execute."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from msa_ops.ops.attention_inputs import block_choice
from msa_ops.ops.dense_attention import Args as DenseArgs
from msa_ops.registry import STORE
from tests.contract.oracles.attention_of_args import attention_of_args
from tests.contract.paged_attention_contract import PagedAttentionContract, check, make, one_request, same_bits
from tests.contract.target import Target

OP = "sparse_attention"


class TestSparseAttention(PagedAttentionContract):
    pass


@pytest.mark.parametrize("variant", ["unsorted", "holes", "nothing"])
@pytest.mark.parametrize("topk_layout", ["THK", "HTK"])
def test_ids_in_any_order_with_useless_ones_among_them(target: Target, variant: str, topk_layout: str) -> None:
    check(target, make(target, 1, variant=variant, topk_layout=topk_layout, topk=4, seq_len=900))


@pytest.mark.parametrize("topk", [1, 2, 7, 16, 32, 64])
def test_topk(target: Target, topk: int) -> None:
    """Requests with fewer and with more blocks than ids; short rows end in -1."""
    lengths = [100, topk * 128 - 5, topk * 128 + 200]
    check(
        target,
        make(target, 2, topk=topk, seq_lens=lengths, q_lens=[2, 2, 2], num_heads=2, num_kv_heads=1, kv_format="bf16"),
    )


@pytest.mark.parametrize("local_blocks", [0, 1])
def test_without_the_last_block(target: Target, local_blocks: int) -> None:
    """Nothing forces the block of the query itself to be among the ids."""
    args = make(target, 3, local_blocks=local_blocks, seq_len=900, topk=3)
    assert bool((args.block_ids == 7).any(-1).all()) == bool(local_blocks)
    check(target, args)


def test_every_permutation_of_a_row(target: Target) -> None:
    """Nothing may rest on the partial block being the last id."""
    args = one_request(target, 4, 500, 1, topk=4)
    orders = list(itertools.permutations(range(4)))
    many = replace(
        args,
        q=args.q.expand(len(orders), -1, -1).contiguous(),
        block_ids=torch.cat([args.block_ids[..., list(order)] for order in orders]),
        block_table=args.block_table.expand(len(orders), -1).contiguous(),
        seq_lens=args.seq_lens.expand(len(orders)).contiguous(),
        cu_seqlens_q=None,
    )
    once = target.run(args)
    check(target, many, tuple(r.expand(len(orders), *r.shape[1:]) for r in once))


@pytest.mark.parametrize("useless", [-1, -2, -128, -(2**31), 4, 5, 6, 100, 1 << 16, 1 << 24, 2**31 - 1])
def test_ids_that_name_no_visible_block_change_nothing(target: Target, useless: int) -> None:
    """At n and beyond (n is 4 here; the table has 6 entries, each with a page) and below 0, at every place of a row."""
    args = one_request(target, 5, 450, 2, topk=3, max_blocks=6, spare_pages=9)
    pages = set(range(args.kv_cache.shape[0])) - set(args.block_table[0, :4].tolist())
    args.block_table[0, 4:] = torch.tensor(sorted(pages)[:2], dtype=torch.int32)
    unused = torch.full_like(args.block_ids[..., :1], -1)
    expected = target.run(replace(args, block_ids=torch.cat((args.block_ids, unused), -1)))
    for place in range(4):
        ids = torch.cat(
            (args.block_ids[..., :place], torch.full_like(unused, useless), args.block_ids[..., place:]), -1
        )
        check(target, replace(args, block_ids=ids.contiguous()), expected)


def test_later_blocks_are_skipped_token_by_token(target: Target) -> None:
    """Each token of a prefill has its own n; the same ids reach more blocks the later the token stands."""
    args = one_request(target, 6, 512, 512, topk=4, num_heads=2, num_kv_heads=1, kv_format="bf16")
    everything = torch.tensor([3, 1, 0, 2], dtype=torch.int32).expand_as(args.block_ids).contiguous()
    check(target, replace(args, block_ids=everything))


@pytest.mark.parametrize("side", [2, 4])
def test_as_many_tokens_as_heads(target: Target, side: int) -> None:
    """T equals H, so that the shape cannot tell the layouts apart and only the argument does."""
    thk = one_request(target, 8, 900, side, topk=3, num_heads=2 * side, num_kv_heads=side)
    htk = replace(thk, block_ids=thk.block_ids.transpose(0, 1).contiguous(), topk_layout="HTK")
    assert thk.block_ids.shape == htk.block_ids.shape and not torch.equal(thk.block_ids, htk.block_ids)
    results = check(target, thk)
    check(target, htk, results)
    mistaken = target.run(replace(thk, topk_layout="HTK"))
    assert not same_bits(results, mistaken)
    check(target, replace(thk, topk_layout="HTK"))


def test_no_id_in_the_whole_call(target: Target) -> None:
    args = make(target, 8, variant="ragged")
    for useless in (-1, 2**31 - 1):
        out, lse = target.run(replace(args, block_ids=torch.full_like(args.block_ids, useless)))
        assert bool((out == 0).all()) and bool((lse == -torch.inf).all())


def test_rows_without_ids_do_not_disturb_their_neighbours(target: Target) -> None:
    args = make(target, 9, variant="chunked", seq_len=300)
    expected = target.run(args)
    ids = args.block_ids.clone()
    ids[1::3] = -1
    keep = torch.ones(len(ids), dtype=torch.bool)
    keep[1::3] = False
    out, lse = target.run(replace(args, block_ids=ids))
    assert bool((out[~keep] == 0).all()) and bool((lse[~keep] == -torch.inf).all())
    tolerance = target.spec.tolerance(args)
    torch.testing.assert_close(out[keep], expected[0][keep], rtol=tolerance[0].rtol, atol=tolerance[0].atol)


def test_all_blocks_equal_dense_attention(target: Target) -> None:
    args = make(target, 10, variant="ragged", topk=5, seq_len=600)
    names = [name for name in args.__dataclass_fields__ if name not in ("block_ids", "topk_layout")]
    dense = DenseArgs(**{name: getattr(args, name) for name in names})
    check(target, args, STORE.op("dense_attention").reference(dense))


def test_heads_follow_their_own_ids(target: Target) -> None:
    """One KV head sees block 0 alone, the other block 1 alone; each query head follows its KV head."""
    args = one_request(target, 11, 256, 1, topk=1, num_heads=6, num_kv_heads=2)
    ids = torch.tensor([[[0], [1]]], dtype=torch.int32)
    out, lse = check(target, replace(args, block_ids=ids))
    for block in (0, 1):
        alone = target.run(replace(args, block_ids=torch.full_like(ids, block)))
        heads = slice(3 * block, 3 * block + 3)
        assert same_bits((out[:, heads], lse[:, heads]), (alone[0][:, heads], alone[1][:, heads]))


def test_parts_merge_by_their_lse(target: Target) -> None:
    """Two disjoint choices, merged with the weights exp(lse), give the attention over their union."""
    args = make(target, 12, seq_lens=[900, 1000], q_lens=[3, 1], topk=6, q_dtype="float32", kv_format="fp32")
    one, other = (
        replace(args, block_ids=args.block_ids[..., part].contiguous()) for part in (slice(0, 2), slice(2, 6))
    )
    (out_a, lse_a), (out_b, lse_b) = target.run(one), target.run(other)
    lse = torch.logaddexp(lse_a, lse_b)
    out = out_a * (lse_a - lse).exp().unsqueeze(-1) + out_b * (lse_b - lse).exp().unsqueeze(-1)
    check(target, args, (out, lse))


def test_ids_with_a_larger_row_stride(target: Target) -> None:
    args = make(target, 13, variant="ragged", topk=3)
    wide = torch.full((*args.block_ids.shape[:2], 8), 0, dtype=torch.int32)
    wide[..., :3] = args.block_ids
    assert same_bits(target.run(args), target.run(replace(args, block_ids=wide[..., :3])))


def test_prefix_hit_equals_a_cold_prefill(target: Target) -> None:
    """The last tokens of a prompt with its prefix in the cache, FP8 with scales, against the whole prompt at once."""
    cold = one_request(target, 14, 400, 400, kv_format="fp8", variant="scaled", num_heads=2, num_kv_heads=1)
    rows = list(range(391, 400))
    warm = replace(
        cold, q=cold.q[rows], block_ids=cold.block_ids[rows], cu_seqlens_q=torch.tensor([0, 9], dtype=torch.int32)
    )
    whole = target.run(cold)
    check(target, warm, tuple(r[rows] for r in whole))


@pytest.mark.parametrize(("variant", "q_dtype"), [("nan", "bfloat16"), ("unsorted", "float8_e4m3fn")])
def test_many_rows(target: Target, variant: str, q_dtype: str) -> None:
    """Kernels may divide the work in another way if there are more rows than places for thread blocks."""
    args = make(
        target,
        17,
        variant=variant,
        batch=160,
        q_len=4,
        seq_len=300,
        topk=3,
        num_heads=2,
        num_kv_heads=1,
        q_dtype=q_dtype,
    )
    assert args.q.shape[0] > 192
    check(target, args, attention_of_args(args))


@pytest.mark.parametrize("batch", [15, 17, 22, 31, 44])
def test_rows_that_several_thread_blocks_share(target: Target, batch: int) -> None:
    """Some see nothing, some less than there are blocks. How many share a row depends on how many rows there are."""
    lengths = [211 * i % 2000 for i in range(batch)]
    dims = {"num_heads": 6, "num_kv_heads": 1, "topk": 16}
    check(target, make(target, 18, seq_lens=lengths, q_lens=[1] * batch, **dims))


@pytest.mark.slow
@pytest.mark.parametrize("q_len", [1, 8])
def test_the_shapes_of_a_decode_step(target: Target, q_len: int) -> None:
    """M3.1-Flash on one GPU: 64 query heads, 4 KV heads, 16 of more than 16 blocks."""
    args = make(target, 15, num_heads=64, num_kv_heads=4, topk=16, batch=2, seq_len=3000, q_len=q_len)
    ids = block_choice(
        16, args.seq_lens, args.cu_seqlens_q, args.q.shape[0], heads=4, topk=16, max_blocks=24, overlap=0.8
    )
    check(target, replace(args, block_ids=ids), attention_of_args(replace(args, block_ids=ids)))


@pytest.mark.parametrize("overlap", [0.0, 0.8])
@pytest.mark.parametrize("variant", ["plain", "ragged", "padding", "garbage", "bad_pages", "holes"])
def test_verification_of_many_requests(target: Target, variant: str, overlap: float) -> None:
    """Enough requests with enough query tokens for kernels that share pages among neighbouring tokens."""
    dims = {"batch": 24, "q_len": 16, "num_heads": 4, "num_kv_heads": 1, "topk": 3, "overlap": overlap}
    check(target, make(target, 14, variant=variant, **dims))
