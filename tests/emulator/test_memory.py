"""Loads, stores and atomics of every width, and the bytes that the report counts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from msa_ops.emulator import EmulatorFault
from tests.emulator.programs import kernel, run, run_ptx

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(
    "type_", ["b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"]
)
def test_widths(space: str, type_: str) -> None:
    """Sign extension into a 64-bit register, and truncation of a 64-bit register."""
    bits, signed = int(type_[1:]), type_[0] == "s"
    dtype = np.dtype(f"{'int' if signed else 'uint'}{bits}")
    data = RNG.integers(0, 2**63, 32, dtype=np.uint64).astype(dtype)
    wide, back = np.zeros(32, np.int64), np.zeros(32, dtype)
    body = f"mul.lo.s64 %rd16, %rd15, {bits // 8}; add.s64 %rd17, %rd16, %rd0; ld.global.{type_} %rd18, [%rd17];\n"
    if space == "shared":
        body += f"cvt.u32.u64 %r1, %rd16; mov.b32 %r2, buffer; add.s32 %r1, %r1, %r2; st.shared.{type_} [%r1], %rd18;\n"
        body += f"mov.b64 %rd18, 0; ld.shared.{type_} %rd18, [%r1];\n"
    body += "shl.b64 %rd17, %rd15, 3; add.s64 %rd17, %rd17, %rd1; st.global.b64 [%rd17], %rd18;\n"
    body += f"add.s64 %rd17, %rd16, %rd2; st.global.{type_} [%rd17], %rd18;"
    report = run(body, data, wide, back, declarations=".shared .align 8 .b8 buffer[256];")
    np.testing.assert_array_equal(wide, data.astype(np.int64))
    np.testing.assert_array_equal(back, data)
    assert report.global_bytes_read == 32 * bits // 8
    assert report.global_bytes_written == 32 * (8 + bits // 8)


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("count, bits", [(2, 8), (4, 8), (2, 16), (4, 16), (2, 32), (4, 32), (2, 64)])
def test_vectors(space: str, count: int, bits: int) -> None:
    data = RNG.integers(0, 256, (32, count * bits // 8), dtype=np.uint8)
    out = np.zeros_like(data)
    prefix = {8: "%h", 16: "%h", 32: "%r", 64: "%rd"}[bits]
    first = {8: 1, 16: 1, 32: 10, 64: 24}[bits]
    registers = "{" + ", ".join(f"{prefix}{first + i}" for i in range(count)) + "}"
    size = count * bits // 8
    body = f"mul.lo.s64 %rd16, %rd15, {size}; add.s64 %rd17, %rd16, %rd0; add.s64 %rd18, %rd16, %rd1;\n"
    body += f"ld.global.v{count}.b{bits} {registers}, [%rd17];\n"
    if space == "shared":
        body += "cvt.u32.u64 %r1, %rd16; mov.b32 %r2, buffer; add.s32 %r1, %r1, %r2;\n"
        body += f"st.shared.v{count}.b{bits} [%r1], {registers}; ld.shared.v{count}.b{bits} {registers}, [%r1];\n"
    body += f"st.global.v{count}.b{bits} [%rd18], {registers};"
    run(body, data, out, declarations=".shared .align 16 .b8 buffer[512];")
    np.testing.assert_array_equal(out, data)


def test_load_over_its_own_address() -> None:
    data = np.arange(100, 108, dtype=np.uint64)
    data[0] = data.ctypes.data + 16
    out = np.zeros(32, np.uint64)
    run("ld.global.b64 %rd0, [%rd0]; ld.global.b64 %rd0, [%rd0]; shl.b64 %rd2, %rd15, 3; add.s64 %rd1, %rd1, %rd2;"
        "st.global.b64 [%rd1], %rd0;", data, out)  # fmt: skip
    assert (out == 102).all()


ATOMICS = [
    (operation, bits)
    for operation in ("add.u", "add.s", "min.u", "max.u", "min.s", "max.s", "and.b", "or.b", "xor.b")
    for bits in (32, 64)
    if (operation, bits) != ("add.s", 64)  # PTX has none; add.u64 is the same
]


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(("operation", "bits"), ATOMICS)
def test_atomics(space: str, operation: str, bits: int) -> None:
    """All lanes in ascending order on one place; `red` on a second one gives the same."""
    name = f"{operation}{bits}"
    dtype = np.dtype(f"{'int' if operation[-1] == 's' else 'uint'}{bits}")
    values = RNG.integers(0, 2**64, 32, dtype=np.uint64).astype(dtype)
    place = RNG.integers(0, 2**63, 2, dtype=np.uint64).astype(dtype)
    place[1] = place[0]
    first, old = place.copy(), np.zeros(32, dtype)
    r = "%r" if bits == 32 else "%rd"
    a, b = f"{r}21", f"{r}22"
    body = f"mul.lo.s64 %rd16, %rd15, {bits // 8}; add.s64 %rd17, %rd16, %rd1; ld.global.b{bits} {a}, [%rd17];\n"
    target, second = "%rd0", f"%rd0+{bits // 8}"
    if space == "shared":
        body += f"ld.global.b{bits} {b}, [%rd0]; st.shared.b{bits} [buffer], {b}; st.shared.b{bits} [buffer+8], {b};\n"
        target, second = "buffer", "buffer+8"
    body += f"atom.relaxed.gpu.{space}.{name} {b}, [{target}], {a}; red.{space}.{name} [{second}], {a};\n"
    body += f"add.s64 %rd17, %rd16, %rd2; st.global.b{bits} [%rd17], {b};"
    if space == "shared":
        for i, at in enumerate((target, second)):
            body += f"ld.shared.b{bits} {b}, [{at}]; st.global.b{bits} [%rd0+{i * bits // 8}], {b};"
    run(body, place, values, old, declarations=".shared .align 8 .b8 buffer[16];")
    function = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
                "xor": np.bitwise_xor}[operation[:-2]]  # fmt: skip
    steps = function.accumulate(np.concatenate([first[:1], values]), dtype=dtype)
    np.testing.assert_array_equal(old, steps[:-1])
    np.testing.assert_array_equal(place, steps[-1:].repeat(2))


@pytest.mark.parametrize("bits", [32, 64])
def test_exchange_and_compare(bits: int) -> None:
    r = "%r" if bits == 32 else "%rd"
    place, old = np.full(1, 5, f"uint{bits}"), np.zeros((2, 32), f"uint{bits}")
    own = "%r0" if bits == 32 else "%rd15"
    body = f"atom.global.exch.b{bits} {r}21, [%rd0], {own}; atom.global.cas.b{bits} {r}22, [%rd0], {own}, 100;\n"
    body += f"mul.lo.s64 %rd16, %rd15, {bits // 8}; add.s64 %rd16, %rd16, %rd1;\n"
    body += f"st.global.b{bits} [%rd16], {r}21; st.global.b{bits} [%rd16+{4 * bits}], {r}22;"
    run(body, place, old)
    np.testing.assert_array_equal(old[0], [5, *range(31)])
    np.testing.assert_array_equal(old[1], np.r_[np.full(32, 31)])  # only lane 31 finds its own number
    assert place[0] == 100


def test_float_add_flushes_in_global_memory_only() -> None:
    tiny = np.array([1e-40, 0, 0], np.float32)
    body = ("setp.eq.b32 %p1, %r0, 0; ld.global.b32 %r1, [%rd0]; st.shared.b32 [buffer], 0;\n"
            "@%p1 red.global.add.f32 [%rd0+4], %r1; @%p1 red.shared.add.f32 [buffer], %r1;\n"
            "ld.shared.b32 %r2, [buffer]; st.global.b32 [%rd0+8], %r2;")  # fmt: skip
    run(body, tiny, declarations=".shared .align 4 .b8 buffer[4];")
    assert tiny[1] == 0 and tiny[2] == tiny[0]


def test_dynamic_shared_memory_follows_static() -> None:
    out = np.zeros(3, np.uint32)
    declarations = ".shared .align 4 .b8 first[20];\n.extern .shared .align 16 .b8 rest[];"
    body = ("mov.b32 %r1, first; mov.b32 %r2, rest; mov.u32 %r3, %dynamic_smem_size; st.shared.b32 [rest+60], %r1;\n"
            "st.shared.b8 [first+19], %r1;\n"
            "st.global.b32 [%rd0], %r1; st.global.b32 [%rd0+4], %r2; st.global.b32 [%rd0+8], %r3;")  # fmt: skip
    run(body, out, declarations=declarations, shared_memory=64)
    assert out[1] - out[0] == 32 and out[1] % 16 == 0 and out[2] == 64
    with pytest.raises(RuntimeError, match="out of bounds"):
        run(body, out, declarations=declarations, shared_memory=60)


def test_parameters() -> None:
    """A struct, integers of several widths and a float, at the offsets of the C ABI."""
    out = np.zeros(6, np.uint64)
    text = (
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out, .param .u8 a, "
        ".param .f32 b, .param .align 8 .b8 c[24], .param .s16 d)\n{.reg .b64 %rd<9>; .reg .b32 %r<9>;\n"
        "ld.param.u64 %rd0, [out]; ld.param.u8 %r1, [a]; ld.param.f32 %r2, [b]; ld.param.u64 %rd1, [c+16];\n"
        "ld.param.s16 %r3, [d];\n"
        "ld.param.v2.b64 {%rd2, %rd3}, [c]; st.global.b32 [%rd0], %r1; st.global.b32 [%rd0+8], %r2;\n"
        "st.global.b64 [%rd0+16], %rd1;\n"
        "st.global.b32 [%rd0+24], %r3; st.global.v2.b64 [%rd0+32], {%rd2, %rd3}; ret; }"
    )
    struct = np.array([11, 12, 13], np.uint64)
    run_ptx(text, "k", 1, 1, [out, 200, 1.5, struct.tobytes(), -3])
    assert out.tolist() == [200, 0x3FC00000, 13, 2**32 - 3, 11, 12]
    for wrong, message in (([out, 256, 1.5, struct.tobytes(), 0], "does not fit"), ([out, 1, 1.5, b"", 0], "0 bytes"),
                           ([out, 1, 1.5], "takes 5"), ([out, 1.5, 1.5, struct.tobytes(), 0], "whole")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            run_ptx(text, "k", 1, 1, wrong)


def test_parameters_by_address() -> None:
    """A name gives an address, from which parts are read, and nothing beyond the parameters."""
    out = np.zeros(4, np.uint64)
    text = (
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out, "
        ".param .align 16 .b8 c[32])\n{.reg .b64 %rd<9>; .reg .b32 %r<9>; ld.param.u64 %rd0, [out]; "
        "mov.b64 %rd1, c; add.s64 %rd2, %rd1, 8;\n"
        "ld.param.v2.b64 {%rd3, %rd4}, [%rd1+16]; ld.param.b64 %rd5, [%rd2]; "
        "ld.param.b32 %r0, [%rd2+DISPLACEMENT];\n"
        "cvt.u64.u32 %rd6, %r0; st.global.v2.b64 [%rd0], {%rd3, %rd4}; st.global.v2.b64 [%rd0+16], {%rd5, %rd6}; ret; }"
    )
    struct = np.array([11, 12, 13, 14], np.uint64).tobytes()
    run_ptx(text.replace("DISPLACEMENT", "16"), "k", 1, 1, [out, struct])
    assert out.tolist() == [13, 14, 12, 14]
    for displacement, kind in (("24", "out of bounds"), ("2", "misaligned")):
        with pytest.raises(EmulatorFault) as caught:
            run_ptx(text.replace("DISPLACEMENT", displacement), "k", 1, 1, [out, struct])
        assert caught.value.kind == kind


def test_addresses_inside_data_and_strided_tensors() -> None:
    base = torch.arange(64, dtype=torch.int32)
    view = base[::2]
    table = torch.tensor([view.data_ptr()])
    text = kernel("ld.global.b64 %rd1, [%rd0]; ld.global.b32 %r1, [%rd1+248]; st.global.b32 [%rd1], %r1;")
    run_ptx(text, "k", 1, 1, [table], tensors={"view": view})
    assert base[0] == 62
    with pytest.raises(RuntimeError, match="out of bounds"):
        run_ptx(text.replace("+248", "+252"), "k", 1, 1, [table], tensors={"view": view})


def test_kinds_of_generic_addresses() -> None:
    """Parameters count as global memory too, as in the chip's code for isspacep; constants do not."""
    out = np.zeros(32, np.uint32)
    body = ["mov.u64 %rd1, c;", "cvta.const.u64 %rd1, %rd1;", "mov.u64 %rd2, p0;", "cvta.param::entry.u64 %rd2, %rd2;",
            "mov.u64 %rd3, g;", "cvta.global.u64 %rd3, %rd3;", "mov.u32 %r5, 0;"]  # fmt: skip
    for register in (1, 2, 3):
        for space in ("const", "param", "param::entry", "global", "shared", "local"):
            body += [f"isspacep.{space} %p1, %rd{register};", "selp.b32 %r6, 1, 0, %p1;", "shl.b32 %r5, %r5, 1;",
                     "or.b32 %r5, %r5, %r6;"]  # fmt: skip
    body.append("st.global.b32 [%rd0], %r5;")
    run("\n".join(body), out, declarations=".const .b32 c[4] = {1, 2, 3, 4};\n.global .b32 g[4];")
    assert f"{out[0]:018b}" == "100000" + "011100" + "000100"


