"""Tensor maps, the 128 bytes by which kernels on Hopper and later copy boxes of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msa_ops import _C
from msa_ops.emulator.arguments import whole
from msa_ops.emulator.memory import address_of

TYPES = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16", "tf32", "tf32.ftz", "b4x16",
    "b4x16_p64", "b6x16_p32",
)  # fmt: skip
"""Element types, as `tensormap.replace` numbers them."""

SWIZZLES = {"none": (0, 0), "32": (1, 0), "64": (2, 0), "128": (3, 0), "128_atom_32": (3, 1),
            "128_atom_32_flip_8": (3, 2), "128_atom_64": (3, 3)}  # fmt: skip


def tensor_map(
    memory: Any,
    element: str,
    sizes: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    *,
    steps: Sequence[int] | None = None,
    swizzle: str = "none",
    nan_outside: bool = False,
    l2_promotion: int = 0,
) -> bytes:
    """The 128 bytes of a tensor map, as `cuTensorMapEncodeTiled` writes them.

    memory: a CPU tensor or NumPy array whose first byte is the tensor's, or an address. element: of `TYPES`.
    sizes, box: elements, dimension 0 (the one whose elements lie beside each other) first. strides: bytes from one
    element of dimension 1, 2, ... to the next. steps: every how many elements of a box are copied. swizzle: of
    `SWIZZLES`. nan_outside: floating-point elements outside of the tensor are NaN instead of 0.

    Raises ValueError for what the driver refuses.
    """
    address, steps = _checked(memory, element, swizzle, l2_promotion, sizes, strides, box, steps)
    return _C.encode_tensor_map(
        TYPES.index(element), address, sizes, strides, box, steps, *SWIZZLES[swizzle], nan_outside, l2_promotion
    )


def im2col_map(
    memory: Any,
    element: str,
    sizes: Sequence[int],
    strides: Sequence[int],
    lower: Sequence[int],
    upper: Sequence[int],
    channels: int,
    pixels: int,
    *,
    steps: Sequence[int] | None = None,
    swizzle: str = "none",
    nan_outside: bool = False,
    l2_promotion: int = 0,
) -> bytes:
    """The 128 bytes of a tensor map for copies of pixels (im2col), as `cuTensorMapEncodeIm2col` writes them.

    sizes: channels, width, (height, depth,) number; strides: as for `tensor_map`. lower, upper: corners of the places
    that pixels are taken from, a number for each of width (height, depth): from `lower` to `size - 1 + upper`.
    channels: of a pixel, pixels: of a column, that one copy moves. steps: from one place to the next.

    Raises ValueError for what the driver refuses.
    """
    address, steps = _checked(memory, element, swizzle, l2_promotion, sizes, strides, sizes, steps, 2**64)
    for name, numbers in (("lower", lower), ("upper", upper)):
        for i, number in enumerate(numbers):
            whole(f"{name}[{i}]", number, -(2**31), 2**31 - 1)
    whole("channels", channels, 0, 2**32 - 1)
    whole("pixels", pixels, 0, 2**32 - 1)
    return _C.encode_im2col_map(
        TYPES.index(element), address, sizes, strides, lower, upper, channels, pixels, steps, *SWIZZLES[swizzle],
        nan_outside, l2_promotion,
    )  # fmt: skip


def _checked(
    memory: Any, element: str, swizzle: str, l2_promotion: int, sizes: Sequence[int], strides: Sequence[int],
    box: Sequence[int], steps: Sequence[int] | None, most_box: int = 2**32,
) -> tuple[int, Sequence[int]]:  # fmt: skip
    """The address and the steps. Raises ValueError for names and numbers that no map holds."""
    if element not in TYPES:
        raise ValueError(f"element: {element!r}; accepted: {', '.join(TYPES)}")
    if swizzle not in SWIZZLES:
        raise ValueError(f"swizzle: {swizzle!r}; accepted: {', '.join(SWIZZLES)}")
    address = memory if isinstance(memory, int) else address_of("memory", memory)
    steps = [1] * len(box) if steps is None else steps
    whole("memory", address, 0, 2**64 - 1)
    whole("l2_promotion", l2_promotion, 0, 3)
    for name, numbers, most in (
        ("sizes", sizes, 2**64),
        ("strides", strides, 2**64),
        ("box", box, most_box),
        ("steps", steps, 2**32),
    ):
        for i, number in enumerate(numbers):
            whole(f"{name}[{i}]", number, 0, most - 1)  # what the driver refuses follows
    return address, steps
