"""What an insert may leave in caches and queries, in numpy float64 with ml_dtypes: bounds, not one answer.

The exact value v of an element and a bound e on what fp32 arithmetic may be off give an interval. Rounding keeps
order, so a correct element lies between the roundings of v - e and v + e. A second rounding (through bf16, say), a
wrong scale, pairing or position falls outside. V is copied, so without a scale its interval is a point.
Nothing here imports msa_ops.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import torch

from tests.contract.oracles.paged_attention import ROW_BYTES, row_offset, scale_offset, scales_offset

NORM_NOISE = 2.0**-20  # relative: a sum of 128 squares, a reciprocal square root, two products
ROTATION_NOISE = 2.0**-22
DIVISION_NOISE = 2.0**-22  # for writers that multiply by the reciprocal of a scale
FLOAT8 = ml_dtypes.float8_e4m3fn
FLOAT4 = ml_dtypes.float4_e2m1fn
TYPES = {"fp32": np.float32, "bf16": ml_dtypes.bfloat16, "fp8": FLOAT8, "fp16": np.float16}
OF_TORCH = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float8_e4m3fn: "fp8"}


@dataclass
class Interval:
    """Exact values and the bound of their error, float64 arrays of one shape."""

    value: np.ndarray
    error: np.ndarray

    def over(self, scale: float | None) -> Interval:
        if scale is None:
            return self
        return Interval(self.value / scale, self.error / scale + DIVISION_NOISE * np.abs(self.value / scale))


def array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


def rounded(x: np.ndarray, kind: str) -> np.ndarray:
    """float64 values of x rounded once to the type; fp8 saturates."""
    if kind == "fp8":
        x = np.clip(x, -448.0, 448.0)
    return x.astype(np.float32).astype(TYPES[kind]).astype(np.float64) if kind != "fp32" else x.astype(np.float32)


def norm_rotate(x: Interval, weight: np.ndarray, eps: float, gemma: bool, cos_sin: np.ndarray) -> Interval:
    """Heads [T, H, 128] after x / sqrt(mean x^2 + eps) * (1 + weight) and the half-split rotation."""
    mean = (x.value**2).mean(-1, keepdims=True) + eps
    factor = (weight + 1.0 if gemma else weight) / np.sqrt(mean)
    value = x.value * factor
    off = np.sqrt((x.error**2).mean(-1, keepdims=True)) / np.sqrt(mean)
    error = np.abs(factor) * x.error + np.abs(value) * (off + NORM_NOISE)
    half = cos_sin.shape[-1] // 2
    cos, sin = cos_sin[:, None, :half], cos_sin[:, None, half:]
    result, bound = value.copy(), error.copy()
    a, b = value[..., :half], value[..., half : 2 * half]
    da, db = error[..., :half], error[..., half : 2 * half]
    result[..., :half] = a * cos - b * sin
    result[..., half : 2 * half] = a * sin + b * cos
    noise = ROTATION_NOISE * (np.abs(a) + np.abs(b))
    bound[..., :half] = da * np.abs(cos) + db * np.abs(sin) + noise
    bound[..., half : 2 * half] = da * np.abs(sin) + db * np.abs(cos) + noise
    return Interval(result, bound)


def assert_rounding(stored: np.ndarray, expected: Interval, kind: str, what: str) -> None:
    """Every stored value is the rounding of some value of its interval."""
    low = rounded(expected.value - expected.error, kind)
    high = rounded(expected.value + expected.error, kind)
    wrong = ~((low <= stored) & (stored <= high))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(f"{what}{list(at)}: {stored[at]}, not in [{low[at]}, {high[at]}]; {wrong.sum()} in all")


def assert_nvfp4(codes: np.ndarray, scales: np.ndarray, expected: Interval, scale: float | None, what: str) -> None:
    """Scale bytes and codes of the contract m31, read as ml_dtypes reads them."""
    value, error = (part.reshape(*part.shape[:-1], 8, 16) for part in (expected.value, expected.error))
    divisor = np.float32(1.0 if scale is None else scale)

    def wanted(amax: np.ndarray, noise: float) -> np.ndarray:
        exact = amax.astype(np.float32) / np.float32(6) / divisor
        return rounded(np.clip(exact * np.float32(1 + noise), 1 / 512, 448), "fp8")

    noise = 0.0 if scale is None else DIVISION_NOISE
    low = wanted(np.maximum(np.abs(value) - error, 0).max(-1), -noise)
    high = wanted((np.abs(value) + error).max(-1), noise)
    step = scales.view(FLOAT8).astype(np.float64)
    wrong = ~((low <= step) & (step <= high))
    assert not wrong.any(), f"{what}: {wrong.sum()} scales of {wrong.size} differ, first {step[wrong][0]}"
    nibbles = np.stack((codes & 15, codes >> 4), -1).reshape(value.shape)
    assert not (nibbles == 8).any(), f"{what}: -0 was written"
    got = nibbles.astype(np.uint8).view(FLOAT4).astype(np.float64)
    unit = step.astype(np.float32)[..., None] * divisor
    slack = noise * np.abs(value)

    def code(x: np.ndarray) -> np.ndarray:
        return np.clip(x.astype(np.float32) / unit, -6, 6).astype(FLOAT4).astype(np.float64)

    bad = ~((code(value - error - slack) <= got) & (got <= code(value + error + slack)))
    assert not bad.any(), f"{what}: {bad.sum()} codes of {bad.size} differ, first {got[bad][0]}"


@dataclass
class Memory:
    """Bytes of a cache before and after a call, and which of them the call had the right to write."""

    before: np.ndarray
    after: np.ndarray
    allowed: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.allowed = np.zeros(self.after.shape, dtype=bool)

    def take(self, pages: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Bytes [n, H, width] at `offsets` of `pages` [n]."""
        index = (pages[:, None, None], offsets)
        self.allowed[index] = True
        return self.after[index]

    def assert_rest_untouched(self, what: str) -> None:
        wrong = (self.before != self.after) & ~self.allowed
        assert not wrong.any(), f"{what}: {wrong.sum()} bytes outside the slots changed, first {np.argwhere(wrong)[0]}"


