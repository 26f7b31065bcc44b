"""Tensor memory: allocation, loads and stores of every shape, copies from shared memory, and the rules."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel, line_of
from tests.emulator.shared_operands import descriptor

CHIP = "sm_100a"
HEAD = (
    ".shared .align 16 .b8 place[16];\n.shared .align 16 .b8 barrier[16];\n.shared .align 1024 .b8 buffer[8192];\n"
    ".visible .entry k(.param .u64 p0, .param .u64 p1)\n{\n"
)


def text_of(body: str, columns: int = 128, chip: str = CHIP) -> str:
    """A kernel of 128 threads: warp 0 allocates, %r1 is the address of the warp's lanes, %r2 of all, %rd1 and %rd2 are
    the arrays plus 4 bytes a thread; the body ends with DONE where the memory is given back."""
    return (
        f".version 9.4\n.target {chip}\n.address_size 64\n{HEAD}"
        ".reg .pred %p<16>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .b64 %rd<32>; .reg .b32 %v<160>;\n"
        "mov.u32 %r0, %tid.x; cvt.u64.u32 %rd0, %r0; shl.b64 %rd0, %rd0, 2;\n"
        "ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; add.s64 %rd1, %rd1, %rd0; add.s64 %rd2, %rd2, %rd0;\n"
        "setp.lt.u32 %p0, %r0, 32; setp.eq.u32 %p1, %r0, 0;\n"
        "@%p1 mbarrier.init.shared.b64 [barrier], 1; @%p1 fence.mbarrier_init.release.cluster;\n"
        f"@%p0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], {columns};\n"
        "bar.sync 0; ld.shared.b32 %r2, [place];\n"
        "shr.u32 %r3, %r0, 5; shl.b32 %r3, %r3, 21; add.s32 %r1, %r2, %r3;\n"
        + body.replace("DONE", f"bar.sync 0; @%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, {columns};")
        + "\nret;\n}\n"
    )


def run(body: str, first: NDArray[np.generic], second: NDArray[np.generic], columns: int = 128, chip: str = CHIP,
        seed: int | None = None) -> str:  # fmt: skip
    text = text_of(body, columns, chip)
    run_ptx(text, "k", 1, 128, [first, second], max_instructions=1_000_000, chip=chip, seed=seed)
    return text


def names(count: int, start: int = 0) -> str:
    return "{" + ", ".join(f"%v{start + i}" for i in range(count)) + "}"


def loads(count: int, pointer: str = "%rd1") -> str:
    return "".join(f"ld.global.b32 %v{i}, [{pointer}+{512 * i}];\n" for i in range(count))


def stores(count: int, pointer: str = "%rd2", start: int = 0) -> str:
    return "".join(f"st.global.b32 [{pointer}+{512 * i}], %v{start + i};\n" for i in range(count))


def spots(shape: str, count: int, split: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lane within the warp's 32 and column of register r of lane l, [registers, 32]: the manual's figures."""
    lane, r = np.meshgrid(np.arange(32), np.arange(count))
    if shape == "32x32b":
        return lane, r
    if shape == "16x32bx2":
        return lane % 16, r + np.where(lane >= 16, split, 0)
    # Figures: 8 rows of 4 threads; each row of a thread's registers continues 8 lanes below.
    if shape == "16x256b":
        return lane // 4 + 8 * (r // 2 % 2), lane % 4 * 2 + r % 2 + 8 * (r // 4)
    if shape == "16x128b":
        return lane // 4 + 8 * (r % 2), lane % 4 + 4 * (r // 2)
    return lane // 4 + 8 * (lane % 2), 2 * r + lane % 4 // 2


MOVES = [("32x32b", n, n) for n in (1, 2, 4, 8, 16, 32, 64, 128)]
MOVES += [("16x64b", n, n) for n in (1, 8, 64)] + [("16x128b", n, 2 * n) for n in (1, 4, 32)]
MOVES += [("16x256b", n, 4 * n) for n in (1, 2, 16)] + [("16x32bx2", n, n) for n in (1, 4, 64)]


