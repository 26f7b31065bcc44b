"""Global memory by address (fx.Int64) and LDS by byte offset.

"constant" loads are of memory that the kernel does not write. Streaming data is read once: non-temporal.
"""

from __future__ import annotations

from msa_ops.flydsl.common.intrinsics import pack, raw, unpack

from msa_ops.build.flydsl_adapter import fx, ir, llvm


def _pointer(address):
    return llvm.inttoptr(ir.Type.parse("!llvm.ptr<1>"), raw(address))


def _load(pointer, dtype, count: int, alignment: int | None, streaming: bool):
    kind = dtype.ir_type if count == 1 else ir.VectorType.get([count], dtype.ir_type)
    options = {"nontemporal": True} if streaming else {}
    alignment = alignment or count * dtype.width // 8
    found = llvm.LoadOp(kind, pointer, alignment=alignment, **options).result
    return dtype(found) if count == 1 else unpack(found, count, dtype)


def _store(pointer, values, alignment: int | None, streaming: bool) -> None:
    values = values if isinstance(values, list) else [values]
    dtype = type(values[0])
    value = raw(values[0]) if len(values) == 1 else pack(values, dtype)
    options = {"nontemporal": True} if streaming else {}
    alignment = alignment or len(values) * dtype.width // 8
    llvm.StoreOp(value, pointer, alignment=alignment, **options)


def load(address, dtype, count: int = 1, alignment: int | None = None, streaming: bool = False):
    """A scalar of `dtype`, or a list of `count`; aligned to its size unless said."""
    return _load(_pointer(address), dtype, count, alignment, streaming)


def store(address, values, alignment: int | None = None, streaming: bool = False) -> None:
    """A scalar or a list of scalars of one type."""
    _store(_pointer(address), values, alignment, streaming)


class Buffer:
    """Memory whose bounds the hardware keeps: a load outside gives 0 and asks no memory, a store outside does nothing.

    base: its address, below 2^48; num_bytes: fx.Int32. Both are the same in all lanes.
    """

    def __init__(self, base, num_bytes) -> None:
        low, high = fx.Uint32(base), fx.Uint32(base >> fx.Int64(32))
        # The last word: raw data of 32 bits, as every kernel for this family has it.
        self._resource = pack([low, high, fx.Uint32(num_bytes), fx.Uint32(0x00027000)], fx.Uint32)

    def load(self, offset, dtype, count: int = 1, streaming: bool = False):
        """At a lane's offset: a scalar of `dtype`, or a list of `count`."""
        kind = dtype.ir_type if count == 1 else ir.VectorType.get([count], dtype.ir_type)
        suffix = f"i{dtype.width}" if count == 1 else f"v{count}i{dtype.width}"
        found = llvm.call_intrinsic(
            kind, f"llvm.amdgcn.raw.buffer.load.{suffix}", [self._resource, *self._place(offset, streaming)], [], []
        )
        return dtype(found) if count == 1 else unpack(found, count, dtype)

    def store(self, offset, value) -> None:
        """A word, at a lane's offset."""
        operands = [raw(fx.Uint32(value)), self._resource, *self._place(offset, False)]
        llvm.call_intrinsic(None, "llvm.amdgcn.raw.buffer.store.i32", operands, [], [])

    @staticmethod
    def _place(offset, streaming: bool) -> list:
        """The offset, none that is the same in all lanes, and the policy: 2 is non-temporal."""
        return [raw(fx.Int32(value)) for value in (offset, 0, 2 if streaming else 0)]


class Lds:
    """All LDS of a kernel, by byte offset."""

    def __init__(self, num_bytes: int) -> None:
        self.base = fx.SharedAllocator().allocate(num_bytes, 1024)._ptr.llvm_ptr

    def _at(self, offset, constant: int):
        byte = ir.IntegerType.get_signless(8)
        kind = ir.Type.parse("!llvm.ptr<3>")
        dynamic = -(2**31)
        at = llvm.GEPOp(kind, self.base, [raw(fx.Int32(offset))], [dynamic], byte, None).result
        return llvm.GEPOp(kind, at, [], [constant], byte, None).result if constant else at

    def load(self, offset, dtype, count: int = 1, constant: int = 0, alignment: int | None = None):
        """At offset + constant; the latter is part of the instruction."""
        return _load(self._at(offset, constant), dtype, count, alignment, False)

    def store(self, offset, values, constant: int = 0, alignment: int | None = None) -> None:
        _store(self._at(offset, constant), values, alignment, False)
