"""tcgen05.mma.sp against NumPy: metadata in tensor memory as CUTLASS lays it out (tmem_e_frg), and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault
from tests.emulator.shared_operands import descriptor, place, to_bytes
from tests.emulator.sparse_operands import Sparse, draw_sparse
from tests.emulator.tensor_products import OPERANDS, Program
from tests.emulator.test_tcgen05_mma import (
    BITS,
    FORMATS,
    KINDS,
    codes_of,
    draw,
    in_bytes,
    instruction,
    lanes_of,
    padded,
    to_tensor,
    words_of,
)  # fmt: skip

ROWS = 128


def metadata_words(sparse: Sparse, selector: int) -> np.ndarray:
    """[columns, 128 lanes] of a block's 128 rows."""
    words = np.zeros((4, ROWS), np.uint32)
    chunks = sparse.nibbles.shape[1]
    for row in range(ROWS):
        for chunk in range(chunks):
            nibble = sparse.nibbles[row, chunk]
            if chunks == 16:
                words[chunk // 8, row] |= nibble << np.uint32(chunk % 8 * 4)
            else:
                lane = row // 16 * 16 + row % 8 + chunk // 4 * 8
                words[selector, lane] |= nibble << np.uint32(row // 8 % 2 * 16 + chunk % 4 * 4)
    return words


def check(a_kind: str, b_kind: str, d_kind: str, n: int = 32, *, blocks: int = 1, keep: bool = True,
          in_tensor: bool = False, selector: int = 0, a_major: str = "k", b_major: str = "k",
          masks: list[int] | None = None, spoil: int | None = None, idesc: int = 0, m: int = 0) -> None:  # fmt: skip
    """spoil: takes the place of the first word of metadata. idesc: changes bits of the instruction descriptor."""
    m = m or ROWS * blocks
    rng = np.random.default_rng([n, blocks, selector])
    kept = FORMATS[a_kind][2]
    a, b = draw(rng, a_kind, (ROWS * blocks, kept)), draw(rng, b_kind, (n, 2 * kept))
    shares = [draw_sparse(rng, a_kind, 2 * kept, ordered=True, rows=ROWS) for _ in range(blocks)]
    memory, descriptors, start = [], [], OPERANDS
    for matrix, kind, major, width in ((a, a_kind, a_major, 32), (b, b_kind, b_major, 64)):
        rows = len(matrix) // blocks
        elements = padded(matrix, kind) if major == "k" else codes_of(matrix, kind)
        offset, leading, stride, size = place(rows, width, "128", major, elements.dtype.itemsize)
        parts = [to_bytes(elements[rows * i : rows * (i + 1)], offset, size) for i in range(blocks)]
        descriptors.append(descriptor(start, leading, stride, "128", "blackwell"))
        memory.append(np.pad(np.stack(parts), ((0, 0), (0, -len(parts[0]) % 1024))))
        start += memory[-1].shape[1]
    image = np.concatenate(memory, axis=1)
    image = np.pad(image, ((0, 0), (0, -image.shape[1] % 2048)))
    where = lanes_of(ROWS * blocks, n, blocks)
    c = rng.integers(-50, 50, (ROWS * blocks, n))
    d_columns = -(-n // 32) * 32
    more = np.zeros((blocks, 32, ROWS), np.uint32)
    for block, share in enumerate(shares):
        more[block, :4] = metadata_words(share, selector)
        if spoil is not None:
            more[block, selector, 0] = spoil
    if in_tensor:
        bytes_ = np.ascontiguousarray(in_bytes(codes_of(a, a_kind), a_kind)).view(np.uint8).reshape(len(a), -1)
        words = bytes_.copy().view(np.uint32).reshape(blocks, ROWS, -1)
        more[:, 8 : 8 + words.shape[2]] = words.transpose(0, 2, 1)
    tensors = np.concatenate([to_tensor(words_of(c, d_kind), where, blocks, d_columns), more], axis=1)
    made = instruction(m, n, a_kind, b_kind, d_kind, a_mn=int(a_major == "mn"), b_mn=int(b_major == "mn"))
    made = (made | 1 << 2 | selector) ^ idesc
    mask_operand = "{" + ", ".join(f"%r{16 + i}" for i in range(4 * blocks)) + "}, " if masks else ""
    products = (
        f"mov.b64 %rd10, {descriptors[0]:#x}; mov.b64 %rd11, {descriptors[1]:#x}; mov.b32 %r10, {made:#x};\n"
        + "".join(f"mov.b32 %r{16 + i}, {mask:#x};\n" for i, mask in enumerate(masks or []))
        + f"mov.pred %p4, {int(keep)};\n"
        f"tcgen05.mma.sp.cta_group::{blocks}.kind::{KINDS.get(a_kind, 'f8f6f4')} [%r2], "
        f"{f'[%r2+{d_columns + 8}]' if in_tensor else '%rd10'}, %rd11, [%r2+{d_columns}], %r10, {mask_operand}%p4;"
    )
    out = Program(image, tensors, products, n, blocks=blocks).run()
    whole = np.concatenate([share.whole(a[ROWS * i : ROWS * (i + 1)]) for i, share in enumerate(shares)])
    exact = whole.astype(np.float64) @ b.astype(np.float64).T + (c if keep else 0)
    expected = to_tensor(words_of(exact, d_kind), where, blocks, n)
    if masks is not None:
        bits = np.concatenate([np.uint32(mask) >> np.arange(32, dtype=np.uint32) & 1 for mask in masks])
        expected = np.where(bits.reshape(blocks, 1, ROWS).astype(bool), tensors[:, :n], expected)
    np.testing.assert_array_equal(out, expected)


KIND_PAIRS = [("f16", "f16", "f32"), ("f16", "f16", "f16"), ("bf16", "bf16", "f32"), ("tf32", "tf32", "f32"),
              ("e4m3", "e5m2", "f32"), ("e2m3", "e2m1", "f32"), ("e2m1", "e3m2", "f32"), ("u8", "s8", "s32"),
              ("s8", "s8", "s32")]  # fmt: skip


@pytest.mark.parametrize("kinds", KIND_PAIRS)
@pytest.mark.parametrize("in_tensor", [False, True])
@pytest.mark.parametrize("blocks", [1, 2])
def test_types(kinds: tuple[str, str, str], in_tensor: bool, blocks: int) -> None:
    check(*kinds, blocks=blocks, in_tensor=in_tensor)


@pytest.mark.parametrize("n", [8, 48, 256])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("selector", [0, 1])
def test_columns_and_selectors(n: int, keep: bool, selector: int) -> None:
    check("f16", "f16", "f32", n, keep=keep, selector=selector)


@pytest.mark.parametrize(("a_major", "b_major"), [("mn", "k"), ("k", "mn"), ("mn", "mn")])
@pytest.mark.parametrize("kind", ["bf16", "e4m3"])
def test_majors(a_major: str, b_major: str, kind: str) -> None:
    assert kind not in BITS
    check(kind, kind, "f32", 128, a_major=a_major, b_major=b_major)


def test_masks() -> None:
    check("f16", "f16", "f32", masks=[0xFF, 0, 0xF0F0F0F0, 1])


@pytest.mark.parametrize(("arguments", "message"), [
    ({"spoil": 0x44444445}, "sparsity metadata 0b0101 for row 0, elements 0 to 3"),
    ({"spoil": 0x44441444}, "sparsity metadata 0b0001 for row 0, elements 12 to 15"),
    ({"idesc": 4}, "no bit of sparse operands"),
    ({"m": 64}, "unsupported: sparse products with M 64 and cta_group::1"),
])  # fmt: skip
def test_what_is_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(EmulatorFault, match=message) as raised:
        check("f16", "f16", "f32", **arguments)  # type: ignore[arg-type]
    assert raised.value.kind == "descriptor"


def test_selectors_of_eight_bits() -> None:
    with pytest.raises(EmulatorFault, match="sparsity selector 1"):
        check("e4m3", "e4m3", "f32", selector=1)