@pytest.mark.parametrize(("shape", "times", "registers"), MOVES)
def test_store_in_a_shape_and_load_by_lanes(shape: str, times: int, registers: int) -> None:
    """What a store of each shape writes is read back one column after the other."""
    values = np.random.default_rng(times).integers(0, 2**32, (registers, 128), dtype=np.uint32)
    out = np.zeros((128, 128), np.uint32)
    split = 64 if shape == "16x32bx2" else 0
    extra = ", 64" if split else ""
    body = "mov.b32 %v0, 0;\n"
    body += "".join(f"tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1+{i}], {{%v0}};\n" for i in range(128))
    body += f"tcgen05.wait::st.sync.aligned;\n{loads(registers)}"
    body += f"tcgen05.st.sync.aligned.{shape}.x{times}.b32 [%r1]{extra}, {names(registers)};\n"
    body += "tcgen05.wait::st.sync.aligned;\n"
    body += f"tcgen05.ld.sync.aligned.32x32b.x128.b32 {names(128)}, [%r1];\ntcgen05.wait::ld.sync.aligned;\n"
    body += f"{stores(128)}DONE"
    run(body, values, out)
    expected = np.zeros((128, 128), np.uint32)  # [lane, column]
    lane, column = spots(shape, registers, split)
    for warp in range(4):
        expected[32 * warp + lane, column] = values[:, 32 * warp : 32 * warp + 32]
    np.testing.assert_array_equal(out, expected.T)


@pytest.mark.parametrize(("shape", "times", "registers"), MOVES)
def test_load_in_a_shape(shape: str, times: int, registers: int) -> None:
    values = np.random.default_rng(times).integers(0, 2**32, (128, 128), dtype=np.uint32)  # [column, lane]
    out = np.zeros((registers, 128), np.uint32)
    split = 64 if shape == "16x32bx2" else 0
    extra = ", 64" if split else ""
    body = f"{loads(128)}tcgen05.st.sync.aligned.32x32b.x128.b32 [%r1], {names(128)};\ntcgen05.wait::st.sync.aligned;\n"
    body += f"tcgen05.ld.sync.aligned.{shape}.x{times}.b32 {names(registers)}, [%r1]{extra};\n"
    body += f"tcgen05.wait::ld.sync.aligned;\n{stores(registers)}DONE"
    run(body, values, out)
    lane, column = spots(shape, registers, split)
    for warp in range(4):
        np.testing.assert_array_equal(out[:, 32 * warp : 32 * warp + 32], values[column, 32 * warp + lane])


def test_upper_half_of_the_lanes() -> None:
    values = np.arange(128 * 8, dtype=np.uint32).reshape(8, 128)
    out = np.zeros((4, 128), np.uint32)
    body = f"{loads(8)}tcgen05.st.sync.aligned.32x32b.x8.b32 [%r1], {names(8)};\ntcgen05.wait::st.sync.aligned;\n"
    body += f"tcgen05.ld.sync.aligned.16x256b.x1.b32 {names(4)}, [%r1+0x100000];\n"
    body += f"tcgen05.wait::ld.sync.aligned;\n{stores(4)}DONE"
    run(body, values, out)
    lane, column = spots("16x256b", 4, 0)
    np.testing.assert_array_equal(out[:, :32], values[column, 16 + lane])


def test_packed_halves() -> None:
    values = np.random.default_rng(1).integers(0, 2**32, (4, 128), dtype=np.uint32)
    out = np.zeros((12, 128), np.uint32)
    body = f"{loads(4)}tcgen05.st.sync.aligned.32x32b.x4.unpack::16b.b32 [%r1], {names(4)};\n"
    body += "tcgen05.wait::st.sync.aligned;\n"
    body += f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {names(8)}, [%r1];\n"
    body += f"tcgen05.ld.sync.aligned.32x32b.x4.pack::16b.b32 {names(4, 8)}, [%r1];\n"
    body += f"tcgen05.wait::ld.sync.aligned;\n{stores(12)}DONE"
    run(body, values, out)
    np.testing.assert_array_equal(out[0:8:2], values & 0xFFFF)
    np.testing.assert_array_equal(out[1:8:2], values >> 16)
    np.testing.assert_array_equal(out[8:], values)


