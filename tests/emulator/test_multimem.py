"""multimem: every operation and type against values made here, bulk copies, and mistakes with multicast addresses."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from msa_ops.emulator import EmulatorFault, PtxError, multicast, run_ptx, run_ptx_on_devices, tensor_map
from tests.emulator.programs import kernel

DEVICES, LANES = 3, 32
SEEDS = (None, 1, 2)
FLOATS = {"f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
WORDS = {"b32": np.uint32, "u32": np.uint32, "s32": np.int32, "b64": np.uint64, "u64": np.uint64, "s64": np.int64}
REGISTER = {1: "%b", 2: "%h", 4: "%r", 8: "%rd"}
BITS = {1: "b8", 2: "b16", 4: "b32", 8: "b64"}
INTEGERS = {
    "add": (np.add, ("u32", "s32", "u64")),
    "min": (np.minimum, ("u32", "s32", "u64", "s64")),
    "max": (np.maximum, ("u32", "s32", "u64", "s64")),
    "and": (np.bitwise_and, ("b32", "b64")),
    "or": (np.bitwise_or, ("b32", "b64")),
    "xor": (np.bitwise_xor, ("b32", "b64")),
}


def packed(name: str) -> list[tuple[str, int, int]]:
    """Types, bytes of a register and registers, of a format whose registers hold one or more numbers."""
    size = torch.empty((), dtype=FLOATS[name]).element_size()
    return [
        (f"{name}x{n}" if n > 1 else name, n * size, count)
        for n, count in itertools.product((1, 2, 4), (1, 2, 4, 8))
        if n * size <= 4 <= n * size * count <= 16
    ]


def registers(bytes_: int, count: int) -> list[str]:
    return [f"{REGISTER[bytes_]}{(21 if bytes_ == 8 else 1) + i}" for i in range(count)]


def operand(names: list[str]) -> str:
    return names[0] if len(names) == 1 else "{" + ", ".join(names) + "}"


def moves(opcode: str, pointer: str, bytes_: int, names: list[str]) -> str:
    """Loads or stores of at most four registers each."""
    made = ""
    for first in range(0, len(names), 4):
        some, at = operand(names[first : first + 4]), f"[{pointer}+{first * bytes_}]"
        both = f"{some}, {at}" if opcode == "ld" else f"{at}, {some}"
        made += f"{opcode}.global{vector(min(len(names), 4))}.{BITS[bytes_]} {both};\n"
    return made


def place(pointer: int, bytes_: int) -> str:
    return f"mul.lo.s64 %rd20, %rd15, {bytes_}; add.s64 %rd{10 + pointer}, %rd{pointer}, %rd20;\n"


def vector(count: int) -> str:
    return "" if count == 1 else f".v{count}"


def load_all(tail: str, bytes_: int, count: int, values: list[Tensor], target: str, **options: Any) -> Tensor:
    """What `multimem.ld_reduce` gives the first device."""
    names = registers(bytes_, count)
    body = place(0, bytes_ * count) + place(1, bytes_ * count)
    body += f"multimem.ld_reduce.relaxed.sys.global.{tail} {operand(names)}, [%rd10];\n"
    body += moves("st", "%rd11", bytes_, names)
    text = kernel(body, 2).replace(".target sm_90a", f".target {target}")
    out = [torch.zeros_like(values[0]) for _ in values]
    of_all = multicast(values)
    run_ptx_on_devices(text, "k", 1, LANES, [[of_all, one] for one in out], chip=target, **options)
    for one in out[1:]:
        assert torch.equal(one.view(torch.uint8), out[0].view(torch.uint8)) or options
    return out[0]


def reduce_all(kind: str, bytes_: int, count: int, values: Tensor, old: list[Tensor], target: str) -> list[Tensor]:
    """What `multimem.red` or `.st` of one device leaves on all."""
    names = registers(bytes_, count)
    body = place(0, bytes_ * count) + place(1, bytes_ * count)
    body += moves("ld", "%rd11", bytes_, names) + f"multimem.{kind} [%rd10], {operand(names)};"
    text = kernel(body, 2).replace(".target sm_90a", f".target {target}")
    now = [one.clone() for one in old]
    run_ptx(text, "k", 1, LANES, [multicast(now), values], chip=target)
    return now


def whole_numbers(name: str, size: int) -> list[Tensor]:
    """Small enough for every sum to be exact in fp32, and with halves to be rounded."""
    generator = torch.Generator().manual_seed(7)
    return [
        torch.randint(-30, 31, (size,), generator=generator).float().div(2).to(FLOATS[name]) for _ in range(DEVICES)
    ]


def half_up(value: Tensor, name: str) -> Tensor:
    """To the nearest number of an 8-bit format, halves to the one above."""
    numbers = torch.arange(256, dtype=torch.uint8).view(FLOATS[name]).float()
    numbers = numbers[numbers.isfinite()].unique()
    at = torch.searchsorted(numbers, value).clamp(1, len(numbers) - 1)
    below, above = numbers[at - 1], numbers[at]
    return torch.where(value - below < above - value, below, above)


def rounded(value: Tensor, name: str) -> Tensor:
    return half_up(value, name) if name.startswith("e") else value.to(FLOATS[name]).float()


# ---- integers


@pytest.mark.parametrize("operation", list(INTEGERS))
def test_integers(operation: str) -> None:
    function, types = INTEGERS[operation]
    for kind in types:
        rng = np.random.default_rng(3)
        dtype = WORDS[kind]
        limits = np.iinfo(dtype)
        arrays = [rng.integers(limits.min, limits.max, LANES, dtype, endpoint=True) for _ in range(DEVICES)]
        signed = [torch.from_numpy(array.view(f"i{array.itemsize}")) for array in arrays]
        with np.errstate(over="ignore"):
            expected = function(function(arrays[0], arrays[1]), arrays[2])
            reduced = [function(array, arrays[0]) for array in arrays]
        size = arrays[0].itemsize
        found = load_all(f"{operation}.{kind}", size, 1, signed, "sm_90a")
        assert found.numpy().view(dtype).tolist() == expected.tolist(), kind
        tail = f"red.release.sys.global.{operation}.{kind}"
        for got, want in zip(reduce_all(tail, size, 1, signed[0], signed, "sm_90a"), reduced, strict=True):
            assert got.numpy().view(dtype).tolist() == want.tolist(), kind


def test_stores() -> None:
    forms = [(kind, np.dtype(dtype).itemsize, 1) for kind, dtype in WORDS.items()]
    forms += [("f32", 4, count) for count in (1, 2, 4)] + [("f64", 8, 1)]
    forms += [one for name in FLOATS for one in packed(name)]
    for kind, size, count in forms:
        target = "sm_100a" if kind.startswith("e") else "sm_90a"
        values = torch.arange(LANES * size * count, dtype=torch.int16).to(torch.uint8)
        old = [torch.zeros_like(values) for _ in range(DEVICES)]
        for now in reduce_all(f"st.weak.global{vector(count)}.{kind}", size, count, values, old, target):
            assert torch.equal(now, values), kind


# ---- floating point


@pytest.mark.parametrize("count", [1, 2, 4])
def test_f32(count: int) -> None:
    values = [torch.randn(LANES * count, generator=torch.Generator().manual_seed(i)) for i in range(DEVICES)]
    found = load_all(f"add{vector(count)}.f32", 4, count, values, "sm_90a")
    assert torch.equal(found, (values[0] + values[1]) + values[2])
    for got, old in zip(
        reduce_all(f"red.relaxed.gpu.add{vector(count)}.f32", 4, count, values[0], values, "sm_90a"),
        values,
        strict=True,
    ):
        assert torch.equal(got, old + values[0])


def test_f64() -> None:
    values = [torch.randn(LANES, dtype=torch.float64) for _ in range(DEVICES)]
    assert torch.equal(load_all("add.f64", 8, 1, values, "sm_90a"), (values[0] + values[1]) + values[2])
    now = reduce_all("red.global.add.f64", 8, 1, values[0], values, "sm_90a")
    assert all(torch.equal(got, old + values[0]) for got, old in zip(now, values, strict=True))


@pytest.mark.parametrize("name", list(FLOATS))
@pytest.mark.parametrize("operation", ["add", "add.acc", "min", "max"])
def test_narrow_types(name: str, operation: str) -> None:
    target = "sm_100a" if name.startswith("e") else "sm_90a"
    tail = operation.replace("acc", "acc::f16" if name.startswith("e") else "acc::f32")
    for kind, size, count in packed(name):
        values = whole_numbers(name, LANES * size * count // torch.empty((), dtype=FLOATS[name]).element_size())
        a, b, c = (one.float() for one in values)
        if operation == "add":
            expected = rounded(rounded(a + b, name) + c, name)
        elif operation == "add.acc":
            expected = rounded(a + b + c, name)
        else:
            expected = getattr(torch, f"{operation}imum")(getattr(torch, f"{operation}imum")(a, b), c)
        found = load_all(f"{tail}{vector(count)}.{kind}", size, count, values, target)
        assert torch.equal(found.float(), expected), kind
        if name.startswith("e") or operation == "add.acc" or (count == 1 and operation != "add"):
            continue
        for got, old in zip(
            reduce_all(f"red.global.{operation}{vector(count)}.{kind}", size, count, values[0], values, target),
            values,
            strict=True,
        ):
            both = old.float() + a if operation == "add" else getattr(torch, f"{operation}imum")(old.float(), a)
            assert torch.equal(got.float(), rounded(both, name)), kind


def test_the_sum_has_the_precision_that_is_asked_for() -> None:
    values = [torch.full((2 * LANES,), one, dtype=torch.float16) for one in (2048.0, 1.0, 1.0)]
    assert load_all("add.f16x2", 4, 1, values, "sm_90a")[0] == 2048
    assert load_all("add.acc::f32.f16x2", 4, 1, values, "sm_90a")[0] == 2050


@pytest.mark.parametrize(("name", "beyond"), [("e4m3", "nan"), ("e5m2", "inf")])
def test_sums_of_eight_bits_that_are_too_large(name: str, beyond: str) -> None:
    greatest = float(torch.finfo(FLOATS[name]).max)
    values = [torch.full((4 * LANES,), one).to(FLOATS[name]) for one in (greatest, greatest, 0.0)]
    found = load_all(f"add.acc::f16.{name}x4", 4, 1, values, "sm_100a")
    assert str(float(found[0])) == beyond


def test_the_order_of_devices_can_be_drawn() -> None:
    values = [torch.full((LANES,), one) for one in (1e8, -1e8, 1.0)]
    assert load_all("add.f32", 4, 1, values, "sm_90a")[0] == 1
    drawn = {float(load_all("add.f32", 4, 1, values, "sm_90a", sum_order=seed)[0]) for seed in range(8)}
    assert drawn == {0.0, 1.0}


# ---- engines

SHARED = ".shared .align 128 .b8 buffer[512];"
FILL = "mov.b32 %r2, buffer; shl.b32 %r3, %r0, 2; add.s32 %r4, %r2, %r3; mov.b32 %r5, 0f3f800000;\n"
FILL += "st.shared.b32 [%r4], %r5; fence.proxy.async.shared::cta; bar.sync 0; setp.eq.u32 %p1, %r0, 0;\n"
DONE = "\n@%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0;"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("instruction", "each"),
    [
        ("multimem.cp.async.bulk.global.shared::cta.bulk_group", [1.0, 1.0]),
        ("multimem.cp.async.bulk.relaxed.sys.global.shared::cta.bulk_group.b128", [1.0, 1.0]),
        ("cp.async.bulk.global.shared::cta.bulk_group", [1.0, 1.0]),
        ("multimem.cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32", [1.0, 6.0]),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32", [1.0, 6.0]),
    ],
)
def test_bulk_stores(instruction: str, each: list[float], seed: int | None) -> None:
    tensors = [torch.full((LANES,), 5.0 * i) for i in range(2)]
    body = FILL + f"@%p1 {instruction} [%rd0], [%r2], 128;" + DONE
    report = run_ptx(kernel(body, 1, SHARED), "k", 1, LANES, [multicast(tensors)], seed=seed)
    assert [one.unique().tolist() for one in tensors] == [[value] for value in each]
    assert report.spaces["multicast"].written == 128


def test_a_bulk_store_of_some_bytes() -> None:
    tensors = [torch.zeros(LANES) for _ in range(2)]
    body = FILL + "mov.b16 %h1, 0x00f0;\n@%p1 multimem.cp.async.bulk.global.shared::cta.bulk_group.cp_mask"
    text = kernel(body + " [%rd0], [%r2], 128, %h1;" + DONE, 1, SHARED).replace("sm_90a", "sm_100a")
    run_ptx(text, "k", 1, LANES, [multicast(tensors)], chip="sm_100a")
    assert all(one.tolist() == [0.0, 1.0, 0.0, 0.0] * 8 for one in tensors)


@pytest.mark.parametrize(("reduction", "each"), [("", [1.0, 1.0]), (".add", [1.0, 6.0])])
def test_tensor_stores(reduction: str, each: list[float]) -> None:
    tensors = [torch.full((8, 4), 5.0 * i) for i in range(2)]
    of_all = multicast(tensors)
    map_ = tensor_map(of_all, "f32", sizes=(4, 8), strides=(16,), box=(4, 8))
    kind = "cp.reduce.async.bulk" if reduction else "cp.async.bulk"
    body = FILL + "mov.b64 %rd3, map; mov.b32 %r6, 0;\n"
    body += f"@%p1 {kind}.tensor.2d.global.shared::cta{reduction}.bulk_group [%rd3, {{%r6, %r6}}], [%r2];" + DONE
    text = kernel(body, 1, SHARED).replace("k(.param .u64 p0)", "k(.param .u64 p0, .param .align 64 .b8 map[128])")
    run_ptx(text, "k", 1, LANES, [of_all, map_])
    assert [one.unique().tolist() for one in tensors] == [[value] for value in each]


# ---- several devices together

ALL_REDUCE = """
mov.u32 %r1, %ctaid.x; mad.lo.s32 %r2, %r1, 32, %r0; mul.wide.u32 %rd4, %r2, 4; cvt.rn.f32.u32 %r3, %r2;
add.s64 %rd5, %rd3, %rd4;
st.global.f32 [%rd5], %r3;
bar.sync 0;
setp.eq.u32 %p1, %r0, 0; mul.wide.u32 %rd6, %r1, 4; add.s64 %rd7, %rd1, %rd6; add.s64 %rd8, %rd2, %rd6;
@%p1 multimem.red.release.sys.global.add.u32 [%rd7], 1;
@!%p1 bra MET;
AGAIN: ld.acquire.sys.global.u32 %r4, [%rd8]; setp.lt.u32 %p2, %r4, 2; @%p2 bra AGAIN;
MET: bar.sync 0;
add.s64 %rd9, %rd0, %rd4;
multimem.ld_reduce.relaxed.sys.global.add.f32 %r5, [%rd9];
add.s64 %rd14, %rd16, %rd4;
st.global.f32 [%rd14], %r5;
"""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("threads", [1, 2])
def test_devices_meet_and_add(seed: int | None, threads: int) -> None:
    """What each stores and announces by `multimem.red` to all is what each then loads from all."""
    text = kernel(ALL_REDUCE.replace("%rd16", "%rd4x"), 5).replace(
        "ld.param.u64 %rd4, [p4];", "ld.param.u64 %rd16, [p4];"
    )
    text = text.replace("%rd4x", "%rd16")
    data, flags, out = ([torch.zeros(64) for _ in range(2)] for _ in range(3))
    flags = [torch.zeros(2, dtype=torch.int32) for _ in range(2)]
    all_data, all_flags = multicast(data), multicast(flags)
    arguments = [[all_data, all_flags, flags[i], data[i], out[i]] for i in range(2)]
    run_ptx_on_devices(text, "k", 2, LANES, arguments, peer_access=False, seed=seed, threads=threads)
    assert all(torch.equal(one, 2 * torch.arange(64.0)) for one in out)
    assert all(one.tolist() == [2, 2] for one in flags)


# ---- mistakes, each beside a right twin

MISTAKES = {
    # kind, what is wrong, what is right; %rd0 is the multicast address, %rd1 the device's own tensor
    "a load of a multicast address": (
        "multicast address",
        "ld.global.b32 %r1, [%rd0];",
        "multimem.ld_reduce.relaxed.sys.global.add.u32 %r1, [%rd0];",
    ),
    "a generic store there": ("multicast address", "st.b32 [%rd0], %r0;", "multimem.st.relaxed.sys.b32 [%rd0], %r0;"),
    "an atomic operation there": (
        "multicast address",
        "atom.global.add.u32 %r1, [%rd0], 1;",
        "multimem.red.relaxed.sys.global.add.u32 [%rd0], 1;",
    ),
    "a reduction there": (
        "multicast address",
        "red.global.add.u32 [%rd0], 1;",
        "multimem.red.global.add.u32 [%rd0], 1;",
    ),
    "a copy from there": (
        "multicast address",
        "mov.b32 %r2, buffer; cp.async.ca.shared.global [%r2], [%rd0], 4; cp.async.wait_all;",
        "mov.b32 %r2, buffer; cp.async.ca.shared.global [%r2], [%rd1], 4; cp.async.wait_all;",
    ),
    "multimem.ld_reduce elsewhere": (
        "multicast address",
        "multimem.ld_reduce.global.add.u32 %r1, [%rd1];",
        "multimem.ld_reduce.global.add.u32 %r1, [%rd0];",
    ),
    "multimem.st elsewhere": (
        "multicast address",
        "multimem.st.global.b32 [%rd1], %r0;",
        "multimem.st.global.b32 [%rd0], %r0;",
    ),
    "multimem.red elsewhere": (
        "multicast address",
        "multimem.red.global.or.b32 [%rd1], %r0;",
        "multimem.red.global.or.b32 [%rd0], %r0;",
    ),
    "multimem at shared memory": (
        "multicast address",
        "mov.b64 %rd2, buffer; cvta.shared.u64 %rd2, %rd2; multimem.st.b32 [%rd2], %r0;",
        "multimem.st.b32 [%rd0], %r0;",
    ),
    "a multimem bulk copy elsewhere": (
        "multicast address",
        FILL + "@%p1 multimem.cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 16;" + DONE,
        FILL + "@%p1 multimem.cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r2], 16;" + DONE,
    ),
    "beyond the end": (
        "out of bounds",
        "multimem.st.global.b32 [%rd0+64], %r0;",
        "multimem.st.global.b32 [%rd0+60], %r0;",
    ),
    "half beyond the end": (
        "out of bounds",
        "multimem.ld_reduce.global.add.v2.f32 {%r1, %r2}, [%rd0+64];",
        "multimem.ld_reduce.global.add.v2.f32 {%r1, %r2}, [%rd0+56];",
    ),
    "a vector at an odd place": (
        "misaligned",
        "multimem.ld_reduce.global.add.v4.f32 {%r1, %r2, %r3, %r4}, [%rd0+8];",
        "multimem.ld_reduce.global.add.v4.f32 {%r1, %r2, %r3, %r4}, [%rd0+16];",
    ),
    "a register without a value": (
        "uninitialized register",
        "multimem.st.global.b32 [%rd0], %r7;",
        "mov.b32 %r7, 0; multimem.st.global.b32 [%rd0], %r7;",
    ),
    "a value that nobody wrote": (
        "uninitialized register",
        "multimem.red.global.add.u32 [%rd0], %r7;",
        "mov.b32 %r7, 3; multimem.red.global.add.u32 [%rd0], %r7;",
    ),
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", list(MISTAKES))
def test_mistakes(name: str, seed: int | None) -> None:
    kind, wrong, right = MISTAKES[name]

    def launch(body: str) -> None:
        tensors = [torch.zeros(16, dtype=torch.int32) for _ in range(2)]
        arguments = [multicast(tensors), torch.zeros(16, dtype=torch.int32)]
        run_ptx(kernel(body, 2, SHARED), "k", 1, 32, arguments, seed=seed)

    launch(right)
    with pytest.raises(EmulatorFault) as fault:
        launch(wrong)
    assert fault.value.kind == kind


def test_an_array_that_may_only_be_read() -> None:
    first, second = np.zeros(4, np.float32), np.ones(4, np.float32)
    second.setflags(write=False)
    of_both = multicast([first, second])
    run_ptx(kernel("multimem.ld_reduce.global.add.f32 %r1, [%rd0]; st.global.b32 [%rd1], %r1;", 2), "k", 1, 1,
            [of_both, first])  # fmt: skip
    assert first.tolist() == [1, 0, 0, 0]
    with pytest.raises(EmulatorFault) as fault:
        run_ptx(kernel("multimem.st.global.b32 [%rd0], 0;"), "k", 1, 1, [of_both])
    assert fault.value.kind == "read only"


def test_a_part_of_it_is_memory_too() -> None:
    tensors = [torch.zeros(8, dtype=torch.int32) for _ in range(2)]
    part = multicast(tensors)[4:6]
    run_ptx(kernel("multimem.st.global.b32 [%rd0+4], 9;"), "k", 1, 1, [part])
    assert all(one.tolist() == [0, 0, 0, 0, 0, 9, 0, 0] for one in tensors)
    with pytest.raises(EmulatorFault, match="out of bounds"):
        run_ptx(kernel("multimem.st.global.b32 [%rd0+8], 9;"), "k", 1, 1, [part])


def test_it_keeps_its_tensors() -> None:
    of_all = multicast([torch.zeros(4), torch.zeros(4)])
    run_ptx(kernel("multimem.st.global.b32 [%rd0], 0f3f800000;"), "k", 1, 1, [of_all])
    out = torch.zeros(1)
    run_ptx(kernel("multimem.ld_reduce.global.add.f32 %r1, [%rd0]; st.global.b32 [%rd1], %r1;", 2), "k", 1, 1,
            [of_all, out])  # fmt: skip
    assert out.item() == 2
    assert of_all.sum() == 0  # nothing is at the address itself


def test_strides_and_types() -> None:
    tensors = [torch.zeros(4, 6, dtype=torch.bfloat16).mT for _ in range(2)]
    of_all = multicast(tensors)
    assert (of_all.shape, of_all.stride(), of_all.dtype) == ((6, 4), (1, 6), torch.bfloat16)
    arrays = [np.zeros((3, 5), np.float32) for _ in range(2)]
    assert multicast(arrays).shape == (3, 5)
    assert multicast([np.zeros(3, "c8"), np.zeros(3, "c8")]).dtype == torch.complex64


def test_refusals() -> None:
    with pytest.raises(ValueError, match="tensors: none; accepted: one a device"):
        multicast([])
    with pytest.raises(ValueError, match=r"tensors\[1\]: .*accepted: as tensors\[0\]"):
        multicast([torch.zeros(4), torch.zeros(5)])
    with pytest.raises(TypeError, match=r"tensors\[0\]: int"):
        multicast([4])
    with pytest.raises(ValueError, match="without elements"):
        multicast([torch.zeros(0)])
    wanted = "multimem.ld_reduce.global.add.e4m3x4 %r1, [%rd0];"
    with pytest.raises(PtxError, match=r"is not supported on \.target sm_90a"):
        run_ptx(kernel(wanted), "k", 1, 1, [multicast([torch.zeros(1)])])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("body", "warps"),
    [
        ("multimem.st.weak.global.f32 [%rd3], %r2;", 1),  # of both devices
        (
            "setp.eq.u64 %p0, %rd1, 0; @%p0 multimem.red.relaxed.sys.global.add.f32 [%rd3], %r2;\n"
            "@!%p0 multimem.ld_reduce.weak.global.add.f32 %r3, [%rd3];",
            1,
        ),
        ("setp.eq.u64 %p0, %rd1, 0; @!%p0 bra END; multimem.st.weak.global.f32 [%rd3], %r0; END:", 2),
    ],
)
def test_races_in_memory_that_only_a_multicast_address_reaches(body: str, warps: int, seed: int | None) -> None:
    of_both = multicast([torch.zeros(LANES), torch.zeros(LANES)])
    start = "and.b32 %r1, %r0, 31; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd0, %rd2; cvt.u32.u64 %r2, %rd1;\n"
    text = kernel(start + body, 2)
    with pytest.raises(EmulatorFault) as caught:
        run_ptx_on_devices(text, "k", 1, 32 * warps, [[of_both, 0], [of_both, 1]], seed=seed)
    assert caught.value.kind == "race"
