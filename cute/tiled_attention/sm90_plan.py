"""Second and third step of sparse_attention block by block: items of work from counts, and the list of pairs.

Items and the pairs of a block come in any order; no result depends on it, for each pair is worked on alone.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import memory
from msa_ops.cute.common.asm import asm
from msa_ops.cute.tiled_attention.by_block_layout import COUNT_BYTES, ITEM_BYTES, ITEM_PAIRS
from msa_ops.cute.tiled_attention.sm90_plan_configs import ARGUMENTS, THREADS, Config


def _add(address: Int64, value: Int32) -> Int32:
    """Returns what was there before."""
    return asm("atom.global.add.u32 $0, [$1], $2;", [Int32], [address, value])


@cute.jit
def _reserve(counter: Int64, wanted: Int32, lane: Int32) -> Int32:
    """A place for what each lane wants, one addition a warp."""
    through = wanted
    for step in cutlass.range_constexpr(5):
        below = cute.arch.shuffle_sync_up(through, offset=1 << step, mask_and_clamp=0)
        if lane >= 1 << step:
            through = through + below
    begin = Int32(0)
    if lane == 31:
        if through > 0:
            begin = _add(counter, through)
    return cute.arch.shuffle_sync(begin, 31) + through - wanted


class Plan:
    def __init__(self, config: Config) -> None:
        self.config = config

    @cute.jit
    def __call__(
        self,
        block_table: cute.Pointer,
        seq_lens: cute.Pointer,
        cu_seqlens_q: cute.Pointer,
        counters: cute.Pointer,
        counts: cute.Pointer,
        offsets: cute.Pointer,
        items: cute.Pointer,
        keys: cute.Pointer,
        ranks: cute.Pointer,
        listed: cute.Pointer,
        table_stride: Int64,
        tokens: Int32,
        batch: Int32,
        num_kv_heads: Int32,
        max_blocks: Int32,
        pairs: Int32,
        stream: cuda.CUstream,
    ):
        """What these are: msa_ops.cute.tiled_attention.by_block_layout. A thread takes a key, or a pair."""
        work = pairs if cutlass.const_expr(self.config.kind == "place") else batch * num_kv_heads * max_blocks
        self.kernel(
            block_table,
            seq_lens,
            cu_seqlens_q,
            counters,
            counts,
            offsets,
            items,
            keys,
            ranks,
            listed,
            table_stride,
            tokens,
            batch,
            num_kv_heads,
            max_blocks,
            work,
        ).launch(grid=((work + THREADS - 1) // THREADS, 1, 1), block=(THREADS, 1, 1), stream=stream)

    @cute.kernel
    def kernel(
        self,
        block_table: cute.Pointer,
        seq_lens: cute.Pointer,
        cu_seqlens_q: cute.Pointer,
        counters: cute.Pointer,
        counts: cute.Pointer,
        offsets: cute.Pointer,
        items: cute.Pointer,
        keys: cute.Pointer,
        ranks: cute.Pointer,
        listed: cute.Pointer,
        table_stride: Int64,
        tokens: Int32,
        batch: Int32,
        num_kv_heads: Int32,
        max_blocks: Int32,
        work: Int32,
    ):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        index = block * THREADS + thread
        if cutlass.const_expr(self.config.kind == "place"):
            if index < work:
                key = memory.load_global_i32(keys.toint() + Int64(index) * 4)
                if key >= 0:
                    place = memory.load_global_i32(offsets.toint() + Int64(key) * 4)
                    place = place + memory.load_global_i32(ranks.toint() + Int64(index) * 4)
                    memory.store_global_32(listed.toint() + Int64(place) * 4, Uint32(index))
        else:
            lane = thread % 32
            count = memory.load_global_i32_if(
                counts.toint() + Int64(index) * COUNT_BYTES, Int32(index < work), Int32(0)
            )
            begin = _reserve(counters.toint() + Int64(4), count, lane)
            number = (count + ITEM_PAIRS - 1) // ITEM_PAIRS
            item = _reserve(counters.toint(), number, lane)
            if count > 0:
                memory.store_global_32(offsets.toint() + Int64(index) * 4, Uint32(begin))
                of_request = num_kv_heads * max_blocks
                request = index // of_request
                head = index % of_request // max_blocks
                chosen = index % max_blocks
                page = memory.load_global_i32(block_table.toint() + (Int64(request) * table_stride + Int64(chosen)) * 4)
                end = (request + 1) * (tokens // batch)
                if cu_seqlens_q.toint() != Int64(0):
                    end = memory.load_global_i32(cu_seqlens_q.toint() + Int64(request + 1) * 4)
                length = memory.load_global_i32(seq_lens.toint() + Int64(request) * 4)
                for i in cutlass.range(number, unroll=1):
                    target = items.toint() + Int64(item + i) * ITEM_BYTES
                    first = i * ITEM_PAIRS
                    of_item = cutlass.min(count - first, ITEM_PAIRS)
                    memory.store_global_128(target, Uint32(page), Uint32(head), Uint32(chosen), Uint32(length - end))
                    written = cutlass.min(length - chosen * 128, 128)
                    memory.store_global_128(
                        target + Int64(16), Uint32(begin + first), Uint32(of_item), Uint32(written), Uint32(0)
                    )


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem
    pointers = {name: make_ptr(cutlass.Int32, 16, gmem, assumed_align=4) for name in ARGUMENTS[:10]}
    arguments = [*pointers.values(), Int64(0), *[Int32(0)] * 5]
    return Plan(config), (*arguments, make_fake_stream())
