"""wgmma against NumPy, and its rules: fences, groups, registers in flight."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel, line_of
from tests.emulator.shared_operands import WIDTHS, descriptor, place, to_bytes

Array = NDArray[np.generic]
BASE = 1024  # address of the first byte of shared memory
TYPES = {
    "f16": (np.float16, 16), "bf16": (ml_dtypes.bfloat16, 16), "tf32": (np.float32, 8),
    "e4m3": (ml_dtypes.float8_e4m3fn, 32), "e5m2": (ml_dtypes.float8_e5m2, 32),
    "s8": (np.int8, 32), "u8": (np.uint8, 32),
}  # fmt: skip


def draw(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> Array:
    """Numbers whose sums of products are exact in every order."""
    limits = {"s8": (-128, 128), "u8": (0, 256)}.get(kind, (-4, 5))
    return rng.integers(*limits, shape).astype(TYPES[kind][0])


def copy_in(bytes_a_thread: int, threads: int = 128) -> str:
    """Shared memory `buffer` = the array of parameter 0, 16 bytes a step."""
    steps = "".join(
        f"ld.global.v4.b32 {{%r4,%r5,%r6,%r7}}, [%rd20+{16 * threads * i}];\n"
        f"st.shared.v4.b32 [%r2+{16 * threads * i}], {{%r4,%r5,%r6,%r7}};\n"
        for i in range(bytes_a_thread // 16)
    )
    return (
        "shl.b64 %rd20, %rd15, 4; add.s64 %rd20, %rd20, %rd0;\n"
        "shl.b32 %r2, %r0, 4; mov.u32 %r3, buffer; add.s32 %r2, %r2, %r3;\n"
        f"{steps}fence.proxy.async; bar.sync 0;\n"
    )


@dataclass
class Launch:
    """A warpgroup with `memory` in shared memory; LOAD_D, STORE_D, LOAD_A, <D>, <A> of a body are filled in."""

    memory: NDArray[np.uint8]
    registers: int

    def text(self, body: str) -> str:
        size = self.memory.nbytes
        head = copy_in(size // 128)
        names = "{" + ", ".join(f"%d{i}" for i in range(self.registers)) + "}"
        operands = "{" + ", ".join(f"%a{i}" for i in range(4)) + "}"
        declare = f".reg .b32 %d<{self.registers}>; .reg .b32 %a<4>;\n"
        move = (
            "shl.b64 %rd21, %rd15, 2; add.s64 %rd21, %rd21, %rd1; add.s64 %rd22, %rd15, 0; shl.b64 %rd22, %rd22, 2;\n"
        )
        move += "add.s64 %rd22, %rd22, %rd2;\n"
        loads = "".join(f"ld.global.b32 %d{i}, [%rd21+{512 * i}];\n" for i in range(self.registers))
        stores = "".join(f"st.global.b32 [%rd21+{512 * i}], %d{i};\n" for i in range(self.registers))
        a_loads = "".join(f"ld.global.b32 %a{i}, [%rd22+{512 * i}];\n" for i in range(4))
        body = body.replace("LOAD_D", loads).replace("STORE_D", stores).replace("LOAD_A", a_loads)
        body = body.replace("<D>", names).replace("<A>", operands)
        return kernel(declare + head + move + body, 3, f".shared .align 1024 .b8 buffer[{size}];")

    def run(self, body: str, d: NDArray[np.uint32], a: NDArray[np.uint32] | None = None) -> str:
        text = self.text(body)
        a = np.zeros((4, 128), np.uint32) if a is None else a
        run_ptx(text, "k", 1, 128, [self.memory, d, a], max_instructions=1_000_000)
        return text


def d_place(i: int) -> tuple[Array, Array]:
    """Row and column of element i of D in each of 128 threads, by the manual's formulas."""
    thread = np.arange(128)
    return thread // 32 * 16 + thread % 32 // 4 + 8 * (i >> 1 & 1), 8 * (i >> 2) + thread % 4 * 2 + (i & 1)


