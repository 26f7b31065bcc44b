"""The 64 lanes of a wave: who they are, votes, sums, and values that are the same in all of them."""

from __future__ import annotations

from msa_ops.flydsl.common.intrinsics import call, flag, raw

from msa_ops.build.flydsl_adapter import fx, gpu, ir, llvm

WAVE = 64


def uniform(value):
    """A value that is the same in every lane, as a scalar register (v_readfirstlane_b32)."""
    return call("llvm.amdgcn.readfirstlane.i32", type(value), value)


def lane_of(thread):
    return thread & fx.Int32(WAVE - 1)


def read_lane(value, lane):
    """The value of one lane, the same number in all, as a scalar."""
    return call("llvm.amdgcn.readlane.i32", type(value), value, lane)


def vote(condition):
    """Mask of the lanes in which the condition holds."""
    return call("llvm.amdgcn.ballot.i64", fx.Uint64, condition)


def count(mask):
    """Lanes in a mask, as a scalar."""
    return fx.Int32(call("llvm.ctpop.i64", fx.Uint64, mask))


def first(mask):
    """Lowest lane in a mask that is not empty."""
    return fx.Int32(call("llvm.cttz.i64", fx.Uint64, mask, fx.Boolean(True)))


def below(mask):
    """Lanes in the mask before this one."""
    low, high = fx.Uint32(mask), fx.Uint32(mask >> fx.Uint64(32))
    return call("llvm.amdgcn.mbcnt.hi", fx.Int32, high, call("llvm.amdgcn.mbcnt.lo", fx.Int32, low, 0))


def wave_sum(value):
    """Sum over the lanes, as a scalar. All 64 lanes take part."""
    return read_lane(wave_prefix(value), fx.Int32(WAVE - 1))


def wave_prefix(value):
    """Sum over the lanes up to this one, itself included. All 64 lanes take part."""
    # Within rows of 16 lanes the value of the lane 1, 2, 4, 8 before; then the last lane of a row to the next row, of
    # the first two rows to the others (row_shr, row_bcast15, row_bcast31).
    for control, rows in ((0x111, 15), (0x112, 15), (0x114, 15), (0x118, 15), (0x142, 10), (0x143, 12)):
        other = call(
            "llvm.amdgcn.update.dpp.i32", type(value), fx.Int32(0), value, control, rows, 15, flag(control < 0x142)
        )
        value = value + other
    return value


def _swapped(name: str, a, b):
    pair = ir.Type.parse("!llvm.struct<(i32, i32)>")
    false = raw(fx.Boolean(False))
    bits = [raw(value.bitcast(fx.Uint32)) for value in (a, b)]
    found = llvm.call_intrinsic(pair, name, [*bits, false, false], [], [])
    return [fx.Uint32(llvm.extractvalue(fx.Uint32.ir_type, found, [i])).bitcast(type(a)) for i in range(2)]


def across_16(a):
    """Two values a lane whose set is that of this lane and the one 16 away (v_permlane16_swap_b32)."""
    return _swapped("llvm.amdgcn.permlane16.swap", a, a)


def across_32(a):
    """Two values a lane whose set is that of this lane and the one 32 away (v_permlane32_swap_b32)."""
    return _swapped("llvm.amdgcn.permlane32.swap", a, a)


def two_across_32(a, b):
    """The same of `a` in the lower 32 lanes and of `b` in the upper ones."""
    return _swapped("llvm.amdgcn.permlane32.swap", a, b)


def barrier() -> None:
    """All waves of the workgroup; what they wrote to memory and LDS before is seen behind it."""
    gpu.barrier()
