"""Operands of wgmma and tcgen05 in shared memory: NumPy matrices to bytes and descriptors.

The layouts are those of CuTe's atoms: an atom is 8 rows by 16, 32, 64 or 128 bytes, whose 16-byte units are permuted by
XOR of the row into the unit, and atoms tile the operand in the given order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WIDTHS = {"none": 16, "32": 32, "64": 64, "128": 128}
HOPPER_MODES = {"none": 0, "128": 1, "64": 2, "32": 3}
BLACKWELL_MODES = {"none": 0, "128": 2, "64": 4, "32": 6}


def swizzled(offset: NDArray[np.int64], mode: str) -> NDArray[np.int64]:
    """Byte offsets from an address that is a multiple of 1024."""
    rows = {"none": 0, "32": 1, "64": 3, "128": 7}[mode]
    return offset ^ ((offset >> 7 & rows) << 4)


def place(rows: int, row_bytes: int, mode: str, major: str, itemsize: int, gap: int = 0) -> tuple[
    NDArray[np.int64], int, int, int]:  # fmt: skip
    """Byte offset of each element of a matrix [rows of M or N][k], the leading and stride offsets, and the size.

    K-major: atoms of 8 rows follow each other along rows; without a swizzle the units along k are the outer order.
    MN-major: atoms of 8 k by one width along M or N follow each other along k first.
    `gap` bytes lie between neighbours of the outer order.
    """
    width = WIDTHS[mode]
    depth = row_bytes // itemsize
    mn, k = np.meshgrid(np.arange(rows), np.arange(depth), indexing="ij")
    if major == "k":
        byte = k * itemsize
        if mode == "none":
            stride, leading = 128, 128 * (rows // 8) + gap
            offset = mn % 8 * 16 + mn // 8 * stride + byte % 16 + byte // 16 * leading
        else:
            stride, leading = 8 * width + gap, 0
            offset = mn % 8 * width + mn // 8 * stride + byte
    else:
        byte = mn * itemsize
        if mode == "none":
            leading, stride = 128, 128 * (depth // 8) + gap
            offset = k % 8 * 16 + k // 8 * leading + byte % 16 + byte // 16 * stride
        else:
            stride, leading = 8 * width, 8 * width * (depth // 8) + gap
            offset = k % 8 * width + k // 8 * stride + byte % width + byte // width * leading
    offset = swizzled(offset, mode)
    return offset, leading, stride, int(offset.max()) + itemsize


def to_bytes(matrix: NDArray[np.generic], offset: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
    memory = np.full(-(-size // 1024) * 1024, 0xA5, np.uint8)
    codes = np.ascontiguousarray(matrix).view(np.uint8).reshape(*matrix.shape, -1)
    for i in range(codes.shape[-1]):
        memory[offset + i] = codes[..., i]
    return memory


def descriptor(address: int, leading: int, stride: int, mode: str, chip: str) -> int:
    value = (address >> 4 & 0x3FFF) | (leading >> 4 & 0x3FFF) << 16 | (stride >> 4 & 0x3FFF) << 32
    if chip == "hopper":
        return value | HOPPER_MODES[mode] << 62
    return value | 1 << 46 | BLACKWELL_MODES[mode] << 61
