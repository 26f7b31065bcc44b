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


@cute.jit
def add_at(  # type: ignore[no-untyped-def]
    a: cute.Pointer, out: cute.Pointer, size: cutlass.Constexpr, value: cutlass.Constexpr
):
    layout = cute.make_layout(size)
    add(cute.make_tensor(a, layout), cute.make_tensor(out, layout), value)
