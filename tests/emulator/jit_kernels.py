"""A kernel in CuTe-DSL for test_jit.py; imported once a chip is chosen."""

import cutlass
import cutlass.cute as cute


@cute.kernel
def add_kernel(a: cute.Tensor, out: cute.Tensor, value: cutlass.Constexpr):  # type: ignore[no-untyped-def]
    thread, _, _ = cute.arch.thread_idx()
    out[thread] = a[thread] + value


@cute.jit
def add(a: cute.Tensor, out: cute.Tensor, value: cutlass.Constexpr):  # type: ignore[no-untyped-def]
    add_kernel(a, out, value).launch(grid=(1, 1, 1), block=(cute.size(a), 1, 1))
