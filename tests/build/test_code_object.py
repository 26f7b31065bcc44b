from __future__ import annotations

import struct
from typing import Any

import pytest

from msa_ops.build import code_object
from msa_ops.build.code_object import CodeObjectError


def packed(value: Any) -> bytes:
    """MessagePack, written for this test: big lengths are tried with small data too."""
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return bytes([value]) if 0 <= value < 128 else b"\xcd" + struct.pack(">H", value)
    if isinstance(value, str):
        head = bytes([0xA0 + len(value)]) if len(value) < 32 else b"\xd9" + bytes([len(value)])
        return head + value.encode()
    if isinstance(value, list):
        return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(packed, value))
    head = bytes([0x80 + len(value)]) if len(value) < 16 else b"\xde" + struct.pack(">H", len(value))
    return head + b"".join(packed(part) for item in value.items() for part in item)


def elf(metadata: Any, machine: int = 224, note: int = 4) -> bytes:
    content = packed(metadata)
    notes = struct.pack("<III", 4, 0, 1) + b"GNU\0" + struct.pack("<III", 7, len(content), 32) + b"AMDGPU\0\0" + content
    header = b"\x7fELF\x02\x01\x01\x40" + bytes(8)
    header += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0x54F, 64, 56, 1, 64, 0, 0)
    return header + struct.pack("<IIQQQQQQ", note, 4, 120, 120, 120, len(notes), len(notes), 4) + notes


ARGUMENTS = [
    {".offset": 0, ".size": 8, ".value_kind": "by_value"},
    {".offset": 8, ".size": 4, ".value_kind": "by_value"},
]
KERNEL = {".name": "k_0", ".vgpr_count": 300, ".args": ARGUMENTS, ".uses_dynamic_stack": False}


def test_metadata_is_read() -> None:
    (kernel,) = code_object.kernels(elf({"amdhsa.version": [1, 2], "amdhsa.kernels": [KERNEL]}))
    assert (kernel["name"], kernel["vgpr_count"], kernel["uses_dynamic_stack"]) == ("k_0", 300, False)
    assert code_object.arguments(kernel) == [(0, 8), (8, 4)]


def test_hidden_arguments_are_refused() -> None:
    kernel = {**KERNEL, ".args": [*ARGUMENTS, {".offset": 16, ".size": 4, ".value_kind": "hidden_block_count_x"}]}
    (found,) = code_object.kernels(elf({"amdhsa.kernels": [kernel]}))
    with pytest.raises(CodeObjectError, match="k_0 takes hidden_block_count_x"):
        code_object.arguments(found)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a little-endian 64-bit ELF"),
        (b"\x7fELF\x01\x01" + bytes(100), "not a little-endian 64-bit ELF"),
        (elf({}, machine=62), "ELF machine 62"),
        (elf({}, note=1), "no note segment"),
    ],
)
def test_other_files(data: bytes, said: str) -> None:
    with pytest.raises(CodeObjectError, match=said):
        code_object.kernels(data)
