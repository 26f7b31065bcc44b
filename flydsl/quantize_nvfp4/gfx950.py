"""quantize_nvfp4 on CDNA4: a lane takes one group of 16 values and writes 8 bytes of codes and a scale byte.

2.56 bytes move for a bf16 value, so 8 TB/s leave 12.6 vector instructions a value (256 compute units, 64 lanes a clock
at 2.4 GHz). Without a tensor scale the quotient takes three: with the correctly rounded reciprocal r of the step,
q = x r corrected once by the exact remainder is the IEEE quotient (Markstein), for every fp32 x that matters here,
since a step is at least 2^-9. All other cases divide.
"""

from __future__ import annotations

from msa_ops.flydsl.common import memory
from msa_ops.flydsl.common.intrinsics import (
    as_float,
    clamp,
    fma,
    from_e4m3,
    magnitude,
    maximum,
    maxnum,
    minnum,
    to_e2m1_pair,
    to_e4m3,
)
from msa_ops.flydsl.quantize_nvfp4.gfx950_configs import Config

from msa_ops.build.flydsl_adapter import compiler, const_expr, fx, range_constexpr

GROUP = 16
BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


def load_values(dtype: str, address):
    """16 values as fp32."""
    words = []
    for i in range(BYTES[dtype] * GROUP // 16):
        words += memory.load(address + fx.Int64(16 * i), fx.Uint32, 4, streaming=True)
    if dtype == "float32":
        return [as_float(word) for word in words]
    if dtype == "bfloat16":
        return [as_float(half) for word in words for half in (word << fx.Uint32(16), word & fx.Uint32(0xFFFF0000))]
    halves = [half for word in words for half in (word, word >> fx.Uint32(16))]
    return [fx.Uint16(half).bitcast(fx.Float16).to(fx.Float32) for half in halves]


def without_negative_zero(codes):
    """Eight codes; the sign of those whose magnitude is zero is taken away."""
    some = codes | (codes >> fx.Uint32(1)) | (codes >> fx.Uint32(2))
    signs = (some & fx.Uint32(0x11111111)) << fx.Uint32(3)
    return codes & (signs | fx.Uint32(0x77777777))


def trace(config: Config):
    """The launcher and what to trace it with."""
    exact = config.division == "divide" and not config.global_scale

    @compiler.kernel(known_block_size=[config.threads, 1, 1])
    def quantize_nvfp4(
        x: fx.Int64,
        codes: fx.Int64,
        scales: fx.Int64,
        global_scale: fx.Int64,
        scale_floor: fx.Float32,
        num_groups: fx.Int64,
    ):
        group = fx.Int64(fx.block_idx.x) * fx.Int64(config.threads) + fx.Int64(fx.thread_idx.x)
        if group < num_groups:
            values = load_values(config.dtype, x + group * fx.Int64(GROUP * BYTES[config.dtype]))
            amax = magnitude(values[0])
            for i in range_constexpr(1, GROUP):
                amax = maximum(amax, magnitude(values[i]))
            if amax != amax:
                # Rare: a NaN counts as zero.
                values = [(value == value).select(value, fx.Float32(0.0)) for value in values]
                amax = magnitude(values[0])
                for i in range_constexpr(1, GROUP):
                    amax = maxnum(amax, magnitude(values[i]))
            wanted = amax / fx.Float32(6.0)
            tensor_scale = fx.Float32(1.0)
            if const_expr(config.global_scale):
                tensor_scale = memory.load(global_scale, fx.Float32)
                wanted = wanted / tensor_scale
            byte = to_e4m3(minnum(maxnum(wanted, scale_floor), fx.Float32(448.0)))
            step = from_e4m3(byte)
            if const_expr(config.global_scale):
                step = step * tensor_scale
                # With a tensor scale that is not a positive number every scale is NaN and every code 0.
                positive = tensor_scale > fx.Float32(0.0)
                valid = (tensor_scale < fx.Float32(float("inf"))).select(positive, fx.Boolean(False))
                byte = valid.select(byte, fx.Uint32(0x7F))
                step = valid.select(step, fx.Float32(0.0))
            reciprocal = fx.Float32(1.0) / step
            limit = step * fx.Float32(6.0)
            found = []
            for word in range_constexpr(2):
                quotients = []
                for i in range_constexpr(8):
                    value = values[8 * word + i]
                    if const_expr(exact):
                        value = clamp(value, -limit, limit)
                        rough = value * reciprocal
                        quotients.append(fma(fma(-rough, step, value), reciprocal, rough))
                    elif const_expr(config.division == "divide"):
                        quotients.append(clamp(value / step, fx.Float32(-6.0), fx.Float32(6.0)))
                    else:
                        # 0 x infinity, of a subnormal step, is NaN: no code.
                        quotient = value * reciprocal
                        quotient = (quotient == quotient).select(quotient, fx.Float32(0.0))
                        quotients.append(clamp(quotient, fx.Float32(-6.0), fx.Float32(6.0)))
                packed = fx.Uint32(0)
                for i in range_constexpr(4):
                    packed = to_e2m1_pair(packed, quotients[2 * i], quotients[2 * i + 1], i)
                # A step of zero holds nothing.
                found.append((step > fx.Float32(0.0)).select(without_negative_zero(packed), fx.Uint32(0)))
            memory.store(codes + group * fx.Int64(8), found)
            memory.store(scales + group, fx.Uint8(byte))

    @compiler.jit
    def launcher(
        x: fx.Int64,
        codes: fx.Int64,
        scales: fx.Int64,
        global_scale: fx.Int64,
        scale_floor: fx.Float32,
        num_groups: fx.Int64,
        stream: fx.Stream,
    ):
        quantize_nvfp4(x, codes, scales, global_scale, scale_floor, num_groups).launch(
            grid=(1, 1, 1), block=(config.threads, 1, 1), smem=0, stream=stream
        )

    zero = fx.Int64(0)
    return launcher, (zero, zero, zero, zero, fx.Float32(0.0), zero, fx.Stream(None))
