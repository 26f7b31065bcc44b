"""mma.sp against NumPy: A is spread out by the metadata, which the manual's tables lay out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault
from tests.emulator.sparse_operands import Sparse, draw_sparse
from tests.emulator.test_mma import CODES, Array, a_place, b_place, c_place, draw, execute, pack, take

VARIANTS = ("mma.sp", "mma.sp::ordered_metadata")


def operands(sparse: Sparse, rng: np.random.Generator, b_kind: str, selector: int) -> tuple[list[Array], Array, Array]:
    """[A, B, metadata] as registers of lanes, and A and B in float64."""
    kind, k = sparse.kind, sparse.k
    bits = 32 if kind == "tf32" else CODES[kind][0]
    kept, a = draw(rng, kind, (16, k // 2))
    b_codes, b = draw(rng, b_kind, (k, 8))
    a_registers = pack(take(kept, lambda i: a_place(bits, 16, i), 16 * k // 64), bits)
    b_registers = pack(take(b_codes, lambda i: b_place(bits, i), k * 8 // 32), bits)
    return [a_registers, b_registers, sparse.words(selector)[None]], sparse.whole(a), b


def check(opcode: str, kind: str, b_kind: str, k: int, c_kind: str, selector: int = 0, saturate: bool = False) -> None:
    rng = np.random.default_rng([k, selector, len(opcode)])
    sparse = draw_sparse(rng, kind, k, ordered="ordered" in opcode)
    (a_registers, b_registers, metadata), a, b = operands(sparse, rng, b_kind, selector)
    if c_kind == "s32":
        c: Array = rng.integers(-(2**31) if saturate else -1000, 2**31 if saturate else 1000, (16, 8)).astype(np.int32)
    else:
        c = rng.standard_normal((16, 8)).astype(np.float16 if c_kind == "f16" else np.float32)
    elements = take(c, c_place, 4)
    c_registers = pack(elements.view(np.uint16), 16) if c_kind == "f16" else elements.view(np.uint32)
    out = execute(opcode, [a_registers, b_registers, c_registers, metadata], np.zeros_like(c_registers), last=selector)
    if c_kind == "f16":
        found = np.stack([(out[i // 2] >> np.uint32(i % 2 * 16)).astype(np.uint16) for i in range(4)]).view(np.float16)
    else:
        found = out.view(c.dtype)
    exact = take(a @ b + c.astype(np.float64), c_place, 4)
    if c_kind == "s32":
        whole = np.clip(exact, -(2**31), 2**31 - 1) if saturate else exact
        np.testing.assert_array_equal(found, whole.astype(np.int64).astype(np.int32))
        return
    bound = take(np.abs(a) @ np.abs(b) + np.abs(c.astype(np.float64)), c_place, 4) * k * 2.0**-24
    bound += np.abs(exact) * {"f16": 2.0**-11, "f32": 2.0**-23}[c_kind]
    assert (np.abs(found.astype(np.float64) - exact) <= bound).all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("k", "selector"), [(16, 0), (16, 1), (16, 2), (16, 3), (32, 0), (32, 1)])
@pytest.mark.parametrize(("kind", "sums"), [("f16", "f32"), ("f16", "f16"), ("bf16", "f32")])
def test_halves(variant: str, k: int, selector: int, kind: str, sums: str) -> None:
    opcode = f"{variant}.sync.aligned.m16n8k{k}.row.col.{sums}.{kind}.{kind}.{sums}"
    check(opcode, kind, kind, k, sums, selector)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("k", "selector"), [(8, 0), (8, 3), (16, 0), (16, 1)])
def test_tf32(variant: str, k: int, selector: int) -> None:
    check(f"{variant}.sync.aligned.m16n8k{k}.row.col.f32.tf32.tf32.f32", "tf32", "tf32", k, "f32", selector)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("a", "b"), [*itertools.product(["e4m3", "e5m2"], repeat=2)])
def test_fp8(variant: str, a: str, b: str) -> None:
    check(f"{variant}.sync.aligned.m16n8k64.row.col.f32.{a}.{b}.f32", a, b, 64, "f32")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("depth", "types"), [(32, ("s8", "u8")), (64, ("s4", "u4"))])
@pytest.mark.parametrize("pair", range(4))
@pytest.mark.parametrize("saturate", [False, True])
def test_integers(variant: str, depth: int, types: tuple[str, str], pair: int, saturate: bool) -> None:
    a, b = types[pair // 2], types[pair % 2]
    tail = f"{'.satfinite' if saturate else ''}.s32.{a}.{b}.s32"
    for k, selector in ((depth, 0), (depth, 1), (2 * depth, 0)):
        check(f"{variant}.sync.aligned.m16n8k{k}.row.col{tail}", a, b, k, "s32", selector, saturate)


def fault(variant: str, kind: str, k: int, word: int, selector: int = 0, lane: int = 0) -> EmulatorFault:
    rng = np.random.default_rng(1)
    sparse = draw_sparse(rng, kind, k, ordered=True)
    (a, b, metadata), _, _ = operands(sparse, rng, kind, 0)
    metadata[0, lane] = word
    opcode = f"{variant}.sync.aligned.m16n8k{k}.row.col.f32.{kind}.{kind}.f32"
    with pytest.raises(EmulatorFault) as raised:
        execute(opcode, [a, b, np.zeros((4, 32), np.float32), metadata], np.zeros((4, 32), np.float32), last=selector)
    return raised.value


def test_metadata_that_means_nothing() -> None:
    found = fault(VARIANTS[1], "f16", 16, 0x44464444)
    assert found.kind == "descriptor" and found.lane == 0
    assert "sparsity metadata 0b0110 for row 8, elements 0 to 3" in str(found)
    assert "0b0101" in str(fault(VARIANTS[0], "f16", 32, 0x44445444, lane=1))
    assert "0b1100" in str(fault(VARIANTS[0], "tf32", 16, 0x444444C4))
    assert "from 0 to 1 there" in str(fault(VARIANTS[0], "f16", 32, 0x44444444, selector=2))


def test_metadata_of_other_lanes_does_not_count() -> None:
    rng = np.random.default_rng(1)
    sparse = draw_sparse(rng, "f16", 16, ordered=True)
    (a, b, metadata), _, _ = operands(sparse, rng, "f16", 2)
    metadata[0, np.arange(32) % 4 != 2] = 0xFFFFFFFF
    opcode = f"{VARIANTS[1]}.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    execute(opcode, [a, b, np.zeros((4, 32), np.float32), metadata], np.zeros((4, 32), np.float32), last=2)
