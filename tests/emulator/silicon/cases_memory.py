"""Cases of loads, stores, atomics and copies: every type, width and space."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

if __package__:
    from tests.emulator.silicon.cases import Bytes, Case, chosen, random_bytes
else:
    from cases import Bytes, Case, chosen, random_bytes  # type: ignore[import-not-found,no-redef]

THREADS = 64
ACCESS = re.compile(r"(ld|ldu|st)(\.global|\.shared|\.shared::cluster|\.local|)(\.v[24])?\.([bsuf])(8|16|32|64)$")
ATOMIC = re.compile(r"(atom|red)(\.global|\.shared|\.shared::cluster|)\.(.*)$")
SPACES = {"": "generic", ".global": "global", ".shared": "shared", ".shared::cluster": "shared", ".local": "local"}


def thread_addresses(size: int) -> str:
    """%rd10, %rd11: the thread's `size` bytes in what is given and what changes; %r3, %r4: in shared, local memory."""
    return (
        f"mad.wide.u32 %rd10, %r0, {size}, %rd0; mad.wide.u32 %rd11, %r0, {size}, %rd1;\n"
        f"mov.u32 %r2, smem; mad.lo.u32 %r3, %r0, {size}, %r2; mov.u32 %r4, own;\n"
    )


OWN = ".local .align 32 .b8 own[64];"


def bytes_through(load: str, store: str, size: int) -> str:
    return "".join(
        f"ld.{load[0]}.u8 %h20, [{load[1]}+{i}]; st.{store[0]}.u8 [{store[1]}+{i}], %h20;\n" for i in range(size)
    )


