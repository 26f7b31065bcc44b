"""quantize_nvfp4 on Hopper: a thread takes one group of 16 values and writes 8 bytes of codes and a scale byte.

2.56 bytes move for a bf16 value, so the memory roof leaves about 17 instructions a value: the usual case (16-bit x,
no tensor scale) works on pairs and without division; all others divide exactly as msa_ops.formats.nvfp4 defines.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float16, Float32, Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import scalar
from msa_ops.cute.quantize_nvfp4 import pairs
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
            words = cute.make_rmem_tensor(cute.make_layout((2,)), Uint32)
            if cutlass.const_expr(self.config.fast):
                byte = self.encode_pairs(x, group, scale_floor, words)
            else:
                byte = self.encode_values(x, group, global_scale, scale_floor, words)
            target = cute.make_tensor(cute.recast_ptr(codes, dtype=Uint32) + group * 2, cute.make_layout((2,)))
            cute.autovec_copy(words, target)
            cute.make_tensor(scales + group, cute.make_layout((1,)))[0] = Uint8(byte)

    @cute.jit
    def encode_values(
        self, x: cute.Pointer, group: Int64, global_scale: cute.Pointer, scale_floor: Float32, words: cute.Tensor
    ):
        """Any dtype, tensor scale and division; returns the scale byte."""
        layout = cute.make_layout((GROUP,))
        values = cute.make_rmem_tensor(layout, self.dtype)
        cute.autovec_copy(cute.make_tensor(x + group * GROUP, layout), values)

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
            # A tensor scale that is not a positive number makes every scale NaN; the step then is not above zero.
            valid = (tensor_scale > Float32(0.0)) & (tensor_scale < Float32(float("inf")))
            byte = byte if valid else Uint32(0x7F)
            step = step if valid else Float32(0.0)
        factor = scalar.div_rn(Float32(1.0), step)

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
        return byte

    @cute.jit
    def encode_pairs(self, x: cute.Pointer, group: Int64, scale_floor: Float32, words: cute.Tensor):
        """16-bit values by the m31 contract; returns the scale byte."""
        kind = "bf16x2" if self.config.dtype == "bfloat16" else "f16x2"
        layout = cute.make_layout((GROUP // 2,))
        pairs_of = cute.make_rmem_tensor(layout, Uint32)
        source = cute.make_tensor(cute.recast_ptr(x, dtype=Uint32) + group * (GROUP // 2), layout)
        cute.autovec_copy(source, pairs_of)

        top = pairs.abs_pair(pairs_of[0])
        top_nan = top
        for i in cutlass.range_constexpr(1, GROUP // 2):
            magnitude = pairs.abs_pair(pairs_of[i])
            top = pairs.max_pair(top, magnitude, kind)
            top_nan = pairs.max_pair_nan(top_nan, magnitude, kind)
        if pairs.has_nan(top_nan, kind) != Uint32(0):
            for i in cutlass.range_constexpr(GROUP // 2):
                pairs_of[i] = pairs.without_nan(pairs_of[i], kind)
            top = pairs.without_nan(top, kind)
        amax = scalar.max_f32(pairs.low(top, kind), pairs.high(top, kind))
        wanted = scalar.div_rn(amax, Float32(6.0))
        byte = scalar.to_e4m3(scalar.min_f32(scalar.max_f32(wanted, scale_floor), Float32(448.0)))
        step = scalar.from_e4m3(byte)
        reciprocal = scalar.div_rn(Float32(1.0), step)
        limit = step * Float32(6.0)
        for word in cutlass.range_constexpr(2):
            packed = Uint32(-sum(pairs.BIAS << 4 * i for i in range(8)) % 2**32)
            signs = Uint32(0)
            for i in cutlass.range_constexpr(4):
                pair = pairs_of[word * 4 + i]
                even = pairs.magnitude_code(pairs.low(pair, kind), step, reciprocal, limit)
                odd = pairs.magnitude_code(pairs.high(pair, kind), step, reciprocal, limit)
                packed = packed + (even << Uint32(8 * i)) + (odd << Uint32(8 * i + 4))
                signs = signs + (pairs.sign_bits(pair) << Uint32(8 * i))
            # Only without a floor is a step zero.
            words[word] = pairs.signed(packed, signs) if step > Float32(0.0) else Uint32(0)
        return byte


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
