"""Scores of the keys in a warp's ring: each warp decodes 16 tokens at a time and multiplies them with all columns."""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32
from msa_ops.cute.indexer import atoms, keys


class WarpProducts:
    """Methods of the scan on Hopper (sm90_scan.IndexerScanSm90)."""

    @cute.jit
    def score_part(
        self,
        a,
        stage: Int32,
        operand,
        last_visible,
        columns: Int32,
        seen_by_all: Int32,
        position: Int32,
        row: Int32,
    ):
        """Scores `tokens` keys, the first at `position`, and raises the table's entries of `row`."""
        c = self.config
        codes = stage + keys.lane_offset(c.index_format, a.lane)
        scales = stage + (c.tokens * keys.row_bytes(c.index_format) + (a.lane // 4) * 8 + (a.lane % 4) * 2)
        best = cute.make_rmem_tensor(cute.make_layout((2 * self.tiles,)), Float32)
        for i in cutlass.range_constexpr(2 * self.tiles):
            best[i] = -Float32.inf
        own = position + a.lane // 4
        if position + (c.tokens - 1) <= seen_by_all:
            # A decode step in a batch for verification has columns for one tile only.
            if cutlass.const_expr(self.tiles > 1):
                if columns <= 8:
                    self.score_rows(a, codes, scales, operand, best, last_visible, own, 1, False)
                else:
                    self.score_rows(a, codes, scales, operand, best, last_visible, own, self.tiles, False)
            else:
                self.score_rows(a, codes, scales, operand, best, last_visible, own, 1, False)
        else:
            self.score_rows(a, codes, scales, operand, best, last_visible, own, self.tiles, True)
        self.raise_scores(a, best, row)

    @cute.jit
    def score_rows(
        self,
        a,
        codes: Int32,
        scales: Int32,
        operand,
        best,
        last_visible,
        position: Int32,
        tiles: cutlass.Constexpr,
        masked: cutlass.Constexpr,
    ):
        """Raises best[2 n + i], the maxima of the lane's columns in the first `tiles`, to the scores of its tokens.

        position: of the lane's first token. masked: a token counts only up to position last_visible[2 n + i].
        """
        c = self.config
        for m in cutlass.range(c.tokens // 16, unroll=1):
            upper = keys.load_row(c.index_format, codes, scales, 0, a.factors)
            lower = keys.load_row(c.index_format, codes, scales, 8, a.factors)
            for n in cutlass.range_constexpr(0, tiles, c.together):
                self.multiply(
                    upper, lower, operand, best, last_visible, position + 16 * m, n, min(tiles - n, c.together), masked
                )
            codes = codes + 16 * keys.row_bytes(c.index_format)
            scales = scales + 16 * 8

    @cute.jit
    def multiply(
        self,
        upper,
        lower,
        operand,
        best,
        last_visible,
        position: Int32,
        begin: cutlass.Constexpr,
        tiles: cutlass.Constexpr,
        masked: cutlass.Constexpr,
    ):
        """16 tokens, the lane's first at `position`, with `tiles` tiles of 8 columns from `begin` on, side by side."""
        sums = [(Float32(0.0), Float32(0.0), Float32(0.0), Float32(0.0))] * tiles
        kind = keys.operand_kind(self.config.index_format)
        for step in cutlass.range_constexpr(keys.STEPS):
            left = (upper[2 * step], lower[2 * step], upper[2 * step + 1], lower[2 * step + 1])
            for n in cutlass.range_constexpr(tiles):
                at = 16 * (begin + n) + 2 * step
                sums[n] = atoms.mma(kind, left, (operand[at], operand[at + 1]), sums[n])
        for n in cutlass.range_constexpr(tiles):
            for half in cutlass.range_constexpr(2):
                for i in cutlass.range_constexpr(2):
                    at = 2 * (begin + n) + i
                    raised = atoms.max_f32(best[at], sums[n][2 * half + i])
                    if cutlass.const_expr(masked):
                        raised = raised if position + 8 * half <= last_visible[at] else best[at]
                    best[at] = raised
