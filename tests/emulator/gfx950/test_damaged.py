"""Damaged and foreign code objects: an exception with the reason, never the end of the process or an endless look."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from msa_ops import _C
from msa_ops.build import code_object as build
from msa_ops.emulator import CodeObjectError, UnsupportedGfx950, run_gfx950
from tests.emulator.gfx950 import damaged
from tests.emulator.gfx950.code_object import NAME, code_object

ROOT = Path(__file__).parents[3]
SECONDS = 60
KINDS = ("bytes", "tables", "cut", "code")


def fuzz(kind: str, first: int, last: int) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.emulator.gfx950.damaged", kind, str(first), str(last)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    return found


def test_the_whole_file_runs() -> None:
    assert damaged.attempt(damaged.whole()) == "ran"


@pytest.mark.parametrize("kind", KINDS)
def test_damage(kind: str) -> None:
    found = fuzz(kind, 0, 1000)
    assert found.pop("slowest") < 5
    assert sum(found.values()) == 1000
    assert found["CodeObjectError"] > (0 if kind == "code" else 100)
    assert found.keys() <= {"CodeObjectError", "UnsupportedGfx950", "EmulatorFault", "ValueError", "ran"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_much_damage(kind: str) -> None:
    found = fuzz(kind, 1000, 6000)
    assert found.pop("slowest") < 5
    assert sum(found.values()) == 5000


def with_note(note: bytes) -> bytes:
    return code_object("s_endpgm", note=note)


def changed(offset: int, form: str, value: int) -> bytes:
    data = bytearray(damaged.whole())
    struct.pack_into(form, data, offset, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a 64-bit little-endian ELF file"),
        (changed(4, "<B", 1), "not a 64-bit little-endian ELF file"),
        (changed(5, "<B", 2), "not a 64-bit little-endian ELF file"),
        (changed(18, "<H", 62), "not for an AMD GPU"),
        (code_object("s_endpgm", machine=0x4C), "processor 0x4c; only gfx950"),
        (changed(40, "<Q", 2**64 - 8), "an offset is outside the file"),
        (changed(58, "<H", 0), "sections are described too briefly"),
        (changed(60, "<H", 0xFFFF), "an offset is outside the file"),
        (with_note(damaged.note_of(b"\x91" * 100)), "nested too deeply"),
        (with_note(damaged.note_of(b"\xdd\xff\xff\xff\xff" + b"\xc0" * 50)), "an offset is outside the file"),
        (with_note(damaged.note_of(b"\xc1")), "MessagePack tag 193"),
        (with_note(damaged.note_of(damaged.metadata((0, 60)))), "an argument of 8 bytes at 60, of 64 bytes"),
        (
            with_note(damaged.note_of(damaged.metadata().replace(b"\xa5.size\x08", b"\xa5.size\xa1x"))),
            "/.size is no number of 32 bits",
        ),
        (code_object("s_endpgm", scratch=1 << 31), "bytes of scratch memory a lane"),
        (code_object("s_endpgm", preload=127), "it preloads 127 words of arguments"),
        (code_object("s_endpgm", preload=500 << 7 | 2), "it preloads 2 words of arguments from word 500"),
    ],
    ids=range(16),
)
def test_a_file_that_cannot_be_executed(data: bytes, said: str) -> None:
    with pytest.raises(CodeObjectError, match=said):
        run_gfx950(data, "", 1, 64, b"")


def test_notes_that_do_not_go_on() -> None:
    """Sizes whose sum with the header is 0 in 32 bits."""
    assert _C.code_object_kernels(with_note(struct.pack("<III", 0xFFFFFFF1, 0, 7)))[0]["arguments"] == []


def test_a_name_that_is_no_text() -> None:
    data = damaged.whole().replace(f"\0{NAME}\0{NAME}.kd\0".encode(), b"\0\xff\0\xff.kd\0")
    with pytest.raises(CodeObjectError, match="a name that is no text"):
        run_gfx950(data, "", 1, 64, b"")


def test_a_kernel_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="kernel: 'other'; the code object has k"):
        run_gfx950(damaged.whole(), "other", 1, 64, b"")
    data = damaged.whole().replace(f"{NAME}.kd".encode(), f"{NAME}.no".encode())
    with pytest.raises(CodeObjectError, match="no kernel"):
        run_gfx950(data, "", 1, 64, b"")


def test_more_bytes_of_arguments_than_the_kernel_takes() -> None:
    data = code_object("s_endpgm")
    run_gfx950(data, "", 1, 64, bytes(64))
    for count in (65, 128, 1 << 20):
        with pytest.raises(ValueError, match=f"kernarg: {count} bytes; kernel k takes 0, with hidden ones 64"):
            run_gfx950(data, "", 1, 64, bytes(count))


def test_scalar_registers_behind_the_last() -> None:
    """s_load_dwordx8 s[124:131]."""
    data = code_object("s_load_dwordx8 s[8:15], s[0:1], 0x0\ns_endpgm")
    (word,) = struct.unpack_from("<I", data, 64)
    data = data[:64] + struct.pack("<I", word & ~(127 << 6) | 124 << 6) + data[68:]
    with pytest.raises(UnsupportedGfx950, match="a scalar register that does not exist"):
        run_gfx950(data, "", 1, 64, bytes(64))


def test_the_build_says_why_too() -> None:
    """Of what the compiler leaves: every cut and each changed byte is read, or refused with a reason."""
    data = bytearray(64)
    data[:6], data[18:20] = b"\x7fELF\x02\x01", struct.pack("<H", 224)
    struct.pack_into("<Q", data, 32, 64)
    struct.pack_into("<HH", data, 54, 56, 1)
    note = damaged.note_of(damaged.metadata())
    whole = bytes(data) + struct.pack("<IIQQQQQQ", 4, 0, 120, 0, 0, len(note), len(note), 4) + note
    assert [kernel["symbol"] for kernel in build.kernels(whole)] == [f"{NAME}.kd"]
    for size in range(len(whole) - 4):
        with pytest.raises(build.CodeObjectError):
            build.kernels(whole[:size])
    for at in range(len(whole)):
        for value in damaged.VALUES:
            try:
                build.kernels(whole[:at] + bytes([value]) + whole[at + 1 :])
            except build.CodeObjectError as error:
                assert str(error)
