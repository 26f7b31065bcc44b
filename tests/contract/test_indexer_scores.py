"""Block scores: right on every kind of batch, and untouched by what a request does not own."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from msa_ops.cache.page import index_page
from msa_ops.ops import batches
from msa_ops.ops.indexer_scores import VARIANTS, Args, generate
from tests.contract.guard import guarded
from tests.contract.oracles.block_scores import ROW_BYTES, assert_scores, block_scores
from tests.contract.placed import far_cache, wider
from tests.contract.target import Target

OP = "indexer_scores"
FORMATS = tuple(ROW_BYTES)


def judge(target: Target, args: Args, scale: float = 1.0) -> Tensor:
    (scores,) = target.run(args)
    assert_scores(scores, *block_scores(args), scale)
    return scores


def same_bits(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.contiguous().view(torch.int32), other.contiguous().view(torch.int32))


@pytest.mark.parametrize("index_format", FORMATS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_kind_of_batch(target: Target, variant: str, index_format: str) -> None:
    judge(target, generate(11, variant=variant, index_format=index_format, q_len=3, batch=4))


@pytest.mark.parametrize("rounding", ["exact", "e4m3"])
@pytest.mark.parametrize("q_dtype", ["float32", "bfloat16", "float16", "float8_e4m3fn"])
def test_query_dtypes_and_roundings(target: Target, q_dtype: str, rounding: str) -> None:
    judge(target, generate(12, q_dtype=q_dtype, rounding=rounding, q_len=5))


@pytest.mark.parametrize("num_heads", [1, 2, 4, 8])
def test_heads(target: Target, num_heads: int) -> None:
    judge(target, generate(13, num_heads=num_heads, q_len=4))


@pytest.mark.parametrize("q_len", range(1, 18))
def test_verification_lengths(target: Target, q_len: int) -> None:
    judge(target, generate(14, q_len=q_len, seq_lens=[q_len, 130, 257, 383], num_heads=2))


def test_lengths_around_block_borders(target: Target) -> None:
    lengths = [0, 1, 127, 128, 129, 255, 256, 257, 2047, 2048, 2049]
    judge(target, generate(15, seq_lens=lengths, q_len=1, num_heads=2))


def test_small_integers_are_exact(target: Target) -> None:
    """Sums of products of small integers are exact in fp32, so every order of adding gives these bits."""
    for index_format in FORMATS:
        args = generate(16, variant="integers", index_format=index_format, q_len=6)
        (scores,) = target.run(args)
        expected, _ = block_scores(args)
        assert torch.equal(scores, torch.from_numpy(expected).float()), index_format


def test_scales_multiply(target: Target) -> None:
    args = generate(17, index_k_scale=0.37, score_scale=128**-0.5)
    judge(target, args, scale=float(torch.tensor(0.37)) * 128**-0.5)


def test_verify_equals_single_decodes(target: Target) -> None:
    q_len, lengths = 8, [8, 129, 300, 640]
    together = generate(18, variant="integers", seq_lens=lengths, q_lens=[q_len] * 4)
    (scores,) = target.run(together)
    for i in range(q_len):
        single = dataclasses.replace(
            together,
            index_q=together.index_q[i::q_len].contiguous(),
            seq_lens=together.seq_lens - (q_len - 1 - i),
            cu_seqlens_q=None,
        )
        assert same_bits(target.run(single)[0], scores[i::q_len]), f"draft token {i}"


def test_chunks_at_every_offset_equal_one_prefill(target: Target) -> None:
    length, step = 290, 131
    whole = generate(19, variant="integers", seq_lens=[length], q_lens=[length], num_heads=2)
    (expected,) = target.run(whole)
    begins = list(range(128))
    rows = torch.cat([torch.arange(b, b + step) for b in begins])
    chunks = dataclasses.replace(
        whole,
        index_q=whole.index_q[rows],
        block_table=whole.block_table.expand(len(begins), -1).contiguous(),
        seq_lens=torch.tensor([b + step for b in begins], dtype=torch.int32),
        cu_seqlens_q=torch.arange(0, (len(begins) + 1) * step, step, dtype=torch.int32),
    )
    (scores,) = target.run(chunks)
    assert same_bits(scores, expected[rows])


@pytest.mark.parametrize("index_format", FORMATS)
def test_garbage_is_never_read(target: Target, index_format: str) -> None:
    """The same bits whatever lies behind the lengths in codes, scales and tables, and in unused pages."""
    seq_lens = [1, 100, 128, 500]
    clean = generate(20, seq_lens=seq_lens, q_lens=[1, 7, 2, 130], index_format=index_format, variant="ragged")
    (expected,) = target.run(clean)
    assert_scores(expected, *block_scores(clean))
    written = torch.zeros(len(clean.index_cache), 128, dtype=torch.bool)
    for row, length in zip(clean.block_table.tolist(), seq_lens, strict=True):
        for block in range(-(-length // 128)):
            written[row[block], : length - block * 128] = True
    used = torch.arange(clean.block_table.shape[1]) < torch.tensor([-(-n // 128) for n in seq_lens]).unsqueeze(1)
    for byte, entry in ((0xFF, -1), (0x7F, 2**31 - 1), (0x00, -(2**31)), (0x7E, 0)):
        cache = clean.index_cache.clone()
        batches.poison(cache, index_page(index_format), ~written, value=byte)
        table = torch.where(used, clean.block_table, entry)
        (scores,) = target.run(dataclasses.replace(clean, index_cache=cache, block_table=table))
        assert same_bits(scores, expected), f"garbage {byte:#x}, table {entry}"


def test_pages_may_lie_anywhere(target: Target) -> None:
    """Scattered pages, a larger page stride, rows of a wider table: the bits of contiguous pages."""
    args = generate(21, seq_lens=[300, 700], q_len=2)
    (expected,) = target.run(args)
    order = torch.randperm(len(args.index_cache), generator=torch.Generator().manual_seed(0))
    moved = args.index_cache[order]
    table = torch.argsort(order).to(torch.int32)[args.block_table.long()]
    (scores,) = target.run(dataclasses.replace(args, index_cache=moved, block_table=table))
    assert same_bits(scores, expected)
    pool, wide = wider(target, moved, 4096, 16, 0xFF), wider(target, table, 3, 4, -1)
    strided = dataclasses.replace(args, index_cache=pool, block_table=wide)
    (scores,) = target.run(strided)
    assert same_bits(scores, expected)


@pytest.mark.parametrize(
    ("num_pages", "gap", "ids"),
    [
        (5, 2**30 - 9216, [0, 1, 2, 3, 4]),  # offsets up to 2^32
        (240_000, 0, [0, 65_535, 65_536, 65_537, 233_015, 233_016, 233_017, 239_999]),  # straddling 2^31
    ],
)
def test_far_pages(target: Target, num_pages: int, gap: int, ids: list[int]) -> None:
    near = generate(22, seq_lens=[len(ids) * 128 - 5], q_len=2)
    (expected,) = target.run(near)
    with far_cache(target, num_pages, 9216, 9216 + gap) as far:
        far[ids] = near.index_cache[near.block_table[0, : len(ids)].long()].to(target.device)
        table = torch.tensor([[*ids, -1]], dtype=torch.int32)
        (scores,) = target.run(dataclasses.replace(near, index_cache=far, block_table=table))
    assert same_bits(scores, expected)


def test_pages_that_do_not_exist_have_no_tokens(target: Target) -> None:
    args = generate(23, seq_lens=[640, 640], q_len=2)
    (expected,) = target.run(args)
    table = args.block_table.clone()
    bad = [-1, len(args.index_cache), -(2**31), 2**31 - 1]
    table[0, :4] = torch.tensor(bad, dtype=torch.int64).to(torch.int32)
    (scores,) = target.run(dataclasses.replace(args, block_table=table))
    assert bool((scores[:2, :, :4] == -torch.inf).all())
    assert same_bits(scores[:2, :, 4:], expected[:2, :, 4:])
    assert same_bits(scores[2:], expected[2:])


def test_position_in_the_batch_does_not_matter(target: Target) -> None:
    args = generate(24, seq_lens=[900, 5, 129, 512, 300], q_lens=[3, 1, 17, 2, 1], variant="ragged")
    (scores,) = target.run(args)
    starts = args.cu_seqlens_q.tolist()
    order = [3, 0, 4, 2, 1]
    rows = torch.cat([torch.arange(starts[b], starts[b + 1]) for b in order])
    lengths = torch.tensor([starts[b + 1] - starts[b] for b in order])
    shuffled = dataclasses.replace(
        args,
        index_q=args.index_q[rows],
        block_table=args.block_table[order],
        seq_lens=args.seq_lens[order],
        cu_seqlens_q=torch.cat((torch.zeros(1), lengths.cumsum(0))).to(torch.int32),
    )
    assert same_bits(target.run(shuffled)[0], scores[rows])
    twice = dataclasses.replace(
        args,
        index_q=args.index_q.repeat(2, 1, 1),
        block_table=args.block_table.repeat(2, 1),
        seq_lens=args.seq_lens.repeat(2),
        cu_seqlens_q=torch.cat((args.cu_seqlens_q, args.cu_seqlens_q[1:] + starts[-1])),
    )
    assert same_bits(target.run(twice)[0], scores.repeat(2, 1, 1))


def test_nan_stays_in_its_row(target: Target) -> None:
    args = generate(25, seq_lens=[400, 400], q_len=3)
    (expected,) = target.run(args)
    query = args.index_q.clone()
    query[1, 2, 5] = torch.nan
    (scores,) = target.run(dataclasses.replace(args, index_q=query))
    assert bool((scores[1, 2] == -torch.inf).all())
    scores[1, 2] = expected[1, 2]
    assert same_bits(scores, expected)


def test_nothing_but_the_result_is_written(target: Target) -> None:
    args = generate(26, variant="garbage", q_len=3)
    (expected,) = target.run(args)
    with (
        guarded(tuple(args.index_cache.shape), torch.uint8) as cache,
        guarded(tuple(expected.shape), torch.float32) as out,
    ):
        cache.copy_(args.index_cache)
        target.run(dataclasses.replace(args, index_cache=cache), (out,))
        assert torch.equal(cache, args.index_cache)
        assert same_bits(out, expected)


def test_runs_repeat_bit_by_bit(target: Target) -> None:
    args = generate(27, variant="chunked")
    (first,) = target.run(args)
    for _ in range(5):
        assert same_bits(target.run(args)[0], first)


@pytest.mark.parametrize("max_blocks", [8192, 16384])
def test_wide_tables(target: Target, max_blocks: int) -> None:
    """A million tokens and more: most blocks name pages that do not exist, which keeps the test small."""
    args = generate(28, seq_lens=[300], q_len=1, num_heads=2)
    at = [0, 1, max_blocks // 2, max_blocks - 1]
    table = torch.full((1, max_blocks), -1, dtype=torch.int32)
    table[0, at] = args.block_table[0, 0]
    lengths = torch.tensor([max_blocks * 128], dtype=torch.int32)
    (scores,) = target.run(dataclasses.replace(args, block_table=table, seq_lens=lengths))
    finite = (scores > -torch.inf).nonzero()
    assert finite[:, 2].unique().tolist() == at
    assert same_bits(scores[..., at], scores[..., :1].expand(-1, -1, len(at)))


def test_empty_batches(target: Target) -> None:
    args = generate(29, seq_lens=[0, 0], q_len=0)
    assert target.run(args)[0].shape[0] == 0
    padding = generate(29, seq_lens=[0, 0], q_len=2)
    assert bool((target.run(padding)[0] == -torch.inf).all())


def test_no_pages_at_all(target: Target) -> None:
    args = generate(30, seq_lens=[300], q_len=1)
    nothing = dataclasses.replace(args, index_cache=torch.empty(0, 9216, dtype=torch.uint8))
    assert bool((target.run(nothing)[0] == -torch.inf).all())
