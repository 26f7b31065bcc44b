"""Damaged code objects, tried one after the other: `python -m tests.emulator.gfx950.damaged KIND FIRST LAST`.

Each is a file with a kernel, metadata and a note, changed by what its number seeds: KIND "bytes" anywhere, "tables"
(headers, symbols, descriptor, metadata) in ways that catch readers out, "cut" off somewhere, "code" (words of the
program). What is found is an exception with a reason, or a kernel that runs, or fails with a fault. Prints how often,
as JSON; the slowest of them in seconds. A process of its own, since the worst that can happen ends it.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import time
from collections import Counter

import numpy as np

from msa_ops.emulator import CodeObjectError, EmulatorFault, UnsupportedGfx950, run_gfx950
from tests.emulator.gfx950.code_object import NAME, code_object

KINDS = ("bytes", "tables", "cut", "code")
PROGRAM = """
s_load_dwordx4 s[8:11], s[0:1], 0x0
v_lshlrev_b32 v1, 4, v0
s_waitcnt lgkmcnt(0)
global_load_dwordx4 v[4:7], v1, s[8:9]
s_waitcnt vmcnt(0)
ds_write_b128 v1, v[4:7]
s_waitcnt lgkmcnt(0)
s_barrier
v_xor_b32 v2, 16, v1
ds_read_b128 v[8:11], v2
s_waitcnt lgkmcnt(0)
v_mfma_f32_16x16x32_f16 v[12:15], v[4:7], v[8:11], v[4:7]
s_nop 15
s_nop 15
v_add_f32 v16, v12, v13
v_cmp_lt_f32 vcc, v12, v16
v_cndmask_b32 v16, v16, v14, vcc
global_store_dword v1, v16, s[10:11]
s_endpgm
"""
VALUES = (0, 1, 0x7F, 0x80, 0xFF, 0xFE, 0xF4, 0xFC, 0x91, 0xDD, 0xDF, 0xC6)


def text(value: str) -> bytes:
    return (
        bytes([0xA0 | len(value)]) + value.encode() if len(value) < 32 else bytes([0xD9, len(value)]) + value.encode()
    )


def table(values: dict[str, bytes]) -> bytes:
    return bytes([0x80 | len(values)]) + b"".join(text(key) + value for key, value in values.items())


def note_of(metadata: bytes) -> bytes:
    return struct.pack("<III8s", 7, len(metadata), 32, b"AMDGPU") + metadata + bytes(-len(metadata) % 4)


def metadata(offsets: tuple[int, ...] = (0, 8), threads: int = 64) -> bytes:
    arguments = [
        table({".offset": bytes([offset]), ".size": b"\x08", ".value_kind": text("by_value")}) for offset in offsets
    ]
    kernel = table({
        ".symbol": text(f"{NAME}.kd"), ".max_flat_workgroup_size": bytes([0xCD]) + struct.pack(">H", threads),
        ".args": bytes([0x90 | len(arguments)]) + b"".join(arguments),
    })  # fmt: skip
    return table({"amdhsa.kernels": b"\x91" + kernel})


def whole() -> bytes:
    return code_object(PROGRAM, lds=1024, scratch=16, note=note_of(metadata()))


def damage(kind: str, data: bytes, seed: int) -> bytes:
    choose = random.Random(f"{kind} {seed}")
    made = bytearray(data)
    begin, end = 64, 64 + 8 * len(PROGRAM.splitlines())  # of the code, more or less
    if kind == "cut":
        return bytes(made[: choose.randrange(len(made))])
    for _ in range(choose.randrange(1, 5)):
        if kind == "bytes":
            made[choose.randrange(len(made))] = choose.randrange(256)
        elif kind == "tables":
            at = choose.choice([choose.randrange(64), choose.randrange(end, len(made))])
            for place in range(at, min(at + choose.randrange(1, 9), len(made))):
                made[place] = choose.choice(VALUES)
        else:
            at = choose.randrange(begin, end) & ~3
            made[at : at + 4] = choose.randbytes(4)
    return bytes(made)


def attempt(data: bytes) -> str:
    source, result = np.ones(1024, np.float16), np.zeros(1024, np.uint32)
    arguments = struct.pack("<QQ", source.__array_interface__["data"][0], result.__array_interface__["data"][0])
    try:
        run_gfx950(data, "", 1, 64, arguments, tensors={"in": source, "out": result}, max_instructions=20_000)
    except (CodeObjectError, UnsupportedGfx950, EmulatorFault, ValueError) as error:
        if not str(error).strip():
            raise RuntimeError(f"{type(error).__name__} without a reason") from error
        return type(error).__name__
    return "ran"


def main(kind: str, first: int, last: int) -> None:
    data, found, slowest = whole(), Counter[str](), 0.0
    for seed in range(first, last):
        begin = time.monotonic()
        found[attempt(damage(kind, data, seed))] += 1
        slowest = max(slowest, time.monotonic() - begin)
    print(json.dumps({"slowest": slowest, **found}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    main(**vars(parser.parse_args()))
