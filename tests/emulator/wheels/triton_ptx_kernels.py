"""Kernels in Triton, for test_triton_ptx. Imported by tests alone, since it imports Triton."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, 0), mask=at < columns)


@triton.jit
def product(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    place = out + m[:, None] * N + n[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def product_by_descriptors(
    a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ROLES: tl.constexpr
):
    of_a = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    of_b = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    of_out = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=ROLES):
        total = tl.dot(of_a.load([m, k]), of_b.load([n, k]).T, total)
    of_out.store([m, n], total.to(out.dtype.element_ty))


@triton.jit
def attention(q, k, v, out, S, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Causal; scale is in base 2."""
    start, head = tl.program_id(0) * BM, tl.program_id(1) * S * D
    m, d = start + tl.arange(0, BM), tl.arange(0, D)
    queries = tl.load(q + head + m[:, None] * D + d[None, :], mask=m[:, None] < S, other=0.0)
    top, weight = tl.full((BM,), -float("inf"), tl.float32), tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for first in range(0, min(start + BM, S), BN):
        n = first + tl.arange(0, BN)
        keys = tl.load(k + head + n[None, :] * D + d[:, None], mask=n[None, :] < S, other=0.0)
        scores = tl.where((n[None, :] < S) & (n[None, :] <= m[:, None]), tl.dot(queries, keys) * scale, -1e30)
        raised = tl.maximum(top, tl.max(scores, 1))
        powers, kept = tl.exp2(scores - raised[:, None]), tl.exp2(top - raised)
        weight, top = weight * kept + tl.sum(powers, 1), raised
        values = tl.load(v + head + n[:, None] * D + d[None, :], mask=n[:, None] < S, other=0.0)
        total = tl.dot(powers.to(values.dtype), values, total * kept[:, None])
    place = out + head + m[:, None] * D + d[None, :]
    tl.store(place, (total / weight[:, None]).to(out.dtype.element_ty), mask=m[:, None] < S)


@triton.jit
def histogram(x, counts, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.arange(0, BINS), tl.histogram(tl.load(x + at, mask=at < n, other=0), BINS))


@triton.jit
def sums_and_order(x, sums, ordered, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at)
    tl.store(sums + at, tl.cumsum(values, 0))
    tl.store(ordered + at, tl.sort(values))


@triton.jit
def sum_behind_a_lock(x, out, lock, begun, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * BLOCK + at)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(begun) == 0:
        tl.atomic_xchg(begun, 1)
    else:
        values += tl.load(out + at)
    tl.store(out + at, values)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def scaled_product(a, b, of_a, of_b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k, group = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K), tl.arange(0, K // 32)
    left, right = tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + n[None, :] * K + k[:, None])
    left_scales = tl.load(of_a + m[:, None] * (K // 32) + group[None, :])
    right_scales = tl.load(of_b + n[:, None] * (K // 32) + group[None, :])
    result = tl.dot_scaled(left, left_scales, "e4m3", right, right_scales, "e4m3")
    tl.store(out + m[:, None] * N + n[None, :], result)


@triton.jit
def tell(x, BLOCK: tl.constexpr):
    values = tl.load(x + tl.arange(0, BLOCK))
    tl.device_print("value", values)
