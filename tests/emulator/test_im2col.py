"""Copies of pixels (im2col) against NumPy, and their tensor maps against an H200's driver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, im2col_map, run_ptx, tensor_map
from tests.emulator.test_tensor import IN, OUT, STORED, program, strided, swizzle_bytes

SWIZZLES = ("none", "32", "64", "128")
ADDRESS = 0x10000


def test_bytes_of_the_driver() -> None:
    """What cuTensorMapEncodeIm2col wrote on an H200 behind the address, or that it refused."""
    lines = (Path(__file__).parent / "im2col_maps_h200.jsonl").read_text().splitlines()
    refused = 0
    for line in lines:
        element, at, sizes, strides, lower, upper, channels, pixels, steps, swizzle, nan, expected = json.loads(line)
        arguments: dict[str, Any] = {"steps": steps, "swizzle": SWIZZLES[swizzle], "nan_outside": bool(nan)}
        if not expected:
            refused += 1
            with pytest.raises(ValueError, match="tensor map"):
                im2col_map(ADDRESS + at, element, sizes, strides, lower, upper, channels, pixels, **arguments)
            continue
        made = im2col_map(ADDRESS + at, element, sizes, strides, lower, upper, channels, pixels, **arguments)
        assert made.hex()[16:128] == expected, line
    assert len(lines) > 130 and refused > 40


@pytest.mark.parametrize(("changed", "message"), [
    ({"channels": 257}, "257 channels"),
    ({"channels": 7}, "14 bytes; accepted: multiples of 16"),
    ({"pixels": 1025}, "1025 pixels; accepted: 1 to 1024"),
    ({"lower": [-129, 0]}, "a corner of -129; accepted: -128 to 127 with 4 dimensions"),
    ({"upper": [-9, 0]}, "corners that leave no place in dimension 1"),
    ({"sizes": [32, 9], "strides": [64], "lower": [], "upper": []}, "3 to 5 sizes"),
    ({"swizzle": "32", "channels": 32}, "the swizzle takes 32 at most"),
])  # fmt: skip
def test_maps_that_are_refused(changed: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "memory": ADDRESS, "element": "f16", "sizes": [32, 8, 6, 2], "strides": [64, 512, 3072], "lower": [-1, 0],
        "upper": [0, 0], "channels": 16, "pixels": 20,
    }  # fmt: skip
    im2col_map(**good)
    with pytest.raises(ValueError, match=message):
        im2col_map(**(good | changed))


def columns(
    tensor: np.ndarray, start: list[int], lower: list[int], upper: list[int], channels: int, pixels: int,
    steps: list[int], offsets: list[int],
) -> np.ndarray:  # fmt: skip
    """[pixels][channels] of a tensor whose axes are in the order of the map; zeros outside."""
    out = np.zeros((pixels, channels), tensor.dtype)
    places = [
        range(low, size + high, step)
        for low, high, size, step in zip(lower, upper, tensor.shape[1:-1], steps[1:-1], strict=True)
    ]
    at = start[1:]
    for pixel in range(pixels):
        index = [one + offset for one, offset in zip(at, [*offsets, 0], strict=True)]
        if all(0 <= i < size for i, size in zip(index, tensor.shape[1:], strict=True)):
            for channel in range(channels):
                if 0 <= start[0] + channel < tensor.shape[0]:
                    out[pixel, channel] = tensor[(start[0] + channel, *index)]
        for i, place in enumerate(places):
            at[i] += place.step
            if at[i] < place.stop:
                break
            at[i] = place.start
        else:
            at[-1] += 1
    return out


CASES = [
    # sizes, lower, upper, channels, pixels, steps, start, offsets, swizzle
    ([32, 7, 3], [-1], [0], 8, 40, [1, 1, 1], [8, -1, 0], [2], "none"),
    ([32, 6, 5, 3], [-1, -1], [-1, 0], 16, 33, [1, 1, 1, 1], [-8, 2, -1, 1], [1, 2], "32"),
    ([32, 6, 5, 3], [0, 1], [-2, -1], 32, 24, [1, 1, 1, 1], [0, 1, 2, 0], [0, 0], "64"),
    ([16, 4, 3, 4, 2], [-1, 0, -1], [0, -1, 0], 8, 64, [1, 1, 1, 1, 1], [8, 0, 1, 2, 0], [1, 1, 2], "none"),
    ([32, 9, 8, 2], [-1, -1], [0, 0], 8, 30, [1, 2, 3, 1], [16, 1, 2, 0], [1, 0], "none"),
]
LOAD = (
    "mov.b16 %h0, {0}; mov.b16 %h1, {1}; mov.b16 %h2, {2}; mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], %r1;\n"
    "cp.async.bulk.tensor.{rank}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
)


@pytest.mark.parametrize(
    ("sizes", "lower", "upper", "channels", "pixels", "steps", "start", "offsets", "swizzle"), CASES
)
def test_load(
    sizes: list[int], lower: list[int], upper: list[int], channels: int, pixels: int, steps: list[int],
    start: list[int], offsets: list[int], swizzle: str,
) -> None:  # fmt: skip
    memory, tensor, strides = strided(sizes, np.uint16)
    made = im2col_map(memory, "u16", sizes, strides, lower, upper, channels, pixels, steps=steps, swizzle=swizzle)
    expected = columns(tensor, list(start), lower, upper, channels, pixels, steps, offsets)
    out = np.zeros(expected.nbytes, np.uint8)
    head = LOAD.format(*offsets, *[0] * (3 - len(offsets)), rank=len(sizes))
    names = "{" + ", ".join(f"%h{i}" for i in range(len(offsets))) + "}"
    text = program(len(sizes), f"{head} [SMEM], [MAP, C}}], [BAR], {names};", after=OUT)
    run_ptx(text, "k", 1, 32, [out, None, out.size, made, *start], tensors={"memory": memory})
    np.testing.assert_array_equal(out, swizzle_bytes(np.frombuffer(expected.tobytes(), np.uint8), swizzle))


def test_store() -> None:
    sizes, channels, pixels = [32, 6, 5, 3], 16, 40
    memory, tensor, strides = strided(sizes, np.uint16)
    before = memory.copy()
    made = im2col_map(memory, "u16", sizes, strides, [0, 0], [-1, 0], channels, pixels, swizzle="32")
    data = np.arange(pixels * channels, dtype=np.uint16)
    wanted = np.ndarray(tensor.shape, np.uint16, before, 0, tensor.strides)
    places = [(w, h, n) for n in range(3) for h in range(5) for w in range(5)]
    first = places.index((1, 2, 1))
    for pixel, (w, h, n) in enumerate(places[first : first + pixels]):
        wanted[8:24, w, h, n] = data[pixel * channels : (pixel + 1) * channels]
    copy = f"cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [MAP, C}}], [SMEM];\n{STORED}"
    given = swizzle_bytes(data.view(np.uint8), "32")
    run_ptx(program(4, copy, before=IN), "k", 1, 32, [None, given, given.size, made, 8, 1, 2, 1],
            tensors={"memory": memory})  # fmt: skip
    np.testing.assert_array_equal(memory, before)


@pytest.mark.parametrize(("im2col", "start", "lower", "message"), [
    (True, [0, -2, 0], [-1], "pixels from -2 of dimension 1 on; the corners of the map are -1 and 6"),
    (True, [0, 7, 0], [-1], "pixels from 7 of dimension 1 on"),
    (True, [4, 0, 0], [-1], "no multiple of 16 bytes"),
    (False, [0, 0, 0], [-1], "a tensor map of tiles in a copy of pixels"),
])  # fmt: skip
def test_columns_at_which_a_chip_stops(im2col: bool, start: list[int], lower: list[int], message: str) -> None:
    sizes = [32, 7, 3]
    memory, _, strides = strided(sizes, np.uint16)
    if im2col:
        made = im2col_map(memory, "u16", sizes, strides, lower, [0], 8, 4)
    else:
        made = tensor_map(memory, "u16", sizes, strides, [8, 4, 1])
    text = program(3, LOAD.format(0, 0, 0, rank=3) + " [SMEM], [MAP, C}], [BAR], {%h0};", after=OUT)
    with pytest.raises(EmulatorFault, match=message) as raised:
        run_ptx(text, "k", 1, 32, [np.zeros(64, np.uint8), None, 64, made, *start], tensors={"memory": memory})
    assert raised.value.kind == "asynchronous operation"
