"""Query tokens of a tile that chose apart: four warps each take a token alone, from page to page.

The blocks of the cluster take tokens in turn, and so do a block's four teams of warps.
"""

import math

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64, Uint32
from msa_ops.cute.common import bulk_copy, memory
from msa_ops.cute.common.asm import select
from msa_ops.cute.sparse_attention import operands, page_results
from msa_ops.cute.sparse_attention import sm90_pages_configs as pages_layout
from msa_ops.cute.sparse_attention.page_walk import PageWalk
from msa_ops.cute.sparse_attention.sm90_configs import BF16
from msa_ops.cute.tiled_attention.chosen_layout import (
    APART,
    BRINGERS,
    COUNTS_AT,
    LATER_LISTS_AT,
    LENGTH_AT,
    LIST_BYTES,
    SEEN_AT,
    TEAMS,
    TEAMS_AT,
    TOKENS,
    TURNS,
)
from msa_ops.cute.tiled_attention.chosen_pages import LISTING
from msa_ops.cute.tiled_attention.layout import PAGE

WALK = PageWalk(alone=False)
CONFIG = pages_layout.FAMILY.configs[0]
FIRST_BARRIER = 2
"""Number of the barrier of the first team."""


def chose_apart(shared: Int32) -> Boolean:
    """Whether the tokens share too little to be worked on together; the same in all blocks of the cluster."""
    length = Int32(memory.load_shared_32(shared + LENGTH_AT))
    return Boolean(APART * length > Int32(memory.load_shared_32(shared + SEEN_AT)))


def _team_at(shared: Int32, team: Int32) -> Int32:
    return shared + TEAMS_AT + team * pages_layout.SHARED_MEMORY


def _list_at(shared: Int32, number: Int32) -> Int32:
    """Of the block's token of that number."""
    first = _team_at(shared, number) + pages_layout.LIST_AT
    return select(number < TEAMS, first, shared + LATER_LISTS_AT + (number - TEAMS) * LIST_BYTES)


@cute.jit
def store_list(
    shared: Int32,
    slot: Int32,
    lane: Int32,
    rank: Int32,
    cluster: Int32,
    position: Int32,
    k: Int64,
    page_stride: Int64,
    chosen: cute.Tensor,
    pages: cute.Tensor,
):
    """A warp makes the list of token `slot` of the tile, if it is the block's.

    chosen, pages: as `list_pages` left them. Where the list of the tile and ids were: nobody may read these any more.
    """
    if slot % cluster == rank:
        number = slot // cluster
        at = _list_at(shared, number)
        count = Int32(0)
        for turn in cutlass.range_constexpr(TURNS):
            usable = Boolean(chosen[turn] >= 0)
            votes = cute.arch.vote_ballot_sync(usable)
            if usable:
                place = count + cute.arch.popc(votes & ((Int32(1) << lane) - 1))
                visible = cutlass.min(position + 1 - chosen[turn] * PAGE, PAGE)
                memory.store_shared_i64x2(at + 16 * place, k + Int64(pages[turn]) * page_stride, Int64(visible))
            count = count + cute.arch.popc(votes)
        if lane == 0:
            memory.store_shared_i32(shared + COUNTS_AT + 4 * number, count)


@cute.jit
def make_ready(shared: Int32, thread: Int32):
    """For the warps that made lists, all of them: barriers for the copies of all teams.

    A barrier of the block is to follow. It would be enough; but racecheck loses it where some warps had barriers of
    their own before, see docs/lore/dense_attention.md, and this one costs nothing that can be measured.
    """
    if thread < TEAMS:
        for i in cutlass.range_constexpr(2 * pages_layout.STAGES):
            bulk_copy.barrier_init(_team_at(shared, thread) + 8 * i, 1)
        bulk_copy.barrier_init_fence()
    bulk_copy.order_before_copies()  # they come to where ids were
    cute.arch.barrier(barrier_id=LISTING, number_of_threads=BRINGERS)


@cute.jit
def attend(
    shared: Int32,
    warp: Int32,
    lane: Int32,
    rank: Int32,
    cluster: Int32,
    first: Int32,
    count: Int32,
    q: Int64,
    q_token_stride: Int64,
    q_head_stride: Int64,
    k_scale: Int64,
    v_scale: Int64,
    out: Int64,
    lse: Int64,
    head: Int32,
    num_kv_heads: Int32,
    group: Int32,
    offsets: tuple,
    policy: Int64,
    code_factor: Int32,
    softmax_scale: Float32,
):
    """The block's tokens of the tile, which has `count` from `first` on.

    q: of token 0 and the head; strides in bytes. offsets: as `PageWalk.walk` takes them.
    """
    team = warp // pages_layout.WARPS
    member = warp % pages_layout.WARPS
    area = _team_at(shared, team)
    barrier = team + FIRST_BARRIER
    base = softmax_scale * Float32(math.log2(math.e))
    if k_scale != Int64(0):
        base = base * memory.load_global_f32(k_scale)
    before = Int32(0)
    for number in cutlass.range(team, TOKENS // cluster, TEAMS, unroll=1):
        slot = rank + cluster * number
        if slot < count:
            token = first + slot
            words = cute.make_rmem_tensor(cute.make_layout((32,)), Uint32)
            own = cute.make_rmem_tensor(cute.make_layout((8,)), Uint32)
            rows = q + Int64(token) * q_token_stride
            operands.load_queries(CONFIG, words, own, rows, q_head_stride, group, lane, member, Int32(BF16))
            WALK.reset(area, 32 * member + lane)
            items = cute.arch.make_warp_uniform(Int32(memory.load_shared_32(shared + COUNTS_AT + 4 * number)))
            entries = _list_at(shared, number)
            WALK.begin(area, entries, member, items, before, offsets, policy)
            operands.prepare_queries(
                CONFIG,
                words,
                own,
                area + pages_layout.QUERIES_AT,
                area + pages_layout.STATES_AT,
                8,
                member,
                lane,
                base,
                Int32(BF16),
            )
            sums = cute.make_rmem_tensor(cute.make_layout((16,)), Float32)
            sums.fill(0.0)
            weights = cute.make_rmem_tensor(cute.make_layout((2,)), Float32)
            weights.fill(0.0)
            WALK.meet(barrier)
            WALK.walk(
                area,
                entries,
                member,
                lane,
                items,
                before,
                barrier,
                offsets,
                policy,
                code_factor,
                sums,
                weights,
            )
            page_results.store_totals(area, member, lane, weights)
            WALK.meet(barrier)
            row = (token * num_kv_heads + head) * group
            page_results.write_rows(area, member, lane, row, group, sums, v_scale, out, lse, Int32(BF16))
            before = before + items
            WALK.meet(barrier)
