"""Merges the lists that several thread blocks left for a query row; a warp a row.

Each lane holds the heads of some lists, in the order of their blocks. As often as there are places, the largest head
is taken, of equal ones that with the lower block id. Rows whose tile one thread block scored have their result
already, unless it needed no score; rows that see no more blocks than are chosen need no list.
"""

from types import SimpleNamespace

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import streaming
from msa_ops.cute.common.asm import asm
from msa_ops.cute.indexer_prefill import choosing, work
from msa_ops.cute.indexer_prefill.sm90_configs import MAX_TOPK
from msa_ops.cute.indexer_prefill.sm90_merge_configs import Config

LIST_BYTES = 128


def load_word(address: Int64) -> Uint32:
    return asm("ld.global.b32 $0, [$1];", [Uint32], [address])


class IndexerPrefillMergeSm90:
    def __init__(self, config: Config) -> None:
        self.config = config

    @cute.jit
    def __call__(
        self,
        seq_lens: cute.Pointer,
        cu_seqlens: cute.Pointer,
        block_ids: cute.Pointer,
        workspace: cute.Pointer,
        out_token_stride: Int64,
        out_head_stride: Int64,
        num_tokens: Int32,
        batch: Int32,
        q_len: Int32,
        num_heads: Int32,
        max_blocks: Int32,
        tile_tokens: Int32,
        tile_rows: Int32,
        topk: Int32,
        init_blocks: Int32,
        local_blocks: Int32,
        num_blocks: Int32,
        stream: cuda.CUstream,
    ):
        self.kernel(
            seq_lens,
            cu_seqlens,
            block_ids,
            workspace,
            out_token_stride,
            out_head_stride,
            num_tokens,
            batch,
            q_len,
            num_heads,
            max_blocks,
            tile_tokens,
            tile_rows,
            topk,
            init_blocks,
            local_blocks,
            num_blocks,
        ).launch(
            grid=((num_tokens * num_heads + self.config.warps - 1) // self.config.warps, 1, 1),
            block=(self.config.threads, 1, 1),
            max_number_threads=(self.config.threads, 1, 1),
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        seq_lens: cute.Pointer,
        cu_seqlens: cute.Pointer,
        block_ids: cute.Pointer,
        workspace: cute.Pointer,
        out_token_stride: Int64,
        out_head_stride: Int64,
        num_tokens: Int32,
        batch: Int32,
        q_len: Int32,
        num_heads: Int32,
        max_blocks: Int32,
        tile_tokens: Int32,
        tile_rows: Int32,
        topk: Int32,
        init_blocks: Int32,
        local_blocks: Int32,
        num_blocks: Int32,
    ):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        row = block * self.config.warps + cute.arch.make_warp_uniform(thread // 32)
        a = SimpleNamespace(
            seq_lens=seq_lens.toint(),
            cu_seqlens=cu_seqlens.toint(),
            num_tokens=num_tokens,
            batch=batch,
            q_len=q_len,
            max_blocks=max_blocks,
            tile_tokens=tile_tokens,
            enough=topk,
            lane=thread % 32,
        )
        if row < num_tokens * num_heads:
            token = row // num_heads
            head = row - token * num_heads
            output = block_ids.toint() + (Int64(token) * out_token_stride + Int64(head) * out_head_stride) * 4
            begin, tokens, position, request_begin, total = self.find(a, token)
            within = token - begin
            tile = within // tile_tokens
            pages, count = Int32(0), Int32(0)
            if tokens > 0:
                pages = work.tile_pages(a, tokens, position, tile)
                count = work.visible_blocks(a, position + within)
            low, high, rest = choosing.limits(count, topk, init_blocks, local_blocks)
            if pages == 0:
                self.write_all(output, count, topk, a.lane)
            else:
                first = request_begin + work.pieces_before(a, tokens, position, tile)
                first_block = work.block_of(first, total, num_blocks)
                last_block = work.block_of(first + pages - 1, total, num_blocks)
                if first_block < last_block:
                    if count <= topk:
                        self.write_all(output, count, topk, a.lane)
                    else:
                        at = (within - tile * tile_tokens) * num_heads + head
                        lists = workspace.toint() + Int64(at) * LIST_BYTES
                        stride = Int64(tile_rows) * LIST_BYTES
                        chosen = self.merge(lists, stride, first_block, last_block, rest, a.lane)
                        place = Int32(0)
                        for i in cutlass.range_constexpr(MAX_TOPK):
                            other = cute.arch.shuffle_sync(chosen, i)
                            place = place + (Int32(1) if other < chosen else Int32(0))
                        if a.lane < rest:
                            streaming.store_32(output + Int64(low + place) * 4, Uint32(chosen))
                        if a.lane < low:
                            streaming.store_32(output + Int64(a.lane) * 4, Uint32(a.lane))
                        if a.lane >= low + rest and a.lane < topk:
                            streaming.store_32(output + Int64(a.lane) * 4, Uint32(high + a.lane - low - rest))

    @cute.jit
    def write_all(self, output: Int64, count: Int32, topk: Int32, lane: Int32):
        """The result of a row that sees no more blocks than are chosen."""
        if lane < topk:
            streaming.store_32(output + Int64(lane) * 4, Uint32(lane if lane < count else Int32(-1)))

    @cute.jit
    def find(self, a, token: Int32):
        """First token, tokens and first position of a token's request, its first piece, and all pieces."""
        begin, tokens, position, request_begin = Int32(0), Int32(0), Int32(0), Int32(0)
        base, window = Int32(0), Int32(0)
        while window < a.batch:
            my_begin, my_tokens, my_position = work.load_request(a, window + a.lane)
            pieces = work.pieces_of(a, my_tokens, my_position)
            before, sum_of_window = work.prefix(pieces, a.lane)
            inside = cute.arch.vote_ballot_sync(my_begin <= token and token < my_begin + my_tokens)
            if inside != 0:
                place = cute.arch.popc((inside & (0 - inside)) - 1)
                begin = cute.arch.shuffle_sync(my_begin, place)
                tokens = cute.arch.shuffle_sync(my_tokens, place)
                position = cute.arch.shuffle_sync(my_position, place)
                request_begin = base + cute.arch.shuffle_sync(before, place)
            base = base + sum_of_window
            window = window + 32
        return begin, tokens, position, request_begin, base

    @cute.jit
    def merge(self, lists: Int64, stride: Int64, first: Int32, last: Int32, rest: Int32, lane: Int32):
        """The best `rest` blocks, one a lane, and NO_BLOCK in the lanes behind."""
        number = self.config.lists
        heads = cute.make_rmem_tensor(cute.make_layout((number,)), Uint32)
        ids = cute.make_rmem_tensor(cute.make_layout((number,)), Uint32)
        addresses = cute.make_rmem_tensor(cute.make_layout((number,)), Int64)
        left = cute.make_rmem_tensor(cute.make_layout((number,)), Int32)
        for i in cutlass.range_constexpr(number):
            block = first + lane + 32 * i
            side = Int32(1) if block == first else Int32(0)
            addresses[i] = lists + Int64(block * 2 + side) * stride
            heads[i], ids[i], left[i] = Uint32(0), Uint32(choosing.NO_BLOCK), Int32(0)
            if block <= last:
                heads[i], ids[i], left[i] = load_word(addresses[i]), load_word(addresses[i] + 64), Int32(MAX_TOPK)
        chosen = Int32(choosing.NO_BLOCK)
        for turn in cutlass.range(rest, unroll=1):
            best, best_id = heads[0], ids[0]
            for i in cutlass.range_constexpr(1, number):
                larger = heads[i] > best
                best_id = ids[i] if larger else best_id
                best = heads[i] if larger else best
            most = cute.arch.warp_redux_sync(best, "umax")
            winner = cute.arch.warp_redux_sync(best_id if best == most else Uint32(choosing.NO_BLOCK), "umin")
            if lane == turn:
                chosen = Int32(winner)
            for i in cutlass.range_constexpr(number):
                if heads[i] == most and ids[i] == winner:
                    addresses[i] = addresses[i] + 4
                    left[i] = left[i] - 1
                    heads[i] = Uint32(0)
                    if left[i] > 0:
                        heads[i], ids[i] = load_word(addresses[i]), load_word(addresses[i] + 64)
        return chosen


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem
    return IndexerPrefillMergeSm90(config), (
        *[make_ptr(Uint8, 16, gmem, assumed_align=4)] * 3,
        make_ptr(Uint8, 16, gmem, assumed_align=16),
        *[Int64(0)] * 2,
        *[Int32(0)] * 11,
        make_fake_stream(),
    )
