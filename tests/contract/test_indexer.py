"""The indexer chooses what the scores say, on every kind of batch, whatever surrounds a request."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from msa_ops.cache.page import index_page
from msa_ops.ops import batches, indexer
from msa_ops.ops.indexer import VARIANTS, Args
from tests.contract.guard import guarded
from tests.contract.oracles.block_scores import ROW_BYTES, block_scores, counts
from tests.contract.oracles.block_selection import assert_valid, choose_all
from tests.contract.placed import far_cache, wider
from tests.contract.target import Target
from tests.contract.workspace import workspace_bytes

OP = "indexer"
FORMATS = tuple(ROW_BYTES)


_dims: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _suited_to(target: Target) -> None:
    """Inputs of a test are of a kind that its backend takes."""
    _dims.clear()
    _dims.update(target.dims())


def generate(seed: int, **dims: Any) -> Args:
    return indexer.generate(seed, **{**_dims, **dims})


def judge(target: Target, args: Args) -> Tensor:
    """Valid by the margin rule; where scores are exact (sums of small integers), use `judge_exact`."""
    (ids,) = target.run(args)
    thk = ids if args.topk_layout == "THK" else ids.transpose(0, 1)
    assert thk.shape == (*args.index_q.shape[:2], args.topk) and ids.dtype == torch.int32
    scores, error = block_scores(args)
    assert_valid(thk, scores, error, counts(args), args.topk, args.init_blocks, args.local_blocks)
    return ids


def judge_exact(target: Target, args: Args) -> Tensor:
    (ids,) = target.run(args)
    scores, _ = block_scores(args)
    expected = choose_all(scores, counts(args), args.topk, args.init_blocks, args.local_blocks)
    assert torch.equal(ids, expected if args.topk_layout == "THK" else expected.transpose(0, 1))
    return ids


@pytest.mark.parametrize("index_format", FORMATS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_kind_of_batch(target: Target, variant: str, index_format: str) -> None:
    args = generate(41, variant=variant, index_format=index_format, q_len=3, seq_len=1500, topk=4)
    judge_exact(target, args) if variant == "integers" else judge(target, args)


@pytest.mark.parametrize("rounding", ["exact", "e4m3"])
@pytest.mark.parametrize("q_dtype", ["float32", "bfloat16", "float16", "float8_e4m3fn"])
def test_query_dtypes_and_roundings(target: Target, q_dtype: str, rounding: str) -> None:
    judge(target, generate(42, q_dtype=q_dtype, rounding=rounding, q_len=4, seq_len=2600))


@pytest.mark.parametrize("num_heads", [1, 2, 4, 8])
def test_heads(target: Target, num_heads: int) -> None:
    judge(target, generate(43, num_heads=num_heads, q_len=4, topk=7))


@functools.cache
def exact_batch(**dims: Any) -> tuple[Args, np.ndarray]:
    """A batch with exact scores, on which every choice of options can be tried."""
    args = indexer.generate(
        44, variant="integers", seq_lens=[1, 130, 2500, 9000], q_lens=[1, 2, 3, 1], num_heads=2, **dims
    )
    return args, block_scores(args)[0]


@pytest.mark.parametrize("topk", [1, 7, 16, 32, 64])
def test_topk_and_forced_blocks(target: Target, topk: int) -> None:
    batch, scores = exact_batch(**_dims)
    for init_blocks, local_blocks in itertools.product([0, 1, 2], repeat=2):
        options = {"topk": topk, "init_blocks": init_blocks, "local_blocks": local_blocks}
        (ids,) = target.run(dataclasses.replace(batch, **options))
        assert torch.equal(ids, choose_all(scores, counts(batch), **options)), options


@pytest.mark.parametrize("q_len", range(1, 18))
def test_verification_lengths(target: Target, q_len: int) -> None:
    judge(target, generate(45, q_len=q_len, seq_lens=[q_len, 130, 2050, 2304], num_heads=2))


def test_lengths_around_block_borders(target: Target) -> None:
    lengths = [0, 1, 127, 128, 129, 2047, 2048, 2049, 2176, 2177]
    ids = judge_exact(target, generate(46, variant="integers", seq_lens=lengths, q_lens=[1] * 10, num_heads=2))
    for length, row in zip(lengths, ids[:, 0].tolist(), strict=True):
        n = -(-length // 128)
        if n <= 16:
            assert row == [*range(n), *[-1] * (16 - n)]
        else:
            assert -1 not in row and row[-1] == n - 1


@pytest.mark.parametrize("variant", ["integers", "plain"])
def test_verify_equals_single_decodes(target: Target, variant: str) -> None:
    """sglang#40214, #33383: a draft token sees its own prefix alone, although later keys are in the cache."""
    for q_len in (1, 2, 5, 8, 17):
        lengths = [q_len, 2049, 2310]
        together = generate(47, variant=variant, seq_lens=lengths, q_lens=[q_len] * 3)
        (ids,) = target.run(together)
        scores, error = block_scores(together)
        n = counts(together)
        for i in range(q_len):
            single = dataclasses.replace(
                together,
                index_q=together.index_q[i::q_len].contiguous(),
                seq_lens=together.seq_lens - (q_len - 1 - i),
                cu_seqlens_q=None,
            )
            (alone,) = target.run(single)
            if variant == "integers":
                assert torch.equal(alone, ids[i::q_len]), f"draft token {i} of {q_len}"
            else:
                assert_valid(alone, scores[i::q_len], error[i::q_len], n[i::q_len], 16)


