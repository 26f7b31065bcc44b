"""PTX instructions that the indexer's kernels use by name: memory, conversions, matrix products, barriers.

Addresses are integers: 64-bit in global memory, 32-bit in shared memory. Functions of values alone are not volatile,
so the compiler may move and merge them.
"""

from cutlass import Float32, Int32, Int64, Uint32
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import dsl_user_op

EVICT_FIRST = 0x12F0000000000000
"""L2 policy of data that is read once (the encoding that createpolicy.fractional.L2::evict_first gives)."""


def _ir(value, loc, ip):
    return value.ir_value(loc=loc, ip=ip) if hasattr(value, "ir_value") else value


@dsl_user_op
def _asm(text: str, constraints: str, results, operands, volatile: bool = False, *, loc=None, ip=None):
    """One inline instruction; `results` are DSL types. Gives a value, a tuple of values, or nothing."""
    types = [result.mlir_type for result in results]
    whole = None if not types else types[0] if len(types) == 1 else llvm.StructType.get_literal(types)
    found = llvm.inline_asm(
        whole,
        [_ir(operand, loc, ip) for operand in operands],
        text,
        constraints,
        has_side_effects=volatile,
        is_align_stack=False,
        asm_dialect=llvm.AsmDialect.AD_ATT,
        loc=loc,
        ip=ip,
    )
    if not types:
        return None
    if len(types) == 1:
        return results[0](found)
    return tuple(
        result(llvm.extractvalue(result.mlir_type, found, [i], loc=loc, ip=ip)) for i, result in enumerate(results)
    )


# Global memory. "constant" loads are of data that the kernel does not write.


def ldg_constant_u32(address: Int64) -> Uint32:
    return _asm("ld.global.nc.b32 $0, [$1];", "=r,l", (Uint32,), (address,))


def ldg_relaxed_u32(address: Int64) -> Uint32:
    """As the second-level cache has it; leaves nothing in the first-level cache."""
    return _asm("ld.relaxed.gpu.global.b32 $0, [$1];", "=r,l,~{memory}", (Uint32,), (address,), True)


def ldg_constant_u32x2(address: Int64):
    return _asm("ld.global.nc.v2.b32 {$0, $1}, [$2];", "=r,=r,l", (Uint32,) * 2, (address,))


def ldg_constant_u32x4(address: Int64):
    return _asm("ld.global.nc.v4.b32 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,l", (Uint32,) * 4, (address,))


def ldg_u32x2(address: Int64):
    return _asm("ld.global.v2.b32 {$0, $1}, [$2];", "=r,=r,l,~{memory}", (Uint32,) * 2, (address,), True)


def ldg_u32x2_if(condition, address: Int64):
    """Zeros where the condition does not hold."""
    return _asm(
        "{ .reg .pred p; setp.ne.s32 p, $2, 0; mov.b32 $0, 0; mov.b32 $1, 0; @p ld.global.v2.b32 {$0, $1}, [$3]; }",
        "=&r,=&r,r,l,~{memory}",
        (Uint32,) * 2,
        (Int32(condition), address),
        True,
    )


def stg_u32x2(address: Int64, low: Uint32, high: Uint32) -> None:
    _asm("st.global.v2.b32 [$0], {$1, $2};", "l,r,r,~{memory}", (), (address, low, high), True)


def stg_u32(address: Int64, value) -> None:
    _asm("st.global.b32 [$0], $1;", "l,r,~{memory}", (), (address, value), True)


def prefetch_l2(address: Int64) -> None:
    _asm("prefetch.global.L2 [$0];", "l", (), (address,), True)


def bulk_prefetch_l2(address: Int64, num_bytes: int) -> None:
    """16-byte aligned, a multiple of 16 bytes."""
    _asm("cp.async.bulk.prefetch.L2.global [$0], $1;", "l,r,~{memory}", (), (address, Int32(num_bytes)), True)


# Shared memory. `offset` is a Python integer and part of the instruction.


def lds_u32(address: Int32, offset: int = 0) -> Uint32:
    return _asm(f"ld.shared.b32 $0, [$1+{offset}];", "=r,r,~{memory}", (Uint32,), (address,), True)


def lds_u16(address: Int32, offset: int = 0) -> Uint32:
    return _asm(
        f"{{ .reg .b16 half; ld.shared.b16 half, [$1+{offset}]; cvt.u32.u16 $0, half; }}",
        "=r,r,~{memory}",
        (Uint32,),
        (address,),
        True,
    )


def lds_u32x2(address: Int32, offset: int = 0):
    return _asm(f"ld.shared.v2.b32 {{$0, $1}}, [$2+{offset}];", "=r,=r,r,~{memory}", (Uint32,) * 2, (address,), True)


