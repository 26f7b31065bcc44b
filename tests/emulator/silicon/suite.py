"""One small PTX kernel for every instruction that works on registers alone, and the operands that it is tried on.

The same kernels run in the emulator and on a GPU; what the GPU gave is kept in h200.json as digests, so that the
emulator is compared with silicon where there is none.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

OPERANDS = re.compile(r"(=?)(p|w?[248])(\|p\?|\|p)?(\??)$")
PARTS = re.compile(r"(=?)[sn]([124])$")
"""Operands of video instructions: a register, or parts of it."""
ELSEWHERE = frozenset(
    "activemask bar barrier bra call cp elect exit griddepcontrol membar ret wgmma mma mapa "
    "getctarank isspacep cvta ld st atom red fence prefetch mbarrier setmaxnreg createpolicy ldmatrix stmatrix "
    "movmatrix tcgen05 nanosleep alloca stacksave stackrestore".split()
)
"""Instructions that see memory, other lanes or the flow of control; they have tests of their own."""
LANES = 32
COUNT = 2048
"""Elements that each instruction is tried on."""
WARP = ("shfl.", "vote.", "match.", "redux.")
"""Their last operand is the mask of all lanes."""
CARRIES = ("addc", "subc", "madc")


@dataclass(frozen=True)
class Program:
    """An instruction between loads and stores. inputs: bytes of each operand; outputs: bytes of each result."""

    opcode: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    text: str

    @property
    def entry(self) -> str:
        return "k_" + re.sub(r"\W", "_", self.opcode)


@dataclass(frozen=True)
class _Operand:
    destination: bool
    kind: str  # "p", or bytes
    second: bool


def _operands(text: str) -> list[_Operand] | None:
    found = []
    for part in text.split():
        match = OPERANDS.match(part)
        if match is None or match[4]:
            return None
        found.append(_Operand(bool(match[1]), match[2].lstrip("w"), bool(match[3])))
    return found


LIMITS = {"bfe": {1: 256, 2: 256}, "bfi": {2: 256, 3: 256}}
"""Operands that PTX bounds, by mnemonic and place."""
LEFT_OUT = {"fns": {2: 1 << 31}}
"""A value whose negative does not exist; it becomes 1."""

REGISTER = {"p": "%p", "2": "%h", "4": "%r", "8": "%d"}


def program(opcode: str, form: str, parts: tuple[str, ...] = ()) -> Program | None:
    """None for an instruction that is not of this kind, or whose operands are immediate numbers.

    parts: what is added to each operand, such as ".b1", or "-" for a negative one.
    """
    name = opcode.split(" ")[0]
    operands = _operands(form)
    if (
        operands is None
        or name.split(".")[0] in ELSEWHERE
        or name != opcode
        or not any(o.destination for o in operands)
    ):
        return None
    if parts:
        opcode = f"{name} {','.join(parts)}".replace("-", "minus")
    body: list[str] = []
    inputs: list[int] = []
    outputs: list[int] = []
    words: list[str] = []
    stores: list[str] = []
    for place, operand in enumerate(operands):
        register = f"{REGISTER[operand.kind]}{place + 1}"
        if operand.destination:
            stores += _store(register, operand.kind, outputs)
            if operand.second:
                register += f"|%p{place + 9}"
                stores += _store(f"%p{place + 9}", "p", outputs)
        elif name.startswith("lop3") and place == len(operands) - (1 if name == "lop3.b32" else 2):
            register = "0x96" if name == "lop3.b32" else "0xe8"
        elif name.startswith(WARP) and place == len(operands) - 1:
            register = "0xffffffff"
        else:
            body += _load(register, operand.kind, len(inputs))
            inputs.append(int(operand.kind) if operand.kind != "p" else 4)
        part = parts[place] if parts else ""
        words.append(f"-{register}" if part == "-" else register + part)
    if name.startswith(CARRIES):
        body += [*_load("%r20", "4", len(inputs)), "add.cc.u32 %r20, %r20, 0x80000000;"]
        inputs.append(4)
    body.append(f"{name} {', '.join(words)};")
    if name.endswith(tuple(f".cc.{type_}" for type_ in ("u32", "s32", "u64", "s64"))):
        body.append("addc.u32 %r21, 0, 0;")
        stores += _store("%r21", "4", outputs)
    made = Program(opcode, tuple(inputs), tuple(outputs), "")
    return Program(opcode, made.inputs, made.outputs, _kernel(made.entry, [*body, *stores]))


def _load(register: str, kind: str, index: int) -> list[str]:
    size = 4 if kind == "p" else int(kind)
    lines = ["ld.param.u64 %d30, [in];", f"ld.param.u64 %d31, [offset{index}];", "add.u64 %d30, %d30, %d31;",
             f"mad.wide.u32 %d30, %r31, {size}, %d30;"]  # fmt: skip
    if kind == "p":
        return [*lines, "ld.global.b32 %r30, [%d30];", f"setp.gt.s32 {register}, %r30, 0;"]
    return [*lines, f"ld.global.b{8 * size} {register}, [%d30];"]


def _store(register: str, kind: str, outputs: list[int]) -> list[str]:
    index = len(outputs)
    size = 4 if kind == "p" else int(kind)
    outputs.append(size)
    lines = ["ld.param.u64 %d30, [out];", f"ld.param.u64 %d31, [to{index}];", "add.u64 %d30, %d30, %d31;",
             f"mad.wide.u32 %d30, %r31, {size}, %d30;"]  # fmt: skip
    if kind == "p":
        return [f"selp.b32 %r30, 1, 0, {register};", *lines, "st.global.b32 [%d30], %r30;"]
    return [*lines, f"st.global.b{8 * size} [%d30], {register};"]


PARAMETERS = ("in", "offset0", "offset1", "offset2", "offset3", "offset4", "out", "to0", "to1", "to2")


def _kernel(entry: str, lines: list[str]) -> str:
    parameters = ", ".join(f".param .u64 {name}" for name in PARAMETERS)
    return (
        f".visible .entry {entry}({parameters})\n{{\n"
        ".reg .pred %p<32>; .reg .b16 %h<32>; .reg .b32 %r<32>; .reg .b64 %d<32>;\n"
        "mov.u32 %r28, %ctaid.x; mov.u32 %r29, %ntid.x; mov.u32 %r31, %tid.x; mad.lo.u32 %r31, %r28, %r29, %r31;\n"
        + "\n".join(lines)
        + "\nret;\n}\n"
    )


def programs() -> Iterator[Program]:
    """Of every such instruction that the emulator has for sm_90a, by opcode ascending."""
    from msa_ops import _C

    for opcode, form in _C.emulated_forms():
        if not _C.target_has(TARGET, opcode):
            continue
        if any(PARTS.match(part) for part in form.split()):
            yield from _video_programs(opcode, form)
        elif made := program(opcode, form):
            yield made


def _video_programs(opcode: str, form: str) -> Iterator[Program]:
    """Whole registers, and parts drawn by the opcode's name; of a product negative operands too."""
    name = opcode.removesuffix(" part")
    draw = np.random.PCG64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))

    def one_of(words: Sequence[str]) -> str:
        return words[int(draw.random_raw()) % len(words)]

    shape = " ".join(PARTS.sub(r"\g<1>4", operand) for operand in form.split())
    rest = [""] * (len(form.split()) - 3)
    width = next(int(operand[-1]) for operand in form.split() if PARTS.match(operand))
    choices: list[tuple[str, ...]]
    if width == 1:
        parts = ".b0", ".b1", ".b2", ".b3", ".h0", ".h1"
        choices = [("", "", ""), ("", one_of(parts), one_of(parts)), ("", "", one_of(parts)), ("", one_of(parts), "")]
        choices = [(*choice, *rest) for choice in choices]
        if opcode.endswith(" part"):
            choices = [(one_of(parts), one_of(parts), one_of(parts), ""), (one_of(parts), "", "", "")]
        if "n1" in form and ".po" not in opcode:
            choices += [("", "-", "", ""), ("", "", "-", ""), ("", "", "", "-")]
    else:
        numbers = [str(i) for i in range(2 * width)]

        def chosen() -> str:
            return {2: ".h", 4: ".b"}[width] + "".join(one_of(numbers) for _ in range(width))

        masks = {2: (".h0", ".h1", ".h10"), 4: (".b0", ".b2", ".b31", ".b310", ".b3210")}[width]
        choices = [("", "", "", ""), ("", chosen(), chosen(), "")]
        choices += [(one_of(masks), "", chosen(), ""), (one_of(masks), chosen(), "", "")]
    for choice in dict.fromkeys(choices):
        made = program(name, shape, choice)
        assert made is not None
        yield made