def test_chunks_at_every_offset_equal_one_prefill(target: Target) -> None:
    """sglang-jax#1376: a block that two chunks share is scored as one."""
    length, step = 700, 131
    whole = generate(48, variant="integers", seq_lens=[length], q_lens=[length], num_heads=2, topk=2, local_blocks=0)
    expected = judge_exact(target, whole)
    begins = list(range(400, 528))
    rows = torch.cat([torch.arange(b, b + step) for b in begins])
    chunks = dataclasses.replace(
        whole,
        index_q=whole.index_q[rows],
        block_table=whole.block_table.expand(len(begins), -1).contiguous(),
        seq_lens=torch.tensor([b + step for b in begins], dtype=torch.int32),
        cu_seqlens_q=torch.arange(0, (len(begins) + 1) * step, step, dtype=torch.int32),
    )
    assert torch.equal(target.run(chunks)[0], expected[rows])
    for begin in (400, 511, 512, 513):
        part = slice(begin, begin + step)
        lengths = torch.tensor([begin + step], dtype=torch.int32)
        one = dataclasses.replace(whole, index_q=whole.index_q[part], seq_lens=lengths, cu_seqlens_q=None)
        assert torch.equal(target.run(one)[0], expected[part])


def test_mixed_batch(target: Target) -> None:
    """Decode, verification, a prefill chunk with a prefix, a whole prefill, and padding, in one call."""
    args = generate(
        49,
        variant="padding",
        seq_lens=[2500, 2400, 2333, 150, 0, 3],
        q_lens=[1, 8, 70, 150, 1, 5],
        num_heads=2,
        topk=5,
    )
    ids = judge(target, args)
    assert args.index_q.shape[0] == 238  # three tokens behind the last request
    assert bool((ids[-3:] == -1).all()), "padding tokens choose nothing"
    assert bool((ids[229] == -1).all()), "a request of length 0 chooses nothing"
    assert ids[230:235, 0, 0].tolist() == [-1, -1, 0, 0, 0], "more query tokens than tokens"


