"""The table of scores in shared memory: a row a page of the run, an entry a column, as keys in the order of choice."""

import cutlass
import cutlass.cute as cute
from cutlass import Int32
from msa_ops.cute.indexer import atoms, ranking


class ScoreTable:
    """Methods of a scan (scan.IndexerScan)."""

    @cute.jit
    def clear(self, a):
        """No scores in the table."""
        at = a.scores + a.thread * 16
        while at < a.scores + self.config.score_bytes:
            atoms.sts_zero_x4(at)
            at = at + self.config.threads * 16

    def entry(self, a, column: Int32, row: Int32) -> Int32:
        return a.scores + (column * (self.config.pages + 1) + row) * 4

    @cute.jit
    def raise_scores(self, a, best, row: Int32):
        """Maximum over the eight lanes that hold other tokens of the same columns, then into the table.

        While a lane has several columns it gives half of them to its partner, so that fewer values travel.
        """
        group, t = a.lane // 4, a.lane % 4
        values = [best[i] for i in range(2 * self.tiles)]
        splits = 0
        for level in cutlass.range_constexpr(3):
            if cutlass.const_expr(len(values) > 1):
                odd = (group // (1 << level)) % 2 == 1
                kept = []
                for i in cutlass.range_constexpr(len(values) // 2):
                    mine = values[2 * i + 1] if odd else values[2 * i]
                    given = values[2 * i] if odd else values[2 * i + 1]
                    other = cute.arch.shuffle_sync_bfly(given, 4 << level)
                    kept.append(atoms.max_f32(mine, other))
                values = kept
                splits += 1
            else:
                values = [atoms.max_f32(values[0], cute.arch.shuffle_sync_bfly(values[0], 4 << level))]
        column_bits = (1 << splits) - 1
        if group <= column_bits:
            column = (group // 2) * 8 + 2 * t + group % 2
            at = self.entry(a, column, row)
            for i in cutlass.range_constexpr(len(values)):
                # 2 n + i of `best` is (i << splits) + group
                further = (i << splits) // 2 * 8 * (self.config.pages + 1) * 4
                atoms.max_shared_u32(at, ranking.key_of_score(values[i]), further)