TARGET = "sm_90a"


def module(kernels: list[Program], target: str = TARGET, version: str = "8.6") -> str:
    return f".version {version}\n.target {target}\n.address_size 64\n" + "".join(kernel.text for kernel in kernels)


def _specials(size: int) -> NDArray[np.generic]:
    if size == 2:
        values = [0, 1, 2, 0x7F, 0x80, 0xFF, 0x3FF, 0x400, 0x401, 0x3C00, 0x3BFF, 0x3C01, 0x3F80, 0x3F7F, 0x3F81]
        values += [0x7BFF, 0x7C00, 0x7C01, 0x7E00, 0x7F7F, 0x7F80, 0x7F81, 0x7FFF, 0x3E00, 0x4248, 0x0808, 0x7E7E]
        return np.array(values + [value | 0x8000 for value in values], np.uint16)
    if size == 4:
        values = [0, 1, 2, 0x1F, 0x20, 0x21, 0xFF, 0x7FFFFF, 0x800000, 0x800001, 0x3F800000, 0x3F7FFFFF, 0x3F800001,
                  0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0x33000000, 0x33800000, 0x387FC000,
                  0x477FE000, 0x477FF000, 0x43E00000, 0x43E80000, 0x4EFFFFFF, 0x4F000000, 0x4F7FFFFF, 0x5EFFFFFF,
                  0x5F000000, 0x3F000000, 0x40200000, 0x7C007BFF, 0x3C000001, 0x7F80FF80, 0x00FF7FFF]  # fmt: skip
        return np.array(values + [value | 0x80000000 for value in values], np.uint32)
    numbers = [0.0, 5e-324, 2.2e-308, 2.2250738585072014e-308, 1.0, 1.5, 0.1, 1.7976931348623157e308, np.inf, 65504.0,
               65520.0, 3.4028234663852886e38, 3.4028235677973366e38, 1e-45, 1.1754943508222875e-38, 4294967295.5,
               2147483648.0, 9.223372036854775e18, 1.8446744073709552e19, 0.5, 2.5, 448.0, 464.0]  # fmt: skip
    bits = np.array(numbers).view(np.uint64)
    whole = [1, 2, 31, 32, 63, 64, 0xFFFFFFFF, 0x100000000, 0x7FF0000000000001, 0x7FF8000000000000, 0x7FFFFFFFFFFFFFFF,
             0x20000000000001, 0x7FFFFFFFFFFFFC00]  # fmt: skip
    values64 = np.concatenate([bits, np.array(whole, np.uint64)])
    return np.concatenate([values64, values64 | np.uint64(1 << 63)])


