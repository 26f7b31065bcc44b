"""Kernels in Triton of the usual kinds. A module of its own: importing it needs Triton."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.jit
def softmax(x, out, n, SIZE: tl.constexpr):
    """A row a program."""
    i = tl.arange(0, SIZE)
    row = tl.program_id(0) * n
    value = tl.load(x + row + i, mask=i < n, other=-float("inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row + i, (value / tl.sum(value, 0)).to(out.dtype.element_ty), mask=i < n)


@triton.jit
def layer_norm(x, weight, bias, out, n, eps, SIZE: tl.constexpr):
    """A row a program."""
    i = tl.arange(0, SIZE)
    row = tl.program_id(0) * n
    value = tl.load(x + row + i, mask=i < n, other=0.0).to(tl.float32)
    centred = tl.where(i < n, value - tl.sum(value, 0) / n, 0.0)
    scaled = centred / tl.sqrt(tl.sum(centred * centred, 0) / n + eps)
    result = scaled * tl.load(weight + i, mask=i < n) + tl.load(bias + i, mask=i < n)
    tl.store(out + row + i, result.to(out.dtype.element_ty), mask=i < n)


@triton.jit
def matmul(a, b, c, m, n, k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, k, DEPTH):
        along = first + tl.arange(0, DEPTH)
        left = tl.load(a + row * k + along[None, :], mask=(row < m) & (along[None, :] < k), other=0.0)
        right = tl.load(b + along[:, None] * n + column, mask=(along[:, None] < k) & (column < n), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + row * n + column, total.to(c.dtype.element_ty), mask=(row < m) & (column < n))


@triton.jit
def attention(q, k, v, out, n, scale, D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr):
    """Causal, with the softmax on the way; a head along y."""
    head = tl.program_id(1) * n * D
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, D)
    queries = tl.load(q + head + row[:, None] * D + d[None, :], mask=row[:, None] < n, other=0.0)
    highest = tl.full((ROWS,), -float("inf"), tl.float32)
    weights = tl.zeros((ROWS,), tl.float32)
    total = tl.zeros((ROWS, D), tl.float32)
    for first in range(0, tl.minimum((tl.program_id(0) + 1) * ROWS, n), KEYS):
        key = first + tl.arange(0, KEYS)
        keys = tl.load(k + head + key[None, :] * D + d[:, None], mask=key[None, :] < n, other=0.0)
        scores = tl.where(key[None, :] <= row[:, None], tl.dot(queries, keys) * scale, -float("inf"))
        above = tl.maximum(highest, tl.max(scores, 1))
        part = tl.exp(scores - above[:, None])
        faded = tl.exp(highest - above)
        values = tl.load(v + head + key[:, None] * D + d[None, :], mask=key[:, None] < n, other=0.0)
        weights = weights * faded + tl.sum(part, 1)
        total = tl.dot(part.to(values.dtype), values, total * faded[:, None])
        highest = above
    result = (total / weights[:, None]).to(out.dtype.element_ty)
    tl.store(out + head + row[:, None] * D + d[None, :], result, mask=row[:, None] < n)


@triton.jit
def histogram(x, counts, n, SIZE: tl.constexpr):
    """Atomic additions; x: int32."""
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.atomic_add(counts + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)


@triton.jit
def sort_and_sum(x, ordered, sums, SIZE: tl.constexpr):
    """A row a program: its numbers in order, and the sums up to each."""
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    value = tl.load(x + i)
    tl.store(ordered + i, tl.sort(value))
    tl.store(sums + i, tl.cumsum(value))
