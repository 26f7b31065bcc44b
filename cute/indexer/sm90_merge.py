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
        heads_magic: Int64,
        blocks_magic: Int64,
        num_tokens: Int32,
        batch: Int32,
        q_len: Int32,
        num_heads: Int32,
        max_blocks: Int32,
        topk: Int32,
        tile_shift: Int32,
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
            heads_magic,
            blocks_magic,
            num_tokens,
            batch,
            q_len,
            num_heads,
            max_blocks,
            topk,
            tile_shift,
            num_blocks,
        ).launch(
            grid=(num_tokens * num_heads, 1, 1),
            block=(self.config.threads, 1, 1),
            max_number_threads=(self.config.bound, 1, 1),
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
        heads_magic: Int64,
        blocks_magic: Int64,
        num_tokens: Int32,
        batch: Int32,
        q_len: Int32,
        num_heads: Int32,
        max_blocks: Int32,
        topk: Int32,
        tile_shift: Int32,
        num_blocks: Int32,
    ):
        c = self.config
        thread, _, _ = cute.arch.thread_idx()
        row, _, _ = cute.arch.block_idx()
        lane, warp = thread % 32, cute.arch.make_warp_uniform(thread // 32)
        token = work.divide(row, heads_magic)
        head = row - token * num_heads
        output = block_ids.toint() + (Int64(token) * out_token_stride + Int64(head) * out_head_stride) * 4
        sums = cute.arch.get_dyn_smem(Uint8, alignment=128).toint()
        request = sums + 4 * 32  # four words: pages, first query token, pieces before the request
        choices = request + 4 * 4

        # The row's request, and all work.
        if thread == 0:
            atoms.sts_zero_x4(request)
        total, window = Int32(0), Int32(0)
        while window < batch:
            mine = window + thread
            pages, pieces, first, last = Int32(0), Int32(0), Int32(0), Int32(0)
            if mine < batch:
                pages = work.num_pages(work.load_i32(seq_lens.toint(), mine), max_blocks)
                first, last = work.query_range(mine, cu_seqlens.toint(), q_len)
                pieces = pages * work.num_tiles(first, last, num_tokens, num_heads, tile_shift)
                first, last = work.clamp(first, Int32(0), num_tokens), work.clamp(last, Int32(0), num_tokens)
            before, part = work.block_prefix(pieces, sums, thread, c.warps)
            if first <= token and token < last:
                atoms.sts_u32(request, pages)
                atoms.sts_u32(request + 4, first)
                atoms.sts_u32(request + 8, total + before)
            cute.arch.sync_threads()
            total = total + part
            window = window + c.threads
        pages = Int32(atoms.lds_u32(request))
        pair = (token - Int32(atoms.lds_u32(request, 4))) * num_heads + head
        tile = pair >> tile_shift
        column = pair - (tile << tile_shift)
        begin = Int32(atoms.lds_u32(request, 8)) + tile * pages
        first_block, last_block = Int32(0), Int32(0)
        if pages > 0:
            first_block = work.block_of(begin, total, num_blocks, blocks_magic)
            last_block = work.block_of(begin + pages - 1, total, num_blocks, blocks_magic)
        # A list has at most this many entries; a power of two, so that entries are found without dividing.
        longest = work.divide(total, blocks_magic) + 1
        longest = topk if longest > topk else longest
        shift = Int32(0)
        while (Int32(1) << shift) < longest:
            shift = shift + 1
        count = (last_block - first_block + 1) << shift
        # A warp's share is a multiple of 32, and all of them if one warp can hold them.
        share = ((count + (c.threads - 1)) >> (c.threads.bit_length() - 1)) << 5
        single = count <= 32 * c.per_lane
        share = Int32(32 * c.per_lane) if single else share
        cute.arch.griddepcontrol_wait()
        cute.arch.griddepcontrol_launch_dependents()

        if first_block < last_block and (warp == 0 or not single):
            keys = cute.make_rmem_tensor(cute.make_layout((c.per_lane,)), Uint32)
            ids = cute.make_rmem_tensor(cute.make_layout((c.per_lane,)), Uint32)
            for i in cutlass.range_constexpr(c.per_lane):
                keys[i], ids[i] = Uint32(0), Uint32(0)
                place = i * 32 + lane
                entry = warp * share + place
                within = entry & ((Int32(1) << shift) - 1)
                if place < share and entry < count and within < topk:
                    block = first_block + (entry >> shift)
                    side = Int32(1) if block == first_block else Int32(0)
                    at = ((((block * 2 + side) << tile_shift) + column) * topk) + within
                    ids[i], keys[i] = atoms.ldg_u32x2(workspace.toint() + Int64(at) * 8)
            if single:
                self.choose(keys, ids, c.per_lane, topk, lane, output, True)
            else:
                self.choose(keys, ids, c.per_lane, topk, lane, choices + warp * (8 * c.topk), False)
        if first_block < last_block and not single:
            cute.arch.sync_threads()
            if warp == 0:
                best = cute.make_rmem_tensor(cute.make_layout((self.second,)), Uint32)
                best_ids = cute.make_rmem_tensor(cute.make_layout((self.second,)), Uint32)
                for i in cutlass.range_constexpr(self.second):
                    at = choices + (i * 32 + lane) * 8
                    best_ids[i], best[i] = atoms.lds_u32(at), atoms.lds_u32(at, 4)
                self.choose(best, best_ids, self.second, topk, lane, output, True)
        if pages == 0 and thread < topk:
            atoms.stg_u32(output + Int64(thread) * 4, Int32(-1))

    @cute.jit
    def choose(self, keys, ids, chunks: cutlass.Constexpr, topk: Int32, lane: Int32, target, final: cutlass.Constexpr):
        """The topk best of a warp's keys, in their order: to the result, or as (id, key) to the warp's list."""
        low, ties = ranking.threshold(keys, chunks, topk)
        written = Int32(0)
        for i in cutlass.range_constexpr(chunks):
            place, chosen, equal = ranking.ranks(keys[i], low, ties, lane)
            if place >= 0:
                at = written + place
                if cutlass.const_expr(final):
                    atoms.stg_u32(target + Int64(at) * 4, ids[i])
                else:
                    atoms.sts_u32(target + at * 8, ids[i])
                    atoms.sts_u32(target + at * 8 + 4, keys[i])
            written, ties = written + chosen, ties - equal
        at = written + lane
        if cutlass.const_expr(final):
            while at < topk:
                atoms.stg_u32(target + Int64(at) * 4, Int32(-1))
                at = at + 32
        else:
            while at < self.config.topk:
                atoms.sts_u32(target + at * 8, Uint32(0))
                atoms.sts_u32(target + at * 8 + 4, Uint32(0))
                at = at + 32


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem
    return IndexerMergeSm90(config), (
        *[make_ptr(Uint8, 16, gmem, assumed_align=4)] * 3,
        make_ptr(Uint8, 16, gmem, assumed_align=8),
        *[Int64(0)] * 4,
        *[Int32(0)] * 8,
        make_fake_stream(),
    )
