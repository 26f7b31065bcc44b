"""select_blocks on Hopper: a thread block a row, which stays in registers while a radix select narrows it down.

Forced blocks are known before any score is read, so what is left is: the best `rest` of the scores of blocks low to
high - 1. A score becomes a key, a number whose order is that of the contract. A pass counts the keys that share the
digits found so far by their next 8 bits and finds the digit of the last key to choose; it ends when a digit takes in
exactly what is missing, mostly after two or three passes. Equal keys go on to be told apart by their ids, in the same
way. The chosen ids, at most 64, go to a list in any order; the place of each is the number of smaller ones.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import memory, shared_counters, shared_words, streaming
from msa_ops.cute.common.asm import asm, select
from msa_ops.cute.select_blocks.sm90_configs import (
    BINS,
    FAMILY,
    ID_BITS,
    LIST_AT,
    MAX_TOPK,
    PASSES,
    SHARED_MEMORY,
    STATE_AT,
    Config,
)

KEY_PASSES = 4
ID_SHIFT = ID_BITS - 8
NAN_KEY = 1
"""Below every number. 0 is no block at all."""


class SelectBlocksSm90:
    def __init__(self, config: Config) -> None:
        self.config = config

    @cute.jit
    def __call__(
        self,
        scores: cute.Pointer,
        num_blocks: cute.Pointer,
        block_ids: cute.Pointer,
        count_stride: Int64,
        token_stride: Int64,
        head_stride: Int64,
        ids_token_stride: Int64,
        ids_head_stride: Int64,
        tokens: Int32,
        heads: Int32,
        width: Int32,
        topk: Int32,
        init_blocks: Int32,
        local_blocks: Int32,
        stream: cuda.CUstream,
    ):
        self.kernel(
            scores,
            num_blocks,
            block_ids,
            count_stride,
            token_stride,
            head_stride,
            ids_token_stride,
            ids_head_stride,
            heads,
            width,
            topk,
            init_blocks,
            local_blocks,
        ).launch(grid=(tokens * heads, 1, 1), block=(self.config.threads, 1, 1), smem=SHARED_MEMORY, stream=stream)

    @cute.kernel
    def kernel(
        self,
        scores: cute.Pointer,
        num_blocks: cute.Pointer,
        block_ids: cute.Pointer,
        count_stride: Int64,
        token_stride: Int64,
        head_stride: Int64,
        ids_token_stride: Int64,
        ids_head_stride: Int64,
        heads: Int32,
        width: Int32,
        topk: Int32,
        init_blocks: Int32,
        local_blocks: Int32,
    ):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        token = block // heads
        head = block % heads
        count = streaming.load_i32(num_blocks.toint() + Int64(token) * count_stride * 4)
        count = cutlass.min(cutlass.max(count, Int32(0)), width)
        target = block_ids.toint() + (Int64(token) * ids_token_stride + Int64(head) * ids_head_stride) * 4
        if count <= topk:
            if thread < topk:
                streaming.store_32(target + Int64(thread * 4), Uint32(select(thread < count, thread, Int32(-1))))
        else:
            # Init blocks take their places first, then local ones, the newest first, so that blocks `low` to
            # `high` - 1 compete for the rest, which is less than their number.
            low = cutlass.min(init_blocks, topk)
            local = cutlass.min(local_blocks, topk - low)
            high = count - local
            rest = topk - low - local
            if thread < low:
                streaming.store_32(target + Int64(thread * 4), Uint32(thread))
            if thread < local:
                streaming.store_32(target + Int64((topk - local + thread) * 4), Uint32(high + thread))
            if rest > 0:
                row = scores.toint() + (Int64(token) * token_stride + Int64(head) * head_stride) * 4
                self.choose(row, target + Int64(low * 4), thread, low, high, rest)

    @cute.jit
    def choose(self, row: Int64, target: Int64, thread: Int32, low: Int32, high: Int32, rest: Int32):
        """Writes the ids of the best `rest` of blocks low to high - 1, ascending."""
        config = self.config
        warp = cute.arch.make_warp_uniform(thread // 32)
        shared = cute.arch.get_dyn_smem(Uint8, alignment=128).toint()
        keys = cute.make_rmem_tensor(cute.make_layout((config.each,)), Uint32)
        for i in cutlass.range_constexpr(config.each):
            block = thread + config.threads * i
            wanted = cutlass.Boolean(block >= low) & cutlass.Boolean(block < high)
            keys[i] = self.load_bits(row + Int64(block * 4), Int32(wanted))
        # While the scores are under way: empty histograms, and a list whose free places hold no id.
        zero = Int32(0)
        for i in cutlass.range_constexpr(-(-PASSES * BINS // 4 // config.threads)):
            place = thread + config.threads * i
            if place < PASSES * BINS // 4:
                shared_words.store_shared_i32x4(shared + 16 * place, zero, zero, zero, zero)
        if thread < MAX_TOPK:
            memory.store_shared_i32(shared + LIST_AT + 4 * thread, Int32(0x7FFFFFFF))
        if thread == 0:
            memory.store_shared_i32(shared + STATE_AT + 16, zero)
        for i in cutlass.range_constexpr(config.each):
            block = thread + config.threads * i
            wanted = cutlass.Boolean(block >= low) & cutlass.Boolean(block < high)
            keys[i] = select(wanted, self.key(keys[i]), Uint32(0))
        cute.arch.barrier()

        # All keys above `least` are chosen, and of those equal to it the ids whose inverse is at least `cut`.
        least = Uint32(0)
        cut = Uint32(0)
        missing = rest
        found = cutlass.Boolean(False)
        for step in cutlass.range_constexpr(PASSES):
            if not found:
                for i in cutlass.range_constexpr(config.each):
                    self.count_key(shared, step, keys[i], self.inverse(thread, i), least, cut)
                cute.arch.barrier()
                if warp == 0:
                    self.find_digit(shared + 4 * BINS * step, shared + STATE_AT, thread, missing)
                cute.arch.barrier()
                digit, left, size, _ = memory.load_shared_128(shared + STATE_AT)
                missing = Int32(left)
                found = Int32(size) == missing
                if cutlass.const_expr(step < KEY_PASSES):
                    least = least | (digit << Uint32(24 - 8 * step))
                elif cutlass.const_expr(step == KEY_PASSES):
                    cut = digit << Uint32(ID_SHIFT)
                else:
                    cut = cut | digit
        least = cutlass.max(least, Uint32(NAN_KEY))

        for i in cutlass.range_constexpr(config.each):
            tie = cutlass.Boolean(keys[i] == least) & cutlass.Boolean(self.inverse(thread, i) >= cut)
            if cutlass.Boolean(keys[i] > least) | tie:
                place = shared_counters.take_number(shared + STATE_AT + 16)
                memory.store_shared_i32(shared + LIST_AT + 4 * place, thread + config.threads * i)
        cute.arch.barrier()
        if thread < rest:
            mine = Int32(memory.load_shared_32(shared + LIST_AT + 4 * thread))
            rank = Int32(0)
            others = Int32(0)
            while others < rest:
                four = memory.load_shared_128(shared + LIST_AT + 4 * others)
                for i in cutlass.range_constexpr(4):
                    rank = rank + select(Int32(four[i]) < mine, Int32(1), Int32(0))
                others = others + 4
            streaming.store_32(target + Int64(rank * 4), Uint32(mine))

    def load_bits(self, address, wanted):
        return asm(
            "{ .reg .pred p; setp.ne.b32 p, $2, 0; mov.b32 $0, 0; @p ld.global.nc.L1::no_allocate.b32 $0, [$1]; }",
            [Uint32],
            [address, wanted],
        )

    def key(self, bits):
        """Grows with the score: -0 is +0, NaN is below -inf, and 0 is below NaN."""
        magnitude = bits & Uint32(0x7FFFFFFF)
        bits = select(magnitude == Uint32(0), Uint32(0), bits)
        flip = Uint32(Int32(bits) >> 31) | Uint32(0x80000000)
        return select(magnitude > Uint32(0x7F800000), Uint32(NAN_KEY), bits ^ flip)

    def inverse(self, thread, i: int):
        """Grows as the id of the thread's element i falls."""
        return Uint32((1 << ID_BITS) - 1 - self.config.threads * i - thread)

    @cute.jit
    def count_key(
        self, shared: Int32, step: cutlass.Constexpr, key: Uint32, inverse: Uint32, least: Uint32, cut: Uint32
    ):
        """Counts a key that is still in question by its digit of this pass."""
        digit = Uint32(0)
        counts = key != Uint32(0)
        if cutlass.const_expr(step < KEY_PASSES):
            digit = (key >> Uint32(24 - 8 * step)) & Uint32(BINS - 1)
            if cutlass.const_expr(step > 0):
                counts = counts & (((key ^ least) >> Uint32(32 - 8 * step)) == Uint32(0))
        else:
            counts = key == least
            digit = inverse >> Uint32(ID_SHIFT)
            if cutlass.const_expr(step > KEY_PASSES):
                counts = counts & (digit == (cut >> Uint32(ID_SHIFT)))
                digit = inverse & Uint32((1 << ID_SHIFT) - 1)
        if counts:
            shared_counters.count(shared + 4 * BINS * step + Int32(digit) * 4)

    @cute.jit
    def find_digit(self, histogram: Int32, state: Int32, lane: Int32, missing: Int32):
        """One warp: the digit with which the sum of the bins from the top reaches `missing`."""
        top = BINS - 8 - 8 * lane  # the lane has bins top to top + 7
        bins = [*memory.load_shared_128(histogram + 4 * top), *memory.load_shared_128(histogram + 4 * top + 16)]
        bins = [Int32(number) for number in bins]
        own = bins[0]
        for i in cutlass.range_constexpr(1, 8):
            own = own + bins[i]
        reached = own
        for i in cutlass.range_constexpr(5):
            above = cute.arch.shuffle_sync_up(reached, offset=1 << i, mask_and_clamp=0)
            reached = reached + select(lane >= (1 << i), above, Int32(0))
        before = reached - own
        if cutlass.Boolean(before < missing) & cutlass.Boolean(missing <= reached):
            digit = Int32(0)
            left = Int32(0)
            size = Int32(0)
            for i in cutlass.range_constexpr(7, -1, -1):
                here = cutlass.Boolean(before < missing) & cutlass.Boolean(missing <= before + bins[i])
                digit = select(here, top + i, digit)
                left = select(here, missing - before, left)
                size = select(here, bins[i], size)
                before = before + bins[i]
            shared_words.store_shared_i32x4(state, digit, left, size, Int32(0))


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem
    pointers, wide = 3, 5
    return SelectBlocksSm90(config), (
        *(make_ptr(Uint8, 16, gmem, assumed_align=4) for _ in range(pointers)),
        *(Int64(0) for _ in range(wide)),
        *(Int32(0) for _ in range(len(FAMILY.arguments) - pointers - wide)),
        make_fake_stream(),
    )