def operand_values(made: Program) -> list[NDArray[np.generic]]:
    """COUNT elements for each operand: special values with one another, random bits, numbers near one, small integers.

    From the raw stream of a bit generator, which NumPy promises to keep.
    """
    seed = int.from_bytes(hashlib.sha256(made.opcode.encode()).digest()[:8], "little")
    raw = np.random.PCG64(seed).random_raw(COUNT * max(1, len(made.inputs))).reshape(-1, COUNT)
    values = [_values(made, place, size, raw[place]) for place, size in enumerate(made.inputs)]
    name = made.opcode.split(".")[0]
    for place, limit in LIMITS.get(name, {}).items():
        values[place] %= values[place].dtype.type(limit)
    for place, value in LEFT_OUT.get(name, {}).items():
        values[place][values[place] == value] = 1
    return values


def _values(made: Program, place: int, size: int, raw: NDArray[np.uint64]) -> NDArray[np.generic]:
    special = _specials(size)
    kind = special.dtype
    picks, anything, near, small = (
        raw[: COUNT // 2],
        raw[COUNT // 2 : -COUNT // 4],
        raw[-COUNT // 4 : -COUNT // 8],
        raw[-COUNT // 8 :],
    )
    chosen = special[(picks % np.uint64(special.size)).astype(np.int64)]
    if place == 0:
        chosen[: special.size] = special
    halves = size == 2 or (size == 4 and "x2" in made.opcode)
    one = (
        0x3C00
        if halves and "bf16" not in made.opcode
        else 0x3F80
        if halves
        else 0x3F800000
        if size == 4
        else 0x3FF << 52
    )
    width = 16 if halves else 8 * size
    spread = np.uint64(1 << {16: 12, 32: 26, 64: 56}[width])
    numbers = np.zeros(near.size, np.uint64)
    for shift in range(0, 8 * size, width):
        part = near >> np.uint64(shift)
        number = part % (spread * np.uint64(2)) + np.uint64(one) - spread
        number |= (part >> np.uint64(14) & np.uint64(1)) << np.uint64(width - 1)
        numbers |= number << np.uint64(shift)
    return np.concatenate([chosen, anything.astype(kind), numbers.astype(kind), (small % np.uint64(70)).astype(kind)])


def digest(results: list[NDArray[np.generic]]) -> str:
    state = hashlib.sha256()
    for result in results:
        state.update(np.ascontiguousarray(result).tobytes())
    return state.hexdigest()[:16]
