"""The warp's matrix product m16n8k16 with fp32 sums.

Lane 4 r + c holds of A rows r and r + 8, columns 2c, 2c + 1, 2c + 8, 2c + 9 in the order (r, low), (r + 8, low),
(r, high), (r + 8, high); of B column r, rows 2c, 2c + 1 and 2c + 8, 2c + 9; of C rows r and r + 8, columns 2c, 2c + 1.
"""

from collections.abc import Sequence

from cutlass import Float32, Uint32
from msa_ops.cute.common.asm import asm


def mma_16816(kind: str, c: Sequence[Float32], a: Sequence[Uint32], b: Sequence[Uint32]) -> tuple:
    """C + A B; `kind` is "f16" or "bf16"."""
    return asm(
        f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"
        " {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};",
        [Float32] * 4,
        [*a, *b, *c],
        pure=True,
    )