def a_place(i: int, per: int) -> tuple[Array, Array]:
    thread = np.arange(128)
    register, inside = divmod(i, per)
    return (thread // 32 * 16 + thread % 32 // 4 + 8 * (register % 2),
            thread % 4 * per + inside + 4 * per * (register // 2))  # fmt: skip


def product(a_kind: str, b_kind: str, d_kind: str, n: int, *, a_mode: str = "128", b_mode: str = "128",
            a_major: str = "k", b_major: str = "k", keep: bool = True,
            signs: tuple[int, int] = (1, 1), in_registers: bool = False, gap: int = 0) -> None:  # fmt: skip
    rng = np.random.default_rng([n, ord(a_kind[0])])
    dtype, k = TYPES[a_kind]
    a, b = draw(rng, a_kind, (64, k)), draw(rng, b_kind, (n, k))
    size = np.dtype(dtype).itemsize
    a_offset, a_leading, a_stride, a_size = place(64, 32, a_mode, a_major, size, gap)
    b_offset, b_leading, b_stride, b_size = place(n, 32, b_mode, b_major, size, gap)
    a_bytes, b_bytes = to_bytes(a, a_offset, a_size), to_bytes(b, b_offset, b_size)
    memory = np.concatenate([a_bytes, b_bytes])
    memory = np.pad(memory, (0, -len(memory) % 2048))
    exact = (signs[0] * signs[1]) * (a.astype(np.float64) @ b.astype(np.float64).T)
    c = rng.integers(-50, 50, (64, n))
    halves = d_kind == "f16"
    count = n // 2
    elements = np.stack([c[d_place(i)] for i in range(count)])
    expected = np.stack([(exact + (c if keep else 0))[d_place(i)] for i in range(count)])

    def words(values: Array) -> NDArray[np.uint32]:
        if d_kind == "s32":
            return values.astype(np.int64).astype(np.int32).view(np.uint32)
        if d_kind == "f32":
            return values.astype(np.float32).view(np.uint32)
        low = values.astype(np.float16).view(np.uint16).astype(np.uint32)
        return low[0::2] | low[1::2] << np.uint32(16)

    d = words(elements)
    per = 4 // size
    a_words = np.zeros((4, 128), np.uint32)
    for i in range(4 * per):
        code = a.view(f"u{size}")[a_place(i, per)].astype(np.uint32)
        a_words[i // per] |= code << np.uint32(i % per * 8 * size)
    a_operand = "<A>" if in_registers else "%rd23"
    floating = a_kind not in ("s8", "u8")
    immediates = f", {signs[0]}, {signs[1]}" if floating else ""
    if a_kind in ("f16", "bf16"):
        immediates += "" if in_registers else f", {int(a_major == 'mn')}"
        immediates += f", {int(b_major == 'mn')}"
    a_descriptor = descriptor(BASE, a_leading, a_stride, a_mode, "hopper")
    b_descriptor = descriptor(BASE + len(a_bytes), b_leading, b_stride, b_mode, "hopper")
    opcode = f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{d_kind}.{a_kind}.{b_kind}"
    body = (
        f"LOAD_D LOAD_A\nmov.b64 %rd23, {a_descriptor:#x}; mov.b64 %rd24, {b_descriptor:#x};\n"
        f"mov.pred %p1, {int(keep)};\nwgmma.fence.sync.aligned;\n"
        f"{opcode} <D>, {a_operand}, %rd24, %p1{immediates};\n"
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\nSTORE_D\n"
    )
    Launch(memory, len(d)).run(body, d, a_words)
    np.testing.assert_array_equal(d, words(np.clip(expected, -(2**31), 2**31 - 1)) if not halves else words(expected))


LAYOUTS = [
    (n, mode, major)
    for n in (8, 24, 64, 256)
    for mode in WIDTHS
    for major in ("k", "mn")
    if major == "k" or n * 2 % WIDTHS[mode] == 0  # N fills whole atoms
]


@pytest.mark.parametrize(("n", "mode", "major"), LAYOUTS)
def test_layouts_of_b(n: int, mode: str, major: str) -> None:
    product("f16", "f16", "f32", n, b_mode=mode, b_major=major, gap=1024 if mode != "none" else 256)


@pytest.mark.parametrize("mode", ["none", "32", "64", "128"])
@pytest.mark.parametrize("major", ["k", "mn"])
def test_layouts_of_a(mode: str, major: str) -> None:
    product("bf16", "bf16", "f32", 16, a_mode=mode, a_major=major, gap=1024 if mode != "none" else 256)


@pytest.mark.parametrize(
    ("a", "b", "d"),
    [("f16", "f16", "f16"), ("f16", "f16", "f32"), ("bf16", "bf16", "f32"), ("tf32", "tf32", "f32")]
    + [(a, b, d) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2") for d in ("f16", "f32")]
    + [(a, b, "s32") for a in ("s8", "u8") for b in ("s8", "u8")],
)
@pytest.mark.parametrize("in_registers", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_types(a: str, b: str, d: str, in_registers: bool, keep: bool) -> None:
    product(a, b, d, 32, in_registers=in_registers, keep=keep)


@pytest.mark.parametrize("signs", [(1, -1), (-1, 1), (-1, -1)])
def test_signs(signs: tuple[int, int]) -> None:
    product("f16", "f16", "f32", 8, signs=signs)


def test_bits() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 256, (64, 32)).astype(np.uint8), rng.integers(0, 256, (16, 32)).astype(np.uint8)
    (a_offset, _, a_stride, a_size), (b_offset, _, b_stride, b_size) = (place(m, 32, "32", "k", 1) for m in (64, 16))
    a_bytes, b_bytes = to_bytes(a, a_offset, a_size), to_bytes(b, b_offset, b_size)
    d = np.zeros((8, 128), np.uint32)
    body = (
        f"mov.b64 %rd23, {descriptor(BASE, 0, a_stride, '32', 'hopper'):#x};\n"
        f"mov.b64 %rd24, {descriptor(BASE + len(a_bytes), 0, b_stride, '32', 'hopper'):#x};\n"
        "mov.pred %p1, 0; wgmma.fence.sync.aligned;\n"
        "wgmma.mma_async.sync.aligned.m64n16k256.s32.b1.b1.and.popc <D>, %rd23, %rd24, %p1;\n"
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\nSTORE_D\n"
    )
    memory = np.concatenate([a_bytes, b_bytes])
    Launch(np.pad(memory, (0, -len(memory) % 2048)), 8).run(body, d)
    counts = np.unpackbits(a[:, None] & b[None], axis=-1).sum(-1)
    np.testing.assert_array_equal(d, np.stack([counts[d_place(i)] for i in range(8)]))


# ---- rules

MMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 <D>, {a}, %rd24, {keep}, 1, 1{a_major}, 0;"


def rule(lines: str) -> tuple[Launch, str]:
    """S: a product with A in shared memory that starts new sums; K: one that keeps them; R: A in registers."""
    memory = np.zeros(4096, np.uint8)
    parts = {
        "S": MMA.format(a="%rd23", keep="0", a_major=", 0"),
        "K": MMA.format(a="%rd23", keep="1", a_major=", 0"),
        "R": MMA.format(a="<A>", keep="0", a_major=""),
        "FENCE": "wgmma.fence.sync.aligned;",
        "COMMIT": "wgmma.commit_group.sync.aligned;",
        "WAIT0": "wgmma.wait_group.sync.aligned 0;",
        "WAIT1": "wgmma.wait_group.sync.aligned 1;",
    }
    out = []
    for line in lines.split("\n"):
        words = line.split(" ")
        out.append(" ".join(parts.get(word, word) for word in words))
    start = f"mov.b64 %rd23, {descriptor(BASE, 128, 256, 'none', 'hopper'):#x};\nmov.b64 %rd24, %rd23;\n"
    return Launch(memory, 4), start + "\n".join(out)


RULES = {
    "first_fence": ("wgmma fence", "S // here\nCOMMIT WAIT0", "FENCE S\nCOMMIT WAIT0"),
    "fence_after_writing_sums": (
        "wgmma fence",
        "FENCE LOAD_D\nK // here\nCOMMIT WAIT0",
        "LOAD_D FENCE\nK\nCOMMIT WAIT0",
    ),
    # Compilers move constants over a fence, and ptxas waits where it must; other values it may not move.
    "fence_after_computing_sums": (
        "wgmma fence",
        "FENCE mov.b32 %d0, 0; mov.b32 %d1, %d0; mov.b32 %d2, %d0; mov.b32 %d3, %r0;\nK // here\nCOMMIT WAIT0",
        "FENCE mov.b32 %d0, 0; mov.b32 %d1, %d0; mov.b32 %d2, %d0; mov.b32 %d3, 0f3f800000;\nK\nCOMMIT WAIT0",
    ),
    "fence_before_reading_and_constants": (
        "wgmma fence",
        "FENCE S COMMIT WAIT0\nadd.f32 %r9, %d0, %d0; mov.b32 %d0, 0;\nK // here\nCOMMIT WAIT0",
        "FENCE S COMMIT WAIT0\nadd.f32 %r9, %d0, %d0; FENCE mov.b32 %d0, 0;\nK\nCOMMIT WAIT0",
    ),
    "constants_without_any_fence": (
        "wgmma fence",
        "mov.b32 %d0, 0; mov.b32 %d1, 0; mov.b32 %d2, 0; mov.b32 %d3, 0;\nK // here\nCOMMIT WAIT0",
        "mov.b32 %d0, 0; mov.b32 %d1, 0; mov.b32 %d2, 0; mov.b32 %d3, 0;\nFENCE K\nCOMMIT WAIT0",
    ),
    "fence_after_writing_operand": (
        "wgmma fence",
        "LOAD_A FENCE\nmov.b32 %a1, 0;\nR // here\nCOMMIT WAIT0",
        "LOAD_A mov.b32 %a1, 0; FENCE\nR\nCOMMIT WAIT0",
    ),
    "fence_between_reading_and_next": (
        "wgmma fence",
        "FENCE S COMMIT WAIT0 add.f32 %d0, %d0, %d0;\nS // here\nCOMMIT WAIT0",
        "FENCE S COMMIT WAIT0 add.f32 %d0, %d0, %d0;\nFENCE S\nCOMMIT WAIT0",
    ),
    "read_before_wait": (
        "register in flight",
        "FENCE S COMMIT\nadd.f32 %r9, %d2, %d2; // here\nWAIT0",
        "FENCE S COMMIT WAIT0\nadd.f32 %r9, %d2, %d2;",
    ),
    "wait_without_commit": (
        "register in flight",
        "FENCE S WAIT0\nadd.f32 %r9, %d2, %d2; // here\nCOMMIT",
        "FENCE S COMMIT WAIT0\nadd.f32 %r9, %d2, %d2;",
    ),
    "wait_for_older_only": (
        "register in flight",
        "FENCE S COMMIT K COMMIT WAIT1\nadd.f32 %r9, %d2, %d2; // here\nWAIT0",
        "FENCE S COMMIT K COMMIT WAIT0\nadd.f32 %r9, %d2, %d2;",
    ),
    "write_before_wait": (
        "register in flight",
        "FENCE S COMMIT\nmov.b32 %d1, 0; // here\nWAIT0",
        "FENCE S COMMIT WAIT0\nmov.b32 %d1, 0;",
    ),
    "operand_overwritten": (
        "register in flight",
        "LOAD_A FENCE R COMMIT\nmov.b32 %a3, 0; // here\nWAIT0",
        "LOAD_A FENCE R COMMIT WAIT0\nmov.b32 %a3, 0;",
    ),
    "sums_without_value": (
        "uninitialized register",
        "FENCE\nK // here\nCOMMIT WAIT0",
        "FENCE\nS K\nCOMMIT WAIT0",
    ),
    "descriptor_differs": (
        "descriptor",
        "setp.eq.u32 %p2, %r0, 5; @%p2 add.s64 %rd24, %rd24, 1; FENCE\nS // here\nCOMMIT WAIT0",
        "setp.eq.u32 %p2, %r0, 128; @%p2 add.s64 %rd24, %rd24, 1; FENCE\nS\nCOMMIT WAIT0",
    ),
    "address_outside": (
        "out of bounds",
        "add.s64 %rd24, %rd24, 0xf8; FENCE\nS // here\nCOMMIT WAIT0",
        "add.s64 %rd24, %rd24, 0xc0; FENCE\nS\nCOMMIT WAIT0",
    ),
    "base_offset": (
        "descriptor",
        "or.b64 %rd24, %rd24, 0x2000000000000; FENCE\nS // here\nCOMMIT WAIT0",
        "FENCE\nS\nCOMMIT WAIT0",
    ),
    "memory_overwritten": (
        "race",
        "FENCE S COMMIT bar.sync 0; setp.eq.u32 %p2, %r0, 0;\n@%p2 st.shared.b32 [buffer+64], %r0; // here\nWAIT0",
        "FENCE S COMMIT WAIT0 bar.sync 0; setp.eq.u32 %p2, %r0, 0;\n@%p2 st.shared.b32 [buffer+64], %r0;",
    ),
    # The second product, which all four warps must have issued, tells each of them that the first one is done.
    "memory_of_another_warps_product": (
        "race",
        "FENCE S COMMIT WAIT0\nsetp.eq.u32 %p2, %r0, 40;\n@%p2 st.shared.b32 [buffer], %r0; // here\n",
        "FENCE S COMMIT WAIT0\nadd.s64 %rd23, %rd23, 64; add.s64 %rd24, %rd24, 64; FENCE K COMMIT WAIT0\n"
        "setp.eq.u32 %p2, %r0, 40; @%p2 st.shared.b32 [buffer], %r0;\n",
    ),
    "proxy_fence": (
        "missing proxy fence",
        "setp.eq.u32 %p2, %r0, 0; @%p2 st.shared.b32 [buffer+64], 0; bar.sync 0; FENCE\nS // here\nCOMMIT WAIT0",
        "setp.eq.u32 %p2, %r0, 0; @%p2 st.shared.b32 [buffer+64], 0; fence.proxy.async; bar.sync 0; FENCE\nS\n"
        "COMMIT WAIT0",
    ),
    "lanes": (
        "divergence",
        "setp.ne.u32 %p2, %r0, 9; FENCE\n@%p2 S // here\nCOMMIT WAIT0",
        "setp.ne.u32 %p2, %r0, 129; FENCE\n@%p2 S\nCOMMIT WAIT0",
    ),
    # A warpgroup multiplies together: a warp may neither leave a product out nor end before it.
    "a_warp_without_the_product": (
        "divergence",
        "setp.lt.u32 %p2, %r0, 96; bar.sync 0; FENCE\n@%p2 S\nCOMMIT // here\nWAIT0",
        "setp.lt.u32 %p2, %r0, 128; bar.sync 0; FENCE\n@%p2 S\nCOMMIT\nWAIT0",
    ),
    "a_warp_that_ends": (
        "divergence",
        "setp.lt.u32 %p2, %r0, 32;\n@%p2 exit;\nFENCE S COMMIT\nWAIT0 // here",
        "setp.lt.u32 %p2, %r0, 0;\n@%p2 exit;\nFENCE S COMMIT\nWAIT0",
    ),
    "another_descriptor": (
        "divergence",
        "setp.ge.u32 %p2, %r0, 96; @%p2 add.s64 %rd24, %rd24, 64; FENCE\nS // here\nCOMMIT WAIT0",
        "setp.ge.u32 %p2, %r0, 0; @%p2 add.s64 %rd24, %rd24, 0; FENCE\nS\nCOMMIT WAIT0",
    ),
    "another_product": (
        "divergence",
        "setp.ge.u32 %p2, %r0, 96; FENCE\n@%p2 bra OTHER;\nS\nbra DONE;\nOTHER:\nS // here\nDONE:\nCOMMIT WAIT0",
        "setp.ge.u32 %p2, %r0, 0; FENCE\n@%p2 bra OTHER;\nS\nbra DONE;\nOTHER:\nS\nDONE:\nCOMMIT WAIT0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_rule_and_twin(name: str) -> None:
    kind, wrong, right = RULES[name]
    launch, body = rule(right)
    launch.run(body, np.zeros((4, 128), np.uint32))
    launch, body = rule(wrong)
    with pytest.raises(EmulatorFault) as caught:
        launch.run(body, np.zeros((4, 128), np.uint32))
    assert caught.value.kind == kind
    assert caught.value.line == line_of(launch.text(body), "// here")


def test_sums_over_several_products_and_groups() -> None:
    """Four products in two groups, the second waited for alone."""
    launch, body = rule("FENCE S COMMIT K K COMMIT WAIT1 K COMMIT WAIT0\nSTORE_D")
    launch.memory = np.frombuffer(np.ones(2048, np.float16).tobytes(), np.uint8).copy()
    d = np.zeros((4, 128), np.uint32)
    launch.run(body, d)
    assert (d.view(np.float32) == 64).all()
