"""The indexer's merge on Hopper: the result of each (query token, head) row whose request several blocks scanned.

A thread block a row. It finds the row's request and the blocks that scanned it by the same division of work as the
scan. Of many candidates it gathers those that may be chosen, a few dozen, and finds the place of each among them by
comparing it with all; where many have equal keys it searches for the lowest key that is chosen instead. Rows that see
nothing are filled with -1; rows that one block scanned alone have their result already. The kernel may start while the
scan still runs, and waits for it.
"""

from types import SimpleNamespace

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.indexer import atoms, ranking, work
from msa_ops.cute.indexer.sm90_merge_configs import GROUPS_A_WARP, Config

WARP_CHUNKS = 4
"""Up to 32 times as many candidates one warp chooses alone."""

SHARES = 8
"""Threads that compare a gathered candidate with the others."""


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
            max_number_threads=(self.config.threads, 1, 1),
            min_blocks_per_mp=self.config.blocks,
            preferred_smem_carveout=100,  # as the scan, beside which it waits
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
        s = SimpleNamespace(counter=request + 4 * 4, groups=request + 8 * 4)
        s.chosen = s.groups + 4 * c.groups
        s.entries = s.chosen + 4 * c.topk

        # The row's request, and all work.
        if thread == 0:
            atoms.sts_zero_x4(request)
            atoms.sts_zero_x4(s.counter)
        if thread < c.topk:
            atoms.sts_u32(s.chosen + thread * 4, Uint32(0x7FFFFFFF))  # behind all ids
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
        lists = SimpleNamespace(
            base=workspace.toint(), first=first_block, column=column, tile_shift=tile_shift, topk=topk, shift=shift
        )
        # Where this thread's candidates are: known before the scan is done.
        places = cute.make_rmem_tensor(cute.make_layout((c.per_lane,)), Int32)
        for i in cutlass.range_constexpr(c.per_lane):
            entry = i * c.threads + thread
            places[i] = self.place(lists, entry) if entry < count else Int32(-1)
        # What follows waits for this kernel before it reads or writes anything.
        cute.arch.griddepcontrol_launch_dependents()
        cute.arch.griddepcontrol_wait()

        if first_block < last_block:
            if count <= 32 * WARP_CHUNKS:
                if warp == 0:
                    self.choose_in_a_warp(lists, count, topk, lane, output)
            else:
                keys = cute.make_rmem_tensor(cute.make_layout((c.per_lane,)), Uint32)
                ids = cute.make_rmem_tensor(cute.make_layout((c.per_lane,)), Uint32)
                for i in cutlass.range_constexpr(c.per_lane):
                    ids[i], keys[i] = atoms.ldg_u32x2_if(places[i] >= 0, workspace.toint() + Int64(places[i]) * 8)
                found = self.gather(keys, ids, topk, lane, warp, s)
                if found <= c.gathered:
                    self.choose_by_ranks(found, topk, thread, lane, warp, s, output)
                else:
                    self.choose_by_search(lists, count, topk, lane, warp, s, output)
        if pages == 0 and thread < topk:
            atoms.stg_u32(output + Int64(thread) * 4, Int32(-1))

    @cute.jit
    def place(self, lists, entry: Int32) -> Int32:
        """Of the request's candidate `entry`, counted list by list, in units of candidates; -1 behind a list's end."""
        within = entry & ((Int32(1) << lists.shift) - 1)
        block = lists.first + (entry >> lists.shift)
        side = Int32(1) if block == lists.first else Int32(0)
        at = ((((block * 2 + side) << lists.tile_shift) + lists.column) * lists.topk) + within
        return at if within < lists.topk else Int32(-1)

    @cute.jit
    def choose_in_a_warp(self, lists, count: Int32, topk: Int32, lane: Int32, output: Int64):
        """Of few candidates, by one warp alone: with many rows at work the others would only take its turns."""
        keys = cute.make_rmem_tensor(cute.make_layout((WARP_CHUNKS,)), Uint32)
        ids = cute.make_rmem_tensor(cute.make_layout((WARP_CHUNKS,)), Uint32)
        for i in cutlass.range_constexpr(WARP_CHUNKS):
            entry = i * 32 + lane
            place = self.place(lists, entry) if entry < count else Int32(-1)
            ids[i], keys[i] = atoms.ldg_u32x2_if(place >= 0, lists.base + Int64(place) * 8)
        self.choose(keys, ids, WARP_CHUNKS, topk, lane, output, True)

    @cute.jit
    def gather(self, keys, ids, topk: Int32, lane: Int32, warp: Int32, s) -> Int32:
        """Puts all candidates that may be chosen into shared memory, in any order; gives how many there are.

        At least topk candidates, one of each of as many groups, are no less than the topk-th largest of the groups'
        largest keys, so that none below it is chosen. Mostly few more than topk are left. At most `gathered` are put.
        """
        c = self.config
        largest = keys[0]
        for i in cutlass.range_constexpr(1, c.per_lane):
            largest = atoms.max_u32(largest, keys[i])
        for level in cutlass.range_constexpr(5):
            if cutlass.const_expr(1 << level >= GROUPS_A_WARP):
                largest = atoms.max_u32(largest, cute.arch.shuffle_sync_bfly(largest, 1 << level))
        if lane < GROUPS_A_WARP:
            atoms.sts_u32(s.groups + (warp * GROUPS_A_WARP + lane) * 4, largest)
        cute.arch.sync_threads()
        if cutlass.const_expr(c.groups == 32):
            least = ranking.least_of_best(s.groups, atoms.lds_u32(s.groups + lane * 4), topk)
        else:
            least = Uint32(ranking.TOP)
            for i in cutlass.range_constexpr(c.groups // 32):
                least = atoms.min_u32(least, atoms.lds_u32(s.groups + (i * 32 + lane) * 4))
            least = cute.arch.warp_redux_sync(least, "umin")
        least = atoms.max_u32(least, Uint32(1))
        own = Int32(0)
        for i in cutlass.range_constexpr(c.per_lane):
            own = atoms.add_if_at_least(own, Int32(1), keys[i], least)
        if own > 0:
            at = atoms.add_shared_u32(s.counter, own)
            for i in cutlass.range_constexpr(c.per_lane):
                if keys[i] >= least:
                    if at < c.gathered:
                        atoms.sts_u32x2(s.entries + at * 8, ids[i], keys[i])
                    at = at + 1
        cute.arch.sync_threads()
        return Int32(atoms.lds_u32(s.counter))

    @cute.jit
    def choose_by_ranks(self, found: Int32, topk: Int32, thread: Int32, lane: Int32, warp: Int32, s, output: Int64):
        """Chooses those with fewer than topk better ones; SHARES threads count for each. Writes their ids, sorted."""
        c = self.config
        share, each = thread % SHARES, c.threads // SHARES
        begin = Int32(0)
        while begin < found:
            mine = begin + thread // SHARES
            own_id, own_key = atoms.lds_u32x2(s.entries + (mine if mine < found else found - 1) * 8)
            better = Int32(0)
            other = share
            while other < found:
                other_id, other_key = atoms.lds_u32x2(s.entries + other * 8)
                if other_key > own_key or (other_key == own_key and other_id < own_id):
                    better = better + 1
                other = other + SHARES
            for step in cutlass.range_constexpr(SHARES.bit_length() - 1):
                better = better + cute.arch.shuffle_sync_bfly(better, 1 << step)
            if share == 0 and mine < found and better < topk:
                atoms.sts_u32(s.chosen + better * 4, own_id)
            begin = begin + each
        cute.arch.sync_threads()
        if warp == 0:
            found = topk if found > topk else found
            for part in cutlass.range_constexpr((c.topk + 31) // 32):
                at = part * 32 + lane
                own = atoms.lds_u32(s.chosen + (at if at < c.topk else Int32(0)) * 4)
                place = Int32(0)
                for four in cutlass.range_constexpr(c.topk // 4):
                    for chosen in atoms.lds_u32x4(s.chosen, 16 * four):
                        place = atoms.add_if_at_least(place, Int32(1), own, chosen + Uint32(1))
                if at < found:
                    atoms.stg_u32(output + Int64(place) * 4, own)
                elif at < topk:
                    atoms.stg_u32(output + Int64(at) * 4, Int32(-1))

    @cute.jit
    def choose_by_search(self, lists, count: Int32, topk: Int32, lane: Int32, warp: Int32, s, output: Int64):
        """The same for more candidates than are gathered: each warp chooses among a share, then one among those.

        Candidates stay in the order of their lists, so that ids never have to be compared.
        """
        c = self.config
        # A warp's share is a multiple of 32.
        share = ((count + (c.threads - 1)) >> (c.threads.bit_length() - 1)) << 5
        keys = cute.make_rmem_tensor(cute.make_layout((c.per_lane,)), Uint32)
        ids = cute.make_rmem_tensor(cute.make_layout((c.per_lane,)), Uint32)
        for i in cutlass.range_constexpr(c.per_lane):
            within = i * 32 + lane
            entry = warp * share + within
            place = self.place(lists, entry) if within < share and entry < count else Int32(-1)
            ids[i], keys[i] = atoms.ldg_u32x2_if(place >= 0, lists.base + Int64(place) * 8)
        self.choose(keys, ids, c.per_lane, topk, lane, s.entries + warp * (8 * c.topk), False)
        cute.arch.sync_threads()
        if warp == 0:
            best = cute.make_rmem_tensor(cute.make_layout((self.second,)), Uint32)
            best_ids = cute.make_rmem_tensor(cute.make_layout((self.second,)), Uint32)
            for i in cutlass.range_constexpr(self.second):
                best_ids[i], best[i] = atoms.lds_u32x2(s.entries + (i * 32 + lane) * 8)
            self.choose(best, best_ids, self.second, topk, lane, output, True)

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
                    atoms.sts_u32x2(target + at * 8, ids[i], keys[i])
            written, ties = written + chosen, ties - equal
        at = written + lane
        if cutlass.const_expr(final):
            while at < topk:
                atoms.stg_u32(target + Int64(at) * 4, Int32(-1))
                at = at + 32
        else:
            while at < self.config.topk:
                atoms.sts_u32x2(target + at * 8, Uint32(0), Uint32(0))
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
