"""ldmatrix, stmatrix and movmatrix against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from msa_ops.emulator import EmulatorFault
from msa_ops.emulator import run_ptx as launch
from tests.emulator.programs import kernel, line_of


def run(body: str, *arrays: NDArray[np.generic], declarations: str = "", chip: str = "sm_100a") -> None:
    text = kernel(body, len(arrays), declarations).replace("sm_90a", chip)
    launch(text, "k", 1, 32, list(arrays), chip=chip)


BUFFER = ".shared .align 128 .b8 buffer[1024];"
LANE = np.arange(32)
ROW, PAIR = LANE // 4, LANE % 4
# 1 KB of global memory into shared memory, 32 bytes a lane; %r1 becomes `buffer` + 16 * (the lane's row).
FILL = (
    "shl.b64 %rd20, %rd15, 5; add.s64 %rd20, %rd20, %rd0; cvt.u32.u64 %r2, %rd15; shl.b32 %r2, %r2, 5;\n"
    "mov.u32 %r3, buffer; add.s32 %r2, %r2, %r3;\n"
    "ld.global.v4.b32 {%r4,%r5,%r6,%r7}, [%rd20]; st.shared.v4.b32 [%r2], {%r4,%r5,%r6,%r7};\n"
    "ld.global.v4.b32 {%r4,%r5,%r6,%r7}, [%rd20+16]; st.shared.v4.b32 [%r2+16], {%r4,%r5,%r6,%r7};\n"
    "bar.sync 0;\n"
)


def addresses(order: NDArray[np.int64]) -> str:
    """%r1 of lane l = buffer + 16 * order[l], read from the array in parameter 1."""
    return (
        "shl.b64 %rd21, %rd15, 2; add.s64 %rd21, %rd21, %rd1; ld.global.b32 %r1, [%rd21];\n"
        "shl.b32 %r1, %r1, 4; mov.u32 %r3, buffer; add.s32 %r1, %r1, %r3;\n"
    )


def loaded(opcode: str, registers: int, memory: NDArray[np.uint8], order: NDArray[np.int64]) -> NDArray[np.uint32]:
    out = np.zeros((registers, 32), np.uint32)
    names = [f"%r{16 + i}" for i in range(registers)]
    body = FILL + addresses(order) + f"{opcode} {{{', '.join(names)}}}, [%r1];\n"
    body += "shl.b64 %rd22, %rd15, 2; add.s64 %rd22, %rd22, %rd2;\n"
    body += "".join(f"st.global.b32 [%rd22+{128 * i}], {name};\n" for i, name in enumerate(names))
    run(body, memory, order.astype(np.int32), out, declarations=BUFFER)
    return out


def memory_and_order(seed: int = 1) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (64, 16)).astype(np.uint8), rng.permutation(64)[:32]


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("space", ["shared", "shared::cta"])
def test_ldmatrix_of_halves(count: int, transpose: bool, space: str) -> None:
    memory, order = memory_and_order()
    opcode = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if transpose else ''}.{space}.b16"
    out = loaded(opcode, count, memory, order)
    for i in range(count):
        matrix = memory[order[8 * i : 8 * i + 8]].view(np.uint16)
        if transpose:
            matrix = matrix.T
        np.testing.assert_array_equal(out[i].view(np.uint16).reshape(32, 2), matrix.reshape(32, 2))


def test_generic_addresses() -> None:
    memory, order = memory_and_order()
    wanted = loaded("ldmatrix.sync.aligned.m8n8.x4.shared.b16", 4, memory, order)
    out = np.zeros((4, 32), np.uint32)
    body = FILL + addresses(order) + "cvt.u64.u32 %rd3, %r1; cvta.shared.u64 %rd3, %rd3;\n"
    body += "ldmatrix.sync.aligned.m8n8.x4.b16 {%r16, %r17, %r18, %r19}, [%rd3];\nbar.sync 0;\n"
    body += "stmatrix.sync.aligned.m8n8.x4.b16 [%rd3], {%r16, %r17, %r18, %r19};\nbar.sync 0;\n"
    body += "ldmatrix.sync.aligned.m8n8.x4.b16 {%r16, %r17, %r18, %r19}, [%rd3];\n"
    body += "shl.b64 %rd22, %rd15, 2; add.s64 %rd22, %rd22, %rd2;\n"
    body += "".join(f"st.global.b32 [%rd22+{128 * i}], %r{16 + i};\n" for i in range(4))
    run(body, memory, order.astype(np.int32), out, declarations=BUFFER)
    np.testing.assert_array_equal(out, wanted)
    with pytest.raises(EmulatorFault, match="not one of shared memory"):
        run("ldmatrix.sync.aligned.m8n8.x1.b16 {%r16}, [%rd0];", memory)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("bits", [6, 4])
def test_ldmatrix_that_unpacks(count: int, bits: int) -> None:
    memory, order = memory_and_order()
    pad = 8 * (8 - bits) * 2
    out = loaded(f"ldmatrix.sync.aligned.m8n16.x{count}.shared.b8x16.b{bits}x16_p{pad}", count, memory, order)
    for i in range(count):
        rows = np.unpackbits(memory[order[8 * i : 8 * i + 8]], axis=1, bitorder="little")[:, : 16 * bits]
        codes = (rows.reshape(8, 16, bits) << np.arange(bits)).sum(-1).astype(np.uint8)
        np.testing.assert_array_equal(out[i].view(np.uint8).reshape(8, 16), codes)


@pytest.mark.parametrize("count", [1, 2])
def test_ldmatrix_of_transposed_bytes(count: int) -> None:
    memory, order = memory_and_order()
    out = loaded(f"ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.b8", 2 * count, memory, order)
    for i in range(count):
        rows = memory[order[16 * i : 16 * i + 16]]
        for q in range(2):
            for j in range(4):
                expected = rows[4 * PAIR + j, ROW + 8 * q]
                np.testing.assert_array_equal(out[2 * i + q] >> np.uint32(8 * j) & 255, expected)


def stored(opcode: str, values: NDArray[np.uint32], order: NDArray[np.int64]) -> NDArray[np.uint8]:
    out = np.zeros((64, 16), np.uint8)
    names = [f"%r{16 + i}" for i in range(len(values))]
    body = FILL + addresses(order) + "shl.b64 %rd22, %rd15, 2; add.s64 %rd22, %rd22, %rd2;\n"
    body += "".join(f"ld.global.b32 {name}, [%rd22+{128 * i}];\n" for i, name in enumerate(names))
    body += f"{opcode} [%r1], {{{', '.join(names)}}};\nbar.sync 0;\n"
    body += "shl.b64 %rd20, %rd15, 5; add.s64 %rd20, %rd20, %rd3;\n"
    body += "ld.shared.v4.b32 {%r4,%r5,%r6,%r7}, [%r2]; st.global.v4.b32 [%rd20], {%r4,%r5,%r6,%r7};\n"
    body += "ld.shared.v4.b32 {%r4,%r5,%r6,%r7}, [%r2+16]; st.global.v4.b32 [%rd20+16], {%r4,%r5,%r6,%r7};\n"
    run(body, np.zeros((64, 16), np.uint8), order.astype(np.int32), values, out, declarations=BUFFER)
    return out


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transpose", [False, True])
def test_stmatrix_of_halves(count: int, transpose: bool) -> None:
    rng = np.random.default_rng(2)
    values = rng.integers(0, 2**32, (count, 32), dtype=np.uint32)
    order = rng.permutation(64)[:32]
    out = stored(f"stmatrix.sync.aligned.m8n8.x{count}{'.trans' if transpose else ''}.shared.b16", values, order)
    expected = np.zeros((64, 16), np.uint8)
    for i in range(count):
        matrix = values[i].view(np.uint16).reshape(8, 8)
        expected[order[8 * i : 8 * i + 8]] = np.ascontiguousarray(matrix.T if transpose else matrix).view(np.uint8)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix_of_transposed_bytes(count: int) -> None:
    rng = np.random.default_rng(2)
    values = rng.integers(0, 2**32, (count, 32), dtype=np.uint32)
    order = rng.permutation(64)[:32]
    out = stored(f"stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8", values, order)
    expected = np.zeros((64, 16), np.uint8)
    for i in range(count):
        for j in range(4):
            expected[order[8 * i + 2 * PAIR + j % 2], ROW + 8 * (j // 2)] = values[i] >> np.uint32(8 * j) & 255
    np.testing.assert_array_equal(out, expected)


def test_movmatrix() -> None:
    values = np.random.default_rng(4).integers(0, 2**32, 32, dtype=np.uint32)
    out = np.zeros_like(values)
    run(
        "shl.b64 %rd20, %rd15, 2; add.s64 %rd21, %rd20, %rd0; add.s64 %rd22, %rd20, %rd1;\n"
        "ld.global.b32 %r1, [%rd21]; movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r1; st.global.b32 [%rd22], %r1;",
        values, out,
    )  # fmt: skip
    np.testing.assert_array_equal(out.view(np.uint16).reshape(8, 8), values.view(np.uint16).reshape(8, 8).T)


FAULTS = {
    "lanes": ("divergence", "setp.lt.u32 %p1, %r0, 20;\n@%p1 {op} // here", "setp.lt.u32 %p1, %r0, 40;\n@%p1 {op}", 20),
    "ended": ("divergence", "setp.eq.u32 %p1, %r0, 7;\n@%p1 ret;\n{op} // here", "{op}", 7),
    "unaligned": ("misaligned", "add.s32 %r1, %r1, 8;\n{op} // here", "add.s32 %r1, %r1, 0;\n{op}", 0),
    "outside": ("out of bounds", "add.s32 %r1, %r1, 16;\n{op} // here", "sub.s32 %r1, %r1, 0;\n{op}", 31),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("operation", ["ldmatrix", "stmatrix"])
def test_mistake_and_twin(name: str, operation: str) -> None:
    kind, wrong, right, lane = FAULTS[name]
    registers = "{%r4, %r5, %r6, %r7}"
    op = f"{operation}.sync.aligned.m8n8.x4.shared.b16 "
    op += f"{registers}, [%r1+512];" if operation == "ldmatrix" else f"[%r1+512], {registers};"
    setup = FILL + "cvt.u32.u64 %r2, %rd15; shl.b32 %r2, %r2, 4; mov.u32 %r1, buffer; add.s32 %r1, %r1, %r2;\n"
    memory = np.zeros((64, 16), np.uint8)
    launch(kernel(setup + right.format(op=op), 1, BUFFER), "k", 1, 32, [memory])
    text = kernel(setup + wrong.format(op=op), 1, BUFFER)
    with pytest.raises(EmulatorFault) as caught:
        launch(text, "k", 1, 32, [memory])
    assert (caught.value.kind, caught.value.lane) == (kind, lane)
    assert caught.value.line == line_of(text, "// here")


def test_unwritten_row() -> None:
    text = kernel("mov.u32 %r1, buffer; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];", 1, BUFFER)
    with pytest.raises(EmulatorFault, match="uninitialized shared memory"):
        launch(text, "k", 1, 32, [np.zeros(4, np.uint8)])


def test_mma_of_half_a_warp() -> None:
    op = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r4,%r5,%r6,%r7}, {%r1,%r1}, {%r1}, {%r1,%r1,%r1,%r1};"
    launch(kernel("mov.b32 %r1, 0;" + op), "k", 1, 32, [np.zeros(4, np.uint8)])
    for text in ("mov.b32 %r1, 0; setp.lt.u32 %p1, %r0, 16; @%p1 " + op, "mov.b32 %r1, 0; " + op):
        threads = 32 if "@" in text else 24
        with pytest.raises(EmulatorFault, match=r"divergence.*all 32 lanes"):
            launch(kernel(text), "k", 1, threads, [np.zeros(4, np.uint8)])