def lds_u32x4(address: Int32, offset: int = 0):
    return _asm(
        f"ld.shared.v4.b32 {{$0, $1, $2, $3}}, [$4+{offset}];",
        "=r,=r,=r,=r,r,~{memory}",
        (Uint32,) * 4,
        (address,),
        True,
    )


def sts_u32(address: Int32, value) -> None:
    _asm("st.shared.b32 [$0], $1;", "r,r,~{memory}", (), (address, value), True)


def sts_u32x4(address: Int32, words) -> None:
    _asm("st.shared.v4.b32 [$0], {$1, $2, $3, $4};", "r,r,r,r,r,~{memory}", (), (address, *words), True)


def sts_zero_x4(address: Int32) -> None:
    _asm("st.shared.v4.b32 [$0], {$1, $1, $1, $1};", "r,r,~{memory}", (), (address, Int32(0)), True)


def sts_u32x2(address: Int32, low: Uint32, high: Uint32) -> None:
    _asm("st.shared.v2.b32 [$0], {$1, $2};", "r,r,r,~{memory}", (), (address, low, high), True)


def add_shared_u32(address: Int32, value: Int32) -> Int32:
    """Adds to shared memory and gives what was there."""
    return _asm("atom.shared.add.u32 $0, [$1], $2;", "=r,r,r,~{memory}", (Int32,), (address, value), True)


def max_shared_u32(address: Int32, value: Uint32, offset: int = 0) -> None:
    """Shared memory keeps the larger value; the order of callers does not matter."""
    _asm(f"red.shared.max.u32 [$0+{offset}], $1;", "r,r,~{memory}", (), (address, value), True)


# Barriers that count bytes, and bulk copies that report to them.


def barrier_init(barrier: Int32, arrivals: int) -> None:
    _asm(f"mbarrier.init.shared.b64 [$0], {arrivals};", "r,~{memory}", (), (barrier,), True)


def barrier_expect(barrier: Int32, num_bytes: Int32) -> None:
    """Arrives, and makes the phase wait for that many bytes."""
    _asm("mbarrier.arrive.expect_tx.shared.b64 _, [$0], $1;", "r,r,~{memory}", (), (barrier, num_bytes), True)


def barrier_wait(barrier: Int32, parity: Int32) -> None:
    """Until the phase of that parity is complete."""
    _asm(
        "{ .reg .pred done; again_${:uid}:"
        " mbarrier.try_wait.parity.shared.b64 done, [$0], $1; @!done bra again_${:uid}; }",
        "r,r,~{memory}",
        (),
        (barrier, parity),
        True,
    )


def bulk_load(target: Int32, source: Int64, num_bytes: int, barrier: Int32) -> None:
    """Global to shared memory, 16-byte aligned; completes on the barrier. Read once, so it leaves L2 first."""
    _asm(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [$0], [$1], $2, [$3], $4;",
        "r,l,r,r,l,~{memory}",
        (),
        (target, source, Int32(num_bytes), barrier, Int64(EVICT_FIRST)),
        True,
    )


# Values.


def bits_of(value: Float32) -> Uint32:
    return _asm("mov.b32 $0, $1;", "=r,f", (Uint32,), (value,))


def warp_max_f32(value: Float32) -> Float32:
    """Largest number of all lanes; NaN if there is none. From sm_100a on."""
    return _asm("redux.sync.max.f32 $0, $1, 0xffffffff;", "=f,f", (Float32,), (value,), True)


def min_u32(a: Uint32, b: Uint32) -> Uint32:
    return _asm("min.u32 $0, $1, $2;", "=r,r,r", (Uint32,), (a, b))


def max_u32(a: Uint32, b: Uint32) -> Uint32:
    return _asm("max.u32 $0, $1, $2;", "=r,r,r", (Uint32,), (a, b))


def add_if_at_least(total: Int32, one: Int32, key: Uint32, least: Uint32) -> Int32:
    """total + one if key >= least, else total."""
    return _asm(
        "{ .reg .pred p; setp.ge.u32 p, $3, $4; mov.b32 $0, $1; @p add.s32 $0, $1, $2; }",
        "=&r,r,r,r,r",
        (Int32,),
        (total, one, key, least),
    )


def lds_u32_if(condition, address: Int32) -> Uint32:
    """0 where the condition does not hold."""
    return _asm(
        "{ .reg .pred p; setp.ne.s32 p, $1, 0; mov.b32 $0, 0; @p ld.shared.b32 $0, [$2]; }",
        "=&r,r,r,~{memory}",
        (Uint32,),
        (Int32(condition), address),
        True,
    )


