"""Cases of mma, mma.sp, wgmma, wgmma.sp and wmma, whose sums are exact in every order.

Operands are small whole numbers, or infinities and NaN, whose sums are the same in every order too; of integers all
codes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

if __package__:
    from tests.emulator.silicon.cases import Bytes, Case, chosen, random_bytes
else:
    from cases import Bytes, Case, chosen, random_bytes  # type: ignore[import-not-found,no-redef]

BITS = {"f64": 64, "f32": 32, "tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8,
        "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "s32": 32}  # fmt: skip
ASCENDING = (0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)
ANY = (*ASCENDING, 0b0001, 0b0010, 0b0110, 0b0011, 0b0111, 0b1011)
FP8 = {"e4m3": (0x38, 0x40, 0x44, 0x30, 0x7F), "e5m2": (0x3C, 0x40, 0x42, 0x38, 0x7E, 0x7C)}
"""1, 2, 3, 0.5, NaN, and infinity if the format has it."""
Words = NDArray[np.generic]


def codes(kind: str, special: bool) -> Words:
    """What elements of a type are drawn from."""
    numbers = [0.0, 1.0, 2.0, 3.0, 0.5] if not special else [0.0, 1.0, 2.0, np.inf, np.nan]
    signed = np.array([*numbers, *[-number for number in numbers]])
    if kind == "f16":
        return signed.astype(np.float16).view(np.uint16)
    if kind in ("f32", "tf32", "bf16"):
        words = signed.astype(np.float32).view(np.uint32)
        return (words >> 16).astype(np.uint16) if kind == "bf16" else words
    if kind == "f64":
        return signed.view(np.uint64)
    one, two, three, half, *rest = FP8[kind]
    chosen_codes = [0, one, two, three, half] if not special else [0, one, two, *rest]
    return np.array([*chosen_codes, *[code | 0x80 for code in chosen_codes]], np.uint8)


def operand(name: str, kind: str, special: bool, size: int) -> Bytes:
    """`size` bytes of elements."""
    if kind in ("s8", "u8", "s4", "u4", "b1"):
        return random_bytes(name, size)
    values = codes(kind, special)
    made = chosen(name, values, size // values.itemsize)
    if kind == "tf32":  # 13 bits that do not count
        low = random_bytes(name + " low", size).view(np.uint32) & np.uint32(0x1FFF)
        made = np.where(made & np.uint32(0x7F800000) == 0x7F800000, made, made | low).astype(np.uint32)
    return made.view(np.uint8)


def sums(name: str, kind: str, special: bool, size: int) -> Bytes:
    """What products are added to."""
    if kind == "s32":
        return random_bytes(name, size)
    values = (
        np.arange(-16, 16, dtype=np.float64) if not special else np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan])
    )
    type_ = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind]
    made = chosen(name, values.astype(type_), size // np.dtype(type_).itemsize)
    return made.view(np.uint8)


def metadata(name: str, kind: str, ordered: bool, words: int) -> Bytes:
    """Words of which every four bits mean something."""
    nibbles = np.array((0b0100, 0b1110) if kind == "tf32" else ASCENDING if ordered else ANY, np.uint8)
    drawn = chosen(name, nibbles, 8 * words)
    return drawn[0::2] | drawn[1::2] << np.uint8(4)


def vector(letter: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"%{letter}{first + i}" for i in range(count)) + "}"


def addresses(size: int, threads: int) -> str:
    """%rd10 and %rd11: the thread's element of `size` bytes in what is given and in what changes."""
    return f"mad.wide.u32 %rd10, %r0, {size}, %rd0; mad.wide.u32 %rd11, %r0, {size}, %rd1;\n"


def _types(opcode: str) -> tuple[str, str, str, str]:
    """d, a, b, c of mma."""
    parts = [part for part in opcode.split(".") if part in BITS]
    return parts[0], parts[1], parts[2], parts[3]


