"""The bytes of a kernel's parameter in PTX, which states its type, from a value of Python."""

from __future__ import annotations

import struct
from typing import Any

from msa_ops.emulator.arguments import float_bytes, plain
from msa_ops.emulator.memory import address_of, is_memory

_FLOATS = {".f16": "<e", ".f32": "<f", ".f64": "<d"}
_ADDRESS = 8


def parameter_bytes(index: int, value: Any, size: int, kind: str) -> bytes:
    """A value as the parameter of this type takes it.

    index: for messages. size: bytes of the parameter. kind: ".u32" and so on; "" of an array.
    value: bytes, of any parameter; a tensor or array for its address, or None (8-byte integers and bits); a number:
        integers for floating-point parameters if they are exactly representable, floats for integer ones if they are
        whole; bits (".b32") take the bits of what is given, as the type says nothing.

    Raises ValueError for what does not fit, TypeError for anything else.
    """
    name = f"argument {index}"
    value = plain(value)
    if isinstance(value, bytes):
        if len(value) != size:
            raise ValueError(f"{name}: {len(value)} bytes; accepted: {size}")
        return value
    if not kind:
        raise ValueError(f"{name}: {type(value).__name__}; the parameter is an array, accepted: {size} bytes")
    if value is None or is_memory(value):
        if size != _ADDRESS or kind in _FLOATS:
            what = "None" if value is None else f"{type(value).__name__}, whose address would be passed"
            raise ValueError(f"{name}: {what}; the parameter is {kind}, accepted: a number (of a tensor: x.item())")
        value = 0 if value is None else address_of(name, value)
    if not isinstance(value, int | float):
        raise TypeError(f"{name}: {type(value).__name__}; accepted: tensor, array, int, float, None, bytes")
    if kind in _FLOATS:
        return _floating(name, value, kind)
    if isinstance(value, float):
        if kind[1] == "b":
            return float_bytes(name, value, size)
        if not value.is_integer():
            raise ValueError(f"{name}: {value!r}; the parameter is {kind}, accepted: whole numbers")
        value = int(value)
    if not -(1 << (8 * size - 1)) <= value < 1 << (8 * size):
        raise ValueError(f"{name}: {value} does not fit into the {size} bytes of the parameter, which is {kind}")
    return (int(value) % (1 << (8 * size))).to_bytes(size, "little")


def _floating(name: str, value: int | float, kind: str) -> bytes:
    """A float is rounded to the type, an integer must be a number of it."""
    form = _FLOATS[kind]
    try:
        made = struct.pack(form, float(value))
    except OverflowError:
        raise ValueError(f"{name}: {value!r} does not fit into {kind}") from None
    if isinstance(value, int) and int(struct.unpack(form, made)[0]) != value:
        raise ValueError(f"{name}: {value} is not exactly a number of {kind}, which the parameter is; accepted: floats")
    return made
