"""The indexer's scan on Blackwell: as on Hopper, with keys in E4M3 and products by the tensor memory's unit.

Pages go through four rings, each warp at its own place in the row:

  copies   one warp asks for pages by bulk copies
  keys     four warps, one token a thread, decode a page to E4M3 into tensor memory, where it is the left operand
  sums     one thread multiplies it with up to `columns` queries, which lie in shared memory
  scores   four warps take the maxima of 32 tokens a column into the table of the thread block

Two more warps bring the queries of the next request while the products of this one go on. All count pages (and sets
of queries) since the start of the kernel; from these counts follow places and parities in the rings.
"""

from types import SimpleNamespace

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint8, Uint32
from msa_ops.cute.common import bulk_copy, tensor_memory
from msa_ops.cute.indexer import atoms, e4m3_keys, ranking, work
from msa_ops.cute.indexer.scan import IndexerScan, trace_as
from msa_ops.cute.indexer.sm100_scan_configs import KEY_COLUMNS, PAGE_BYTES, Config

PAGE = work.PAGE
ROW_BYTES = 64  # codes of a token
QUERY_BYTES = 128


class IndexerScanSm100(IndexerScan):
    def layout(self, a: SimpleNamespace) -> None:
        c = self.config
        a.queries = cute.arch.get_dyn_smem(Uint8, alignment=1024).toint()
        a.ring = a.queries + 2 * c.query_bytes
        a.scores = a.ring + c.ring_bytes
        a.sums = a.scores + c.score_bytes
        a.copies_full = a.sums + 4 * 32
        a.copies_free = a.copies_full + 8 * c.copies
        a.keys_full = a.copies_free + 8 * c.copies
        a.keys_free = a.keys_full + 8 * c.keys
        a.sums_full = a.keys_free + 8 * c.keys
        a.sums_free = a.sums_full + 8 * c.sums
        a.queries_full = a.sums_free + 8 * c.sums
        a.queries_free = a.queries_full + 8 * 2
        a.exist = a.queries_free + 8 * 2
        a.tensor_memory = a.exist + 4 * c.copies
        self.layout_window(a, a.tensor_memory + 16)

    @cute.jit
    def set_up(self, a):
        """Barriers, and tensor memory; both are known to all after the next barrier of the block."""
        c = self.config
        if a.thread == 0:
            arrivals = (
                (a.copies_full, c.copies, 1),
                (a.copies_free, c.copies, 4),
                (a.keys_full, c.keys, 4),
                (a.keys_free, c.keys, 1),
                (a.sums_full, c.sums, 1),
                (a.sums_free, c.sums, 4),
                (a.queries_full, 2, 2),
                (a.queries_free, 2, 1),
            )
            for barriers, count, each in arrivals:
                for i in range(count):
                    atoms.barrier_init(barriers + 8 * i, each)
        if a.warp == self.products_warp:
            tensor_memory.allocate(a.tensor_memory, c.tensor_memory_columns)
            tensor_memory.allocate_no_more()
        tensor_memory.fence_before_sync()

    @cute.jit
    def tear_down(self, a):
        if a.warp == self.products_warp:
            tensor_memory.fence_after_sync()
            tensor_memory.free(Int32(atoms.lds_u32(a.tensor_memory)), self.config.tensor_memory_columns)

    @property
    def maxima_warp(self) -> int:
        """The first one."""
        return 4 * self.config.groups

    @property
    def products_warp(self) -> int:
        return self.maxima_warp + 4

    @property
    def copies_warp(self) -> int:
        return self.maxima_warp + 5

    # Roles. `done` and `sets` count the pages and the sets of queries before this table.

    @cute.jit
    def score(self, a, window: Int32, place: Int32, begin: Int32, low: Int32, stop: Int32, done: Int32, sets: Int32):
        """Scores the pieces low to stop - 1 into the table. Gives both counts behind it, and what `choose` needs."""
        after = sets
        known = self.before_choosing(a, place, begin, low, stop)
        tensor_memory.fence_after_sync()
        base = Int32(atoms.lds_u32(a.tensor_memory))
        if a.warp < self.maxima_warp:
            self.decode(a, stop - low, done, base)
        elif a.warp < self.products_warp:
            self.take_maxima(a, window, place, low, stop, done, base)
        elif a.warp == self.products_warp:
            self.multiply_pages(a, place, low, stop, done, sets, base)
        elif a.warp == self.copies_warp:
            self.copy(a, window, place, low, stop, done)
        else:
            self.bring_queries(a, place, low, stop, sets)
        piece = low
        while piece < stop:
            t = self.tile_within(a, place, piece, stop)
            place = t.place
            piece = t.stop
            after = after + 1
        tensor_memory.fence_before_sync()
        cute.arch.sync_threads()
        return done + (stop - low), after, known

    @cute.jit
    def tile_within(self, a, place: Int32, piece: Int32, stop: Int32):
        """`tile_at`, of a request at `place` or behind it: its place, columns in the tile alone, and where the tile's
        pieces end, `stop` at the latest.
        """
        place = self.place_of(a, place, piece)
        t = self.tile_at(a, place, piece)
        columns = Int32(self.config.columns) if t.columns > self.config.columns else t.columns
        return SimpleNamespace(
            number=t.number,
            begin=t.begin,
            columns=columns,
            query_begin=t.query_begin,
            position=t.position,
            place=place,
            stop=stop if stop < t.end else t.end,
        )

    @cute.jit
    def wait_full(self, barriers: Int32, size: cutlass.Constexpr, count: Int32) -> Int32:
        """Place in a ring of what is counted `count`, when it is there."""
        at = count % size
        atoms.barrier_wait(barriers + at * 8, (count // size) % 2)
        return at

    @cute.jit
    def wait_free(self, barriers: Int32, size: cutlass.Constexpr, count: Int32) -> Int32:
        """The same, when it may be written."""
        at = count % size
        atoms.barrier_wait(barriers + at * 8, (count // size) % 2 ^ 1)
        return at

    @cute.jit
    def arrive(self, a, barrier: Int32):
        """The whole warp is done."""
        cute.arch.sync_warp()
        if a.lane == 0:
            bulk_copy.barrier_arrive(barrier)

    @cute.jit
    def copy(self, a, window: Int32, place: Int32, low: Int32, stop: Int32, done: Int32):
        c = self.config
        count = stop - low
        page = self.look_up(a, window, place, low + a.lane, stop)
        later = page
        for i in cutlass.range(count, unroll=1):
            page, later = self.pages_ahead(a, page, later, i, count, window, place, (low, 1), stop)
            this_page = cute.arch.shuffle_sync(page, i % 32)
            slot = self.wait_free(a.copies_free, c.copies, done + i)
            if a.lane == 0:
                barrier = a.copies_full + slot * 8
                exists = this_page >= 0 and this_page < a.num_pages
                atoms.sts_u32(a.exist + slot * 4, Int32(1) if exists else Int32(0))
                atoms.barrier_expect(barrier, Int32(PAGE_BYTES) if exists else Int32(0))
                if exists:
                    source = a.index_cache + Int64(this_page) * a.page_stride
                    atoms.bulk_load(a.ring + slot * PAGE_BYTES, source, PAGE_BYTES, barrier)
            cute.arch.sync_warp()

    @cute.jit
    def decode(self, a, count: Int32, done: Int32, base: Int32):
        c = self.config
        token = a.thread % PAGE
        lanes = (token // 32 * 32) << 16
        # Of the pages `done` and on, this group's.
        i = (a.warp // 4 - done) % c.groups
        i = i + c.groups if i < 0 else i
        while i < count:
            words = cute.make_rmem_tensor(cute.make_layout((32,)), Uint32)
            for j in cutlass.range_constexpr(32):
                words[j] = Uint32(0)
            slot = self.wait_full(a.copies_full, c.copies, done + i)
            if atoms.lds_u32(a.exist + slot * 4) != 0:
                page = a.ring + slot * PAGE_BYTES
                scales = atoms.lds_u32x2(page + PAGE * ROW_BYTES + token * 8)
                for j in cutlass.range_constexpr(4):
                    codes = atoms.lds_u32x4(page + token * ROW_BYTES, 16 * j)
                    for k in cutlass.range_constexpr(2):
                        scale = e4m3_keys.scale_of(scales, 2 * j + k)
                        if cutlass.const_expr(c.route == "fp16"):
                            scale = e4m3_keys.half_scale(scale)
                        for half in cutlass.range_constexpr(2):
                            eight = codes[2 * k + half]
                            if cutlass.const_expr(c.route == "fp16"):
                                low, high = e4m3_keys.by_fp16(eight, scale)
                            else:
                                low, high = e4m3_keys.by_qmul4(eight, scale)
                            at = 8 * j + 4 * k + 2 * half
                            words[at], words[at + 1] = low, high
            self.arrive(a, a.copies_free + slot * 8)
            to = self.wait_free(a.keys_free, c.keys, done + i)
            tensor_memory.fence_after_sync()
            tensor_memory.store(base + to * KEY_COLUMNS + lanes, [words[j] for j in range(32)])
            tensor_memory.fence_before_sync()
            self.arrive(a, a.keys_full + to * 8)
            i = i + c.groups

    @cute.jit
    def multiply_pages(self, a, place: Int32, low: Int32, stop: Int32, done: Int32, sets: Int32, base: Int32):
        c = self.config
        instruction = tensor_memory.instruction_e4m3(PAGE, c.columns)
        piece = low
        while piece < stop:
            t = self.tile_within(a, place, piece, stop)
            which = self.wait_full(a.queries_full, 2, sets)
            right = tensor_memory.matrix_swizzled(a.queries + which * c.query_bytes)
            while piece < t.stop:
                count = done + (piece - low)
                keys = self.wait_full(a.keys_full, c.keys, count)
                sums = self.wait_free(a.sums_free, c.sums, count)
                tensor_memory.fence_after_sync()
                if a.lane == 0:
                    left = base + keys * KEY_COLUMNS
                    to = base + (c.keys * KEY_COLUMNS) + sums * c.columns
                    for step in cutlass.range_constexpr(4):
                        tensor_memory.multiply_e4m3(to, left + 8 * step, right + Int64(2 * step), instruction, step > 0)
                    tensor_memory.commit(a.keys_free + keys * 8)
                    tensor_memory.commit(a.sums_full + sums * 8)
                cute.arch.sync_warp()
                piece = piece + 1
            if a.lane == 0:
                tensor_memory.commit(a.queries_free + which * 8)
            cute.arch.sync_warp()
            place = t.place
            sets = sets + 1

    @cute.jit
    def bring_queries(self, a, place: Int32, low: Int32, stop: Int32, sets: Int32):
        """Rows of 128 bytes of which 16-byte pieces change places with the row; zeros in rows without a query."""
        c = self.config
        thread = a.thread - 32 * (c.warps - 2)
        piece = low
        while piece < stop:
            t = self.tile_within(a, place, piece, stop)
            which = self.wait_free(a.queries_free, 2, sets)
            target = a.queries + which * c.query_bytes
            for i in cutlass.range_constexpr(c.columns * 8 // 64):
                row = 8 * i + thread // 8
                part = thread % 8
                words = (Uint32(0), Uint32(0), Uint32(0), Uint32(0))
                source = self.query_address(a, t, row)
                if source != Int64(0):
                    words = atoms.ldg_constant_u32x4(source + Int64(part * 16))
                atoms.sts_u32x4(target + row * QUERY_BYTES + ((part ^ (row % 8)) * 16), words)
            bulk_copy.order_before_copies()
            self.arrive(a, a.queries_full + which * 8)
            place = t.place
            piece = t.stop
            sets = sets + 1

    @cute.jit
    def take_maxima(self, a, window: Int32, place: Int32, low: Int32, stop: Int32, done: Int32, base: Int32):
        c = self.config
        quarter = a.warp - self.maxima_warp
        lanes = (quarter * 32) << 16
        count = stop - low
        page = self.look_up(a, window, place, low + a.lane, stop)
        later = page
        piece = low
        while piece < stop:
            t = self.tile_within(a, place, piece, stop)
            seen_by_all = self.last_seen(a, t, Int32(0))
            while piece < t.stop:
                i = piece - low
                page, later = self.pages_ahead(a, page, later, i, count, window, t.place, (low, 1), stop)
                this_page = cute.arch.shuffle_sync(page, i % 32)
                sums = self.wait_full(a.sums_full, c.sums, done + i)
                tensor_memory.fence_after_sync()
                source = base + (c.keys * KEY_COLUMNS) + sums * c.columns + lanes
                values = tensor_memory.load(source, c.columns)
                tensor_memory.fence_before_sync()
                self.arrive(a, a.sums_free + sums * 8)
                first = (piece - t.begin) * PAGE + quarter * 32
                if this_page >= 0 and this_page < a.num_pages:
                    if first + 31 <= seen_by_all:
                        self.raise_maxima(a, t, values, first + a.lane, i, False)
                    else:
                        self.raise_maxima(a, t, values, first + a.lane, i, True)
                piece = piece + 1
            place = t.place

    @cute.jit
    def raise_maxima(self, a, t, values, position: Int32, row: Int32, masked: cutlass.Constexpr):
        """values: of this lane's token at `position`, a column each. masked: it may come after a query."""
        c = self.config
        for four in cutlass.range_constexpr(c.columns // 4):
            if 4 * four < t.columns:
                mine = Float32(-Float32.inf)
                for i in cutlass.range_constexpr(4):
                    column = 4 * four + i
                    value = atoms.float_of(values[column])
                    if cutlass.const_expr(masked):
                        value = value if position <= self.last_seen(a, t, Int32(column)) else Float32(-Float32.inf)
                    best = atoms.max_f32(atoms.warp_max_f32(value), Float32(-Float32.inf))  # a number, if all were NaN
                    mine = best if a.lane == i else mine
                if a.lane < 4 and 4 * four + a.lane < t.columns:
                    atoms.max_shared_u32(self.entry(a, 4 * four + a.lane, row), ranking.key_of_score(mine))


def trace(config: Config):
    return trace_as(IndexerScanSm100(config))