def mma_case(opcode: str, operands: str, *, special: bool = False, selector: int = 0) -> Case:
    threads = 128
    counts = [(int(spec.lstrip("=")[0]), int(spec.split("*")[1])) for spec in operands.split() if "*" in spec]
    size = counts[0][0]
    _, a, b, c = _types(opcode)
    sparse = opcode.startswith("mma.sp")
    name = opcode + (" special" if special else "") + (f" {selector}" if sparse else "")
    letter = "w" if size == 8 else "x"
    kinds = [(a, operand), (b, operand), (c, sums)]
    parts, lines, names, number = [], [addresses(size, threads)], [], 0
    for i, ((kind, make), (_, count)) in enumerate(zip(kinds, counts[1:], strict=True)):
        parts.append(make(f"{name} {i}", kind, special, count * threads * size))
        lines += [
            f"ld.global.b{8 * size} %{letter}{number + r}, [%rd10+{(number + r) * threads * size}];"
            for r in range(count)
        ]
        names.append(vector(letter, number, count))
        number += count
    if sparse:
        parts.append(metadata(name, a, "ordered" in opcode, threads))
        lines.append(f"ld.global.b32 %r1, [%rd10+{number * threads * size}];")
        names += ["%r1", str(selector)]
    results = vector(letter, number, counts[0][1])
    lines.append(f"{opcode} {results}, {', '.join(names)};")
    lines += [
        f"st.global.b{8 * size} [%rd11+{r * threads * size}], %{letter}{number + r};" for r in range(counts[0][1])
    ]
    out = np.zeros(counts[0][1] * threads * size, np.uint8)
    declarations = f".reg .b{8 * size} %{letter}<{number + counts[0][1]}>;"
    return Case(name, "\n".join(lines), np.concatenate(parts), out, threads, declarations=declarations)


MODES = {"none": 0, "128": 1, "64": 2, "32": 3}
WGMMA_BYTES = 81920
A_BYTES = 16384


def descriptor(address: int, leading: int, stride: int, mode: str) -> int:
    return address >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | MODES[mode] << 62