def access_case(opcode: str, match: re.Match[str]) -> Iterator[Case]:
    """The bytes of a thread into a space and out again; registers as narrow as can be, and of 32 and 64 bits."""
    what, space, vector, kind, bits = match[1], match[2], match[3], match[4], int(match[5])
    count = int(vector[2]) if vector else 1
    size = bits // 8 * count
    where, place = {
        "generic": ("global", "%rd10" if what != "st" else "%rd11"),
        "global": ("global", "%rd10" if what != "st" else "%rd11"),
        "shared": ("shared", "%r3"),
        "local": ("local", "%r4"),
    }[SPACES[space]]
    for width in (16, 32, 64):
        if width < bits or (kind == "f" and width != bits):
            continue
        letter = {16: "xh", 32: "xr", 64: "xd"}[width]
        registers = [f"%{letter}{i}" for i in range(count)]
        operand = "{" + ", ".join(registers) + "}" if vector else registers[0]
        declarations = f".reg .b{width} %{letter}<4>;\n{OWN}"
        body = thread_addresses(size if what == "st" else max(size, width // 8 * count))
        if what == "st":
            step = width // 8 * count
            body += f"mad.wide.u32 %rd12, %r0, {step}, %rd0;\n"
            body += "".join(
                f"ld.global.b{width} {name}, [%rd12+{width // 8 * i}];\n" for i, name in enumerate(registers)
            )
            body += f"{opcode} [{place}], {operand};\n"
            if where != "global":
                body += bytes_through((where, place), ("global", "%rd11"), size)
            given, out = THREADS * step, THREADS * size
        else:
            step = max(size, width // 8 * count)
            if where != "global":
                body += bytes_through(("global", "%rd10"), (where, place), size)
            body += f"{opcode} {operand}, [{place}];\n"
            body += "".join(
                f"st.global.b{width} [%rd11+{width // 8 * i}], {name};\n" for i, name in enumerate(registers)
            )
            given = out = THREADS * step
        name = f"{opcode} {width}"
        yield Case(
            name, body, random_bytes(name, given), np.zeros(out, np.uint8), THREADS, 4096, declarations=declarations
        )


WIDTHS = {"b16": 16, "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "b128": 128}


def numbers(name: str, kind: str, count: int) -> Bytes:
    """Special values, numbers near one and random bits of a type."""
    special = {
        "f32": np.array([0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x3F800001,
                         0x33800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x00FFFFFF,
                         0x80800001], np.uint32),
        "f64": np.array([0, 1 << 63, 1, 0x3FF << 52, 0xBFF << 52, (0x3FF << 52) + 1, 0x7FEFFFFFFFFFFFFF, 0x7FF << 52,
                         0xFFF << 52, 0x7FF8000000000001, 1 << 52, (1 << 52) - 1, 0x3CA << 52], np.uint64),
        "f16": np.array([0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x3C00, 0xBC00, 0x3C01, 0x1000, 0x7BFF, 0xFBFF, 0x7C00,
                         0xFC00, 0x7E00, 0x7C01, 0x7FFF], np.uint16),
        "bf16": np.array([0, 0x8000, 1, 0x8001, 0x7F, 0x80, 0x3F80, 0xBF80, 0x3F81, 0x3B80, 0x7F7F, 0xFF7F, 0x7F80,
                          0xFF80, 0x7FC0, 0x7F81, 0x7FFF], np.uint16),
    }  # fmt: skip
    base = kind.removesuffix("x2")
    if base in special:
        half = count // 2 // 16 * 16
        made = chosen(name, special[base], half // special[base].itemsize).view(np.uint8)
        return np.concatenate([made, random_bytes(name + " random", count - half)])
    bits = int(kind[1:])
    if bits > 64:
        return random_bytes(name, count)
    values = np.array([0, 1, 2, 3, (1 << bits) - 1, 1 << bits - 1, (1 << bits - 1) - 1], f"u{bits // 8}")
    half = count // 2 // 16 * 16
    made = chosen(name, values, half // values.itemsize).view(np.uint8)
    return np.concatenate([made, random_bytes(name + " random", count - half)])


def atomic_case(opcode: str, operands: str, match: re.Match[str]) -> Iterator[Case]:
    """Two operations of each thread on a place of its own, then two of all threads of a warp on one place."""
    what, space, rest = match[1], match[2], match[3]
    parts = rest.split(".")
    kind = parts[-1]
    vector = next((int(part[1:]) for part in parts if re.fullmatch(r"v[248]", part)), 1)
    bits = WIDTHS.get(kind) or int(kind[1:])
    where, place = {
        "generic": ("global", "%rd11"), "global": ("global", "%rd11"), "shared": ("shared", "%r3"),
    }[SPACES[space]]  # fmt: skip
    letter = f"x{bits}_"
    size = bits // 8 * vector
    sources = 2 if ".cas." in opcode else 1

    def named(first: int) -> list[str]:
        return [f"%{letter}{first + i}" for i in range(vector)]

    def operand(registers: list[str]) -> str:
        return "{" + ", ".join(registers) + "}" if vector > 1 else registers[0]

    lanes = size * THREADS
    body = thread_addresses(size)
    order = [named(vector * i) for i in range(sources)]
    result = named(vector * sources)
    for at, registers in enumerate(order):
        for i, register in enumerate(registers):
            body += f"ld.global.b{bits} {register}, [%rd10+{lanes * (1 + at) + bits // 8 * i}];\n"
    if where == "shared":
        for i, register in enumerate(result):
            at = bits // 8 * i
            body += f"ld.global.b{bits} {register}, [%rd10+{at}]; st.shared.b{bits} [%r3+{at}], {register};\n"
        body += "bar.sync 0;\n"
    arguments = ", ".join(operand(registers) for registers in order)
    for turn in range(2):
        if what == "atom":
            body += f"{opcode} {operand(result)}, [{place}], {arguments};\n"
            for i, register in enumerate(result):
                body += f"st.global.b{bits} [%rd11+{lanes * (1 + turn) + bits // 8 * i}], {register};\n"
        else:
            body += f"{opcode} [{place}], {arguments};\n"
    if where == "shared":
        for i, register in enumerate(result):
            at = bits // 8 * i
            body += f"ld.shared.b{bits} {register}, [%r3+{at}]; st.global.b{bits} [%rd11+{at}], {register};\n"
    name = opcode
    given = np.concatenate([numbers(f"{name} {i}", kind, lanes) for i in range(1 + sources)])
    if sources == 2:  # half of the comparisons hold
        given[lanes : lanes + lanes // 2] = given[: lanes // 2]
    out = np.zeros(3 * lanes, np.uint8)
    out[:lanes] = given[:lanes]
    declarations = f".reg .b{bits} %{letter}<{vector * (sources + 1)}>;\n{OWN}"
    yield Case(name, body, given, out, THREADS, 8192, declarations=declarations)


def wide_atomic_case(opcode: str, space: str) -> Case:
    """atom.exch and atom.cas of 128 bits: what stood there and what stands there after."""
    shared = space.startswith(".shared")
    place = "%r3" if shared else "%rd11"
    lanes = 16 * THREADS
    body = thread_addresses(16) + "ld.global.v2.b64 {%rd12, %rd13}, [%rd10]; mov.b128 %q0, {%rd12, %rd13};\n"
    for i in (1, 2):
        body += f"ld.global.v2.b64 {{%rd12, %rd13}}, [%rd10+{lanes * i}]; mov.b128 %q{i}, {{%rd12, %rd13}};\n"
    if shared:
        body += "st.shared.b128 [%r3], %q0; bar.sync 0;\n"
    arguments = "%q1, %q2" if ".cas." in opcode else "%q1"
    body += f"{opcode} %q3, [{place}], {arguments}; mov.b128 {{%rd12, %rd13}}, %q3;\n"
    body += f"st.global.v2.b64 [%rd11+{lanes}], {{%rd12, %rd13}};\n"
    if shared:
        body += "ld.shared.b128 %q3, [%r3]; mov.b128 {%rd12, %rd13}, %q3; st.global.v2.b64 [%rd11], {%rd12, %rd13};\n"
    given = random_bytes(opcode, 3 * lanes)
    given[lanes : lanes + lanes // 2] = given[: lanes // 2]  # half of the comparisons hold
    out = np.zeros(2 * lanes, np.uint8)
    out[:lanes] = given[:lanes]
    return Case(opcode, body, given, out, THREADS, 4096, declarations=f".reg .b128 %q<4>;\n{OWN}")


def remote_case(opcode: str, operands: str) -> Case:
    """st.async and red.async of each thread into the other block of a cluster, which waits for the bytes."""
    parts = opcode.split(".")
    kind = parts[-1]
    vector = next((int(part[1:]) for part in parts if re.fullmatch(r"v[24]", part)), 1)
    bits = int(kind[1:])
    size = bits // 8 * vector
    registers = [f"%x{i}" for i in range(vector)]
    value = "{" + ", ".join(registers) + "}" if vector > 1 else registers[0]
    lanes = size * THREADS
    written = opcode.replace(".shared::cluster", "").replace(".mbarrier::", ".shared::cluster.mbarrier::")
    written = written.replace("red.async.", "red.async.relaxed.cluster.")
    body = thread_addresses(size)
    for i, name in enumerate(registers):
        at = bits // 8 * i
        body += f"ld.global.b{bits} {name}, [%rd10+{at}]; st.shared.b{bits} [%r3+{at}], {name};\n"
    body += "".join(f"ld.global.b{bits} {name}, [%rd10+{lanes + bits // 8 * i}];\n" for i, name in enumerate(registers))
    body += (
        "setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;\n"
        "fence.proxy.async; bar.sync 0; mov.u32 %r9, %cluster_ctarank; xor.b32 %r10, %r9, 1; mov.u32 %r11, bar;\n"
        "mapa.shared::cluster.u32 %r12, %r3, %r10; mapa.shared::cluster.u32 %r11, %r11, %r10;\n"
        f"@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {lanes};\n"
        "barrier.cluster.arrive; barrier.cluster.wait;\n"
        f"{written} [%r12], {value}, [%r11];\n{WAIT.format(label='W', parity=0)}"
        f"mad.lo.u32 %r13, %r9, {THREADS}, %r0; mad.wide.u32 %rd11, %r13, {size}, %rd1;\n"
    )
    for i, name in enumerate(registers):
        at = bits // 8 * i
        body += f"ld.shared.b{bits} {name}, [%r3+{at}]; st.global.b{bits} [%rd11+{at}], {name};\n"
    body += "barrier.cluster.arrive; barrier.cluster.wait;\n"
    given = np.concatenate([numbers(f"{opcode} {i}", kind, lanes) for i in range(2)])
    declarations = f".reg .b{bits} %x<{vector}>;\n{OWN}\n{BAR}"
    return Case(opcode, body, given, np.zeros(2 * lanes, np.uint8), THREADS, 4096, blocks=2, cluster=2,
                declarations=declarations)  # fmt: skip


def matrix_move_case(opcode: str, operands: str) -> Case:
    count = int(operands.split("*")[1].split()[0])
    registers = "{" + ", ".join(f"%r{10 + i}" for i in range(count)) + "}"
    generic = ".shared" not in opcode
    body = (
        "mov.u32 %r2, smem; mad.lo.u32 %r3, %r0, 16, %r2; mad.wide.u32 %rd10, %r0, 16, %rd0;\n"
        "mad.wide.u32 %rd11, %r0, 16, %rd1;\n"
        "cvt.u64.u32 %rd12, %r3; cvta.shared.u64 %rd12, %rd12;\n"
    )
    place = "%rd12" if generic else "%r3"
    if opcode.startswith("ld"):
        body += "ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd10]; st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7};\n"
        body += "bar.sync 0;\n"
        body += f"{opcode} {registers}, [{place}];\n"
        body += "".join(f"st.global.b32 [%rd11+{4 * i}], %r{10 + i};\n" for i in range(count))
    else:
        body += "".join(f"ld.global.b32 %r{10 + i}, [%rd10+{4 * i}];\n" for i in range(count))
        body += "mov.u32 %r4, 0; st.shared.v4.b32 [%r3], {%r4, %r4, %r4, %r4}; bar.sync 0;\n"
        body += f"{opcode} [{place}], {registers}; bar.sync 0;\n"
        body += "ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r3]; st.global.v4.b32 [%rd11], {%r4, %r5, %r6, %r7};\n"
    return Case(opcode, body, random_bytes(opcode, 512), np.zeros(512, np.uint8), 32, 1024)


def wide_case(opcode: str, what: str, space: str) -> Case:
    """128 bits."""
    where, place = {"": ("global", "%rd11"), ".global": ("global", "%rd11"), ".shared": ("shared", "%r3"),
                    ".shared::cluster": ("shared", "%r3"), ".local": ("local", "%r4")}[space]  # fmt: skip
    if what == "ld":
        place = place.replace("%rd11", "%rd10")
    body = thread_addresses(16)
    if what == "ld":
        if where != "global":
            body += bytes_through(("global", "%rd10"), (where, place), 16)
        body += (
            f"{opcode} %q0, [{place}]; mov.b128 {{%rd12, %rd13}}, %q0; st.global.v2.b64 [%rd11], {{%rd12, %rd13}};\n"
        )
    else:
        body += (
            f"ld.global.v2.b64 {{%rd12, %rd13}}, [%rd10]; mov.b128 %q0, {{%rd12, %rd13}}; {opcode} [{place}], %q0;\n"
        )
        if where != "global":
            body += bytes_through((where, place), ("global", "%rd11"), 16)
    return Case(opcode, body, random_bytes(opcode, 16 * THREADS), np.zeros(16 * THREADS, np.uint8), THREADS, 4096,
                declarations=f".reg .b128 %q<1>;\n{OWN}")  # fmt: skip


WAIT = (
    "{{ .reg .pred done; {label}: mbarrier.try_wait.parity.shared::cta.b64 done, [bar], {parity};"
    " @!done bra {label}; }}\n"
)
BAR = ".shared .align 8 .b64 bar;"
ALL_OUT = (
    "mad.wide.u32 %rd11, %r0, 16, %rd1; mov.u32 %r2, smem; mad.lo.u32 %r3, %r0, 16, %r2;\n"
    "ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r3]; st.global.v4.b32 [%rd11], {%r4, %r5, %r6, %r7};\n"
)
ALL_IN = (
    "mad.wide.u32 %rd10, %r0, 16, %rd0; mov.u32 %r2, smem; mad.lo.u32 %r3, %r0, 16, %r2;\n"
    "ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd10]; st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7};\n"
)
ZEROS = (
    "mov.u32 %r4, 0; mov.u32 %r2, smem; mad.lo.u32 %r3, %r0, 16, %r2; st.shared.v4.b32 [%r3], {%r4, %r4, %r4, %r4};\n"
)


def copy_cases() -> Iterator[Case]:
    """cp.async with all sizes and zero filling; bulk copies in all directions."""
    for cache, sizes in (("ca", (4, 8, 16)), ("cg", (16,))):
        for size in sizes:
            for tail, more in (("", ""), (" part", f", {size // 2}"), (" none", ", 0"), (" ignored", ", %p1")):
                name = f"cp.async.{cache} {size}{tail}"
                body = ZEROS + f"bar.sync 0; mad.wide.u32 %rd10, %r0, {size}, %rd0; mad.lo.u32 %r3, %r0, {size}, %r2;\n"
                body += "and.b32 %r8, %r0, 1; setp.eq.u32 %p1, %r8, 1;\n"
                body += (
                    f"cp.async.{cache}.shared.global [%r3], [%rd10], {size}{more}; cp.async.wait_all; bar.sync 0;\n"
                    + ALL_OUT
                )
                yield Case(name, body, random_bytes(name, 1024), np.zeros(1024, np.uint8), 64, 1024)
    for size in (16, 48, 1024):
        name = f"cp.async.bulk load {size}"
        body = (
            ZEROS
            + "setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared::cta.b64 [bar], 1; fence.proxy.async; bar.sync 0;\n"
        )
        body += f"@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {size};\n"
        body += (
            f"@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem], [%rd0], {size}, [bar];\n"
        )
        body += WAIT.format(label="W", parity=0) + ALL_OUT
        yield Case(name, body, random_bytes(name, 1024), np.zeros(1024, np.uint8), 64, 1024, declarations=BAR)
        name = f"cp.async.bulk store {size}"
        body = ALL_IN + "fence.proxy.async; bar.sync 0; setp.eq.u32 %p0, %r0, 0; @!%p0 bra END;\n"
        body += f"cp.async.bulk.global.shared::cta.bulk_group [%rd1], [smem], {size};\n"
        body += "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nEND:"
        yield Case(name, body, random_bytes(name, 1024), np.zeros(1024, np.uint8), 64, 1024)


REDUCED = re.compile(
    r"cp\.reduce\.async\.bulk\.(global|shared::cluster)\.shared\.(?:bulk_group|mbarrier::complete_tx::bytes)\.(.*)$"
)


def reduction_case(opcode: str, match: re.Match[str]) -> Case:
    """Into global memory, or into the block's own shared memory."""
    to, rest = match[1], match[2]
    kind = rest.split(".")[-1]
    name = opcode
    size = 1024
    given = np.concatenate([numbers(f"{name} {i}", kind, size) for i in range(2)])
    opcode = opcode.replace(".shared.", ".shared::cta.")
    body = ALL_IN
    if to == "global":
        body += "fence.proxy.async; bar.sync 0; setp.eq.u32 %p0, %r0, 0; @!%p0 bra END;\n"
        body += f"{opcode} [%rd1], [smem], {size}; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nEND:"
        return Case(name, body, given, given[size:].copy(), 64, 2 * size)
    # Into the other block of a cluster; a launch without a cluster stops the chip, even within one block.
    body += (
        f"ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%rd10+{size}];\n"
        f"st.shared.v4.b32 [%r3+{size}], {{%r4, %r5, %r6, %r7}};\n"
        "setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;\n"
        "fence.proxy.async; mov.u32 %r9, %cluster_ctarank; xor.b32 %r10, %r9, 1; mov.u32 %r11, bar;\n"
        f"add.u32 %r12, %r2, {size}; mapa.shared::cluster.u32 %r12, %r12, %r10;\n"
        "mapa.shared::cluster.u32 %r11, %r11, %r10;\n"
        f"@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {size};\n"
        "barrier.cluster.arrive; barrier.cluster.wait;\n"
        f"@%p0 {opcode} [%r12], [%r2], {size}, [%r11];\n{WAIT.format(label='W', parity=0)}"
        f"mad.lo.u32 %r13, %r9, {size // 16}, %r0; mad.wide.u32 %rd11, %r13, 16, %rd1;\n"
        f"ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r3+{size}]; st.global.v4.b32 [%rd11], {{%r4, %r5, %r6, %r7}};\n"
        "barrier.cluster.arrive; barrier.cluster.wait;\n"
    )
    out = np.zeros(2 * size, np.uint8)
    return Case(name, body, given, out, 64, 2 * size, blocks=2, cluster=2, declarations=BAR)


def stack_cases() -> Iterator[Case]:
    """Each thread takes 8 bytes more than the one before, twice, and adds up what it stored there."""
    for alignment in ("", ", 32"):
        body = "mad.wide.u32 %rd11, %r0, 4, %rd1; add.u32 %r1, %r0, 1; shl.b32 %r2, %r1, 3; cvt.u64.u32 %rd5, %r2;\n"
        body += "stacksave.u64 %rd6; mov.u32 %r9, 0;\n"
        for turn in range(2):
            body += f"alloca.u64 %rd7, %rd5{alignment}; cvta.local.u64 %rd8, %rd7; mov.u32 %r3, 0;\n"
            body += f"F{turn}: cvt.u64.u32 %rd9, %r3; add.u64 %rd12, %rd7, %rd9; add.u64 %rd13, %rd8, %rd9;\n"
            body += "st.local.b32 [%rd12], %r3; st.local.b32 [%rd12+4], %r0; ld.v2.b32 {%r4, %r5}, [%rd13];\n"
            body += "add.u32 %r9, %r9, %r4; mad.lo.u32 %r9, %r5, 3, %r9; add.u32 %r3, %r3, 8;\n"
            body += f"setp.lt.u32 %p0, %r3, %r2; @%p0 bra F{turn};\n"
        body += "and.b64 %rd7, %rd7, 7; cvt.u32.u64 %r4, %rd7; add.u32 %r9, %r9, %r4;\n"
        body += "stackrestore.u64 %rd6; st.global.b32 [%rd11], %r9;\n"
        yield Case(f"alloca{alignment}", body, np.zeros(16, np.uint8), np.zeros(4 * 32, np.uint8), 32)


def mbarrier_cases() -> Iterator[Case]:
    """Phases and counts that the manual defines: of an opaque state, the count of pending arrivals."""
    store = "st.global.b32 [%rd1+{at}], %r9;\n"
    for count in (1, 2, 5, 1000, (1 << 20) - 1):
        name = f"mbarrier {count}"
        body = f"setp.ne.u32 %p0, %r0, 0; @%p0 bra END; mbarrier.init.shared::cta.b64 [bar], {count};\n"
        at = 0
        for _ in range(min(count, 4)):
            body += (
                "mbarrier.arrive.shared::cta.b64 %rd5, [bar]; mbarrier.pending_count.b64 %r9, %rd5;\n"
                + store.format(at=at)
            )
            body += "mbarrier.test_wait.shared::cta.b64 %p1, [bar], %rd5; selp.u32 %r9, 1, 0, %p1;\n" + store.format(
                at=at + 4
            )
            for parity in (0, 1):
                body += f"mbarrier.test_wait.parity.shared::cta.b64 %p1, [bar], {parity}; selp.u32 %r9, 1, 0, %p1;\n"
                body += store.format(at=at + 8 + 4 * parity)
            at += 16
        if count > 4:
            body += f"mbarrier.arrive.shared::cta.b64 %rd5, [bar], {count - 4}; mbarrier.pending_count.b64 %r9, %rd5;\n"
            body += store.format(at=at)
            body += "mbarrier.test_wait.shared::cta.b64 %p1, [bar], %rd5; selp.u32 %r9, 1, 0, %p1;\n" + store.format(
                at=at + 4
            )
        body += "END:"
        yield Case(name, body, np.zeros(16, np.uint8), np.zeros(128, np.uint8), 32, declarations=BAR)
    name = "mbarrier transactions"
    body = "setp.ne.u32 %p0, %r0, 0; @%p0 bra END; mbarrier.init.shared::cta.b64 [bar], 2;\n"
    complete = "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], "
    steps = (
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64", "mbarrier.arrive.shared::cta.b64 _, [bar]",
        f"{complete}60", f"{complete}4", "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 8",
        "mbarrier.arrive.shared::cta.b64 _, [bar], 2", f"{complete}8", "mbarrier.arrive_drop.shared::cta.b64 _, [bar]",
        "mbarrier.arrive.shared::cta.b64 _, [bar]", "mbarrier.arrive.shared::cta.b64 _, [bar]",
    )  # fmt: skip
    for i, step in enumerate(steps):
        body += f"{step};\n"
        for parity in (0, 1):
            body += f"mbarrier.test_wait.parity.shared::cta.b64 %p1, [bar], {parity}; selp.u32 %r9, 1, 0, %p1;\n"
            body += store.format(at=8 * i + 4 * parity)
    yield Case(name, body + "END:", np.zeros(16, np.uint8), np.zeros(128, np.uint8), 32, declarations=BAR)


def cases(forms: Iterable[tuple[str, str]]) -> Iterator[Case]:
    """Of every access, atomic, matrix move and bulk reduction among these opcodes and operands; copies; mbarriers."""
    for opcode, operands in forms:
        if match := ACCESS.match(opcode):
            yield from access_case(opcode, match)
        elif match := re.match(r"(ld|st)(\.global|\.shared|\.shared::cluster|\.local|)\.b128$", opcode):
            yield wide_case(opcode, match[1], match[2])
        elif opcode.startswith(("atom.", "red.")) and (match := ATOMIC.match(opcode)):
            if opcode.endswith(".b128"):
                yield wide_atomic_case(opcode, match[2])
            elif ".async." in opcode:
                yield remote_case(opcode, operands)
            else:
                yield from atomic_case(opcode, operands, match)
        elif opcode.startswith("st.async."):
            yield remote_case(opcode, operands)
        elif opcode.startswith(("ldmatrix", "stmatrix")):
            yield matrix_move_case(opcode, operands)
        elif match := REDUCED.match(opcode):
            yield reduction_case(opcode, match)
    yield from copy_cases()
    yield from stack_cases()
    yield from mbarrier_cases()
