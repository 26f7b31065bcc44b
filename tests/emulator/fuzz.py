"""Texts, launches and tensor maps that are wrong, drawn by a seed: `python -m tests.emulator.fuzz SEED COUNT`.

Each is either taken or refused by an exception that says why. What ends the process, hangs or raises anything else is a
fault of the emulator; test_fuzz.py runs this in a process of its own.
"""

from __future__ import annotations

import random
import re
import sys

import numpy as np

from msa_ops.emulator import EmulatorFault, run_ptx
from msa_ops.emulator.tensor_map import SWIZZLES, TYPES, tensor_map
from tests.emulator.programs import kernel

REFUSED = (ValueError, NotImplementedError, EmulatorFault, TypeError)
TEXTS = [
    kernel(
        "mul.lo.s64 %rd20, %rd15, 4; add.s64 %rd20, %rd20, %rd0;\nld.global.b32 %r1, [%rd20];\n"
        "LOOP: add.s32 %r1, %r1, 1; setp.lt.s32 %p1, %r1, 40; @%p1 bra LOOP;\n"
        "st.shared.b32 [s+4], %r1; bar.sync 0; ld.shared.v2.b32 {%r2, %r3}, [s];\n"
        "fma.rn.f32 %r4, %r1, 0f3F800000, 1.5; shfl.sync.bfly.b32 %r5|%p2, %r4, 1, 31, -1;\n"
        "st.global.b32 [%rd20], %r1;",
        declarations=".shared .align 16 .b8 s[64];\n.global .align 8 .b32 g[4] = {1, 2, 3, 4};\n.const .f32 c = 2.5;",
    ),
    kernel(
        ".local .align 8 .b8 own[32];\nmov.b32 %r1, own; st.local.v2.b32 [%r1+8], {%r0, %r0};\n"
        "{ .reg .v4 .b32 four; mov.b32 four.x, %r0; mov.b64 %rd1, {four.x, %r0}; }\n"
        "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.shared.b64 %rd2, [bar];\n"
        "WAIT: mbarrier.try_wait.shared.b64 %p1, [bar], %rd2; @!%p1 bra WAIT;\n"
        "vadd4.u32.u32.u32 %r2, %r0.b3210, %r0, %r0; cvt.rn.f16x2.f32 %r3, %r0, %r0; ret;",
        declarations=".shared .align 8 .b64 bar;",
        directives=".maxntid 64, 1, 1\n.minnctapersm 1\n",
    ),
    kernel(
        "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%rd0];\n"
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r9,%r10,%r11,%r12}, {%r1,%r2}, {%r3}, {%r4,%r5,%r6,%r7};\n"
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1,%r2,%r3,%r4}, [s]; atom.global.add.u32 %r5, [%rd0], %r1;\n"
        "cp.async.ca.shared.global [s], [%rd0], 16; cp.async.wait_all; red.global.add.v2.f32 [%rd0], {%r1, %r2};",
        declarations=".shared .align 16 .b8 s[1024];",
    ),
]
"""Kernels that are right, from which wrong ones are made."""
TOKEN = re.compile(r"[%\w.:$]+|\s+|.", re.DOTALL)
NUMBERS = (
    "0 -1 4294967296 18446744073709551615 99999999999999999999999 0xffffffffffffffff 1e400 0f7F800000 "
    "0d7FF0000000000000 2147483648 0b102 07777777777777777777777777 1. 65536"
).split()
WORDS = (
    ".b8 .b128 .pred .f64 .v4 .v8 .align .shared .param %r0 %p0 %rd0 %h0 %tid %clock64 _ L .reg bra ret call @%p0 { } "
    '[ ] ( ) | ! < > ; , ld.global.b32 tcgen05.mma wgmma.fence.sync.aligned cp.async.bulk.commit_group \x00 \xff " '
    "/* //"
).split(" ")


def broken_text(draw: random.Random) -> str:
    tokens = TOKEN.findall(draw.choice(TEXTS))
    for _ in range(draw.choice((1, 1, 2, 4, 12))):
        at = draw.randrange(len(tokens))
        what = draw.randrange(9)
        if what == 0:
            del tokens[at : at + draw.choice((1, 1, 3, 10))]
        elif what == 1:
            tokens.insert(at, tokens[draw.randrange(len(tokens))])
        elif what == 2:
            tokens[at] = draw.choice(WORDS)
        elif what == 3:
            numbers = [i for i, token in enumerate(tokens) if re.match(r"-?\d", token)]
            if numbers:
                tokens[draw.choice(numbers)] = draw.choice(NUMBERS)
        elif what == 4:
            dotted = [i for i, token in enumerate(tokens) if "." in token[1:]]
            if dotted:
                place = draw.choice(dotted)
                parts = tokens[place].split(".")
                parts[draw.randrange(len(parts))] = draw.choice(
                    (*parts, "f32", "b64", "u8", "global", "shared", "x4", "")
                )
                tokens[place] = ".".join(parts)
        elif what == 5:
            tokens = tokens[: at + 1]
        elif what == 6:
            tokens.insert(at, draw.choice(("{", "[", "!", "(", "-", "{ ", "~")) * draw.choice((1, 40, 30_000)))
        elif what == 7:
            other = draw.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        else:
            tokens[at] = tokens[at] * draw.choice((2, 5, 2000))
        if not tokens:
            break
    return "".join(tokens)


