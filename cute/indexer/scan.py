"""The indexer's scan: scores of all blocks, and of each thread block's run of pages the best ones.

What all chips' scans have in common: the thread block finds its run, scores it table by table (`score`, of the chip's
class), and then each warp chooses, column by column, the best blocks of what a request has in this run. If that is the
whole request, they are the result; otherwise they go to the workspace as candidates for the merge.

Workspace: for block i of G two lists a column: list 0 of the request that begins before the run, list 1 of the one
that ends behind it; each topk entries of (block id, key), ascending, with key 0 behind the last.
"""

from types import SimpleNamespace

import cuda.bindings.driver as cuda
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.indexer import atoms, keys, work
from msa_ops.cute.indexer.choosing import Choosing
from msa_ops.cute.indexer.score_table import ScoreTable
from msa_ops.cute.indexer.window import Window


class IndexerScan(Window, ScoreTable, Choosing):
    """A chip's class says what lies where in shared memory (`layout`), what is made ready there (`set_up`,
    `tear_down`) and in registers (`registers`), and scores (`score`).
    """

    def __init__(self, config) -> None:
        self.config = config

    @cute.jit
    def __call__(
        self,
        index_q: cute.Pointer,
        index_cache: cute.Pointer,
        block_table: cute.Pointer,
        seq_lens: cute.Pointer,
        cu_seqlens: cute.Pointer,
        block_ids: cute.Pointer,
        workspace: cute.Pointer,
        q_token_stride: Int64,
        q_head_stride: Int64,
        page_stride: Int64,
        table_stride: Int64,
        out_token_stride: Int64,
        out_head_stride: Int64,
        heads_magic: Int64,
        blocks_magic: Int64,
        num_pages: Int32,
        num_tokens: Int32,
        batch: Int32,
        q_len: Int32,
        num_heads: Int32,
        max_blocks: Int32,
        topk: Int32,
        init_blocks: Int32,
        local_blocks: Int32,
        q_dtype: Int32,
        num_blocks: Int32,
        code_factor: Int32,
        group_block_pages: Int32,
        group_request_pages: Int32,
        stream: cuda.CUstream,
    ):
        self.kernel(
            index_q,
            index_cache,
            block_table,
            seq_lens,
            cu_seqlens,
            block_ids,
            workspace,
            q_token_stride,
            q_head_stride,
            page_stride,
            table_stride,
            out_token_stride,
            out_head_stride,
            heads_magic,
            blocks_magic,
            num_pages,
            num_tokens,
            batch,
            q_len,
            num_heads,
            max_blocks,
            topk,
            init_blocks,
            local_blocks,
            q_dtype,
            num_blocks,
            code_factor,
            group_block_pages,
            group_request_pages,
        ).launch(
            grid=(num_blocks, 1, 1),
            block=(self.config.threads, 1, 1),
            max_number_threads=(self.config.bound, 1, 1),
            min_blocks_per_mp=1,
            preferred_smem_carveout=100,  # as the merge, which waits beside it
            smem=self.config.shared_memory,
            stream=stream,
            use_pdl=True,
        )

    @cute.kernel
    def kernel(
        self,
        index_q: cute.Pointer,
        index_cache: cute.Pointer,
        block_table: cute.Pointer,
        seq_lens: cute.Pointer,
        cu_seqlens: cute.Pointer,
        block_ids: cute.Pointer,
        workspace: cute.Pointer,
        q_token_stride: Int64,
        q_head_stride: Int64,
        page_stride: Int64,
        table_stride: Int64,
        out_token_stride: Int64,
        out_head_stride: Int64,
        heads_magic: Int64,
        blocks_magic: Int64,
        num_pages: Int32,
        num_tokens: Int32,
        batch: Int32,
        q_len: Int32,
        num_heads: Int32,
        max_blocks: Int32,
        topk: Int32,
        init_blocks: Int32,
        local_blocks: Int32,
        q_dtype: Int32,
        num_blocks: Int32,
        code_factor: Int32,
        group_block_pages: Int32,
        group_request_pages: Int32,
    ):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        a = SimpleNamespace(
            index_q=index_q.toint(),
            index_cache=index_cache.toint(),
            block_table=block_table.toint(),
            seq_lens=seq_lens.toint(),
            cu_seqlens=cu_seqlens.toint(),
            block_ids=block_ids.toint(),
            workspace=workspace.toint(),
            q_token_stride=q_token_stride,
            q_head_stride=q_head_stride,
            page_stride=page_stride,
            table_stride=table_stride,
            out_token_stride=out_token_stride,
            out_head_stride=out_head_stride,
            heads_magic=heads_magic,
            blocks_magic=blocks_magic,
            num_pages=num_pages,
            num_tokens=num_tokens,
            batch=batch,
            q_len=q_len,
            num_heads=num_heads,
            max_blocks=max_blocks,
            topk=topk,
            init_blocks=init_blocks,
            local_blocks=local_blocks,
            q_dtype=q_dtype,
            num_blocks=num_blocks,
            group_block_pages=group_block_pages,
            group_request_pages=group_request_pages,
            factors=keys.factors_of(code_factor, self.config.factors),
            thread=thread,
            lane=thread % 32,
            warp=cute.arch.make_warp_uniform(thread // 32),
            block=block,
        )
        c = self.config
        a.few = batch <= 32
        a.width = Int32(32) if a.few else Int32(c.threads)
        a.own_window = self.own_window(a)
        self.layout(a)
        self.look_first(a)
        self.set_up(a)
        cute.arch.mbarrier_init_fence()
        self.clear(a)
        cute.arch.sync_threads()
        self.registers(a)
        window_total, behind, parity = self.start(a)
        self.scan(a, window_total + behind, window_total, parity)
        self.tear_down(a)

    def scan(self, a, total: Int32, window_total: Int32, parity: Int32) -> None:
        """total: all work. window_total: of the first window. parity: of the ring's first place."""
        self.scan_run(a, total, window_total, parity)

    @cute.jit
    def scan_run(self, a, total: Int32, window_total: Int32, parity: Int32):
        """The block's run, table by table."""
        c = self.config
        base, window = Int32(0), Int32(0)
        begin = work.run_begin(a.block, total, a.num_blocks, a.blocks_magic)
        end = work.run_begin(a.block + 1, total, a.num_blocks, a.blocks_magic)
        end = Int32(0) if begin == end else end  # no work
        slot = Int32(0)  # where this warp's ring goes on
        while base < end:
            low = begin if begin > base else base
            high = base + window_total
            high = end if end < high else high
            place = Int32(atoms.lds_u32(a.w_place))  # of the request of `low`
            while low < high:
                stop = low + c.pages
                stop = high if high < stop else stop
                slot, parity, known = self.score(a, window, place, begin, low, stop, slot, parity)
                place = self.choose(a, place, known, begin, end, low, stop)
                low = stop
                cute.arch.sync_threads()
                if low < end:
                    self.clear(a)
                    cute.arch.sync_threads()
            base = base + window_total
            window = window + c.threads
            if base < end:
                later = self.request_work(a, window + a.thread)
                window_total = self.load_window(a, later, base, total, Int32(0))

    def registers(self, a) -> None:
        """What each lane keeps of its queries."""

    def look_first(self, a) -> None:
        """What is asked for before anything else."""

    def tear_down(self, a) -> None:
        """Nothing is held."""

    @cute.jit
    def start(self, a):
        """Waits for the kernel before and loads the first window of requests. Gives the work of this window and of
        those behind it, and where the ring's parity begins.
        """
        behind, window_total = Int32(0), Int32(0)
        cute.arch.griddepcontrol_wait()
        request = self.request_work(a, a.lane if a.few else a.thread)  # what everything else waits for
        cute.arch.griddepcontrol_launch_dependents()
        if a.few:
            window_total = self.load_few(a, request)
        else:
            behind = self.work_behind(a, Int32(self.config.threads))
            window_total = self.load_window(a, request, Int32(0), Int32(-1), behind)
        return window_total, behind, Int32(0)


def trace_as(scan: IndexerScan):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem
    alignments = (16, 16, 4, 4, 4, 4, 8)
    return scan, (
        *(make_ptr(Uint8, 16, gmem, assumed_align=alignment) for alignment in alignments),
        *[Int64(0)] * 8,
        *[Int32(0)] * 14,
        make_fake_stream(),
    )
