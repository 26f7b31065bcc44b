"""What public examples find beside a GPU (`msa_ops.emulator.cpu_as_gpu`): few multiprocessors, `_scaled_mm`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch

from msa_ops.emulator import JitSession
from msa_ops.emulator import cpu_as_gpu as _cpu_as_gpu
from tests.emulator.public.scaled_mm import scaled_mm

ACTIVE_BLOCKS = 8
"""What persistent kernels are told: so few that their loops go round."""
MULTIPROCESSORS = 64
"""Enough for clusters of the largest size; workspaces are made for so many blocks."""


class _Hardware:
    """In the place of `cutlass.utils.HardwareInfo`, which asks the driver."""

    def __init__(self, *_: Any) -> None: ...

    def get_max_active_clusters(self, cluster_size: int, *_: Any, **__: Any) -> int:
        return max(1, ACTIVE_BLOCKS // cluster_size)

    def get_device_multiprocessor_count(self) -> int:
        return MULTIPROCESSORS

    def get_l2_cache_size_in_bytes(self) -> int:
        return 50 << 20


def _benchmark(
    session: JitSession, function: Any, *, kernel_arguments: Any = None, workspace_generator: Any = None, **_: Any
) -> float:
    """In the place of CuTe-DSL's own: one call, since some scripts make no other, and a time that means nothing.

    What a generator makes and drops stays memory: hopper grouped_gemm keeps the pointers to its tensors alone, and a
    GPU's caching allocator does not unmap what is dropped."""
    with session.holding():
        arguments = kernel_arguments if workspace_generator is None else workspace_generator()
    if arguments is None:
        function()
    else:
        function(*arguments.args, **arguments.kwargs)
    return 1.0


class _Profile:
    """In the place of torch's profiler, which finds no GPU."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> _Profile:
        return self

    def __exit__(self, *_: object) -> None: ...

    def key_averages(self, *_: Any, **__: Any) -> _Profile:
        return self

    def table(self, *_: Any, **__: Any) -> str:
        return "no times: the chip is emulated"


@contextmanager
def cpu_as_gpu(session: JitSession) -> Iterator[None]:
    """Inside, torch shows one GPU of the session's chip, whose memory is the CPU's."""
    import cutlass.cute.testing
    import cutlass.testing
    import cutlass.utils

    with ExitStack() as stack:
        stack.enter_context(_cpu_as_gpu(session, multiprocessors=MULTIPROCESSORS))
        stack.enter_context(mock.patch.object(torch, "_scaled_mm", scaled_mm))
        stack.enter_context(mock.patch.object(torch.profiler, "profile", _Profile))
        stack.enter_context(mock.patch.object(cutlass.utils, "HardwareInfo", _Hardware))
        for testing in (cutlass.cute.testing, cutlass.testing):
            stack.enter_context(mock.patch.object(testing, "benchmark", partial(_benchmark, session)))
        yield
