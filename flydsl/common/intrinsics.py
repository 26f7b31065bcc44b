"""LLVM intrinsics and inline instructions on FlyDSL values, for what its expressions do not reach.

Values are FlyDSL scalars (fx.Uint32, fx.Float32, ...) or lists of them; results are of the type that is named.
"""

from __future__ import annotations

from msa_ops.build.flydsl_adapter import arith, fx, ir, llvm


def raw(value):
    return value.ir_value() if hasattr(value, "ir_value") else value


def call(name: str, result, *operands):
    """The intrinsic's result as `result`, a FlyDSL scalar type; Python numbers become immediate operands of 32 bits."""
    values = [raw(fx.Int32(operand) if isinstance(operand, int) else operand) for operand in operands]
    return result(llvm.call_intrinsic(result.ir_type, name, values, [], []))


def flag(value: bool):
    """An immediate operand of one bit."""
    return fx.Boolean(value)


def instruction(text: str, constraints: str, result, *operands, volatile: bool = False):
    """One instruction; "$0" is the result, "$1" and so on the operands."""
    return result(
        llvm.inline_asm(result.ir_type, [raw(v) for v in operands], text, constraints, has_side_effects=volatile)
    )


def anew(value):
    """The value, of which the compiler must not compute anything before: in a loop, what it would else keep."""
    return instruction("v_mov_b32 $0, $1", "=v,v", type(value), value, volatile=True)


def scalar_anew(value):
    """The same for 32 or 64 bits that are equal in all lanes, in scalar registers."""
    return instruction(f"s_mov_b{value.width} $0, $1", "=s,s", type(value), value, volatile=True)


def opaque(value):
    """The same for a value that a loop carries from turn to turn: no instruction."""
    return instruction("", "=v,0", type(value), value, volatile=True)


def undefined(dtype):
    """A value that nobody reads."""
    return dtype(llvm.mlir_undef(dtype.ir_type))


def where(mask):
    """Whether this lane is in a mask of 64 bits, which is the same in all lanes."""
    return call("llvm.amdgcn.inverse.ballot.i64", fx.Boolean, mask)


def maximum_anew(a, b):
    """The larger of two numbers, or NaN of two of them, of which the compiler knows nothing (v_max_f32)."""
    return instruction("v_max_f32 $0, $1, $2", "=v,v,v", fx.Float32, a, b)


def as_float(bits):
    return bits.bitcast(fx.Float32)


def as_bits(value):
    return value.bitcast(fx.Uint32)


def pack(values, dtype):
    """MLIR vector of scalars of the type `dtype`."""
    kind = ir.VectorType.get([len(values)], dtype.ir_type)
    found = llvm.mlir_undef(kind)
    for i, value in enumerate(values):
        found = llvm.insertelement(found, raw(value), raw(fx.Int32(i)))
    return found


def unpack(vector, count: int, dtype):
    """The scalars of an MLIR vector."""
    return [dtype(llvm.extractelement(vector, raw(fx.Int32(i)))) for i in range(count)]


# Vector instructions.


def maximum(a, b):
    """fp32 maximum that is NaN if an operand is (v_maximum3_f32)."""
    return call("llvm.maximum.f32", fx.Float32, a, b)


def maxnum(a, b):
    """fp32 maximum, the number if one operand is NaN (v_max_f32)."""
    return call("llvm.maxnum.f32", fx.Float32, a, b)


def maxnum_fast(a, b):
    """`maxnum` of numbers that are no signalling NaN, which the compiler would quieten first."""
    return fx.Float32(arith.maxnumf(raw(a), raw(b), fastmath=arith.FastMathFlags.nnan))


def minnum(a, b):
    return call("llvm.minnum.f32", fx.Float32, a, b)


def magnitude(a):
    return call("llvm.fabs.f32", fx.Float32, a)


def fma(a, b, c):
    return call("llvm.fma.f32", fx.Float32, a, b, c)


def clamp(a, low, high):
    """Of a number: at least low, at most high (v_med3_f32)."""
    return call("llvm.amdgcn.fmed3.f32", fx.Float32, a, low, high)


def permute(high, low, selector):
    """v_perm_b32: byte i is byte selector[i] of the eight of (high, low), 0 the lowest of `low`."""
    return call("llvm.amdgcn.perm", fx.Uint32, high, low, selector)


def to_e4m3(value):
    """E4M3 byte of an fp32 number within +-448, nearest even (v_cvt_pk_fp8_f32, OCP on gfx950)."""
    found = call("llvm.amdgcn.cvt.pk.fp8.f32", fx.Uint32, value, fx.Float32(0.0), fx.Uint32(0), flag(False))
    return found & fx.Uint32(0xFF)


def from_e4m3(byte):
    """fp32 value of the lowest byte (v_cvt_f32_fp8)."""
    return call("llvm.amdgcn.cvt.f32.fp8", fx.Float32, byte, 0)


def to_e2m1_pair(into, low, high, place: int):
    """The codes of two fp32 numbers, nearest even, at byte `place` of `into` (v_cvt_scalef32_pk_fp4_f32)."""
    return call("llvm.amdgcn.cvt.scalef32.pk.fp4.f32", fx.Uint32, into, low, high, fx.Float32(1.0), place)