def wgmma_case(
    opcode: str, operands: str, *, special: bool = False, selector: int = 0, mode: str = "128", a_mn: bool = False,
    b_mn: bool = False, keep: bool = True, signs: tuple[int, int] = (1, 1),
) -> Case:  # fmt: skip
    """opcode: with " a4" behind it for A in registers. Shared memory is full of elements of A, then of B."""
    threads = 128
    in_registers = opcode.endswith(" a4")
    opcode = opcode.removesuffix(" a4")
    sparse = ".sp." in opcode
    d, a, b = [part for part in opcode.split(".") if part in BITS][:3]
    count = int(operands.split()[0].split("*")[1])
    name = opcode + (" a4" if in_registers else "") + f" {mode}{' a_mn' * a_mn}{' b_mn' * b_mn}"
    name += (" special" if special else "") + (f" {selector}" if sparse else "")
    name += ("" if keep else " new") + ("" if signs == (1, 1) else f" {signs}")
    memory = [operand(name + " a", a, special, A_BYTES), operand(name + " b", b, special, WGMMA_BYTES - A_BYTES)]
    registers = [operand(name + " ra", a, special, 4 * 4 * threads), sums(name + " c", d, special, 4 * count * threads),
                 metadata(name, a, True, threads)]  # fmt: skip
    width = {"none": 16, "32": 32, "64": 64, "128": 128}[mode]

    def place(mn: bool, rows: int, row_bytes: int) -> tuple[int, int]:
        """leading and stride bytes."""
        if mode == "none":
            return (128, 256) if mn else (128 * (rows // 8), 128)
        return (8 * width * 8, 8 * width) if mn else (8 * width * (rows // 8), 8 * width)

    n = int(opcode.split(".m64n")[1].split("k")[0])
    row_bytes = 64 if sparse else 32
    lines = [
        "mov.u32 %r2, smem; shl.b32 %r3, %r0, 4; add.u32 %r3, %r3, %r2; mad.wide.u32 %rd10, %r0, 16, %rd0;",
        "mov.u32 %r4, 0;",
        "FILL: ld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%rd10]; st.shared.v4.b32 [%r3], {%r5, %r6, %r7, %r8};",
        f"add.u32 %r3, %r3, {16 * threads}; add.u64 %rd10, %rd10, {16 * threads}; add.u32 %r4, %r4, {16 * threads};",
        f"setp.lt.u32 %p0, %r4, {WGMMA_BYTES}; @%p0 bra FILL;",
        "fence.proxy.async; bar.sync 0;",
        addresses(4, threads),
    ]
    at = WGMMA_BYTES
    lines += [f"ld.global.b32 %a{r}, [%rd10+{at + 4 * threads * r}];" for r in range(4)]
    at += 16 * threads
    lines += [f"ld.global.b32 %x{r}, [%rd10+{at + 4 * threads * r}];" for r in range(count)]
    at += 4 * threads * count
    lines.append(f"ld.global.b32 %r9, [%rd10+{at}];")
    for register, address, mn, rows, size in ((12, 0, a_mn, 64, 32), (13, A_BYTES, b_mn, n, row_bytes)):
        leading, stride = place(mn, rows, size)
        made = descriptor(0, leading, stride, mode)
        lines.append(f"add.u32 %r10, %r2, {address}; shr.u32 %r10, %r10, 4; cvt.u64.u32 %rd{register}, %r10;")
        lines.append(f"or.b64 %rd{register}, %rd{register}, {made:#x};")
    floating = a not in ("s8", "u8", "b1")
    immediates = f", {signs[0]}, {signs[1]}" if floating else ""
    if a in ("f16", "bf16"):
        immediates += ("" if in_registers else f", {int(a_mn)}") + f", {int(b_mn)}"
    lines += [
        f"setp.ne.u32 %p1, {int(keep)}, 0;",
        "wgmma.fence.sync.aligned;",
        f"{opcode} {vector('x', 0, count)}, {vector('a', 0, 4) if in_registers else '%rd12'}, %rd13"
        f"{f', %r9, {selector}' if sparse else ''}, %p1{immediates};",
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
    ]
    lines += [f"st.global.b32 [%rd11+{4 * threads * r}], %x{r};" for r in range(count)]
    given = np.concatenate([*memory, *registers])
    return Case(name, "\n".join(lines), given, np.zeros(4 * threads * count, np.uint8), threads, WGMMA_BYTES,
                declarations=f".reg .b32 %a<4>; .reg .b32 %x<{count}>;")  # fmt: skip


def wmma_case(shape: str, types: tuple[str, str, str, str], layouts: tuple[str, str], tail: str = "") -> Case:
    """load a, b, c; mma; store d: what lanes hold in between is not defined."""
    m, n, k = (int(number) for number in shape[1:].replace("n", " ").replace("k", " ").split())
    d, a, b, c = types
    name = f"wmma {shape} {'.'.join(layouts)} {'.'.join(types)} {tail}".strip()
    count = {"f16": 8, "bf16": 4, "tf32": 4, "s8": 2, "u8": 2, "s4": 1, "u4": 1, "b1": 1, "f64": 1}[a]
    a_count = b_count = count
    if a in ("bf16", "s8", "u8"):
        scale = {"m16n16k16": (1, 1), "m8n32k16": (0.5, 2), "m32n8k16": (2, 0.5)}[shape]
        a_count, b_count = int(count * scale[0]), int(count * scale[1])
    sums_count = m * n // 32 // (2 if c == "f16" else 1)
    size = BITS[c] // 8
    out_count = m * n // 32 // (2 if d == "f16" else 1)
    letter = "w" if a == "f64" else "x"
    steps = {"row": {"a": k, "b": n}, "col": {"a": m, "b": k}}
    a_bytes = 4096
    loads, parts, number = [], [], 0
    for which, kind, layout, registers in (("a", a, layouts[0], a_count), ("b", b, layouts[1], b_count)):
        step = steps[layout][which]
        loads.append(f"add.u64 %rd3, %rd0, {a_bytes * len(parts)};")
        loads.append(
            f"wmma.load.{which}.sync.aligned.{layout}.{shape}.global.{kind} {vector(letter, number, registers)}, "
            f"[%rd3], {step};"
        )
        parts.append(operand(f"{name} {which}", kind, False, a_bytes))
        number += registers
    c_letter = "w" if c == "f64" else "x"
    loads.append(f"add.u64 %rd3, %rd0, {a_bytes * 2};")
    loads.append(
        f"wmma.load.c.sync.aligned.row.{shape}.global.{c} {vector(c_letter, number, sums_count)}, [%rd3], {n};"
    )
    parts.append(sums(f"{name} c", c, False, m * n * size))
    results = vector(c_letter, number + sums_count, out_count)
    what = f".{tail}" if tail in ("xor.popc", "and.popc") else ""
    saturate = ".satfinite" if tail == "satfinite" else ""
    signature = f"{d}.{c}" if a == "f16" else f"{d}.{a}.{b}.{c}"
    rounding = ".rn" if a == "f64" else ""
    opcode = f"wmma.mma{what}.sync.aligned.{layouts[0]}.{layouts[1]}.{shape}{rounding}.{signature}{saturate}"
    loads.append(
        f"{opcode} {results}, {vector(letter, 0, a_count)}, {vector(letter, a_count, b_count)}, "
        f"{vector(c_letter, number, sums_count)};"
    )
    loads.append(f"wmma.store.d.sync.aligned.row.{shape}.global.{d} [%rd1], {results}, {n};")
    total = number + sums_count + out_count
    return Case(name, "\n".join(loads), np.concatenate(parts), np.zeros(m * n * BITS[d] // 8, np.uint8),
                declarations=f".reg .b{64 if letter == 'w' else 32} %{letter}<{total}>;")  # fmt: skip


def wmma_cases() -> Iterator[Case]:
    layouts = [*itertools.product(("row", "col"), repeat=2)]
    for shape in ("m16n16k16", "m8n32k16", "m32n8k16"):
        for layout in layouts:
            for d, c in itertools.product(("f16", "f32"), repeat=2):
                yield wmma_case(shape, (d, "f16", "f16", c), layout)
            yield wmma_case(shape, ("f32", "bf16", "bf16", "f32"), layout)
            for kind, tail in itertools.product(("s8", "u8"), ("", "satfinite")):
                yield wmma_case(shape, ("s32", kind, kind, "s32"), layout, tail)
    for layout in layouts:
        yield wmma_case("m16n16k8", ("f32", "tf32", "tf32", "f32"), layout)
        yield wmma_case("m8n8k4", ("f64", "f64", "f64", "f64"), layout)
    for kind, tail in itertools.product(("s4", "u4"), ("", "satfinite")):
        yield wmma_case("m8n8k32", ("s32", kind, kind, "s32"), ("row", "col"), tail)
    for tail in ("xor.popc", "and.popc"):
        yield wmma_case("m8n8k128", ("s32", "b1", "b1", "s32"), ("row", "col"), tail)


def cases(forms: Iterable[tuple[str, str]]) -> Iterator[Case]:
    """Of every mma and wgmma among these opcodes and operands; of wgmma 8, 24, 96 and 256 columns."""
    for opcode, form in forms:
        if opcode.startswith("mma."):
            kind = _types(opcode)[1]
            last = 1
            if opcode.startswith("mma.sp"):
                k = int(opcode.split(".m16n8k")[1].split(".")[0])
                chunks = k // {"tf32": 2, "s4": 8, "u4": 8}.get(kind, 4)
                last = {4: 4, 8: 2, 16: 1}[chunks]
            for selector in range(last):
                yield mma_case(opcode, form, selector=selector)
            if kind in ("f16", "bf16", "tf32", "e4m3", "e5m2", "f64"):
                yield mma_case(opcode, form, special=True)
        elif opcode.startswith("wgmma.mma_async."):
            n = int(opcode.split(".m64n")[1].split("k")[0])
            if n not in (8, 24, 96, 256):
                continue
            yield wgmma_case(opcode, form)
            kind = [part for part in opcode.split(".") if part in BITS][1]
            if n == 24 and kind not in ("s8", "u8", "b1"):
                yield wgmma_case(opcode, form, special=True)
                yield wgmma_case(opcode, form, keep=False, signs=(1, -1))
            if n == 96 and ".sp." in opcode and kind in ("f16", "bf16", "tf32"):
                yield wgmma_case(opcode, form, selector=1)
            if n == 96:
                for mode in ("none", "32", "64"):
                    yield wgmma_case(opcode, form, mode=mode)
            if n in (96, 256) and kind in ("f16", "bf16"):
                for mode, a_mn, b_mn in itertools.product(MODES, (False, True), (False, True)):
                    whole = n * 2 % {"none": 16, "32": 32, "64": 64, "128": 128}[mode] == 0
                    if (a_mn or b_mn) and whole and not (a_mn and " a4" in opcode):
                        yield wgmma_case(opcode, form, mode=mode, a_mn=a_mn, b_mn=b_mn)
    yield from wmma_cases()