@pytest.mark.parametrize("index_format", FORMATS)
def test_garbage_is_never_read(target: Target, index_format: str) -> None:
    """The same ids whatever lies behind the lengths in codes, scales and tables, and in unused pages."""
    seq_lens = [1, 100, 2176, 2500]
    clean = generate(
        50, seq_lens=seq_lens, q_lens=[1, 7, 2, 130], index_format=index_format, variant="ragged", topk=7, num_heads=2
    )
    (expected,) = target.run(clean)
    written = torch.zeros(len(clean.index_cache), 128, dtype=torch.bool)
    for row, length in zip(clean.block_table.tolist(), seq_lens, strict=True):
        for block in range(-(-length // 128)):
            written[row[block], : length - block * 128] = True
    used = torch.arange(clean.block_table.shape[1]) < torch.tensor([-(-n // 128) for n in seq_lens]).unsqueeze(1)
    for byte, entry in ((0xFF, -1), (0x7F, 2**31 - 1), (0x7E, -(2**31))):
        cache = clean.index_cache.clone()
        batches.poison(cache, index_page(index_format), ~written, value=byte)
        table = torch.where(used, clean.block_table, entry)
        (ids,) = target.run(dataclasses.replace(clean, index_cache=cache, block_table=table))
        assert torch.equal(ids, expected), f"garbage {byte:#x}, table {entry}"


def test_pages_may_lie_anywhere(target: Target) -> None:
    """llama.cpp#24908: blocks belong to positions, not to cells. Also strided pools and tables."""
    args = generate(51, seq_lens=[2300, 2700], q_len=2)
    (expected,) = target.run(args)
    order = torch.randperm(len(args.index_cache), generator=torch.Generator().manual_seed(0))
    moved = args.index_cache[order]
    table = torch.argsort(order).to(torch.int32)[args.block_table.long()]
    pool, wide = wider(target, moved, 4096, 16, 0xFF), wider(target, table, 3, 4, -1)
    for cache, rows in ((moved, table), (pool, wide)):
        assert torch.equal(target.run(dataclasses.replace(args, index_cache=cache, block_table=rows))[0], expected)


def test_far_pages(target: Target) -> None:
    """vllm#47671, aiter#3062: page ids around 65,536, and byte offsets around and beyond 2^31."""
    ids = [0, 65_535, 65_536, 65_537, 233_015, 233_016, 233_017, 239_999]
    near = generate(52, seq_lens=[len(ids) * 128 - 5], q_len=2, topk=3)
    (expected,) = target.run(near)
    with far_cache(target, 240_000, 9216, 9216) as far:
        far[ids] = near.index_cache[near.block_table[0, : len(ids)].long()].to(target.device)
        table = torch.tensor([[*ids, -1]], dtype=torch.int32)
        assert torch.equal(target.run(dataclasses.replace(near, index_cache=far, block_table=table))[0], expected)


def test_pages_that_do_not_exist(target: Target) -> None:
    """vllm#54597: chosen last, never read, and other requests do not notice."""
    args = generate(53, seq_lens=[900, 900], q_len=2, topk=5)
    (expected,) = target.run(args)
    table = args.block_table.clone()
    table[0, :3] = torch.tensor([-1, len(args.index_cache), -(2**31)], dtype=torch.int64).to(torch.int32)
    ids = judge(target, dataclasses.replace(args, block_table=table))
    assert ids[:2].tolist() == [[[3, 4, 5, 6, 7]] * 4] * 2
    assert torch.equal(ids[2:], expected[2:])
    table[:] = -7
    ids = judge(target, dataclasses.replace(args, block_table=table))
    assert ids.tolist() == [[[0, 1, 2, 3, 7]] * 4] * 4, "ties of nothing: lower ids, and the local block"


def test_position_in_the_batch_does_not_matter(target: Target) -> None:
    args = generate(54, seq_lens=[2900, 5, 129, 2512, 2300], q_lens=[3, 1, 17, 2, 1], variant="ragged", topk=7)
    (ids,) = target.run(args)
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
    assert torch.equal(target.run(shuffled)[0], ids[rows])


@pytest.mark.parametrize("size", [2, 4])
def test_tokens_equal_to_heads_in_both_layouts(target: Target, size: int) -> None:
    args = generate(55, variant="integers", seq_lens=[2500], q_lens=[size], num_heads=size, topk=6)
    thk = judge_exact(target, args)
    htk = judge_exact(target, dataclasses.replace(args, topk_layout="HTK"))
    assert thk.shape == htk.shape
    assert torch.equal(thk, htk.transpose(0, 1)) and not torch.equal(thk, htk)


def test_ties_go_to_lower_ids(target: Target) -> None:
    """All keys equal: every block scores alike, so the first ones and the local one are chosen."""
    args = generate(56, variant="integers", seq_lens=[2500], q_lens=[1])
    cache = args.index_cache.clone()
    cache[:, : 128 * 64] = 0x22  # every code is 1.0
    (ids,) = target.run(dataclasses.replace(args, index_cache=cache))
    assert ids[0].tolist() == [[*range(15), 19]] * 4
    cache[:, : 128 * 64] = 0x80  # zeros of both signs
    (ids,) = target.run(dataclasses.replace(args, index_cache=cache))
    assert ids[0].tolist() == [[*range(15), 19]] * 4


def test_the_scale_of_keys_does_not_affect_the_choice(target: Target) -> None:
    args = generate(57, q_len=2)
    (expected,) = target.run(args)
    for value in (1e-30, 0.37, 1e30):
        scaled = dataclasses.replace(args, index_k_scale=torch.tensor(value))
        assert torch.equal(target.run(scaled)[0], expected)


@pytest.mark.parametrize("topk_layout", ["THK", "HTK"])
def test_nothing_but_the_result_is_written(target: Target, topk_layout: str) -> None:
    args = generate(58, variant="garbage", q_len=3, seq_len=1500, topk=7, topk_layout=topk_layout)
    (expected,) = target.run(args)
    with (
        guarded(tuple(args.index_cache.shape), torch.uint8) as cache,
        guarded((workspace_bytes(target, args),), torch.uint8) as workspace,
        guarded(tuple(expected.shape), torch.int32) as out,
    ):
        cache.copy_(args.index_cache)
        target.run(dataclasses.replace(args, index_cache=cache, workspace=workspace), (out,))
        assert torch.equal(cache, args.index_cache)
        assert torch.equal(out, expected)


def test_runs_repeat(target: Target) -> None:
    args = generate(59, variant="chunked", seq_len=1500, topk=3, num_heads=2)
    (ids,) = target.run(args)
    for _ in range(10):
        assert torch.equal(target.run(args)[0], ids)


@pytest.mark.parametrize("max_blocks", [8192, 16384])
def test_wide_tables(target: Target, max_blocks: int) -> None:
    """A million tokens and more: most blocks name pages that do not exist, which keeps the test small."""
    args = generate(60, seq_lens=[300], q_len=1, num_heads=2, topk=4)
    at = [5, max_blocks // 2, max_blocks - 3, max_blocks - 1]
    table = torch.full((1, max_blocks), -1, dtype=torch.int32)
    table[0, at] = args.block_table[0, 0]
    lengths = torch.tensor([max_blocks * 128], dtype=torch.int32)
    (ids,) = target.run(dataclasses.replace(args, block_table=table, seq_lens=lengths))
    assert ids.tolist() == [[at, at]]


def test_empty_batches(target: Target) -> None:
    args = generate(61, seq_lens=[0, 0], q_len=0)
    assert target.run(args)[0].shape == (0, 4, 16)
    padding = generate(61, seq_lens=[0, 0], q_len=2)
    assert bool((target.run(padding)[0] == -1).all())


def test_no_pages_at_all(target: Target) -> None:
    args = generate(62, seq_lens=[300], q_len=1, topk=4)
    nothing = dataclasses.replace(args, index_cache=torch.empty(0, 9216, dtype=torch.uint8))
    assert target.run(nothing)[0].tolist() == [[[0, 1, 2, -1]] * 4]


@pytest.mark.parametrize("tokens", [1, 9])
def test_tokens_of_no_request_see_nothing(target: Target, tokens: int) -> None:
    args = generate(1, batch=tokens, seq_len=300, q_len=1, topk=4)
    none = dataclasses.replace(
        args,
        block_table=args.block_table[:0],
        seq_lens=args.seq_lens[:0],
        cu_seqlens_q=torch.zeros(1, dtype=torch.int32),
    )
    (ids,) = target.run(none)
    assert bool((ids == -1).all())