@pytest.mark.parametrize("operation", ["min", "max"])
@pytest.mark.parametrize("modifier", ["", ".abs", ".NaN", ".abs.NaN"])
def test_load_that_reduces(operation: str, modifier: str) -> None:
    rng = np.random.default_rng(2)
    values = rng.standard_normal((8, 128)).astype(np.float32)
    values[3, 5], values[:, 6], values[2, 7] = np.nan, np.nan, -np.inf
    values[:, 8] = -0.0
    values[1, 8] = 0.0
    out = np.zeros((9, 128), np.float32)
    body = f"{loads(8)}tcgen05.st.sync.aligned.32x32b.x8.b32 [%r1], {names(8)};\ntcgen05.wait::st.sync.aligned;\n"
    body += f"tcgen05.ld.red.sync.aligned.32x32b.x8.{operation}{modifier}.f32 {names(8)}, %v8, [%r1];\n"
    body += f"tcgen05.wait::ld.sync.aligned;\n{stores(9)}DONE"
    run(body, values, out, chip="sm_103a")
    np.testing.assert_array_equal(out[:8], values)
    seen = np.abs(values) if "abs" in modifier else values
    reduce = {"min": np.minimum, "max": np.maximum} if "NaN" in modifier else {"min": np.fmin, "max": np.fmax}
    np.testing.assert_array_equal(out[8], reduce[operation].reduce(seen))


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_integer_load_that_reduces(kind: str) -> None:
    values = np.random.default_rng(2).integers(0, 2**32, (4, 128), dtype=np.uint32)
    out = np.zeros((5, 128), np.uint32)
    body = f"{loads(4)}tcgen05.st.sync.aligned.32x32b.x4.b32 [%r1], {names(4)};\ntcgen05.wait::st.sync.aligned;\n"
    body += f"tcgen05.ld.red.sync.aligned.32x32b.x4.max.{kind} {names(4)}, %v4, [%r1];\n{stores(5)}DONE"
    run(body, values, out, chip="sm_103a")
    np.testing.assert_array_equal(out[4], values.view(f"{kind[0].replace('s', 'i')}4").max(0).view(np.uint32))


# ---- copies from shared memory

