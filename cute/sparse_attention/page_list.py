"""Which pages a query token sees: one warp turns block ids into a list in shared memory."""

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64
from msa_ops.cute.common import memory
from msa_ops.cute.sparse_attention.sm90_configs import PAGE

FEW_ENTRIES = 1 << 16


@cute.jit
def request_of_token(token: Int32, lane: Int32, starts: Int64, batch: Int32) -> Int32:
    """The number of requests that end at or before the token, found with 32 probes at a time by a whole warp."""
    low = Int32(0)
    high = batch
    while low < high:
        step = (high - low + 31) // 32
        probe = low + (lane + 1) * step - 1
        end = memory.load_global_i32_if(starts + Int64(probe + 1) * 4, Int32(probe < high), Int32(0x7FFFFFFF))
        passed = cute.arch.popc(cute.arch.vote_ballot_sync(end <= token))
        low = low + passed * step
        high = cutlass.min(high, low + step - 1)
    return low


@cute.jit
def list_pages(
    list_at: Int32,
    count_at: Int32,
    lane: Int32,
    token: Int32,
    ids: Int64,
    table: Int64,
    seq_lens: Int64,
    starts: Int64,
    cache: Int64,
    table_stride: Int64,
    page_stride: Int64,
    tokens: Int32,
    batch: Int32,
    topk: Int32,
    num_pages: Int32,
    max_blocks: Int32,
):
    """Writes address and number of visible tokens of all pages that the token sees, in the order of the ids.

    ids: address of the row's ids. cache: address of the head's K in page 0.
    Where tables are small, their row comes to the L2 cache before it is known what of it is needed: latency counts.
    """
    chosen = cute.make_rmem_tensor(cute.make_layout((2,)), Int32)
    for i in cutlass.range_constexpr(2):
        place = lane + 32 * i
        chosen[i] = memory.load_global_i32_if(ids + Int64(4 * place), Int32(place < topk), Int32(-1))
    request = Int32(0)
    position = Int32(-1)
    if starts == Int64(0):
        each = tokens // batch
        if each > 0:
            request = token // each
            if request < batch:
                if Int64(tokens) * Int64(max_blocks) <= Int64(FEW_ENTRIES):
                    for part in cutlass.range(lane * 32, max_blocks, 32 * 32, unroll=1):
                        memory.prefetch_global(table + (Int64(request) * table_stride + Int64(part)) * 4)
                length = cutlass.max(memory.load_global_i32(seq_lens + Int64(request) * 4), 0)
                position = length - ((request + 1) * each - token)
    else:
        request = request_of_token(token, lane, starts, batch)
        if request < batch:
            first = memory.load_global_i32(starts)
            end = memory.load_global_i32(starts + Int64(request + 1) * 4)
            length = cutlass.max(memory.load_global_i32(seq_lens + Int64(request) * 4), 0)
            if token >= first:
                position = length - (end - token)
    blocks = Int32(0)
    if position >= 0:
        blocks = cutlass.min(position // PAGE + 1, max_blocks)
    pages = cute.make_rmem_tensor(cute.make_layout((2,)), Int32)
    for i in cutlass.range_constexpr(2):
        wanted = Boolean(chosen[i] >= 0) & Boolean(chosen[i] < blocks)
        entry = table + (Int64(request) * table_stride + Int64(chosen[i])) * 4
        pages[i] = memory.load_global_i32_if(entry, Int32(wanted), Int32(-1))
    count = Int32(0)
    for i in cutlass.range_constexpr(2):
        usable = Boolean(pages[i] >= 0) & Boolean(pages[i] < num_pages)
        votes = cute.arch.vote_ballot_sync(usable)
        place = count + cute.arch.popc(votes & ((Int32(1) << lane) - 1))
        if usable:
            visible = cutlass.min(position + 1 - chosen[i] * PAGE, PAGE)
            memory.store_shared_i64x2(list_at + 16 * place, cache + Int64(pages[i]) * page_stride, Int64(visible))
        count = count + cute.arch.popc(votes)
    if lane == 0:
        memory.store_shared_i32(count_at, count)
