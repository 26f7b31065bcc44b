"""AMD GPU code objects: the kernels that an ELF file holds and what each uses, from its metadata note.

Source: LLVM's "User Guide for AMDGPU Backend", code object v3 and later: a note of type 32 named AMDGPU holds
MessagePack with a list `amdhsa.kernels`.
"""

from __future__ import annotations

import struct
from typing import Any

AMDGPU_MACHINE = 224
METADATA_NOTE = 32
NOTE_SEGMENT = 4


class CodeObjectError(ValueError):
    """The bytes are not a loadable AMD GPU code object."""


def kernels(data: bytes) -> list[dict[str, Any]]:
    """Metadata of each kernel, with the keys of LLVM's documentation without their leading dot.

    Raises CodeObjectError for a file that is damaged or of another kind.
    """
    try:
        return [{key.removeprefix("."): value for key, value in kernel.items()} for kernel in _metadata(data)]
    except (
        struct.error,
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
        UnicodeDecodeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise CodeObjectError(f"the file is damaged: {type(error).__name__}: {error}") from None


def arguments(kernel: dict[str, Any]) -> list[tuple[int, int]]:
    """(offset, bytes) of the explicit arguments in the kernel argument segment, in order.

    Raises CodeObjectError for a kernel that wants hidden arguments, which launches of this package do not pass.
    """
    found = [(entry[".offset"], entry[".size"], entry[".value_kind"]) for entry in kernel.get("args", ())]
    hidden = [kind for _, _, kind in found if kind.startswith("hidden_")]
    if hidden:
        raise CodeObjectError(f"kernel {kernel['name']} takes {', '.join(hidden)}; pass such values as arguments")
    return [(offset, size) for offset, size, _ in found]


def _metadata(data: bytes) -> list[dict[str, Any]]:
    if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:
        raise CodeObjectError("not a little-endian 64-bit ELF file")
    (machine,) = struct.unpack_from("<H", data, 18)
    if machine != AMDGPU_MACHINE:
        raise CodeObjectError(f"ELF machine {machine}; accepted: {AMDGPU_MACHINE} (AMDGPU)")
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for i in range(count):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, table + i * size)
        if kind == NOTE_SEGMENT:
            return _kernels_of_notes(data[offset : offset + length])
    raise CodeObjectError("no note segment: the object is not linked")


def _kernels_of_notes(notes: bytes) -> list[dict[str, Any]]:
    at = 0
    while at < len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        name = notes[at + 12 : at + 12 + name_size].rstrip(b"\0")
        at += 12 + (name_size + 3) // 4 * 4
        if kind == METADATA_NOTE and name == b"AMDGPU":
            value, _ = _unpack(notes[at : at + size], 0)
            return list(value["amdhsa.kernels"])
        at += (size + 3) // 4 * 4
    raise CodeObjectError("no AMDGPU metadata note")


def _unpack(data: bytes, at: int) -> tuple[Any, int]:
    """One MessagePack value and the position behind it; the types that the metadata uses."""
    kind = data[at]
    at += 1
    if kind < 0x80:
        return kind, at
    if kind >= 0xE0:
        return kind - 256, at
    if kind < 0x90:
        return _map(data, at, kind & 15)
    if kind < 0xA0:
        return _list(data, at, kind & 15)
    if kind < 0xC0:
        return _text(data, at, kind & 31)
    if kind in (0xC2, 0xC3):
        return kind == 0xC3, at
    integers = {0xCC: "B", 0xCD: "H", 0xCE: "I", 0xCF: "Q", 0xD0: "b", 0xD1: "h", 0xD2: "i", 0xD3: "q"}
    if kind in integers:
        return struct.unpack_from(f">{integers[kind]}", data, at)[0], at + struct.calcsize(integers[kind])
    lengths = {0xD9: "B", 0xDA: "H", 0xDB: "I", 0xDC: "H", 0xDD: "I", 0xDE: "H", 0xDF: "I"}
    if kind not in lengths:
        raise CodeObjectError(f"metadata: MessagePack type {kind:#x} is not understood")
    (length,) = struct.unpack_from(f">{lengths[kind]}", data, at)
    at += struct.calcsize(lengths[kind])
    if kind <= 0xDB:
        return _text(data, at, length)
    return _list(data, at, length) if kind <= 0xDD else _map(data, at, length)


def _text(data: bytes, at: int, length: int) -> tuple[str, int]:
    if at + length > len(data):
        raise CodeObjectError("metadata ends within a text")
    return data[at : at + length].decode(), at + length


def _list(data: bytes, at: int, length: int) -> tuple[list[Any], int]:
    values = []
    for _ in range(length):
        value, at = _unpack(data, at)
        values.append(value)
    return values, at


def _map(data: bytes, at: int, length: int) -> tuple[dict[Any, Any], int]:
    found = {}
    for _ in range(length):
        key, at = _unpack(data, at)
        found[key], at = _unpack(data, at)
    return found, at
