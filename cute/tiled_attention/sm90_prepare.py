"""First step of sparse_attention block by block: which way each tile of query tokens goes, and its rows of q.

A thread block takes a tile and KV head, a warp one token of it. If the tokens chose mostly the same blocks, the tile
is left to the kernel that goes over the tile's blocks. Otherwise each valid id is counted for its block, and rows of q
are written as the products want them.
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Boolean, Float32, Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import memory
from msa_ops.cute.common.asm import asm, select
from msa_ops.cute.tiled_attention import queries
from msa_ops.cute.tiled_attention import tiles as headers
from msa_ops.cute.tiled_attention.by_block_layout import (
    COUNT_BYTES,
    FACTOR_BYTES,
    LIST_ENTRY_BYTES,
    PREPARE_THREADS,
    QUERY_ROW_BYTES,
    TILE,
    TILE_BYTES,
)
from msa_ops.cute.tiled_attention.layout import IN_PARTS, PART_LSE_BYTES, WHOLE
from msa_ops.cute.tiled_attention.sm90_prepare_configs import (
    ARGUMENTS,
    PLACE_AT,
    SCAN_AT,
    SCRATCH_AT,
    UNIQUE_AT,
    VALID_AT,
    Config,
    shared_memory,
)


def _set_bits(address: Int32, bits: Uint32) -> Uint32:
    """Returns what was there before."""
    return asm("atom.shared.or.b32 $0, [$1], $2;", [Uint32], [address, bits])


def _add_shared(address: Int32, value: Int32) -> None:
    asm("red.shared.add.u32 [$0], $1;", [], [address, value])


def _take_number(address: Int64) -> Int32:
    """Adds one and returns what was there."""
    return asm("atom.global.add.u32 $0, [$1], 1;", [Int32], [address])


class Prepare:
    def __init__(self, config: Config) -> None:
        self.config = config

    @cute.jit
    def __call__(
        self,
        q: cute.Pointer,
        block_ids: cute.Pointer,
        block_table: cute.Pointer,
        seq_lens: cute.Pointer,
        cu_seqlens_q: cute.Pointer,
        k_scale: cute.Pointer,
        counters: cute.Pointer,
        counts: cute.Pointer,
        ways: cute.Pointer,
        keys: cute.Pointer,
        ranks: cute.Pointer,
        tiles: cute.Pointer,
        lists: cute.Pointer,
        queries_out: cute.Pointer,
        factors: cute.Pointer,
        logs: cute.Pointer,
        q_token_stride: Int64,
        q_head_stride: Int64,
        ids_token_stride: Int64,
        ids_head_stride: Int64,
        table_stride: Int64,
        tokens: Int32,
        batch: Int32,
        num_kv_heads: Int32,
        head_begin: Int32,
        all_kv_heads: Int32,
        group: Int32,
        topk: Int32,
        num_pages: Int32,
        max_blocks: Int32,
        tiles_wanted: Int32,
        pairs_of_a_block: Int32,
        softmax_scale: Float32,
        stream: cuda.CUstream,
    ):
        """What these are: msa_ops.cute.tiled_attention.by_block_layout.

        The work is on KV heads head_begin to + num_kv_heads of all_kv_heads. A tile goes in parts if it has fewer than
        `pairs_of_a_block` pairs for each block that its tokens chose.
        """
        self.kernel(
            q,
            block_ids,
            block_table,
            seq_lens,
            cu_seqlens_q,
            k_scale,
            counters,
            counts,
            ways,
            keys,
            ranks,
            tiles,
            lists,
            queries_out,
            factors,
            logs,
            q_token_stride,
            q_head_stride,
            ids_token_stride,
            ids_head_stride,
            table_stride,
            tokens,
            batch,
            num_kv_heads,
            head_begin,
            all_kv_heads,
            group,
            topk,
            num_pages,
            max_blocks,
            pairs_of_a_block,
            softmax_scale,
        ).launch(
            grid=(tiles_wanted * num_kv_heads, 1, 1),
            block=(PREPARE_THREADS, 1, 1),
            smem=shared_memory(self.config),
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        q: cute.Pointer,
        block_ids: cute.Pointer,
        block_table: cute.Pointer,
        seq_lens: cute.Pointer,
        cu_seqlens_q: cute.Pointer,
        k_scale: cute.Pointer,
        counters: cute.Pointer,
        counts: cute.Pointer,
        ways: cute.Pointer,
        keys: cute.Pointer,
        ranks: cute.Pointer,
        tiles: cute.Pointer,
        lists: cute.Pointer,
        queries_out: cute.Pointer,
        factors: cute.Pointer,
        logs: cute.Pointer,
        q_token_stride: Int64,
        q_head_stride: Int64,
        ids_token_stride: Int64,
        ids_head_stride: Int64,
        table_stride: Int64,
        tokens: Int32,
        batch: Int32,
        num_kv_heads: Int32,
        head_begin: Int32,
        all_kv_heads: Int32,
        group: Int32,
        topk: Int32,
        num_pages: Int32,
        max_blocks: Int32,
        pairs_of_a_block: Int32,
        softmax_scale: Float32,
    ):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(thread // 32)
        lane = thread % 32
        tile = block // num_kv_heads
        head = block % num_kv_heads
        shared = cute.arch.get_dyn_smem(Uint8, alignment=128).toint()
        if warp == 0:
            headers.find_tile(shared, lane, tile, TILE, cu_seqlens_q.toint(), seq_lens.toint(), tokens, batch)
            if lane == 0:
                memory.store_shared_i32(shared + UNIQUE_AT, Int32(0))
                memory.store_shared_i32(shared + VALID_AT, Int32(0))
        cute.arch.barrier()
        first = Int32(memory.load_shared_32(shared + headers.FIRST))
        count = Int32(memory.load_shared_32(shared + headers.COUNT))
        request = Int32(memory.load_shared_32(shared + headers.REQUEST))
        base = Int32(memory.load_shared_32(shared + headers.BASE))
        blocks = Int32(0)
        if (request >= 0) & (count > 0):
            last = base + first + count - 1
            if last >= 0:
                blocks = cutlass.min(last // 128 + 1, max_blocks)
        for word in cutlass.range(thread, (blocks + 3) // 4, PREPARE_THREADS, unroll=1):
            memory.store_shared_i32(shared + SCRATCH_AT + 4 * word, Int32(0))
        cute.arch.barrier()

        token = first + warp
        position = base + token
        row_of_ids = block_ids.toint() + 4 * (
            Int64(token) * ids_token_stride + Int64(head_begin + head) * ids_head_stride
        )
        exists = warp < count
        # Ids are asked for before the work on q, which they do not need.
        ids = [
            memory.load_global_i32_if(
                row_of_ids + Int64(4 * (lane + 32 * i)),
                Int32(Boolean(exists) & Boolean(lane + 32 * i < topk)),
                Int32(-1),
            )
            for i in range(2)
        ]
        if (blocks > 0) & (warp < count):
            scale = softmax_scale * Float32(math.log2(math.e))
            if k_scale.toint() != Int64(0):
                scale = scale * memory.load_global_f32(k_scale.toint())
            row = Int64(token) * Int64(num_kv_heads) + Int64(head)
            first_head = Int64((head_begin + head) * group)
            queries.store_queries(
                self.config,
                q.toint() + self.config.q_bytes * (Int64(token) * q_token_stride + first_head * q_head_stride),
                q_head_stride,
                self.config.q_bytes,
                group,
                queries_out.toint() + row * QUERY_ROW_BYTES,
                factors.toint() + row * FACTOR_BYTES,
                lane,
                scale,
            )
        chosen = cute.make_rmem_tensor(cute.make_layout((2,)), Int32)
        table = block_table.toint() + 4 * Int64(cutlass.max(request, 0)) * table_stride
        unique = Int32(0)
        valid = Int32(0)
        for i in cutlass.range_constexpr(2):
            found = ids[i]
            visible = Boolean(found >= 0) & Boolean(found < blocks)
            visible = visible & Boolean(position >= 0) & Boolean(select(visible, found, Int32(0)) * 128 <= position)
            page = memory.load_global_i32_if(table + Int64(found) * 4, Int32(visible), Int32(-1))
            usable = Boolean(page >= 0) & Boolean(page < num_pages)
            new = Boolean(False)
            fresh = Boolean(False)
            if usable:
                shift = found % 4 * 8
                before = _set_bits(shared + SCRATCH_AT + found // 4 * 4, Uint32(1) << Uint32(shift + warp))
                before = before >> Uint32(shift)
                new = (before & Uint32(0xFF)) == Uint32(0)
                fresh = (before & (Uint32(1) << Uint32(warp))) == Uint32(0)
            unique = unique + cute.arch.popc(cute.arch.vote_ballot_sync(new))
            valid = valid + cute.arch.popc(cute.arch.vote_ballot_sync(fresh))
            chosen[i] = select(fresh, found, Int32(-1))
        if lane == 0:
            _add_shared(shared + UNIQUE_AT, unique)
            _add_shared(shared + VALID_AT, valid)
        cute.arch.barrier()
        unique = Int32(memory.load_shared_32(shared + UNIQUE_AT))
        valid = Int32(memory.load_shared_32(shared + VALID_AT))
        in_parts = unique * pairs_of_a_block > valid
        not_in_parts = unique * pairs_of_a_block <= valid

        if exists:
            row_of_ways = Int64(token) * Int64(num_kv_heads) + Int64(head)
            if lane == 0:
                way = select(in_parts, Int32(IN_PARTS), Int32(WHOLE))
                place_of_way = Int64(token) * Int64(all_kv_heads) + Int64(head_begin + head)
                memory.store_global_32(ways.toint() + place_of_way * 4, Uint32(way))
            for i in cutlass.range_constexpr(2):
                place = lane + 32 * i
                if place < topk:
                    pair = row_of_ways * Int64(topk) + Int64(place)
                    key = Int32(-1)
                    if in_parts:
                        if chosen[i] >= 0:
                            key = (request * num_kv_heads + head) * max_blocks + chosen[i]
                            rank = _take_number(counts.toint() + Int64(key) * COUNT_BYTES)
                            memory.store_global_32(ranks.toint() + pair * 4, Uint32(rank))
                        else:
                            nothing = Uint32(0xFF800000)
                            for j in cutlass.range_constexpr(PART_LSE_BYTES // 16):
                                at = logs.toint() + pair * PART_LSE_BYTES + Int64(16 * j)
                                memory.store_global_128(at, nothing, nothing, nothing, nothing)
                    memory.store_global_32(keys.toint() + pair * 4, Uint32(key))
        if Boolean(not_in_parts) & Boolean(count > 0):
            self.list_blocks(
                shared,
                thread,
                blocks,
                unique,
                counters.toint() + Int64(8),
                tiles.toint(),
                lists.toint(),
                table,
                first,
                count,
                base,
                head,
                topk,
            )

    @cute.jit
    def list_blocks(
        self,
        shared: Int32,
        thread: Int32,
        blocks: Int32,
        unique: Int32,
        counter: Int64,
        tiles: Int64,
        lists: Int64,
        table: Int64,
        first: Int32,
        count: Int32,
        base: Int32,
        head: Int32,
        topk: Int32,
    ):
        """Lists the tile and, ascending, the blocks that its tokens chose. For all threads."""
        words = (blocks + 3) // 4
        each = (words + PREPARE_THREADS - 1) // PREPARE_THREADS
        begin = cutlass.min(thread * each, words)
        end = cutlass.min(begin + each, words)
        found = Int32(0)
        for word in cutlass.range(begin, end, unroll=1):
            bits = memory.load_shared_32(shared + SCRATCH_AT + 4 * word)
            for i in cutlass.range_constexpr(4):
                if (bits & Uint32(0xFF << (8 * i))) != Uint32(0):
                    found = found + 1
        lane = thread % 32
        through = found
        for step in cutlass.range_constexpr(5):
            below = cute.arch.shuffle_sync_up(through, offset=1 << step, mask_and_clamp=0)
            if lane >= 1 << step:
                through = through + below
        if lane == 31:
            memory.store_shared_i32(shared + SCAN_AT + thread // 32 * 4, through)
        if thread == 0:
            memory.store_shared_i32(shared + PLACE_AT, _take_number(counter))
        cute.arch.barrier()
        place = through - found
        for warp in cutlass.range_constexpr(PREPARE_THREADS // 32):
            if warp < thread // 32:
                place = place + Int32(memory.load_shared_32(shared + SCAN_AT + 4 * warp))
        index = Int64(Int32(memory.load_shared_32(shared + PLACE_AT)))
        entries = lists + index * Int64(TILE * LIST_ENTRY_BYTES) * Int64(topk)
        for word in cutlass.range(begin, end, unroll=1):
            bits = memory.load_shared_32(shared + SCRATCH_AT + 4 * word)
            for i in cutlass.range_constexpr(4):
                mask = (bits >> Uint32(8 * i)) & Uint32(0xFF)
                if mask != Uint32(0):
                    chosen = word * 4 + i
                    page = memory.load_global_i32(table + Int64(chosen) * 4)
                    at = entries + Int64(place) * LIST_ENTRY_BYTES
                    memory.store_global_64(at, Uint32(chosen) | (mask << Uint32(24)), Uint32(page))
                    place = place + 1
        if thread == 0:
            record = tiles + index * TILE_BYTES
            memory.store_global_128(record, Uint32(first), Uint32(count), Uint32(base), Uint32(head))
            memory.store_global_128(record + Int64(16), Uint32(unique), Uint32(0), Uint32(0), Uint32(0))


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem

    def pointer(dtype, align):
        return make_ptr(dtype, 16, gmem, assumed_align=align)

    integers = ("block_ids", "block_table", "seq_lens", "cu_seqlens_q", "counters", "counts", "ways", "keys", "ranks")
    strides = ("q_token_stride", "q_head_stride", "ids_token_stride", "ids_head_stride", "table_stride")
    values = {
        "q": pointer(BFloat16, 16),
        **{name: pointer(Uint8, 16) for name in ("tiles", "lists", "queries")},
        **{name: pointer(Int32, 4) for name in integers},
        **{name: pointer(Float32, 4) for name in ("k_scale", "factors", "logs")},
        **{name: Int64(0) for name in strides},
        "softmax_scale": Float32(0.0),
    }
    arguments = [values.get(name, Int32(0)) for name in ARGUMENTS]
    return Prepare(config), (*arguments, make_fake_stream())
