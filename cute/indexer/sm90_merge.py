"""The indexer's merge on Hopper: the result of each (query token, head) row whose request several blocks scanned.

A thread block a row. It finds the row's request and the blocks that scanned it by the same division of work as the
scan, and chooses among their candidates: each warp among a share of them, then one warp among those. Candidates come
in ascending order of block ids and leave in it. Rows that see nothing are filled with -1; rows that one block scanned
alone have their result already. The kernel may start while the scan still runs, and waits for it.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.indexer import atoms, ranking, work
from msa_ops.cute.indexer.sm90_merge_configs import Config


class IndexerMergeSm90:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.second = -(-config.warps * config.topk // 32)  # choices of all warps that a lane holds

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
        num_heads: Int32,
        max_blocks: Int32,
        topk: Int32,
        columns: Int32,
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
            num_heads,
            max_blocks,
            topk,
            columns,
            num_blocks,
        ).launch(
            grid=(num_tokens * num_heads, 1, 1),
            block=(self.config.threads, 1, 1),
            max_number_threads=(self.config.threads, 1, 1),
            smem=self.config.shared_memory,
            stream=stream,
            use_pdl=True,
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
        num_heads: Int32,
        max_blocks: Int32,
        topk: Int32,
        columns: Int32,
        num_blocks: Int32,
    ):
        c = self.config
        thread, _, _ = cute.arch.thread_idx()
        row, _, _ = cute.arch.block_idx()
        lane, warp = thread % 32, cute.arch.make_warp_uniform(thread // 32)
        token = row // num_heads
        head = row - token * num_heads
        output = block_ids.toint() + (Int64(token) * out_token_stride + Int64(head) * out_head_stride) * 4
        sums = cute.arch.get_dyn_smem(Uint8, alignment=128).toint()
        request = sums + 4 * 32
        choices = request + 4 * 8

        # The row's request, and all work. 8 words: pages, first query token, pieces before the request.
        if thread < 3:
            atoms.sts_u32(request + thread * 4, Int32(0))
        cute.arch.sync_threads()
        total, window = Int32(0), Int32(0)
        while window < batch:
            mine = window + thread
            pages, pieces, first, last = Int32(0), Int32(0), Int32(0), Int32(0)
            if mine < batch:
                pages = work.num_pages(work.load_i32(seq_lens.toint(), mine), max_blocks)
                first, last = work.query_range(mine, cu_seqlens.toint(), num_tokens, batch)
                pieces = pages * work.num_tiles(first, last, num_tokens, num_heads, columns)
                first, last = work.clamp(first, Int32(0), num_tokens), work.clamp(last, Int32(0), num_tokens)
            before, part = work.block_prefix(pieces, sums, thread, c.warps)
            if first <= token and token < last:
                atoms.sts_u32(request, pages)
                atoms.sts_u32(request + 4, first)
                atoms.sts_u32(request + 8, total + before)
            total = total + part
            window = window + c.threads
        cute.arch.sync_threads()
        pages = Int32(atoms.lds_u32(request))
        pair = (token - Int32(atoms.lds_u32(request, 4))) * num_heads + head
        tile = pair // columns
        column = pair - tile * columns
        begin = Int32(atoms.lds_u32(request, 8)) + tile * pages
        first_block, last_block = Int32(0), Int32(0)
        if pages > 0:
            first_block = work.block_of(begin, total, num_blocks)
            last_block = work.block_of(begin + pages - 1, total, num_blocks)
        count = (last_block - first_block + 1) * topk
        cute.arch.griddepcontrol_wait()

        if first_block < last_block:
            # A warp's share is a multiple of 32, and all of them if one warp can hold them.
            share = (count + (c.threads - 1)) // c.threads * 32
            share = Int32(32 * c.per_lane) if count <= 32 * c.per_lane else share
            keys = cute.make_rmem_tensor(cute.make_layout((c.per_lane,)), Uint32)
            ids = cute.make_rmem_tensor(cute.make_layout((c.per_lane,)), Uint32)
            for i in cutlass.range_constexpr(c.per_lane):
                keys[i], ids[i] = Uint32(0), Uint32(0)
                place = i * 32 + lane
                entry = warp * share + place
                if place < share and entry < count:
                    block = first_block + entry // topk
                    side = Int32(1) if block == first_block else Int32(0)
                    at = ((block * 2 + side) * columns + column) * topk + entry % topk
                    ids[i], keys[i] = atoms.ldg_u32x2(workspace.toint() + Int64(at) * 8)
            if count <= 32 * c.per_lane:
                if warp == 0:
                    self.choose(keys, ids, c.per_lane, topk, lane, output, True)
            else:
                self.choose(keys, ids, c.per_lane, topk, lane, choices + warp * (8 * c.topk), False)
                cute.arch.sync_threads()
                if warp == 0:
                    best = cute.make_rmem_tensor(cute.make_layout((self.second,)), Uint32)
                    best_ids = cute.make_rmem_tensor(cute.make_layout((self.second,)), Uint32)
                    for i in cutlass.range_constexpr(self.second):
                        at = choices + (i * 32 + lane) * 8
                        best_ids[i], best[i] = atoms.lds_u32(at), atoms.lds_u32(at, 4)
                    self.choose(best, best_ids, self.second, topk, lane, output, True)
        else:
            if pages == 0 and thread < topk:
                atoms.stg_u32(output + Int64(thread) * 4, Int32(-1))

    @cute.jit
    def choose(self, keys, ids, chunks: cutlass.Constexpr, topk: Int32, lane: Int32, target, final: cutlass.Constexpr):
        """The topk best of a warp's keys, in their order: to the result, or as (id, key) to the warp's list."""
        exist, highest = Int32(0), Uint32(0)
        for i in cutlass.range_constexpr(chunks):
            exist = exist + (Int32(1) if keys[i] > Uint32(0) else Int32(0))
            highest = keys[i] if keys[i] > highest else highest
        exist = ranking.warp_sum(exist)
        low, high = Uint32(1), ranking.warp_max(highest)
        high = low if exist <= topk else high
        while low < high:
            middle = low + ((high - low) >> Uint32(1)) + Uint32(1)
            low, high = ranking.search_step(low, high, middle, self.count_from(keys, chunks, middle), topk)
        ties = topk - self.count_from(keys, chunks, low + Uint32(1))
        before = ranking.lanes_below(lane)
        written = Int32(0)
        for i in cutlass.range_constexpr(chunks):
            equal = cute.arch.vote_ballot_sync(keys[i] == low)
            tied = keys[i] == low and cute.arch.popc(equal & before) < ties
            taken = cute.arch.vote_ballot_sync(keys[i] > low or tied)
            if keys[i] > low or tied:
                at = written + cute.arch.popc(taken & before)
                if cutlass.const_expr(final):
                    atoms.stg_u32(target + Int64(at) * 4, ids[i])
                else:
                    atoms.sts_u32(target + at * 8, ids[i])
                    atoms.sts_u32(target + at * 8 + 4, keys[i])
            written = written + cute.arch.popc(taken)
            ties = ties - cute.arch.popc(equal)
        for i in cutlass.range_constexpr(self.config.topk // 32 + 1):
            at = written + i * 32 + lane
            if cutlass.const_expr(final):
                if at < topk:
                    atoms.stg_u32(target + Int64(at) * 4, Int32(-1))
            else:
                if at < self.config.topk:
                    atoms.sts_u32(target + at * 8, Uint32(0))
                    atoms.sts_u32(target + at * 8 + 4, Uint32(0))

    @cute.jit
    def count_from(self, keys, chunks: cutlass.Constexpr, least: Uint32) -> Int32:
        """How many of a warp's keys are >= least."""
        count = Int32(0)
        for i in cutlass.range_constexpr(chunks):
            count = count + (Int32(1) if keys[i] >= least else Int32(0))
        return ranking.warp_sum(count)


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem
    return IndexerMergeSm90(config), (
        *[make_ptr(Uint8, 16, gmem, assumed_align=4)] * 3,
        make_ptr(Uint8, 16, gmem, assumed_align=8),
        *[Int64(0)] * 2,
        *[Int32(0)] * 7,
        make_fake_stream(),
    )
