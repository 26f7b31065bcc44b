"""A warp's ring of pages in shared memory: bulk copies ahead of time, a barrier a place."""

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64
from msa_ops.cute.indexer import atoms, keys, work

PAGE = work.PAGE


class PageRing:
    """Methods of the scans on Hopper (sm90_scan.IndexerScanSm90)."""

    @cute.jit
    def set_up(self, a):
        """Barriers of the rings; known to all after the next barrier of the block."""
        c = self.config
        if a.thread < c.warps * c.stages:
            atoms.barrier_init(a.barriers + a.thread * 8, 1)

    def ring_of(self, a):
        """Shared addresses of the warp's ring and of its barriers."""
        c = self.config
        return a.ring + a.warp * (c.stages * c.stage_bytes), a.barriers + a.warp * (c.stages * 8)

    @cute.jit
    def ask(self, a, ring: Int32, barriers: Int32, slot: Int32, page: Int32, part: Int32):
        """Starts the copy of a part of a page into the ring, or completes its barrier if there is no such page."""
        c = self.config
        exists = page >= 0 and page < a.num_pages
        with cute.arch.elect_one():
            barrier = barriers + slot * 8
            target = ring + slot * c.stage_bytes
            atoms.barrier_expect(barrier, Int32(c.stage_bytes) if exists else Int32(0))
            if exists:
                source = a.index_cache + Int64(page) * a.page_stride
                row = keys.row_bytes(c.index_format)
                atoms.bulk_load(target, source + Int64(part * (c.tokens * row)), c.tokens * row, barrier)
                if cutlass.const_expr(c.index_format == "nvfp4"):
                    scales = source + Int64(PAGE * row + part * (c.tokens * 8))
                    atoms.bulk_load(target + c.tokens * row, scales, c.tokens * 8, barrier)
