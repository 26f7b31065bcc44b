"""Global memory by address (fx.Int64) and LDS by byte offset.

"constant" loads are of memory that the kernel does not write. Streaming data is read once: non-temporal.
"""

from __future__ import annotations

from msa_ops.flydsl.common.intrinsics import pack, raw, unpack

from msa_ops.build.flydsl_adapter import ir, llvm

GLOBAL = 1
LDS = 3


def _pointer(address, space: int):
    return llvm.inttoptr(ir.Type.parse(f"!llvm.ptr<{space}>"), raw(address))


def _load(address, space: int, dtype, count: int, alignment: int | None, streaming: bool):
    kind = dtype.ir_type if count == 1 else ir.VectorType.get([count], dtype.ir_type)
    options = {"nontemporal": True} if streaming else {}
    alignment = alignment or count * dtype.width // 8
    found = llvm.LoadOp(kind, _pointer(address, space), alignment=alignment, **options).result
    return dtype(found) if count == 1 else unpack(found, count, dtype)


def _store(address, space: int, values, alignment: int | None, streaming: bool) -> None:
    values = values if isinstance(values, list) else [values]
    dtype = type(values[0])
    value = raw(values[0]) if len(values) == 1 else pack(values, dtype)
    options = {"nontemporal": True} if streaming else {}
    alignment = alignment or len(values) * dtype.width // 8
    llvm.StoreOp(value, _pointer(address, space), alignment=alignment, **options)


def load(address, dtype, count: int = 1, alignment: int | None = None, streaming: bool = False):
    """A scalar of `dtype`, or a list of `count`; aligned to its size unless said."""
    return _load(address, GLOBAL, dtype, count, alignment, streaming)


def store(address, values, alignment: int | None = None, streaming: bool = False) -> None:
    """A scalar or a list of scalars of one type."""
    _store(address, GLOBAL, values, alignment, streaming)


def load_lds(offset, dtype, count: int = 1, alignment: int | None = None):
    return _load(offset, LDS, dtype, count, alignment, False)


def store_lds(offset, values, alignment: int | None = None) -> None:
    _store(offset, LDS, values, alignment, False)
