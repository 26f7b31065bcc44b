"""How the work of a ragged batch is divided among workgroups, from the lengths on the device alone.

A piece of work is one page for one tile of a request's (query token, head) columns. Pieces are numbered request by
request, tile by tile, page by page; workgroup i of G takes a run of consecutive pieces, as long as any other's to
within one. The scan and the merge compute the same numbers from the same lengths.

If there are few enough pieces, the scan hands a key of each piece and column to the merge (`keys_of_pieces`) and
chooses nothing itself.
"""

from __future__ import annotations

from msa_ops.flydsl.common import lanes, memory
from msa_ops.flydsl.common.control import either
from msa_ops.flydsl.common.intrinsics import scalar_anew, undefined

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


def quotient_by(a, b, reciprocal):
    """The same by `reciprocal_of` b, without a division: in scalar instructions if all lanes divide the same."""
    product = fx.Uint64(fx.Uint32(a)) * fx.Uint64(fx.Uint32(reciprocal))
    found = fx.Uint32(product >> fx.Uint64(32))  # the quotient or one less
    rest = fx.Uint32(a) - found * fx.Uint32(b)
    return fx.Int32(found + (rest >= fx.Uint32(b)).select(fx.Uint32(1), fx.Uint32(0)))


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
    length = fx.Uint32(larger(seq_len, fx.Int32(0)))
    return smaller(fx.Int32((length + fx.Uint32(PAGE - 1)) >> fx.Uint32(7)), max_blocks)


def num_tiles(first, last, num_heads, columns_log2):
    """Tiles of 2^columns_log2 (query token, head) pairs of a request whose tokens are first to last - 1."""
    pairs = larger(last - first, fx.Int32(0)) * num_heads
    return (pairs + (fx.Int32(1) << columns_log2) - fx.Int32(1)) >> columns_log2


def request_work(a, request, columns_log2):
    """[pieces, pages, first token, tokens, length] of a request; zeros behind the last."""

    def inside():
        length = load_i32(a.seq_lens, request)
        first, last = query_range(request, a.cu_seqlens, a.q_len)
        # The position of a token counts from the end of its request, whether the batch holds that end or not.
        begin = clamp(first, fx.Int32(0), a.num_tokens)
        tokens = clamp(last, fx.Int32(0), a.num_tokens) - begin
        pages = num_pages(length, a.max_blocks)
        pieces = pages * num_tiles(begin, begin + tokens, a.num_heads, columns_log2)
        return [pieces, pages, begin, tokens, length]

    return either(request < a.batch, inside, lambda: [fx.Int32(0)] * 5)


class Requests:
    """A batch of at most 64 requests, one a lane of each wave: of length 0 behind the last.

    `upto`: pieces up to the request, itself included; `total`: of all of them.
    """

    def __init__(self, a, lane, columns_log2) -> None:
        lengths = memory.Buffer(a.seq_lens, a.batch << fx.Int32(2))
        self._length = lengths.load(lane << fx.Int32(2), fx.Int32)
        pages = num_pages(self._length, a.max_blocks)

        def given():
            first, last = either(
                lane < a.batch,
                lambda: query_range(lane, a.cu_seqlens, a.q_len),
                lambda: [fx.Int32(0), fx.Int32(0)],
            )
            first = clamp(first, fx.Int32(0), a.num_tokens)
            tokens = clamp(last, fx.Int32(0), a.num_tokens) - first
            return [pages * num_tiles(first, first + tokens, a.num_heads, columns_log2), first, tokens]

        def alike():
            tiles = num_tiles(fx.Int32(0), a.q_len, a.num_heads, columns_log2)
            return [pages * scalar_anew(tiles), undefined(fx.Int32), undefined(fx.Int32)]

        pieces, self._first, self._tokens = either(a.cu_seqlens != fx.Int64(0), given, alike)
        self.upto = lanes.wave_prefix(pieces)
        self.total = lanes.read_lane(self.upto, fx.Int32(lanes.WAVE - 1))

    @property
    def values(self) -> list:
        """What `facts` needs of the lanes."""
        return [self.upto, self._length, self._first, self._tokens]


def request_with(piece, upto):
    """The request that has a piece, from Requests.upto."""
    return lanes.count(lanes.vote(upto <= piece))


def request_of_token(a, token, lane, first, tokens):
    """The request that has a query token, from Requests.values; `batch` or more if none has it."""

    def given():
        mine = lanes.vote((first <= token) & (token < first + tokens))
        return (mine == fx.Uint64(0)).select(a.batch, lanes.first(mine))

    def alike():
        return lanes.count(lanes.vote((lane + fx.Int32(1)) * a.q_len <= token))

    return lanes.uniform(either(a.cu_seqlens != fx.Int64(0), given, alike))


def facts(a, request, values, columns_log2):
    """[first piece, pages, first token, tokens, length] of a request, from Requests.values; the same in all lanes."""
    upto, length, first, tokens = values

    def given():
        return [lanes.read_lane(first, request), lanes.read_lane(tokens, request)]

    def alike():
        begin = smaller(a.q_len * request, a.num_tokens)
        return [begin, smaller(a.q_len, a.num_tokens - begin)]

    begin, count = either(a.cu_seqlens != fx.Int64(0), given, alike)
    long = lanes.read_lane(length, request)
    pages = num_pages(long, a.max_blocks)
    pieces = pages * num_tiles(begin, begin + count, a.num_heads, columns_log2)
    return [lanes.read_lane(upto, request) - pieces, pages, begin, count, long]


def run_begin(group, total, groups, reciprocal):
    """First piece of a workgroup's run; that of `groups` is the total."""
    each = quotient_by(total, groups, reciprocal)
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