def max_f32(a: Float32, b: Float32) -> Float32:
    """The number if one operand is NaN."""
    return _asm("max.f32 $0, $1, $2;", "=f,f,f", (Float32,), (a, b))


def positive_zero(a: Float32) -> Float32:
    """The value, with -0 as +0."""
    return _asm("add.rn.f32 $0, $1, 0f00000000;", "=f,f", (Float32,), (a,))


def multiply_add(a: Uint32, factor: Int32, addend: int) -> Uint32:
    """Integer a x factor + addend, as one instruction: the compiler would take it apart around a mask."""
    return _asm("mad.lo.u32 $0, $1, $2, $3;", "=r,r,r,n", (Uint32,), (a, factor, Int32(addend)))


def bits_of_either(a: Uint32, b: Uint32, mask: int) -> Uint32:
    """(a | b) & mask in one instruction."""
    return _asm(f"lop3.b32 $0, $1, $2, {mask:#x}, 0xA8;", "=r,r,r", (Uint32,), (a, b))


def both_f16(pair: Uint32, half: int) -> Uint32:
    """One half of a pair of fp16, twice."""
    which = ("low", "high")[half]
    text = f"{{ .reg .b16 low, high; mov.b32 {{low, high}}, $1; mov.b32 $0, {{{which}, {which}}}; }}"
    return _asm(text, "=r,r", (Uint32,), (pair,))


def divide_by_magic(value: Int32, magic: Int64) -> Int32:
    """value x m >> (32 + s) of a value >= 0, with m in the lower half of `magic` and s in the upper."""
    return _asm(
        "{ .reg .b32 factor, shift, high; mov.b64 {factor, shift}, $2;"
        " mul.hi.u32 high, $1, factor; shr.u32 $0, high, shift; }",
        "=r,r,l",
        (Int32,),
        (value, magic),
    )


def mul_f16x2(a: Uint32, b: Uint32) -> Uint32:
    """Rounds to nearest even and keeps subnormals."""
    return _asm("mul.rn.f16x2 $0, $1, $2;", "=r,r,r", (Uint32,), (a, b))


def max_u16x2(a: Uint32, b: Uint32) -> Uint32:
    return _asm("max.u16x2 $0, $1, $2;", "=r,r,r", (Uint32,), (a, b))


def e4m3x2_to_f16x2(pair: Uint32) -> Uint32:
    """Values of the E4M3 bytes in bits 0-7 and 8-15."""
    return _asm(
        "{ .reg .b16 bytes; cvt.u16.u32 bytes, $1; cvt.rn.f16x2.e4m3x2 $0, bytes; }", "=r,r", (Uint32,), (pair,)
    )


def e4m3x4_to_f16x4(word: Uint32):
    """Values of four E4M3 bytes, the low two first."""
    return _asm(
        "{ .reg .b16 low, high; mov.b32 {low, high}, $2; cvt.rn.f16x2.e4m3x2 $0, low; cvt.rn.f16x2.e4m3x2 $1, high; }",
        "=r,=r,r",
        (Uint32,) * 2,
        (word,),
    )


def pack_f16x2(low: Float32, high: Float32) -> Uint32:
    return _asm("cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", (Uint32,), (low, high))


def float_of(bits: Uint32) -> Float32:
    return _asm("mov.b32 $0, $1;", "=f,r", (Float32,), (bits,))


def e4m3x2_to_f32(pair: Uint32):
    """Values of the E4M3 bytes in bits 0-7 and 8-15."""
    return _asm(
        "{ .reg .b16 bytes, low, high; .reg .b32 halves; cvt.u16.u32 bytes, $2; cvt.rn.f16x2.e4m3x2 halves, bytes;"
        " mov.b32 {low, high}, halves; cvt.f32.f16 $0, low; cvt.f32.f16 $1, high; }",
        "=f,=f,r",
        (Float32,) * 2,
        (pair,),
    )


def pack_bf16x2(low: Float32, high: Float32) -> Uint32:
    return _asm("cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", (Uint32,), (low, high))


def permute(a: Uint32, b: Uint32, selector: int) -> Uint32:
    """prmt: four of the eight bytes of (a, b), a's first."""
    return _asm("prmt.b32 $0, $1, $2, $3;", "=r,r,r,n", (Uint32,), (a, b, Int32(selector)))


def mma(kind: str, a, b, c):
    """c + a b: a 16 x 16 of `kind` (f16 or bf16) in four registers, b 16 x 8 in two, c 16 x 8 fp32 in four."""
    return _asm(
        f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32"
        " {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};",
        "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f",
        (Float32,) * 4,
        (*a, *b, *c),
        True,
    )
