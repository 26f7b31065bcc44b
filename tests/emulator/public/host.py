"""torch and CuTe-DSL as public host code expects them on a GPU: "cuda" is the CPU, whose tensors a session uses."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from msa_ops.emulator import JitSession
from tests.emulator.public.driver import driver_of
from tests.emulator.public.scaled_mm import scaled_mm

ACTIVE_BLOCKS = 8
"""What persistent kernels are told: so few that their loops go round."""
MULTIPROCESSORS = 64
"""Enough for clusters of the largest size; workspaces are made for so many blocks."""


ALIGNMENT = 256


class CpuAsGpu(TorchFunctionMode):
    """Copies to and from the device are copies in memory; every tensor that torch makes is the session's memory."""

    def __init__(self, session: JitSession, synchronize: Callable[[], None] = lambda: None) -> None:
        """synchronize: waits for what has been launched."""
        super().__init__()
        self.session = session
        self.synchronize = synchronize
        self.known: dict[int, int] = {}

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.cpu:
            self.synchronize()
        if function in (torch.Tensor.cuda, torch.Tensor.cpu):
            return self._seen(_aligned(args[0].clone(memory_format=torch.preserve_format)))
        moved = "device" in kwargs or any(_is_device(value) for value in args)
        if kwargs.get("device") is not None:
            kwargs["device"] = _cpu(kwargs["device"])
        if function is torch.Tensor.to:
            args = tuple(_cpu(value) for value in args)
            if moved:
                kwargs["copy"] = True
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        result = function(*args, **kwargs)
        return self._seen(_aligned(result) if moved and isinstance(result, torch.Tensor) else result)

    def _seen(self, result: Any) -> Any:
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, torch.Tensor):
                storage = value.untyped_storage()
                if storage.nbytes() > self.known.get(storage.data_ptr(), 0):
                    self.known[storage.data_ptr()] = storage.nbytes()
                    self.session.use(torch.empty(0, dtype=torch.uint8).set_(storage))
        return result


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """A new tensor where a GPU's allocator would have put it: at a multiple of 256 bytes."""
    size = tensor.untyped_storage().nbytes()
    if tensor.data_ptr() % ALIGNMENT == 0 or tensor.requires_grad or tensor.storage_offset() or not size:
        return tensor
    memory = torch.empty(size + ALIGNMENT, dtype=torch.uint8)
    start = -memory.data_ptr() % ALIGNMENT
    flat = memory[start : start + size].view(tensor.dtype)
    moved = flat.as_strided(tensor.shape, tensor.stride(), flat.storage_offset())
    return moved.copy_(tensor)


def _is_device(value: Any) -> bool:
    return isinstance(value, torch.device) or (isinstance(value, str) and value.startswith("cuda"))


def _cpu(value: Any) -> Any:
    return (
        torch.device("cpu") if _is_device(value) or (isinstance(value, int) and not isinstance(value, bool)) else value
    )


class Stream:
    """In the place of a CUDA stream."""

    cuda_stream = 0
    device = torch.device("cpu")

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def synchronize(self) -> None: ...

    def wait_stream(self, _: Any) -> None: ...


class _Graph:
    """In the place of a CUDA graph: what would be captured has run at once, which counts as the first replay."""

    replayed = False

    def replay(self) -> None:
        if self.replayed:
            raise NotImplementedError("a graph that is replayed twice")
        self.replayed = True


class _Hardware:
    """In the place of `cutlass.utils.HardwareInfo`, which asks the driver."""

    def __init__(self, *_: Any) -> None: ...

    def get_max_active_clusters(self, cluster_size: int, *_: Any, **__: Any) -> int:
        return max(1, ACTIVE_BLOCKS // cluster_size)

    def get_device_multiprocessor_count(self) -> int:
        return MULTIPROCESSORS

    def get_l2_cache_size_in_bytes(self) -> int:
        return 50 << 20


def _benchmark(function: Any, *, kernel_arguments: Any = None, workspace_generator: Any = None, **_: Any) -> float:
    """In the place of CuTe-DSL's own: one call, since some scripts make no other, and a time that means nothing."""
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


class _Event:
    """In the place of a CUDA event."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def wait(self, *_: Any) -> None: ...

    def elapsed_time(self, _: Any) -> float:
        return 1.0


@contextmanager
def cpu_as_gpu(session: JitSession) -> Iterator[None]:
    """Inside, torch shows one GPU of the session's chip, whose memory is the CPU's."""
    import cutlass.cute.testing
    import cutlass.testing
    import cutlass.utils

    major, minor = divmod(int("".join(filter(str.isdigit, session.chip))), 10)
    properties = types.SimpleNamespace(
        name=f"emulated {session.chip}", multi_processor_count=MULTIPROCESSORS, major=major, minor=minor
    )
    replaced = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda *_: None,
        "synchronize": lambda *_: None,
        "empty_cache": lambda: None,
        "current_stream": lambda *_: Stream(),
        "default_stream": lambda *_: Stream(),
        "Stream": Stream,
        "Event": _Event,
        "stream": lambda _: nullcontext(),
        "CUDAGraph": _Graph,
        "graph": lambda *_, **__: nullcontext(),
        "get_device_properties": lambda *_: properties,
        "get_device_name": lambda *_: properties.name,
        "get_device_capability": lambda *_: (major, minor),
        "device": lambda _: nullcontext(),
        "is_current_stream_capturing": lambda: False,
    }
    with ExitStack() as stack:
        for name, value in replaced.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        stack.enter_context(mock.patch.object(torch.Tensor, "is_cuda", True, create=True))
        stack.enter_context(mock.patch.object(torch, "_scaled_mm", scaled_mm))
        stack.enter_context(mock.patch.object(torch.profiler, "profile", _Profile))
        stack.enter_context(driver_of(session.chip))
        stack.enter_context(mock.patch.object(cutlass.utils, "HardwareInfo", _Hardware))
        for testing in (cutlass.cute.testing, cutlass.testing):
            stack.enter_context(mock.patch.object(testing, "benchmark", _benchmark))
        stack.enter_context(CpuAsGpu(session))
        yield