def assert_member(
    memory: Memory,
    slots: np.ndarray,
    expected: Interval,
    member: str,
    *,
    fmt: str,
    layout: str,
    scale_layout: str,
    scale: float | None,
    what: str,
) -> None:
    """The rows of one member at `slots`, which all exist, hold roundings of `expected` [n, H, 128]."""
    heads = expected.value.shape[1]
    page, token = slots // 128, (slots % 128)[:, None, None]
    head = np.arange(heads)[None, :, None]
    offset = row_offset(member, head, token, fmt, layout, heads) + np.arange(ROW_BYTES[fmt])
    data = np.ascontiguousarray(memory.take(page, offset))
    if fmt == "nvfp4":
        group = np.arange(8)[None, None, :]
        at = scales_offset(member, head, layout, heads) + scale_offset(scale_layout, token, group)
        assert_nvfp4(data, np.ascontiguousarray(memory.take(page, at)), expected, scale, what)
        return
    stored = data.view(TYPES[fmt]).astype(np.float64)
    assert_rounding(stored, expected.over(scale), fmt, what)


def scalar(tensor: torch.Tensor | None) -> float | None:
    return None if tensor is None else float(tensor)


@np.errstate(all="ignore")  # rows to skip may hold NaN and infinities
def assert_call(
    a: Any,
    rows: Interval,
    dtype: torch.dtype,
    before: tuple[torch.Tensor, torch.Tensor | None],
    results: tuple[torch.Tensor, ...],
    skip: tuple[int, ...] = (),
) -> None:
    """Everything that a call with the arguments `a` on rows [T, width] leaves, but the tokens of `skip`.

    `before`: copies of both caches; `results`: q and index_q. Tokens to skip may have written anything to their slots.
    """
    tokens = rows.value.shape[0]
    counts = [a.num_heads, a.num_kv_heads, a.num_kv_heads, a.num_index_heads, 1 if a.num_index_heads else 0]
    splits = np.cumsum(counts)[:-1]

    def split(x: np.ndarray) -> list[np.ndarray]:
        return np.split(x.reshape(tokens, sum(counts), 128), splits, axis=1)

    parts = [Interval(value, error) for value, error in zip(split(rows.value), split(rows.error), strict=True)]
    table = array(a.cos_sin_cache)
    cos_sin = table[np.clip(a.positions.numpy().astype(np.int64), 0, len(table) - 1)]
    kept = np.array([t not in skip for t in range(tokens)], dtype=bool)
    slots = a.slot_mapping.numpy().astype(np.int64)
    exists = (slots >= 0) & (slots < a.kv_cache.shape[0] * 128)

    def normed(part: Interval, weight: torch.Tensor) -> Interval:
        return norm_rotate(part, array(weight), a.eps, a.gemma, cos_sin)

    def some(part: Interval, chosen: np.ndarray) -> Interval:
        return Interval(part.value[chosen], part.error[chosen])

    kind = OF_TORCH[a.q_dtype or dtype]
    weights = (a.q_weight, a.index_q_weight)
    for name, part, weight, result in zip(("q", "index_q"), (parts[0], parts[3]), weights, results, strict=True):
        assert result.dtype == (a.q_dtype or dtype) and list(result.shape) == [tokens, part.value.shape[1], 128]
        if weight is not None:
            assert_rounding(array(result)[kept], some(normed(part, weight), kept), kind, name)
    chosen = kept & exists
    main = Memory(before[0].numpy(), a.kv_cache.numpy())
    for member, part in (("k", normed(parts[1], a.k_weight)), ("v", parts[2])):
        assert_member(
            main, slots[chosen], some(part, chosen), member, fmt=a.kv_format, layout=a.kv_layout,
            scale_layout=getattr(a, f"{member}_scale_layout"), scale=scalar(getattr(a, f"{member}_scale")), what=member,
        )  # fmt: skip
    index = None
    if a.index_cache is not None:
        index = Memory(before[1].numpy(), a.index_cache.numpy())
        assert_member(
            index, slots[chosen], some(normed(parts[4], a.index_k_weight), chosen), "k", fmt=a.index_format,
            layout="planes", scale_layout="linear", scale=scalar(a.index_k_scale), what="index_k",
        )  # fmt: skip
    skipped = slots[~kept & exists]
    for memory, fmt, layout, heads, members in (
        (main, a.kv_format, a.kv_layout, a.num_kv_heads, ("k", "v")),
        (index, a.index_format, "planes", 1, ("k",)),
    ):
        if memory is None:
            continue
        for member in members:
            order = getattr(a, f"{member}_scale_layout") if memory is main else "linear"
            allow(memory, skipped, member, fmt, layout, heads, order)
        memory.assert_rest_untouched("kv_cache" if memory is main else "index_cache")


def allow(memory: Memory, slots: np.ndarray, member: str, fmt: str, layout: str, heads: int, order: str) -> None:
    """Lets a call write anything to these slots."""
    page, token, head = slots // 128, (slots % 128)[:, None, None], np.arange(heads)[None, :, None]
    memory.take(page, row_offset(member, head, token, fmt, layout, heads) + np.arange(ROW_BYTES[fmt]))
    if fmt == "nvfp4":
        group = np.arange(8)[None, None, :]
        memory.take(page, scales_offset(member, head, layout, heads) + scale_offset(order, token, group))