def test_ldu_loads() -> None:
    data, out = np.arange(8, dtype=np.uint32), np.zeros(2, np.uint32)
    run("ldu.global.v2.u32 {%r1, %r2}, [%rd0+8]; ldu.b32 %r3, [%rd0+20];\nadd.u32 %r1, %r1, %r2;"
        "st.global.u32 [%rd1], %r1; st.global.u32 [%rd1+4], %r3;", data, out)  # fmt: skip
    assert out.tolist() == [5, 5]


@pytest.mark.parametrize("space", ["local", "shared", "shared::cluster", ""])
def test_sixteen_bytes_at_once(space: str) -> None:
    raw = np.zeros(68, np.uint64)
    data = raw[(-raw.ctypes.data % 16) // 8 :][:66]
    data[:2] = 0x1122334455667788, 0x99AABBCCDDEEFF00
    declared = ".shared .align 16 .b8 s[16];" if "shared" in space else ""
    local = ".local .align 16 .b8 s[16];\n" if space == "local" else ""
    address = "[%r1]" if space else "[%rd4]"
    load = "add.u64 %rd4, %rd0, 16;" if not space else "mov.u32 %r1, s;"
    dot = f".{space}" if space else ""
    run(f"{local}.reg .b128 %q<2>;\nsetp.ne.u32 %p0, %r0, 0;\n@%p0 exit;\n{load}\nld.global.b128 %q0, [%rd0];\n"
        f"st{dot}.b128 {address}, %q0;\nld{dot}.b128 %q1, {address};\nst.global.b128 [%rd0+32], %q1;", data,
        declarations=declared)  # fmt: skip
    np.testing.assert_array_equal(data[4:6], data[:2])


def test_places_within_variables() -> None:
    out = np.zeros(8, np.uint32)
    run(
        ".local .align 4 .b32 l[4];\nmov.u32 %r1, s+8; mov.u64 %rd1, g+4; mov.u32 %r2, l+12;\n"
        "st.shared.u32 [s+4+4], 5; ld.shared.u32 %r3, [%r1]; ld.global.u32 %r4, [%rd1]; ld.global.u32 %r5, [g+12-4];\n"
        "st.local.u32 [l+12], 6; ld.local.u32 %r6, [%r2]; ld.shared.u32 %r7, [%r1+-0];\n"
        "st.global.v4.u32 [%rd0], {%r3, %r4, %r5, %r6}; mov.u32 %r8, WARP_SZ; st.global.u32 [%rd0+16], %r8;",
        out, declarations=".shared .align 4 .b32 s[4];\n.global .align 4 .b32 g[4] = {1, 2, 3, 4};",
    )  # fmt: skip
    assert out.tolist()[:5] == [5, 2, 3, 6, 32]
    with pytest.raises(ValueError, match="operand of another kind"):
        run("mov.u32 %r1, %tid.x+4;", out)
    with pytest.raises(ValueError, match="not a label"):
        run("bra L+4;\nL:", out)
