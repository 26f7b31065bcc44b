"""How the work of a ragged batch is divided among workgroups, from the lengths on the device alone.

A piece of work is one page for one tile of a request's (query token, head) columns. Pieces are numbered request by
request, tile by tile, page by page; workgroup i of G takes a run of consecutive pieces, as long as any other's to
within one. The scan and the merge compute the same numbers from the same lengths.
"""

from __future__ import annotations

from msa_ops.flydsl.common import memory
from msa_ops.flydsl.common.control import either

from msa_ops.build.flydsl_adapter import fx

PAGE = 128


def smaller(a, b):
    return (a < b).select(a, b)


def larger(a, b):
    return (a > b).select(a, b)


def clamp(value, low, high):
    return smaller(larger(value, low), high)


def quotient(a, b):
    """a // b of numbers >= 0 (b > 0)."""
    return fx.Int32(fx.Uint32(a) // fx.Uint32(b))


def load_i32(base, position):
    return memory.load(base + fx.Int64(position) * fx.Int64(4), fx.Int32)


def query_range(request, cu_seqlens, each):
    """First and one past the last query token of a request; as the lengths say, not limited to the batch."""

    def given():
        return [load_i32(cu_seqlens, request), load_i32(cu_seqlens, request + fx.Int32(1))]

    def uniform():
        return [each * request, each * request + each]

    return either(cu_seqlens != fx.Int64(0), given, uniform)


def num_pages(seq_len, max_blocks):
    length = larger(seq_len, fx.Int32(0))
    pages = (length >> fx.Int32(7)) + ((length & fx.Int32(127)) > fx.Int32(0)).select(fx.Int32(1), fx.Int32(0))
    return smaller(pages, max_blocks)


def num_tiles(first, last, num_heads, columns: int):
    """Tiles of `columns` (query token, head) pairs of a request whose tokens are first to last - 1."""
    pairs = larger(last - first, fx.Int32(0)) * num_heads
    return quotient(pairs + fx.Int32(columns - 1), fx.Int32(columns))


def request_work(a, request, columns: int):
    """[pieces, pages, first token, tokens, length] of a request; zeros behind the last."""

    def inside():
        length = load_i32(a.seq_lens, request)
        first, last = query_range(request, a.cu_seqlens, a.q_len)
        # The position of a token counts from the end of its request, whether the batch holds that end or not.
        begin = clamp(first, fx.Int32(0), a.num_tokens)
        tokens = clamp(last, fx.Int32(0), a.num_tokens) - begin
        pages = num_pages(length, a.max_blocks)
        pieces = pages * num_tiles(begin, begin + tokens, a.num_heads, columns)
        return [pieces, pages, begin, tokens, length]

    return either(request < a.batch, inside, lambda: [fx.Int32(0)] * 5)


def run_begin(group, total, groups):
    """First piece of a workgroup's run; that of `groups` is the total."""
    each = quotient(total, groups)
    longer = total - each * groups
    return group * each + smaller(group, longer)


def group_of(piece, total, groups):
    """The workgroup in whose run a piece is."""
    each = quotient(total, groups)
    longer = total - each * groups
    border = longer * (each + fx.Int32(1))
    early = quotient(piece, each + fx.Int32(1))
    late = longer + quotient(larger(piece - border, fx.Int32(0)), larger(each, fx.Int32(1)))
    return (piece < border).select(early, late)
