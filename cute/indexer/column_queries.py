"""The queries of a tile in a warp's registers: 8 columns side by side, each lane a share of one (queries.py)."""

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64
from msa_ops.cute.indexer import queries


class ColumnQueries:
    """Methods of the scan on Hopper (sm90_scan.IndexerScanSm90)."""

    @cute.jit
    def load_queries(self, a, place: Int32, piece: Int32):
        """`find_queries`, and asks for them."""
        rows = cute.make_rmem_tensor(cute.make_layout((self.tiles,)), Int64)
        tile_begin, tile_end, columns, seen_by_all = self.find_queries(a, place, piece, rows)
        self.ask_for_queries(a, rows)
        return tile_begin, tile_end, columns, seen_by_all

    @cute.jit
    def find_queries(self, a, place: Int32, piece: Int32, rows):
        """Addresses of the queries of a piece's tile, one for each of the lane's columns, 0 behind the last; the last
        position that each of the lane's columns sees.

        Gives the tile's first piece and the one behind its last, the columns of the request from the tile on, and the
        last position that all of them see.
        """
        t = self.tile_at(a, place, piece)
        for n in cutlass.range_constexpr(self.tiles):
            rows[n] = self.query_address(a, t, 8 * n + a.lane // 4)
            for i in cutlass.range_constexpr(2):
                column = 8 * n + 2 * (a.lane % 4) + i
                seen = self.last_seen(a, t, column)
                a.last_visible[2 * n + i] = seen if column < t.columns else Int32(-1)
        return t.begin, t.end, t.columns, self.last_seen(a, t, Int32(0))

    @cute.jit
    def ask_for_queries(self, a, rows):
        """Tiles beyond a request's columns become zeros: they are multiplied, too."""
        for n in cutlass.range_constexpr(self.tiles):
            queries.load_words(self.config.index_format, rows[n], a.q_dtype, a.lane % 4, a.operand, 16 * n)

    @cute.jit
    def convert_queries(self, a, columns: Int32, operand):
        for n in cutlass.range_constexpr(self.tiles):
            if 8 * n < columns:
                queries.convert(self.config.index_format, a.q_dtype, operand, 16 * n)
