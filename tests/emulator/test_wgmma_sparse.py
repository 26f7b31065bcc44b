"""wgmma.mma_async.sp against NumPy: A in shared memory and in registers, every type, metadata that means nothing."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault
from tests.emulator.shared_operands import descriptor, place, to_bytes
from tests.emulator.sparse_operands import draw_sparse
from tests.emulator.test_wgmma import BASE, TYPES, Launch, a_place, d_place, draw


def product(kinds: tuple[str, str, str], n: int, *, a_mode: str = "128", b_mode: str = "128", a_major: str = "k",
            b_major: str = "k", selector: int = 0, in_registers: bool = False, keep: bool = True,
            spoil: int | None = None) -> None:  # fmt: skip
    """One product of a warpgroup; spoil: a word that takes the place of the first lane's metadata."""
    a_kind, b_kind, d_kind = kinds
    rng = np.random.default_rng([n, selector, ord(a_kind[0])])
    dtype, kept = TYPES[a_kind]
    sparse = draw_sparse(rng, a_kind, 2 * kept, ordered=True, rows=64)
    a, b = draw(rng, a_kind, (64, kept)), draw(rng, b_kind, (n, 2 * kept))
    size = np.dtype(dtype).itemsize
    a_offset, a_leading, a_stride, a_size = place(64, 32, a_mode, a_major, size)
    b_offset, b_leading, b_stride, b_size = place(n, 64, b_mode, b_major, size)
    a_bytes, b_bytes = to_bytes(a, a_offset, a_size), to_bytes(b, b_offset, b_size)
    memory = np.concatenate([a_bytes, b_bytes])
    memory = np.pad(memory, (0, -len(memory) % 2048))
    c = rng.integers(-50, 50, (64, n))
    exact = sparse.whole(a).astype(np.float64) @ b.astype(np.float64).T + (c if keep else 0)

    def words(matrix: np.ndarray) -> np.ndarray:
        values = np.stack([matrix[d_place(i)] for i in range(n // 2)])
        if d_kind == "s32":
            return values.astype(np.int64).astype(np.int32).view(np.uint32)
        if d_kind == "f32":
            return values.astype(np.float32).view(np.uint32)
        low = values.astype(np.float16).view(np.uint16).astype(np.uint32)
        return low[0::2] | low[1::2] << np.uint32(16)

    registers = np.zeros((5, 128), np.uint32)
    per = 4 // size
    for i in range(4 * per):
        code = a.view(f"u{size}")[a_place(i, per)].astype(np.uint32)
        registers[i // per] |= code << np.uint32(i % per * 8 * size)
    registers[4] = sparse.words(selector)
    if spoil is not None:
        registers[4, 0] = spoil
    immediates = ", 1, 1" if d_kind != "s32" else ""
    if a_kind in ("f16", "bf16"):
        immediates += ("" if in_registers else f", {int(a_major == 'mn')}") + f", {int(b_major == 'mn')}"
    d = words(c)
    body = (
        "LOAD_D LOAD_A\nld.global.b32 %r9, [%rd22+2048];\n"
        f"mov.b64 %rd23, {descriptor(BASE, a_leading, a_stride, a_mode, 'hopper'):#x};\n"
        f"mov.b64 %rd24, {descriptor(BASE + len(a_bytes), b_leading, b_stride, b_mode, 'hopper'):#x};\n"
        f"mov.pred %p1, {int(keep)};\nwgmma.fence.sync.aligned;\n"
        f"wgmma.mma_async.sp.sync.aligned.m64n{n}k{2 * kept}.{d_kind}.{a_kind}.{b_kind} <D>, "
        f"{'<A>' if in_registers else '%rd23'}, %rd24, %r9, {selector}, %p1{immediates};\n"
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\nSTORE_D\n"
    )
    Launch(memory, len(d)).run(body, d, registers)
    np.testing.assert_array_equal(d, words(exact))


@pytest.mark.parametrize(
    "kinds",
    [("f16", "f16", "f16"), ("f16", "f16", "f32"), ("bf16", "bf16", "f32"), ("tf32", "tf32", "f32")]
    + [(a, b, d) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2") for d in ("f16", "f32")]
    + [(a, b, "s32") for a in ("s8", "u8") for b in ("s8", "u8")],
)
@pytest.mark.parametrize("in_registers", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_types(kinds: tuple[str, str, str], in_registers: bool, keep: bool) -> None:
    product(kinds, 32, in_registers=in_registers, keep=keep)


@pytest.mark.parametrize("n", [8, 24, 256])
@pytest.mark.parametrize("kind", ["bf16", "tf32"])
@pytest.mark.parametrize("mode", ["none", "64", "128"])
def test_columns_and_selectors(n: int, kind: str, mode: str) -> None:
    product((kind, kind, "f32"), n, selector=1, a_mode=mode, b_mode=mode)


@pytest.mark.parametrize(("a_major", "b_major"), [("mn", "k"), ("k", "mn"), ("mn", "mn")])
@pytest.mark.parametrize("mode", ["none", "32", "64", "128"])
def test_majors(a_major: str, b_major: str, mode: str) -> None:
    b_mode = "64" if mode == "32" and b_major == "k" else mode  # rows of B have 64 bytes
    product(("f16", "f16", "f32"), 64, a_mode=mode, b_mode=b_mode, a_major=a_major, b_major=b_major)


def test_metadata_that_means_nothing() -> None:
    for kinds, word, text in (
        (("f16", "f16", "f32"), 0x44444441, "0b0001 for row 0, elements 0 to 3"),
        (("s8", "u8", "s32"), 0xA4444444, "0b1010 for row 0, elements 28 to 31"),
    ):
        with pytest.raises(EmulatorFault, match=text) as raised:
            product(kinds, 16, spoil=word)
        assert raised.value.kind == "descriptor"
    with pytest.raises(EmulatorFault, match="the sparsity selector is a number from 0 to 0"):
        product(("e4m3", "e4m3", "f32"), 8, selector=1)