def declaration(draw: random.Random) -> str:
    """Of a variable, of parts that go together or not."""
    numbers = (
        "0",
        "1",
        "3",
        "-1",
        "WARP_SZ",
        "2.5",
        "0f3F800000",
        "4294967296",
        "1+2",
        "g",
        "g+4",
        "generic(g)",
        "k",
        "0xff00(g)",
    )

    def value(depth: int) -> str:
        if depth == 0 or draw.random() < 0.1:
            return draw.choice(numbers)
        return "{" + ", ".join(value(depth - 1) for _ in range(draw.choice((0, 1, 2, 3)))) + "}"

    types = ".pred .b8 .u8 .s16 .f16 .f16x2 .bf16 .b32 .u32 .f32 .b64 .u64 .f64 .b128 .texref"
    parts = [
        draw.choice(("", "", "", ".extern", ".visible", ".weak", ".common")),
        draw.choice((".global", ".global", ".const", ".shared", ".local", ".param", ".reg")),
        draw.choice(("", "", ".align 8", ".align 0", ".attribute(.managed)")),
        draw.choice(("", "", ".v2", ".v4")),
        draw.choice(types.split()),
    ]
    for comma in range(draw.choice((1, 1, 2))):
        sizes = draw.choices(("", "0", "1", "2", "3", "70000", "4294967296"), k=draw.choice((0, 0, 1, 2, 3)))
        begin = draw.choice(("", f" = {value(len(sizes))}", f" = {value(draw.randrange(4))}"))
        parts.append(f"{', ' if comma else ''}v{comma}{''.join(f'[{size}]' for size in sizes)}{begin}")
    return " ".join(parts) + ";"


def text_with_declarations(draw: random.Random) -> str:
    use = draw.choice(
        ("", "mov.u64 %rd1, v0;", "ld.global.b32 %r1, [v0+4];", "ld.shared.b32 %r1, [v0];", "ld.const.b32 %r1, [v0];")
    )
    if draw.random() < 0.5:
        return kernel(use, declarations=f".global .u32 g[2];\n{declaration(draw)}")
    return kernel(f"{declaration(draw)}\n{use}", declarations=".global .u32 g[2];")


def launch(text: str, draw: random.Random, **options: object) -> None:
    memory = np.zeros(1024, np.uint32)
    run_ptx(text, "k", **{"grid": 1, "block": 32, "arguments": [memory], "max_instructions": 2000} | options)  # type: ignore[arg-type]


def strange_launch(draw: random.Random) -> dict[str, object]:
    odd = (
        0,
        -1,
        1,
        2,
        31,
        33,
        1024,
        1025,
        65535,
        65536,
        2**31,
        2**32,
        2**64,
        1.5,
        None,
        "2",
        (1, 1),
        (1, 2, 3, 4),
        (),
        True,
    )
    options: dict[str, object] = {}
    for name in draw.sample(
        ("grid", "block", "cluster", "shared_memory", "seed", "threads", "multiprocessors", "chip"), 2
    ):
        options[name] = draw.choice(odd)
    if draw.random() < 0.2:
        options["arguments"] = draw.choice(
            ([], [None], [2**64], [b"1"], ["x"], [np.zeros(0, np.uint8)], [1, 2], [-1.5])
        )
    return options


def strange_map(draw: random.Random, memory: np.ndarray) -> bytes:
    """A tensor map as it could be, with some bits changed, or one of strange numbers if the driver takes it."""
    if draw.random() < 0.5:
        made = bytearray(tensor_map(memory, "f32", [32, 8], [128], [8, 4]))
        for _ in range(draw.choice((1, 2, 8, 100))):
            made[draw.randrange(128)] ^= 1 << draw.randrange(8)
        return bytes(made)
    rank = draw.randint(1, 5)
    numbers = (0, 1, 2, 3, 16, 31, 32, 128, 256, 257, 2**31, 2**32 - 1, 2**32, 2**40, 2**63)
    sizes, strides, box = (draw.choices(numbers, k=count) for count in (rank, rank - 1, rank))
    steps = draw.choices((0, 1, 2, 8, 9), k=rank)
    swizzle = draw.choice(list(SWIZZLES))
    return tensor_map(
        memory, draw.choice(TYPES), sizes, strides, box, steps=steps, swizzle=swizzle, l2_promotion=draw.randint(0, 4)
    )


COPY = (
    "setp.ne.u32 %p1, %r0, 0; @%p1 bra END; mbarrier.init.shared.b64 [bar], 1; fence.proxy.async;\n"
    "mbarrier.arrive.expect_tx.shared.b64 _, [bar], 128;\n"
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [s], [%rd0, {%r0, %r0}], [bar];\n"
    "WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra WAIT;\nEND:"
)


def copy_by(map_bytes: bytes, memory: np.ndarray) -> None:
    raw = np.zeros(192, np.uint8)
    place = raw[-raw.ctypes.data % 64 :][:128]
    place[:] = np.frombuffer(map_bytes, np.uint8)
    text = kernel(COPY, 2, ".shared .align 128 .b8 s[16384];\n.shared .align 8 .b64 bar;")
    run_ptx(text, "k", 1, 32, [place, memory], max_instructions=2000)


def main(seed: int, count: int) -> None:
    draw = random.Random(seed)
    taken = refused = 0
    memory = np.zeros(32 * 8 + 64, np.float32)
    memory = memory[(-memory.ctypes.data % 128) // 4 :][: 32 * 8]
    for _ in range(count):
        kind = draw.randrange(12)
        try:
            if kind > 9:
                launch(text_with_declarations(draw), draw)
            elif kind < 7:
                launch(broken_text(draw), draw)
            elif kind < 9:
                launch(draw.choice(TEXTS), draw, **strange_launch(draw))
            else:
                copy_by(strange_map(draw, memory), memory)
            taken += 1
        except REFUSED as error:
            assert str(error), "no reason"
            refused += 1
    print(taken, refused)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
