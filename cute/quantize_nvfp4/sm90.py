"""quantize_nvfp4 on Hopper: a thread takes one group of 16 values and writes 8 bytes of codes and a scale byte.

Memory-bound by design: 2.56 bytes move for a bf16 value, so there is room for exact divisions. The contract (order
of clamp, rounding and division; code 0 for NaN and for what rounds to zero) is that of msa_ops.formats.nvfp4.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float16, Float32, Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import scalar
from msa_ops.cute.quantize_nvfp4.sm90_configs import Config

GROUP = 16
DTYPES = {"bfloat16": cutlass.BFloat16, "float16": Float16, "float32": Float32}


class QuantizeNvfp4Sm90:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.dtype = DTYPES[config.dtype]

    @cute.jit
    def __call__(
        self,
        x: cute.Pointer,
        codes: cute.Pointer,
        scales: cute.Pointer,
        global_scale: cute.Pointer,
        scale_floor: Float32,
        num_groups: Int64,
        stream: cuda.CUstream,
    ):
        threads = self.config.threads
        blocks = Int32((num_groups + threads - 1) // threads)
        self.kernel(x, codes, scales, global_scale, scale_floor, num_groups).launch(
            grid=(blocks, 1, 1), block=(threads, 1, 1), stream=stream
        )

    @cute.kernel
    def kernel(
        self,
        x: cute.Pointer,
        codes: cute.Pointer,
        scales: cute.Pointer,
        global_scale: cute.Pointer,
        scale_floor: Float32,
        num_groups: Int64,
    ):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        group = Int64(block) * self.config.threads + thread
        if group < num_groups:
            layout = cute.make_layout((GROUP,))
            source = cute.make_tensor(x + group * GROUP, layout)
            values = cute.make_rmem_tensor(layout, self.dtype)
            cute.autovec_copy(source, values)

            amax = Float32(0.0)
            for i in cutlass.range_constexpr(GROUP):
                amax = scalar.max_f32(amax, scalar.abs_f32(Float32(values[i])))
            wanted = scalar.div_rn(amax, Float32(6.0))
            tensor_scale = Float32(1.0)
            if cutlass.const_expr(self.config.global_scale):
                tensor_scale = cute.make_tensor(global_scale, cute.make_layout((1,)))[0]
                wanted = scalar.div_rn(wanted, tensor_scale)
            byte = scalar.to_e4m3(scalar.min_f32(scalar.max_f32(wanted, scale_floor), Float32(448.0)))
            step = scalar.from_e4m3(byte)
            if cutlass.const_expr(self.config.global_scale):
                step = step * tensor_scale
            factor = scalar.div_rn(Float32(1.0), step)

            words = cute.make_rmem_tensor(cute.make_layout((2,)), Uint32)
            for word in cutlass.range_constexpr(2):
                packed = Uint32(0)
                for i in cutlass.range_constexpr(8):
                    value = Float32(values[word * 8 + i])
                    if cutlass.const_expr(self.config.division == "divide"):
                        scaled = scalar.div_rn(value, step)
                    else:
                        scaled = value * factor
                    packed = packed | (scalar.to_e2m1(scaled) << Uint32(4 * i))
                # A step of zero, of a NaN tensor scale, or below zero holds nothing.
                words[word] = packed if step > Float32(0.0) else Uint32(0)
            target = cute.make_tensor(cute.recast_ptr(codes, dtype=Uint32) + group * 2, cute.make_layout((2,)))
            cute.autovec_copy(words, target)
            cute.make_tensor(scales + group, cute.make_layout((1,)))[0] = Uint8(byte)


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem
    return QuantizeNvfp4Sm90(config), (
        make_ptr(DTYPES[config.dtype], 16, gmem, assumed_align=16),
        make_ptr(Uint8, 16, gmem, assumed_align=16),
        make_ptr(Uint8, 16, gmem, assumed_align=1),
        make_ptr(Float32, 16, gmem, assumed_align=4),
        Float32(0.0),
        Int64(0),
        make_fake_stream(),
    )
