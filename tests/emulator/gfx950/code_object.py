# ruff: noqa: E501 (assembler text)
"""Code objects made by hand: a kernel of assembler text in the ELF file that a compiler would have made."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msa_ops.emulator import Report, run_gfx950
from tests.emulator.gfx950.assembler import assemble

NAME = "k"


KERNEL_ARGUMENTS, DISPATCH_PACKET, QUEUE = 8, 2, 4
"""Addresses that a kernel may want in its first scalar registers."""


def descriptor(*, vgprs: int, accumulators_at: int, lds: int, scratch: int, kernarg: int, flush: bool,
               wanted: int = KERNEL_ARGUMENTS) -> bytes:  # fmt: skip
    """64 bytes: s[0:1] hold the address of the kernel arguments, s2, s3 and s4 the workgroup, v0 the work-item. If more
    is wanted, the packet comes first, then the queue, the arguments and the workgroup."""
    made = bytearray(64)
    struct.pack_into("<IIIxxxxq", made, 0, lds, scratch, kernarg, 0)
    modes = (0xC0 if flush else 0xF0) | 1 << 9 | 1 << 11  # round to nearest, denormals; DX10_CLAMP, IEEE_MODE
    struct.pack_into(
        "<III", made, 44, accumulators_at // 4 - 1, vgprs // 8 - 1 | modes << 12, wanted.bit_count() << 2 | 7 << 7
    )
    struct.pack_into("<H", made, 56, wanted)
    return bytes(made)


def code_object(text: str, *, vgprs: int = 512, accumulators_at: int = 256, lds: int = 0, scratch: int = 0, flush: bool = False,
                machine: int = 0x4F, wanted: int = KERNEL_ARGUMENTS, preload: int = 0, note: bytes = b"") -> bytes:  # fmt: skip
    """A relocatable file with one kernel `k`. preload: of the descriptor. note: a section of notes, if there is to be one."""
    code = assemble(text)
    names = ["", ".text", ".rodata", ".symtab", ".strtab", ".shstrtab"]
    strings = b"\0" + NAME.encode() + b"\0" + NAME.encode() + b".kd\0"
    symbols = bytes(24)
    symbols += struct.pack("<IBBHQQ", 1, 0x12, 0, 1, 0, len(code))
    symbols += struct.pack("<IBBHQQ", 2 + len(NAME), 0x11, 0, 2, 0, 64)
    section_names = b"\0".join(name.encode() for name in names) + b"\0"
    kd = descriptor(
        vgprs=vgprs, accumulators_at=accumulators_at, lds=lds, scratch=scratch, kernarg=64, flush=flush, wanted=wanted
    )
    kd = kd[:58] + struct.pack("<H", preload) + kd[60:]
    parts = [b"", code, kd, symbols, strings, section_names]
    types = [0, 1, 1, 2, 3, 3]
    if note:
        parts, types, names = [*parts, note], [*types, 7], [*names, ""]
    offset, headers, body = 64, b"", b""
    name_at = 0
    for i, (part, kind) in enumerate(zip(parts, types, strict=True)):
        padding = -len(body) % 64
        body += bytes(padding)
        headers += struct.pack(
            "<IIQQQQIIQQ",
            name_at if names[i] else 0,
            kind,
            0,
            0,
            offset + len(body),
            len(part),
            4 if i == 3 else 0,
            1,
            64,
            24 if i == 3 else 0,
        )
        body += part
        name_at += len(names[i]) + 1
    header = b"\x7fELF" + bytes([2, 1, 1, 64, 4]) + bytes(7)
    header += struct.pack("<HHIQQQIHHHHHH", 1, 224, 1, 0, 0, 64 + len(body), machine, 64, 0, 0, 64, len(names), 5)
    return header + body + headers


def run(text: str, *arrays: NDArray[Any], blocks: int | Sequence[int] = 1, threads: int = 64, lds: int = 0, scratch: int = 0,
        flush: bool = False, max_instructions: int = 1_000_000, seed: int | None = None,
        uncached: Sequence[Any] = (), accept: Sequence[tuple[str, int, int]] = ()) -> Report:  # fmt: skip
    """Runs a kernel whose arguments are the addresses of the arrays."""
    arguments = b"".join(struct.pack("<Q", array.__array_interface__["data"][0]) for array in arrays)
    made = code_object(text, lds=lds, scratch=scratch, flush=flush)
    return run_gfx950(made, NAME, blocks, threads, arguments, tensors={f"array {i}": array for i, array in enumerate(arrays)},
                      max_instructions=max_instructions, seed=seed, uncached=uncached, accept=accept)  # fmt: skip


def apply(instruction: str, dwords: int, *operands: NDArray[Any], lanes: int = 64, flush: bool = False,
          before: str = "", initial: NDArray[Any] | None = None) -> NDArray[np.uint32]:  # fmt: skip
    """Runs an instruction ("v_add_u32 D, A, B") on rows of 64 lanes; the result is uint32 [dwords, rows * 64].

    Operands are uint32 [dwords of the operand, rows * 64] or uint32 [rows * 64]; a workgroup does a row. D starts with
    `initial`, of the result's shape, or zeros.
    """
    arrays = [np.ascontiguousarray(np.atleast_2d(operand).view(np.uint32)) for operand in operands]
    count = arrays[0].shape[1]
    result = (
        np.zeros((dwords, count), np.uint32) if initial is None else np.atleast_2d(initial).astype(np.uint32).copy()
    )
    names: dict[str, str] = {}
    lines = ["s_load_dwordx8 s[8:15], s[0:1], 0x0", "s_lshl_b32 s5, s2, 6", "v_add_u32 v1, s5, v0",
             "v_lshlrev_b32 v1, 2, v1", "s_waitcnt lgkmcnt(0)"]  # fmt: skip
    register = 8

    def name(letter: str, words: int) -> None:
        nonlocal register
        register += register % 2
        names[letter] = f"v{register}" if words == 1 else f"v[{register}:{register + words - 1}]"
        register += words

    def load(letter: str, words: int, pointer: int) -> None:
        first = register
        name(letter, words)
        first += first % 2
        for word in range(words):
            lines.extend(
                [
                    f"v_add_u32 v2, {4 * count * word}, v1",
                    f"global_load_dword v{first + word}, v2, s[{pointer}:{pointer + 1}]",
                ]
            )

    for i, array in enumerate(arrays):
        load("ABCE"[i], array.shape[0], 8 + 2 * i)
    load("D", dwords, 8 + 2 * len(arrays))
    first = int(names["D"].strip("v[]").split(":")[0])
    lines += ["s_waitcnt vmcnt(0)", "s_nop 7", *before.splitlines()]
    lines.append("".join(names.get(part, part) for part in _split(instruction)))
    lines += ["s_waitcnt vmcnt(0) lgkmcnt(0)", *["s_nop 7"] * 3]
    for word in range(dwords):
        lines += [
            f"v_add_u32 v2, {4 * count * word}, v1",
            f"global_store_dword v2, v{first + word}, s[{8 + 2 * len(arrays)}:{9 + 2 * len(arrays)}]",
        ]
    lines.append("s_endpgm")
    run("\n".join(lines), *arrays, result, blocks=count // 64, threads=lanes, flush=flush)
    return result


def _split(instruction: str) -> list[str]:
    parts, word = [], ""
    for letter in instruction:
        if letter.isalnum() or letter == "_":
            word += letter
        else:
            parts += [word, letter]
            word = ""
    return [*parts, word]