COPIES = {
    "128x256b": (128, 2, lambda row: [row]),
    "128x128b": (128, 1, lambda row: [row]),
    "4x256b": (4, 2, lambda row: [32 * row]),
    "64x128b.warpx2::02_13": (64, 1, lambda row: [row, row + 64]),
    "64x128b.warpx2::01_23": (64, 1, lambda row: [row % 32 + row // 32 * 64 + add for add in (0, 32)]),
    "32x128b.warpx4": (32, 1, lambda row: [row + 32 * i for i in range(4)]),
}
FILL = (
    "shl.b32 %r10, %r0, 2; mov.u32 %r11, buffer; add.s32 %r10, %r10, %r11;\n"
    + "".join(f"ld.global.b32 %r12, [%rd1+{512 * i}]; st.shared.b32 [%r10+{512 * i}], %r12;\n" for i in range(16))
    + "fence.proxy.async; bar.sync 0;\n"
)
BUFFER = 2048  # address: the kernel's variables begin at 1024
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [barrier];"
WAIT = "AGAIN: mbarrier.try_wait.parity.shared.b64 %p3, [barrier], 0; @!%p3 bra AGAIN;\n"
RELAXED_WAIT = WAIT.replace("parity", "parity.relaxed.cta")


def unpacked(chunk: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """A byte for each of 16 elements that are packed in the chunk; those of 4 bits are in its middle."""
    if bits == 8:
        return chunk
    codes = np.unpackbits(chunk, bitorder="little")[: 16 * bits].reshape(16, bits)
    return (codes << np.arange(bits, dtype=np.uint8)).sum(axis=1).astype(np.uint8) << (2 if bits == 4 else 0)


@pytest.mark.parametrize(("format_", "bits"), [("", 8), (".b8x16.b6x16_p32", 6), (".b8x16.b4x16_p64", 4)])
@pytest.mark.parametrize("shape", COPIES)
def test_copy_from_shared_memory(shape: str, format_: str, bits: int) -> None:
    rows, chunks, lanes = COPIES[shape]
    memory = np.random.default_rng(3).integers(0, 256, 8192).astype(np.uint8)
    columns = 4 * chunks
    out = np.zeros((columns, 128), np.uint32)
    source = descriptor(BUFFER, 4096, 128, "none", "blackwell")  # units along k 4096 bytes apart
    body = "mov.b32 %v0, 0;\n"
    body += "".join(f"tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1+{i}], {{%v0}};\n" for i in range(columns))
    body += f"tcgen05.wait::st.sync.aligned;\n{FILL}mov.b64 %rd5, {source:#x};\n"
    body += f"@%p1 tcgen05.cp.cta_group::1.{shape}{format_} [%r2], %rd5;\n@%p1 {COMMIT}\n{WAIT}"
    body += f"tcgen05.ld.sync.aligned.32x32b.x{columns}.b32 {names(columns)}, [%r1];\n{stores(columns)}DONE"
    run(body, memory, out)
    expected = np.zeros((128, columns), np.uint32)
    for row in range(rows):
        at = row // 8 * 128 + row % 8 * 16
        parts = [unpacked(memory[at + 4096 * c : at + 4096 * c + 16], bits) for c in range(chunks)]
        words = np.concatenate(parts).view(np.uint32)
        for lane in lanes(row):
            expected[lane] = words
    np.testing.assert_array_equal(out, expected.T)


# ---- rules

SET = "mov.b32 %v0, 7; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%v0};"
USE = "tcgen05.wait::ld.sync.aligned; setp.eq.u32 %p5, %v0, 7; @%p5 bra USED; USED:"
RULES = {
    "leak": ("tensor memory", "bar.sync 0;\nret; // here", "DONE"),
    "not_allocated": (
        "tensor memory",
        "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v0}, [%r1+128]; // here\nDONE",
        f"{SET} tcgen05.wait::st.sync.aligned;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {{%v0}}, [%r1];\n"
        "tcgen05.wait::ld.sync.aligned; DONE",
    ),
    "after_dealloc": (
        "tensor memory",
        f"DONE\n bar.sync 0;\n{SET} // here",
        f"{SET}\ntcgen05.wait::st.sync.aligned;\nDONE",
    ),
    "uninitialized": (
        "uninitialized tensor memory",
        f"{SET} tcgen05.wait::st.sync.aligned;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {{%v0}}, [%r1+1]; // here\n"
        f"{USE}\nDONE",
        # What nobody uses may be read: Triton loads sums ahead of a loop that takes no turn.
        f"{SET} tcgen05.wait::st.sync.aligned;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {{%v0}}, [%r1+1];\n"
        "tcgen05.wait::ld.sync.aligned; DONE",
    ),
    # Compilers store registers without a value where nobody reads them; what is read must have one.
    "stored_without_value": (
        "uninitialized tensor memory",
        "mov.b32 %v0, 7; tcgen05.st.sync.aligned.32x32b.x2.b32 [%r1], {%v0, %v1}; tcgen05.wait::st.sync.aligned;\n"
        f"tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%v0}}, [%r1+1]; // here\n{USE}\nDONE",
        "mov.b32 %v0, 7; tcgen05.st.sync.aligned.32x32b.x2.b32 [%r1], {%v0, %v1}; tcgen05.wait::st.sync.aligned;\n"
        "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v0}, [%r1]; tcgen05.wait::ld.sync.aligned; DONE",
    ),
    "load_before_wait_st": (
        "race",
        f"{SET}\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {{%v0}}, [%r1]; // here\nDONE",
        f"{SET} tcgen05.wait::st.sync.aligned;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {{%v0}}, [%r1];\n"
        "tcgen05.wait::ld.sync.aligned; DONE",
    ),
    "store_before_wait_ld": (
        "race",
        f"{SET} tcgen05.wait::st.sync.aligned;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {{%v1}}, [%r1];\n"
        "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%v0}; // here\nDONE",
        f"{SET} tcgen05.wait::st.sync.aligned;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {{%v1}}, [%r1];\n"
        "tcgen05.wait::ld.sync.aligned; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%v0};\n"
        "tcgen05.wait::st.sync.aligned; DONE",
    ),
    "dealloc_during_load": (
        "race",
        f"{SET} tcgen05.wait::st.sync.aligned;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {{%v1}}, [%r1];\n"
        "bar.sync 0;\n@%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 128; // here",
        f"{SET} tcgen05.wait::st.sync.aligned;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {{%v1}}, [%r1];\n"
        "tcgen05.wait::ld.sync.aligned; DONE",
    ),
    "lanes_of_another_warp": (
        "tensor memory",
        "mov.b32 %v0, 7; add.s32 %r7, %r2, 0x400000;\n"
        "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r7], {%v0}; // here\nDONE",
        f"{SET}\ntcgen05.wait::st.sync.aligned; DONE",
    ),
    "columns_of_dealloc": (
        "tensor memory",
        "bar.sync 0;\n@%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 64; // here",
        "DONE",
    ),
    "dealloc_twice": (
        "tensor memory",
        "DONE\n@%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 128; // here",
        "DONE",
    ),
    "alloc_after_relinquish": (
        "tensor memory",
        "@%p0 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
        "@%p0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32; // here\nDONE",
        "bar.sync 0; @%p0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32;\n"
        "@%p0 ld.shared.b32 %r5, [place];\n"
        "@%p0 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
        "@%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, 32; DONE",
    ),
    "columns_of_alloc": (
        "tensor memory",
        "@%p0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 48; // here\nDONE",
        "DONE",
    ),
    "alloc_that_never_comes": (
        "deadlock",
        "bar.sync 0;\n@%p0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 512; // here\nDONE",
        "DONE",
    ),
    "group_sizes_mixed": (
        "tensor memory",
        "@%p0 tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned; // here\nDONE",
        "@%p0 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\nDONE",
    ),
    "copy_not_committed": (
        "race",
        f"{FILL}mov.b64 %rd5, {descriptor(BUFFER, 4096, 128, 'none', 'blackwell'):#x};\n"
        "@%p1 tcgen05.cp.cta_group::1.128x128b [%r2], %rd5;\nbar.sync 0;\n"
        "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v1}, [%r1]; // here\nDONE",
        f"{FILL}mov.b64 %rd5, {descriptor(BUFFER, 4096, 128, 'none', 'blackwell'):#x};\n"
        f"@%p1 tcgen05.cp.cta_group::1.128x128b [%r2], %rd5;\n@%p1 {COMMIT}\n{WAIT}"
        "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v1}, [%r1];\ntcgen05.wait::ld.sync.aligned; DONE",
    ),
    "copy_not_waited_for": (
        "race",
        f"{FILL}mov.b64 %rd5, {descriptor(BUFFER, 4096, 128, 'none', 'blackwell'):#x};\n"
        f"@%p1 tcgen05.cp.cta_group::1.128x128b [%r2], %rd5;\n@%p1 {COMMIT} bar.sync 0;\n"
        "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v1}, [%r1]; // here\nDONE",
        f"{FILL}mov.b64 %rd5, {descriptor(BUFFER, 4096, 128, 'none', 'blackwell'):#x};\n"
        f"@%p1 tcgen05.cp.cta_group::1.128x128b [%r2], %rd5;\n@%p1 {COMMIT}\n{WAIT}"
        "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v1}, [%r1];\ntcgen05.wait::ld.sync.aligned; DONE",
    ),
    # A relaxed wait orders nothing by itself; with tcgen05.fence it does.
    "relaxed_wait_without_fence": (
        "race",
        f"{FILL}mov.b64 %rd5, {descriptor(BUFFER, 4096, 128, 'none', 'blackwell'):#x};\n"
        f"@%p1 tcgen05.cp.cta_group::1.128x128b [%r2], %rd5;\n@%p1 {COMMIT}\n{RELAXED_WAIT}"
        "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v1}, [%r1]; // here\nDONE",
        f"{FILL}mov.b64 %rd5, {descriptor(BUFFER, 4096, 128, 'none', 'blackwell'):#x};\n"
        f"@%p1 tcgen05.cp.cta_group::1.128x128b [%r2], %rd5;\n@%p1 {COMMIT}\n{RELAXED_WAIT}"
        "tcgen05.fence::after_thread_sync;\n"
        "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v1}, [%r1];\ntcgen05.wait::ld.sync.aligned; DONE",
    ),
    "source_overwritten": (
        "race",
        f"{FILL}mov.b64 %rd5, {descriptor(BUFFER, 4096, 128, 'none', 'blackwell'):#x};\n"
        f"@%p1 tcgen05.cp.cta_group::1.128x128b [%r2], %rd5;\n@%p1 {COMMIT}\n"
        f"@%p1 st.shared.b32 [buffer], %r0; // here\n{WAIT}DONE",
        f"{FILL}mov.b64 %rd5, {descriptor(BUFFER, 4096, 128, 'none', 'blackwell'):#x};\n"
        f"@%p1 tcgen05.cp.cta_group::1.128x128b [%r2], %rd5;\n@%p1 {COMMIT}\n"
        f"{WAIT}@%p1 st.shared.b32 [buffer], %r0; DONE",
    ),
    "copy_without_proxy_fence": (
        "missing proxy fence",
        f"{FILL}bar.sync 0; @%p1 st.shared.b32 [buffer], %r0; mov.b64 %rd5, "
        f"{descriptor(BUFFER, 4096, 128, 'none', 'blackwell'):#x};\n"
        f"@%p1 tcgen05.cp.cta_group::1.128x128b [%r2], %rd5; // here\n@%p1 {COMMIT}\n{WAIT}DONE",
        f"{FILL}bar.sync 0; @%p1 st.shared.b32 [buffer], %r0; fence.proxy.async; mov.b64 %rd5, "
        f"{descriptor(BUFFER, 4096, 128, 'none', 'blackwell'):#x};\n"
        f"@%p1 tcgen05.cp.cta_group::1.128x128b [%r2], %rd5;\n@%p1 {COMMIT}\n{WAIT}DONE",
    ),
    "version_of_descriptor": (
        "descriptor",
        f"{FILL}mov.b64 %rd5, {descriptor(BUFFER, 4096, 128, 'none', 'hopper'):#x};\n"
        f"@%p1 tcgen05.cp.cta_group::1.128x128b [%r2], %rd5; // here\n@%p1 {COMMIT}\n{WAIT}DONE",
        f"{FILL}mov.b64 %rd5, {descriptor(BUFFER, 4096, 128, 'none', 'blackwell'):#x};\n"
        f"@%p1 tcgen05.cp.cta_group::1.128x128b [%r2], %rd5;\n@%p1 {COMMIT}\n{WAIT}DONE",
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", ["32x32b", "16x64b"])
def test_the_warps_quarter_may_be_left_out_of_the_address(shape: str) -> None:
    """All warps give an address of the first quarter; each reaches its own lanes."""
    values = np.random.default_rng(5).integers(0, 2**32, (8, 128), dtype=np.uint32)
    out = np.zeros_like(values)
    body = f"{loads(8)}tcgen05.st.sync.aligned.{shape}.x8.b32 [%r2], {names(8)};\ntcgen05.wait::st.sync.aligned;\n"
    body += f"tcgen05.ld.sync.aligned.{shape}.x8.b32 {names(8, 20)}, [%r1];\ntcgen05.wait::ld.sync.aligned;\n"
    body += f"tcgen05.ld.sync.aligned.{shape}.x8.b32 {names(8, 40)}, [%r2];\ntcgen05.wait::ld.sync.aligned;\n"
    body += "".join(
        f"sub.s32 %v{40 + i}, %v{40 + i}, %v{20 + i}; add.s32 %v{20 + i}, %v{20 + i}, %v{40 + i};" for i in range(8)
    )
    run(body + f"\n{stores(8, start=20)}DONE", values, out)
    np.testing.assert_array_equal(out, values)


@pytest.mark.parametrize("name", RULES)
def test_rule_and_twin(name: str) -> None:
    kind, wrong, right = RULES[name]
    memory, out = np.zeros(2048, np.uint32), np.zeros(512, np.uint32)
    run(right, memory, out)
    run(right, memory, out, seed=1)
    text = text_of(wrong)
    with pytest.raises(EmulatorFault) as caught:
        run(wrong, memory, out)
    assert caught.value.kind == kind, caught.value
    if kind != "deadlock":
        assert caught.value.line == line_of(text, "// here")


def test_registers_of_a_load_may_be_read_without_a_wait() -> None:
    """ptxas keeps track of them, and public kernels rely on it; the reading then stands for the wait."""
    out = np.zeros(128, np.uint32)
    body = f"{SET} tcgen05.wait::st.sync.aligned; tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%v1}}, [%r1];\n"
    run(body + "st.global.b32 [%rd2], %v1; DONE", np.zeros(2, np.uint32), out)
    assert (out == 7).all()


def test_older_chips_have_none() -> None:
    text = kernel("tcgen05.fence::after_thread_sync;")
    with pytest.raises(ValueError, match=r"not supported on \.target sm_90a"):
        run_ptx(text, "k", 1, 32, [np.zeros(1, np.uint32)])


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_allocation_of_a_pair_waits_for_both(seed: int | None) -> None:
    """The first block goes on when the second one, which is late, has asked too."""
    text = text_of("st.global.b32 [%rd2], %r2; DONE").replace("cta_group::1", "cta_group::2")
    late = (
        "mov.u32 %r20, %cluster_ctarank; setp.eq.u32 %p5, %r20, 1; mov.b32 %r21, 3000; @!%p5 bra READY;\n"
        "LATE: sub.u32 %r21, %r21, 1; setp.ne.u32 %p6, %r21, 0; @%p6 bra LATE;\nREADY:\n@%p0 tcgen05.alloc"
    )
    arrays = [np.zeros(128, np.uint32), np.full(128, 9, np.uint32)]
    run_ptx(text.replace("@%p0 tcgen05.alloc", late), "k", 2, 128, arrays, cluster=2, chip=CHIP, seed=seed)
    assert (arrays[1] == 0).all()
    leave = "mov.u32 %r20, %cluster_ctarank; setp.eq.u32 %p5, %r20, 1; @%p5 ret;\n@%p0 tcgen05.alloc"
    alone = text.replace("@%p0 tcgen05.alloc", leave)
    with pytest.raises(EmulatorFault, match="deadlock"):
        run_ptx(alone, "k", 2, 128, arrays, cluster=2, chip=CHIP, seed=seed)


def test_all_columns_for_one_block() -> None:
    """576 columns of Rubin, exclusively."""
    text = text_of("", 576, "sm_107a").replace("tcgen05.alloc.", "tcgen05.alloc.exclusive.")
    text = text.replace(
        "ret;", "bar.sync 0; @%p0 tcgen05.dealloc.exclusive.cta_group::1.sync.aligned.b32 %r2, 576; ret;"
    )
    arrays = [np.zeros(512, np.uint32)] * 2
    run_ptx(text, "k", 1, 128, arrays, chip="sm_107a")
    with pytest.raises(EmulatorFault, match="576 columns"):
        run_ptx(text.replace("sm_107a", "sm_100a"), "k", 1, 128, arrays, chip="sm_100a")


SHIFT = (
    loads(16) + f"tcgen05.st.sync.aligned.32x32b.x16.b32 [%r1], {names(16)}; tcgen05.wait::st.sync.aligned;\n"
    "tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;\n@!%p1 bra SHIFTED;\n"
    "SHIFTS\ntcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [barrier];\nSHIFTED:\n"
    "AGAIN: mbarrier.try_wait.parity.shared.b64 %p3, [barrier], 0; @!%p3 bra AGAIN;\n"
    "tcgen05.fence::after_thread_sync;\n"
    f"tcgen05.ld.sync.aligned.32x32b.x16.b32 {names(16, 32)}, [%r1]; tcgen05.wait::ld.sync.aligned;\n"
    + stores(16, start=32)
    + "DONE"
)  # fmt: skip


@pytest.mark.parametrize("name", ["cta_group::1.down", "down.cta_group::1"])
def test_shift(name: str) -> None:
    """32 bytes of lanes 32 to 63 move down by one lane, twice; the last lane keeps what it has."""
    given = np.random.default_rng(3).integers(0, 2**32, (16, 128), dtype=np.uint32)
    out = np.zeros_like(given)
    place = "add.s32 %r7, %r2, 0x200004;\n"
    run(SHIFT.replace("SHIFTS", place + f"tcgen05.shift.{name} [%r7]; tcgen05.shift.{name} [%r7];"), given, out)
    expected = given.copy()
    expected[4:12, 32:62] = given[4:12, 34:64]
    expected[4:12, 62] = given[4:12, 63]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("shift", "message"),
    [
        ("add.s32 %r7, %r2, 0x100000; tcgen05.shift.cta_group::1.down [%r7];", "tcgen05.shift at lane 16"),
        ("add.s32 %r7, %r2, 16; tcgen05.shift.cta_group::1.down [%r7];", "lane 0, column 16 has no value"),
        ("add.s32 %r7, %r2, 124; tcgen05.shift.cta_group::1.down [%r7];", "is not allocated"),
        ("tcgen05.shift.cta_group::2.down [%r2];", "cta_group::2 in a kernel that also uses cta_group::1"),
    ],
)
def test_shifts_that_fail(shift: str, message: str) -> None:
    given = np.zeros((16, 128), np.uint32)
    with pytest.raises(EmulatorFault, match=message):
        run(SHIFT.replace("SHIFTS", shift), given, np.zeros_like(given))


def test_reading_what_a_shift_has_not_written_yet() -> None:
    given = np.zeros((16, 128), np.uint32)
    early = SHIFT.replace("SHIFTS", "tcgen05.shift.cta_group::1.down [%r2];").replace("@!%p3 bra AGAIN;", "")
    early = early.replace("AGAIN: mbarrier.try_wait.parity.shared.b64 %p3, [barrier], 0;", "")
    with pytest.raises(EmulatorFault, match="race"):
        run(early, given, np.zeros_like(given))


def test_a_wait_for_columns_says_who_holds_the_others() -> None:
    body = "@%p0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [buffer], 512; // second\nDONE"
    text = text_of(body)
    with pytest.raises(EmulatorFault) as caught:
        run_ptx(text, "k", 1, 128, [np.zeros(128, np.uint32)] * 2, max_instructions=1_000_000, chip=CHIP)
    first = line_of(text, "[place], 128;")
    assert caught.value.kind == "deadlock"
    assert caught.value.line == line_of(text, "// second")
    assert f"warp 0 at line {caught.value.line} waits for 512 columns of tensor memory, of which" in str(caught.value)
    held = f"columns 0 to 127 are held since line {first}"
    assert f"in block (0, 0, 0) 384 of 512 are free, 384 in a row; {held}" in str(caught.value)
