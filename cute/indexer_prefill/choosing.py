"""The best 16 blocks of a query row so far: a lane a row, in order of falling scores.

Scores are 32-bit keys that grow with them: -0 equals +0, -inf is the lowest, 0 is no block at all. Blocks are offered
in ascending order and a key moves only before smaller ones, so of equal scores the lower block id comes first.

Forced blocks compete with nobody: init blocks take their places first, the lower ids first, then local ones, the
newest first. What is left of topk goes to the best scores among the blocks between them.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint32
from msa_ops.cute.common import half_pairs, memory, streaming
from msa_ops.cute.common.asm import asm
from msa_ops.cute.indexer_prefill.sm90_configs import CHUNK, MAX_TOPK

NO_BLOCK = 0x7FFFFFFF


def key_of_score(score: Float32) -> Uint32:
    bits = half_pairs.bits_of_float(asm("add.rn.f32 $0, $1, 0f00000000;", [Float32], [score], pure=True))
    return bits ^ (Uint32(Int32(bits) >> 31) | Uint32(0x80000000))


def load_key_if(number: Uint32, limit: Uint32, address: Int32) -> Uint32:
    """A key from shared memory if number < limit, else 0."""
    return asm(
        "{ .reg .pred p; setp.lt.u32 p, $1, $2; mov.b32 $0, 0; @p ld.shared.b32 $0, [$3]; }",
        [Uint32],
        [number, limit, address],
    )


@cute.jit
def limits(count: Int32, topk: Int32, init_blocks: Int32, local_blocks: Int32):
    """Of a row that sees `count` blocks: the first and one past the last that compete, and for how many places.

    None compete if all of them are chosen.
    """
    low = topk if init_blocks > topk else init_blocks
    local = topk - low
    local = local_blocks if local_blocks < local else local
    high = count - local
    rest = topk - low - local
    if count <= topk:
        low, high, rest = Int32(0), Int32(0), Int32(0)
    return low, high, rest


@cute.jit
def insert(key: Uint32, block: Uint32, keys, ids):
    """Puts a block behind all whose keys are not smaller; the last one falls out. A key of 0 changes nothing."""
    moved_key, moved_id = key, block
    for i in cutlass.range_constexpr(MAX_TOPK):
        moves = key > keys[i]
        this_key, this_id = keys[i], ids[i]
        keys[i] = moved_key if moves else this_key
        ids[i] = moved_id if moves else this_id
        moved_key = this_key if moves else moved_key
        moved_id = this_id if moves else moved_id


@cute.jit
def offer(row: Int32, address: Int32, first: Int32, begin: Int32, end: Int32, fresh, owns):
    """Offers a row's scores of the blocks begin to end - 1, of a chunk whose first block is `first`.

    row, address: shared addresses of the row's keys in the table and of its list. fresh: the list is empty, whatever
    is there. owns: whether the lane has a row; one that has none sees another's and changes nothing. A warp together.
    """
    keys = cute.make_rmem_tensor(cute.make_layout((MAX_TOPK,)), Uint32)
    ids = cute.make_rmem_tensor(cute.make_layout((MAX_TOPK,)), Uint32)
    for i in cutlass.range_constexpr(MAX_TOPK):
        keys[i], ids[i] = Uint32(0), Uint32(NO_BLOCK)
    if not fresh:
        for i in cutlass.range_constexpr(0, MAX_TOPK, 4):
            keys[i], keys[i + 1], keys[i + 2], keys[i + 3] = memory.load_shared_128(address + 4 * i)
            ids[i], ids[i + 1], ids[i + 2], ids[i + 3] = memory.load_shared_128(address + 64 + 4 * i)
    better = Uint32(0)
    number = Uint32(end - begin) if end > begin else Uint32(0)
    for i in cutlass.range_constexpr(CHUNK):
        key = load_key_if(Uint32(first - begin + i), number, row + 4 * i)
        better = better | (Uint32(1 << i) if key > keys[MAX_TOPK - 1] else Uint32(0))
    while cute.arch.vote_any_sync(better != Uint32(0)):
        place = Int32(cute.arch.popc((better & (Uint32(0) - better)) - Uint32(1)))
        key = load_key_if(Uint32(0), better, row + 4 * place)
        better = better & (better - Uint32(1))
        insert(key, Uint32(first + place), keys, ids)
    if owns:
        for i in cutlass.range_constexpr(0, MAX_TOPK, 4):
            memory.store_shared_128(address + 4 * i, keys[i], keys[i + 1], keys[i + 2], keys[i + 3])
            memory.store_shared_128(address + 64 + 4 * i, ids[i], ids[i + 1], ids[i + 2], ids[i + 3])


def exchanges(number: int):
    """Pairs of places whose exchange in this order sorts (Batcher's odd-even merge sort; a power of two)."""
    size = 1
    while size < number:
        step = size
        while step > 0:
            for j in range(step % size, number - step, 2 * step):
                for i in range(min(step, number - j - step)):
                    if (i + j) // (2 * size) == (i + j + step) // (2 * size):
                        yield i + j, i + j + step
            step //= 2
        size *= 2


def sort(ids) -> None:
    """Ascending."""
    for i, j in exchanges(MAX_TOPK):
        a, b = ids[i], ids[j]
        ids[i] = cutlass.min(a, b)
        ids[j] = cutlass.max(a, b)


@cute.jit
def write_row(output: Int64, address: Int32, count: Int32, low: Int32, high: Int32, rest: Int32, topk: Int32):
    """The row's result from its list: all blocks that it sees if `rest` and `low` say that none compete."""
    if count <= topk:
        for i in cutlass.range_constexpr(MAX_TOPK):
            if i < topk:
                streaming.store_32(output + Int64(4 * i), Uint32(Int32(i) if i < count else Int32(-1)))
    else:
        ids = cute.make_rmem_tensor(cute.make_layout((MAX_TOPK,)), Int32)
        for i in cutlass.range_constexpr(0, MAX_TOPK, 4):
            four = memory.load_shared_128(address + 64 + 4 * i)
            for j in cutlass.range_constexpr(4):
                ids[i + j] = Int32(four[j]) if i + j < rest else Int32(NO_BLOCK)
        sort(ids)
        for i in cutlass.range_constexpr(MAX_TOPK):
            if i < rest:
                streaming.store_32(output + Int64((low + i) * 4), Uint32(ids[i]))
        for i in cutlass.range_constexpr(MAX_TOPK):
            if i < low:
                streaming.store_32(output + Int64(4 * i), Uint32(i))
            if i >= low + rest and i < topk:
                streaming.store_32(output + Int64(4 * i), Uint32(high + (i - low - rest)))


def keep_row(target: Int64, address: Int32) -> None:
    """The row's list to the workspace: 16 keys, 16 ids."""
    for i in range(8):
        streaming.store_128(target + Int64(16 * i), memory.load_shared_128(address + 16 * i))
