"""What sparse_attention and dense_attention promise alike, as one class that both contract modules collect.

The modules subclass it; every test runs on each backend that this machine can execute.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from msa_ops.cache.page import main_page
from msa_ops.ops import batches
from msa_ops.registry import STORE
from tests.contract.far_pages import sparse_pages
from tests.contract.guard import guarded
from tests.contract.oracles.attention_of_args import attention_of_args
from tests.contract.target import Target, assert_close

SMALL: dict[str, Any] = {"num_heads": 4, "num_kv_heads": 2, "batch": 4, "seq_len": 400, "q_len": 4}
NAN_TAIL = (0xFF, 0x7F)  # both are NaN as E4M3, and in every element format at least one of them is


def make(target: Target, seed: int, **dims: Any) -> Any:
    return target.spec.generate(seed, **{**SMALL, **dims})


def check(target: Target, args: Any, expected: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Runs the op; fails unless out and lse are within the op's tolerance of the oracle (or of `expected`)."""
    results = target.run(args)
    expected = attention_of_args(args) if expected is None else expected
    for name, result, right, tolerance in zip(
        target.spec.outputs, results, expected, target.spec.tolerance(args), strict=True
    ):
        assert_close(result, right, tolerance, name)
    return results


def same_bits(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> bool:
    return all(
        torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
        for a, b in zip(one, other, strict=True)
    )


def page_of(args: Any) -> Any:
    return main_page(args.kv_format, args.num_kv_heads, args.kv_layout)


def rows_of(args: Any, rows: list[int], **changes: Any) -> Any:
    """The call with the chosen query tokens only (of an op call in layout THK)."""
    picked = {"q": args.q[rows]}
    if hasattr(args, "block_ids"):
        picked["block_ids"] = args.block_ids[rows]
    return replace(args, **picked, **changes)


def one_request(target: Target, seed: int, length: int, q_len: int, **dims: Any) -> Any:
    return make(target, seed, seq_lens=[length], q_lens=[q_len], **dims)


def as_separate_requests(args: Any, chunks: list[tuple[int, int]]) -> Any:
    """Chunks [first, last) of the only request's query tokens, each as a request of its own over the same pages."""
    length, tokens = int(args.seq_lens[0]), args.q.shape[0]
    rows = [row for first, last in chunks for row in range(first, last)]
    starts = torch.tensor([0, *(last - first for first, last in chunks)]).cumsum(0)
    return rows_of(
        args,
        rows,
        block_table=args.block_table.expand(len(chunks), -1).contiguous(),
        seq_lens=torch.tensor([length - tokens + last for _, last in chunks], dtype=torch.int32),
        cu_seqlens_q=starts.to(torch.int32),
    )


class PagedAttentionContract:
    # Formats, layouts, scales, dtypes

    @pytest.mark.parametrize(
        ("kv_format", "kv_layout", "k_scale_layout", "v_scale_layout"),
        [
            ("fp32", "planes", "linear", "linear"),
            ("fp32", "packed", "linear", "linear"),
            ("bf16", "slots", "linear", "linear"),
            ("bf16", "packed", "linear", "linear"),
            ("fp8", "planes", "linear", "linear"),
            ("fp8", "packed", "linear", "linear"),
            ("nvfp4", "planes", "linear", "linear"),
            ("nvfp4", "planes", "linear", "token_quads"),
            ("nvfp4", "planes", "swizzle_128x4", "swizzle_128x4"),
            ("nvfp4", "slots", "linear", "token_quads"),
            ("nvfp4", "slots", "token_quads", "swizzle_128x4"),
        ],
    )
    def test_formats_and_layouts(
        self, target: Target, kv_format: str, kv_layout: str, k_scale_layout: str, v_scale_layout: str
    ) -> None:
        check(
            target,
            make(
                target,
                1,
                kv_format=kv_format,
                kv_layout=kv_layout,
                k_scale_layout=k_scale_layout,
                v_scale_layout=v_scale_layout,
                variant="scaled",
            ),
        )

    @pytest.mark.parametrize("rounding", ["exact", "e4m3"])
    @pytest.mark.parametrize("q_dtype", ["float32", "bfloat16", "float16", "float8_e4m3fn"])
    def test_dtypes_and_roundings(self, target: Target, q_dtype: str, rounding: str) -> None:
        args = make(target, 2, q_dtype=q_dtype, rounding=rounding, variant="scaled")
        out, lse = check(target, args)
        assert out.dtype == (torch.bfloat16 if q_dtype == "float8_e4m3fn" else args.q.dtype)
        assert lse.dtype == torch.float32

    @pytest.mark.parametrize("q_len", [3, 80])
    @pytest.mark.parametrize("kv_format", ["nvfp4", "fp8", "bf16"])
    def test_e4m3_queries_whose_rows_lie_apart(self, target: Target, kv_format: str, q_len: int) -> None:
        args = make(
            target, 16, q_dtype="float8_e4m3fn", kv_format=kv_format, q_len=q_len, seq_len=300, variant="scaled"
        )
        tokens, heads, dim = args.q.shape
        wide = torch.full((tokens, heads + 1, 2 * dim), torch.nan, device=args.q.device).to(args.q.dtype)
        wide[:, :heads, :dim] = args.q
        check(target, replace(args, q=wide[:, :heads, :dim]))

    @pytest.mark.parametrize("heads", [(1, 1), (4, 2), (8, 2), (16, 1), (16, 2), (8, 8), (64, 4)])
    def test_heads(self, target: Target, heads: tuple[int, int]) -> None:
        check(
            target, make(target, 3, num_heads=heads[0], num_kv_heads=heads[1], batch=2, seq_len=200, variant="ragged")
        )

    @pytest.mark.parametrize(
        "variant", ["plain", "ragged", "chunked", "padding", "short", "garbage", "bad_pages", "too_long"]
    )
    def test_batches(self, target: Target, variant: str) -> None:
        check(target, make(target, 4, variant=variant, batch=5))

    def test_global_scales_that_are_not_powers_of_two(self, target: Target) -> None:
        """A scale that is lost or applied twice changes the result by far more than the tolerance."""
        plain = make(target, 5, q_dtype="float32")
        scaled = replace(plain, k_scale=torch.tensor([0.37]), v_scale=torch.tensor(2.9))
        without = target.run(plain)[0]
        with_v = target.run(replace(plain, v_scale=torch.tensor(2.9)))[0]
        torch.testing.assert_close(with_v, without * 2.9, rtol=1e-2, atol=1e-2)
        as_softmax_scale = target.run(replace(plain, softmax_scale=128**-0.5 * 0.37, v_scale=torch.tensor(2.9)))
        check(target, scaled, as_softmax_scale)
        assert not torch.allclose(with_v, as_softmax_scale[0], rtol=0.02, atol=0.02)

    @pytest.mark.parametrize("softmax_scale", [0.01, 0.25, 1.0, 1024.0])
    def test_softmax_scale(self, target: Target, softmax_scale: float) -> None:
        check(target, make(target, 6, softmax_scale=softmax_scale, content="integers"))

    def test_wrong_scale_layout_shows(self, target: Target) -> None:
        """The layout is honoured: reading token quads as linear is far off, not slightly."""
        right = make(target, 7, v_scale_layout="token_quads", seq_len=100, q_len=1)
        wrong = replace(right, v_scale_layout="linear")
        assert (target.run(right)[0].float() - target.run(wrong)[0].float()).abs().max() > 0.02

    # Positions

    @pytest.mark.parametrize("q_len", range(1, 18))
    def test_verify_equals_single_decodes(self, target: Target, q_len: int) -> None:
        args = one_request(target, 10 + q_len, 250 + q_len, q_len, variant="scaled")
        singles = as_separate_requests(args, [(i, i + 1) for i in range(q_len)])
        uniform = replace(singles, cu_seqlens_q=None)
        expected = target.run(uniform)
        check(target, args, expected)
        check(target, replace(args, cu_seqlens_q=None), expected)
        check(target, singles, expected)

    def test_chunks_at_every_offset_equal_one_call(self, target: Target) -> None:
        """Chunks of 5 tokens that start at each of 128 offsets in a block; some span two blocks."""
        args = one_request(target, 30, 270, 270, kv_format="bf16", num_heads=2, num_kv_heads=1)
        chunks = [(first, first + 5) for first in range(128, 256)]
        whole = check(target, args)
        rows = [row for first, last in chunks for row in range(first, last)]
        check(target, as_separate_requests(args, chunks), (whole[0][rows], whole[1][rows]))

    @pytest.mark.parametrize("offset", [0, 1, 63, 127])
    def test_prefill_in_two_chunks_equals_one_call(self, target: Target, offset: int) -> None:
        args = one_request(target, 31, 300, 300, num_heads=2, num_kv_heads=1)
        whole = target.run(args)
        check(target, as_separate_requests(args, [(0, 128 + offset), (128 + offset, 300)]), whole)

    @pytest.mark.parametrize("lengths", [[0, 1, 127, 128], [129, 255, 256, 257], [383, 384, 385, 1]])
    def test_lengths_around_block_borders(self, target: Target, lengths: list[int]) -> None:
        """The same shapes with other lengths, as a captured graph replays."""
        check(target, make(target, 32, seq_lens=lengths, q_lens=[1] * len(lengths), max_blocks=5))

    @pytest.mark.parametrize("lengths", [[2047, 2048], [2049, 2176]])
    def test_lengths_beyond_sixteen_blocks(self, target: Target, lengths: list[int]) -> None:
        check(target, make(target, 33, seq_lens=lengths, q_lens=[2, 2], num_heads=2, num_kv_heads=1, kv_format="bf16"))

    @pytest.mark.parametrize("q_len", [1, 9, 70])
    @pytest.mark.parametrize("what", ["column", "every other", "one for all"])
    def test_lengths_that_lie_apart_are_right_or_refused(self, target: Target, what: str, q_len: int) -> None:
        args = make(target, 17, batch=3, q_len=q_len, seq_len=300, variant="ragged")
        lengths = args.seq_lens
        if what == "one for all":
            lengths = lengths.max().expand(3)
        else:
            apart = torch.full((3, 3 if what == "column" else 2), 7, dtype=torch.int32)
            apart[:, 0] = lengths
            lengths = apart[:, 0]
        plain = target.run(replace(args, seq_lens=lengths.contiguous()))
        try:
            found = target.run(replace(args, seq_lens=lengths))
        except ValueError as refused:
            assert "seq_lens: strides" in str(refused)
            return
        assert all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))

    @pytest.mark.parametrize("q_len", [1, 9, 70])
    @pytest.mark.parametrize("elements", [1, 2, 4])
    def test_results_at_odd_addresses_are_right_or_refused(self, target: Target, elements: int, q_len: int) -> None:
        args = make(target, 18, batch=2, q_len=q_len, seq_len=300, q_dtype=target.dims().get("q_dtype", "bfloat16"))
        plain = target.run(args)
        outs = []
        for result in plain:
            memory = torch.empty(result.numel() + elements, dtype=result.dtype)
            outs.append(memory[elements:].view(result.shape))
        try:
            target.run(args, outs)
        except ValueError as refused:
            assert "starts at address" in str(refused)
            return
        assert all(torch.equal(a, b) for a, b in zip(outs, plain, strict=True))

    @pytest.mark.parametrize("q_len", [1, 70])
    @pytest.mark.parametrize("what", ["requests", "blocks"])
    def test_nothing_to_see_at_all(self, target: Target, what: str, q_len: int) -> None:
        args = make(target, 19, batch=2, q_len=q_len, seq_len=300, variant="ragged")
        if what == "blocks":
            args = replace(args, block_table=args.block_table[:, :0], seq_lens=torch.zeros_like(args.seq_lens))
        else:
            first = torch.zeros(1, dtype=torch.int32)
            args = replace(args, block_table=args.block_table[:0], seq_lens=args.seq_lens[:0], cu_seqlens_q=first)
        out, lse = target.run(args)
        assert not out.any() and bool((lse == -torch.inf).all())

    def test_rows_that_see_nothing_are_exactly_zero(self, target: Target) -> None:
        """Requests of length 0, query tokens before the first position, and tokens of no request."""
        args = make(target, 34, seq_lens=[0, 200, 2, 0], q_lens=[3, 2, 5, 0], variant="garbage")
        tokens = args.q.shape[0]
        args = replace(rows_of(args, [*range(tokens), 0, 1]), cu_seqlens_q=args.cu_seqlens_q)
        out, lse = check(target, args)
        blind = [0, 1, 2, 5, 6, 7, tokens, tokens + 1]
        assert bool((out[blind] == 0).all()) and bool((lse[blind] == -torch.inf).all())
        seen = [3, 4, 8, 9]
        assert bool(lse[seen].isfinite().all()) and bool((out[seen] != 0).any(-1).all())

    @pytest.mark.parametrize("q_len", [1, 70])
    @pytest.mark.parametrize("variant", ["plain", "ragged"])
    def test_lengths_below_zero_are_nothing(self, target: Target, variant: str, q_len: int) -> None:
        """Also where a position would be below the least 32-bit integer."""
        args = make(target, 37, batch=3, seq_len=300, q_len=q_len, variant=variant)
        results = []
        for length in (0, -1, -(2**31)):
            lengths = args.seq_lens.clone()
            lengths[1] = length
            results.append(target.run(replace(args, seq_lens=lengths)))
        assert bool(results[0][1].isfinite().any())
        assert all(same_bits(results[0], other) for other in results[1:])

    def test_no_query_tokens(self, target: Target) -> None:
        args = make(target, 35, seq_lens=[5, 0], q_lens=[0, 0])
        out, lse = target.run(args)
        assert out.shape == (0, 4, 128) and lse.shape == (0, 4)

    def test_max_seqlen_q_does_not_change_the_result(self, target: Target) -> None:
        args = make(target, 36, variant="ragged")
        longest = int(args.cu_seqlens_q.diff().max())
        expected = target.run(args)
        for bound in (longest, longest + 13):
            check(target, replace(args, max_seqlen_q=bound), expected)

    def test_later_draft_tokens_stay_invisible(self, target: Target) -> None:
        """Keys and values of later draft tokens are in the cache already, here as NaN."""
        args = one_request(target, 37, 262, 8)
        clean = target.run(args)
        page = page_of(args)
        tokens = torch.zeros(args.kv_cache.shape[0], 128, dtype=torch.bool)
        tokens[args.block_table[0, 2].long(), 262 - 256 - 1] = True  # the last token
        batches.poison(args.kv_cache, page, tokens)
        poisoned = target.run(args)
        assert same_bits(tuple(r[:7] for r in clean), tuple(r[:7] for r in poisoned))

    # Pages and tables

    @pytest.mark.parametrize("byte", NAN_TAIL)
    @pytest.mark.parametrize("kv_format", ["nvfp4", "fp8", "bf16", "fp32"])
    def test_garbage_past_the_length_changes_no_bit(self, target: Target, kv_format: str, byte: int) -> None:
        layouts = {"k_scale_layout": "linear", "v_scale_layout": "token_quads"}
        dims: dict[str, Any] = {"seq_lens": [1, 130, 300, 384, 0], "q_lens": [1, 3, 2, 1, 1], "kv_format": kv_format}
        args = make(target, 40, **dims, **layouts)
        other = make(target, 40, **dims, **layouts)
        made = batches.Batch(args.block_table, args.seq_lens, None, args.q.shape[0], args.kv_cache.shape[0], "")
        batches.poison(other.kv_cache, page_of(args), ~made.written(), value=byte, **layouts)
        used = torch.arange(args.block_table.shape[1]) * 128 < args.seq_lens.unsqueeze(1)
        other.block_table[~used] = torch.tensor([-1, 2**31 - 1, 0, -(2**31)], dtype=torch.int32).repeat(99)[
            : int((~used).sum())
        ]
        assert same_bits(target.run(args), target.run(other))

    def test_page_stride_larger_than_the_page(self, target: Target) -> None:
        args = make(target, 41, variant="ragged")
        rows = torch.full((args.kv_cache.shape[0], 3 * args.kv_cache.shape[1]), 0xFF, dtype=torch.uint8)
        column = rows[:, args.kv_cache.shape[1] : 2 * args.kv_cache.shape[1]]
        column.copy_(args.kv_cache)
        assert same_bits(target.run(args), target.run(replace(args, kv_cache=column)))

    def test_scattered_pages_equal_pages_in_order(self, target: Target) -> None:
        args = make(target, 42)
        used = torch.arange(args.block_table.shape[1]) * 128 < args.seq_lens.unsqueeze(1)
        pages = args.block_table[used].long()
        table = torch.full_like(args.block_table, -1)
        table[used] = torch.arange(len(pages), dtype=torch.int32)
        in_order = replace(args, kv_cache=args.kv_cache[pages].contiguous(), block_table=table)
        assert same_bits(target.run(args), target.run(in_order))

    def test_table_row_is_a_slice_of_a_wider_buffer(self, target: Target) -> None:
        """Ids below 0 and beyond the row must not reach the neighbours' entries, which name pages of NaN."""
        args = make(target, 43, variant="ragged")
        bad = args.kv_cache.shape[0]
        cache = torch.cat((args.kv_cache, torch.full_like(args.kv_cache[:1], 0xFF)))
        wide = torch.full((args.block_table.shape[0], args.block_table.shape[1] + 9), bad, dtype=torch.int32)
        row = wide[:, 4 : 4 + args.block_table.shape[1]]
        row.copy_(args.block_table)
        assert same_bits(target.run(args), target.run(replace(args, kv_cache=cache, block_table=row)))

    @pytest.mark.parametrize("width", [8192, 16384])
    def test_wide_tables(self, target: Target, width: int) -> None:
        args = make(target, 44, variant="ragged")
        wide = torch.full((args.block_table.shape[0], width), -1, dtype=torch.int32)
        wide[:, : args.block_table.shape[1]] = args.block_table
        check(target, replace(args, block_table=wide), target.run(args))

    @pytest.mark.parametrize(
        ("num_pages", "page_stride", "pages"),
        [
            (116_520, 18_432, [0, 65_535, 65_536, 65_537, 116_507, 116_508, 116_519]),  # 2^31 lies in page 116,508
            (2_400, 1_822_720, [0, 1_178, 1_179, 2_355, 2_356, 2_357, 2_399]),  # rows of a pool; 2^31 and 2^32
        ],
    )
    def test_pages_beyond_two_gigabytes(
        self, target: Target, num_pages: int, page_stride: int, pages: list[int]
    ) -> None:
        near = one_request(target, 45, len(pages) * 128 - 30, 3, num_heads=2, num_kv_heads=1)
        assert near.kv_cache.shape[1] == 18_432
        table = near.block_table.clone()
        table[0, : len(pages)] = torch.tensor(pages, dtype=torch.int32)
        with sparse_pages(num_pages, 18_432, page_stride) as cache:
            cache[pages] = near.kv_cache[near.block_table[0, : len(pages)].long()]
            assert same_bits(target.run(near), target.run(replace(near, kv_cache=cache, block_table=table)))

    def test_all_pages_missing(self, target: Target) -> None:
        args = make(target, 46)
        for bad in (-1, args.kv_cache.shape[0], 2**31 - 1, -(2**31)):
            out, lse = target.run(replace(args, block_table=torch.full_like(args.block_table, bad)))
            assert bool((out == 0).all()) and bool((lse == -torch.inf).all())

    # Values

    @pytest.mark.parametrize("rounding", ["exact", "e4m3"])
    @pytest.mark.parametrize("q_len", [1, 2, 8, 17, 150])
    def test_constant_values_come_back_exactly(self, target: Target, q_len: int, rounding: str) -> None:
        """Codes 0x22 with scale 1 are 1.0 everywhere: all weights are equal and the output is exactly 1."""
        args = make(
            target, 50, seq_lens=[q_len, 333 + q_len], q_lens=[q_len, q_len], content="integers", rounding=rounding
        )
        page = page_of(args)
        for name, value in (("k", 0x22), ("v", 0x22), ("k_scale", 0x38), ("v_scale", 0x38)):
            page.view(args.kv_cache, name).fill_(value)
        out, lse = target.run(args)
        assert bool((out == 1).all())
        assert_close(lse, attention_of_args(args)[1], target.spec.tolerance(args)[1], "lse")

    @pytest.mark.parametrize("rounding", ["exact", "e4m3"])
    def test_every_code_with_every_scale(self, target: Target, rounding: str) -> None:
        """127 requests of one token, one for each scale byte, whose K and V rows hold all 16 codes in each group.

        The only weight is 1, so out is V exactly, in the rounding mode asked for; lse is the element of K that the
        query of each head picks.
        """
        args = make(
            target,
            57,
            seq_lens=[1] * 127,
            q_lens=[1] * 127,
            num_heads=16,
            num_kv_heads=1,
            rounding=rounding,
            softmax_scale=1.0,
        )
        page = page_of(args)
        codes = torch.arange(0x10, dtype=torch.uint8)
        row = (codes[::2] | codes[1::2] << 4).repeat(8)
        scales = torch.arange(127, dtype=torch.uint8).view(-1, 1)
        pages = args.block_table[:, 0].long()
        for member in ("k", "v"):
            page.view(args.kv_cache, member)[pages, 0, 0] = row
            page.view(args.kv_cache, f"{member}_scale")[pages, 0, 0] = scales
        args = replace(args, q=torch.eye(16, 128).expand(127, 16, 128).to(args.q.dtype).contiguous())
        out, lse = target.run(args)
        expected = attention_of_args(args)
        assert torch.equal(out.double(), expected[0])
        torch.testing.assert_close(lse.double(), expected[1], rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("kv_format", ["nvfp4", "fp8", "bf16"])
    def test_a_key_that_wins_returns_its_value_exactly(self, target: Target, kv_format: str) -> None:
        """Scores differ by more than 100, so that all weights but one are exactly 0 in fp32; V rows are one-hot."""
        args = one_request(target, 51, 128, 1, kv_format=kv_format, num_heads=8, num_kv_heads=1)
        q = torch.zeros(1, 8, 128)
        winners = [0, 1, 5, 31, 64, 100, 126, 127]
        k, v = torch.zeros(1, 1, 128, 128), torch.zeros(1, 1, 128, 128)
        for token in range(128):  # one-hot keys: token j has its mark in dim j
            k[0, 0, token, token] = 6.0
            v[0, 0, token, (7 * token) % 128] = 1.5 if token % 2 else -3.0
        for head, winner in enumerate(winners):
            q[0, head, winner] = 256.0
        write(args, int(args.block_table[0, 0]), k[0, 0], v[0, 0])
        out, lse = target.run(replace(args, q=q.to(args.q.dtype)))
        for head, winner in enumerate(winners):
            assert torch.equal(out[0, head].float(), v[0, 0, winner]), winner
        torch.testing.assert_close(lse, torch.full((1, 8), 256 * 6.0 * 128**-0.5), rtol=1e-4, atol=1e-3)

    def test_lse_is_the_natural_logarithm(self, target: Target) -> None:
        """All keys alike: lse = softmax_scale * q . k + ln(number of tokens)."""
        args = make(target, 52, seq_lens=[1, 3, 57, 128], q_lens=[1, 1, 1, 1], content="integers")
        page = page_of(args)
        page.view(args.kv_cache, "k").fill_(0x22)
        expected = args.q.float().sum(-1) * 128**-0.5 + args.seq_lens.log().unsqueeze(1)
        assert_close(target.run(args)[1], expected, target.spec.tolerance(args)[1], "lse")

    def test_large_scores_do_not_overflow(self, target: Target) -> None:
        args = make(target, 53, kv_format="bf16", q_dtype="bfloat16")
        out, lse = target.run(replace(args, q=args.q * 1e4))
        assert bool(out.isfinite().all()) and bool(lse.isfinite().all())
        expected = attention_of_args(replace(args, q=args.q * 1e4))[1]
        torch.testing.assert_close(lse.double(), expected, rtol=1e-3, atol=1.0)

    def test_equal_scores_and_signed_zeros(self, target: Target) -> None:
        """All scores 0, some as -0: the output is the mean of the values."""
        args = make(target, 54, seq_lens=[3, 128, 257], q_lens=[1, 2, 3], content="integers", kv_format="bf16")
        zeros = torch.zeros_like(args.q)
        zeros[..., ::2] = -0.0
        check(target, replace(args, q=zeros))

    @pytest.mark.parametrize("member", ["k", "v"])
    @pytest.mark.parametrize(
        ("kv_format", "value"),
        [("bf16", torch.nan), ("bf16", torch.inf), ("bf16", -torch.inf), ("fp8", torch.nan), ("nvfp4", torch.nan)],
    )
    def test_a_bad_token_reaches_only_rows_and_heads_that_see_it(
        self, target: Target, member: str, kv_format: str, value: float
    ) -> None:
        args = make(target, 55, seq_lens=[200, 150, 200], q_lens=[70, 3, 70], kv_format=kv_format)
        clean = target.run(args)
        page = page_of(args)
        request, head, token = 0, 1, 160  # seen by KV head 1 of the query tokens at 160 to 199 of request 0
        at = (int(args.block_table[request, token // 128]), head, token % 128)
        if kv_format == "nvfp4":
            page.view(args.kv_cache, f"{member}_scale")[at] = 0x7F
        elif kv_format == "fp8":
            page.view(args.kv_cache, member)[at] = 0x7F
        else:
            page.view(args.kv_cache, member).view(torch.bfloat16)[at] = value
        out, lse = target.run(args)
        blind = torch.ones(out.shape[:2], dtype=torch.bool)
        blind[30:70, 2:] = False
        if hasattr(args, "block_ids"):
            blind |= ~(args.block_ids == token // 128).any(-1).repeat_interleave(2, dim=1)
        assert 0 < int(blind.sum()) < blind.numel()
        assert same_bits((out[blind], lse[blind]), (clean[0][blind], clean[1][blind]))

    def test_a_bad_query_reaches_only_its_row_and_head(self, target: Target) -> None:
        args = make(target, 56, seq_lens=[200, 150], q_lens=[20, 3])
        clean = target.run(args)
        q = args.q.clone()
        q[4, 1, 17], q[9, 3, 0], q[21, 0, 127] = torch.nan, torch.inf, -torch.inf
        out, lse = target.run(replace(args, q=q))
        blind = torch.ones(out.shape[:2], dtype=torch.bool)
        blind[4, 1] = blind[9, 3] = blind[21, 0] = False
        assert same_bits((out[blind], lse[blind]), (clean[0][blind], clean[1][blind]))

    # Memory and repetition

    def test_guards_around_results_workspace_and_cache(self, target: Target) -> None:
        args = make(target, 60, variant="padding")
        backend = next(b for b in STORE.backends(target.op) if b.name == target.backend)
        needed = backend.workspace_bytes(target.platform, target.spec.facts(args))
        expected = target.run(args)
        with (
            guarded(expected[0].shape, expected[0].dtype) as out,
            guarded(expected[1].shape, torch.float32) as lse,
            guarded((max(needed, 16),), torch.uint8) as workspace,
            guarded(tuple(args.kv_cache.shape), torch.uint8) as cache,
        ):
            cache.copy_(args.kv_cache)
            target.run(replace(args, workspace=workspace, kv_cache=cache), (out, lse))
            assert same_bits((out, lse), expected)
            assert torch.equal(cache, args.kv_cache)

    def test_repeated_calls_give_the_same_bits(self, target: Target) -> None:
        args = make(target, 61, variant="chunked", kv_format="bf16")
        first = target.run(args)
        assert all(same_bits(first, target.run(args)) for _ in range(5))

    def test_requests_do_not_depend_on_their_neighbours(self, target: Target) -> None:
        """The same requests in reversed order."""
        args = make(target, 62, seq_lens=[300, 17, 129, 384], q_lens=[2, 2, 2, 2])
        backwards = [6, 7, 4, 5, 2, 3, 0, 1]
        turned = rows_of(args, backwards, block_table=args.block_table.flip(0), seq_lens=args.seq_lens.flip(0))
        whole = target.run(args)
        check(target, turned, tuple(r[backwards] for r in whole))


def write(args: Any, page_id: int, k: Tensor, v: Tensor) -> None:
    """Puts K and V [128, 128], whose values the format can hold with scale 1, into head 0 of a page."""
    page = page_of(args)
    for member, values in (("k", k), ("v", v)):
        target = page.view(args.kv_cache, member)[page_id, 0]
        if args.kv_format == "bf16":
            target.copy_(values.to(torch.bfloat16).view(torch.uint8))
        elif args.kv_format == "fp8":
            target.copy_(values.to(torch.float8_e4m3fn).view(torch.uint8))
        else:
            codes = torch.zeros_like(values, dtype=torch.uint8)
            for code, magnitude in enumerate((0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)):
                codes[values == magnitude] = code
                if magnitude:
                    codes[values == -magnitude] = code + 8
            target.copy_(codes[:, ::2] | codes[:, 1::2] << 4)
            page.view(args.kv_cache, f"{member}_scale")[page_id, 0] = 0x38
