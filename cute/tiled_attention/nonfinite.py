"""Values of V that are not finite, added to the sums of rows that see them.

The operand in shared memory holds other numbers in their place (see msa_ops.cute.tiled_attention.pages), so here they
are read once more from the page. This happens to damaged caches only, so it may be slow.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint32
from msa_ops.cute.common import half_pairs as half
from msa_ops.cute.common import streaming
from msa_ops.cute.common.asm import select

NAN = float("nan")


@cute.jit
def add_nonfinite(
    config: cutlass.Constexpr,
    v: Int64,
    scales: Int64,
    token_stride: Int32,
    lane: Int32,
    visible: Int32,
    sums: cute.Tensor,
):
    """For a warp whose rows all see the first `visible` tokens of a page. v, scales: of its head."""
    column = lane % 4
    for token in cutlass.range(visible, unroll=1):
        row = v + Int64(token * token_stride)
        for j in cutlass.range_constexpr(16):
            addend = [Float32(0.0), Float32(0.0)]
            if cutlass.const_expr(config.kv_format == "nvfp4"):
                word = streaming.load_u16(scales + Int64(token * 8 + j // 4 * 2))
                byte = (word >> Uint32(j // 2 % 2 * 8)) & Uint32(0x7F)
                addend = [select(byte == Uint32(0x7F), Float32(NAN), Float32(0.0))] * 2
            elif cutlass.const_expr(config.kv_format == "fp8"):
                word = streaming.load_u16(row + Int64(8 * j + 2 * column))
                for k in cutlass.range_constexpr(2):
                    byte = (word >> Uint32(8 * k)) & Uint32(0x7F)
                    addend[k] = select(byte == Uint32(0x7F), Float32(NAN), Float32(0.0))
            else:
                word = Uint32(streaming.load_i32(row + Int64(16 * j + 4 * column)))
                for k in cutlass.range_constexpr(2):
                    bits = (word << Uint32(16)) if k == 0 else word & Uint32(0xFFFF0000)
                    finite = (bits & Uint32(0x7F800000)) != Uint32(0x7F800000)
                    addend[k] = select(finite, Float32(0.0), half.float_of_bits(Int32(bits)))
            for i in cutlass.range_constexpr(4):
                sums[4 * j + i] = sums[4 * j + i] + addend[i % 2]
