"""Kernels in CuTe-DSL for test_jit.py; imported once a chip is chosen."""

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


@cute.kernel
def wait_kernel(out: cute.Tensor):  # type: ignore[no-untyped-def]
    thread, _, _ = cute.arch.thread_idx()
    barrier = cutlass.memory.SmemAllocator().allocate_array(cutlass.Int64, 1)
    if thread == 0:
        cute.arch.mbarrier_init(barrier, cute.size(out) + 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.barrier()
    cute.arch.mbarrier_arrive(barrier)
    cute.arch.mbarrier_wait(barrier, 0)  # for one more than there are
    out[thread] = 1.0


@cute.jit
def wait(out: cute.Tensor):  # type: ignore[no-untyped-def]
    wait_kernel(out).launch(grid=(1, 1, 1), block=(cute.size(out), 1, 1))
