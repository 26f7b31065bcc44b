"""torch as host code expects it on a GPU, with the CPU's memory as that GPU's: `cpu_as_gpu`."""

from __future__ import annotations

import importlib
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from msa_ops.emulator.arguments import whole
from msa_ops.emulator.driver_answers import driver_of
from msa_ops.emulator.jit import JitSession
from msa_ops.registry.platform import parse

ALIGNMENT = 256
"""Of the memory that a GPU's allocator gives, in bytes."""
_DEVICE_OF = torch.Tensor.device.__get__
_OF_OTHERS = {"__get__", "frombuffer", "from_numpy", "from_dlpack", "from_file", "as_tensor", "asarray"}
"""Functions of torch whose results may be memory that was there before."""
_moved: weakref.WeakKeyDictionary[torch.UntypedStorage, tuple[int, int]] = weakref.WeakKeyDictionary()
"""Of storages that are larger than what is in them: where that begins, and its bytes."""
_L2_BYTES = 50 << 20
_SHARED_BYTES = 232_448  # that a block may have


class CpuAsGpu(TorchFunctionMode):
    """Copies to and from the device are copies in memory; every tensor that torch makes is the session's memory."""

    def __init__(self, session: JitSession, synchronize: Callable[[], None] = lambda: None) -> None:
        """synchronize: waits for what has been launched."""
        super().__init__()
        self.session = session
        self.synchronize = synchronize

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function == _DEVICE_OF:
            return torch.device("cuda", 0)
        if function is torch.Tensor.cpu:
            self.synchronize()
        if function in (torch.Tensor.cuda, torch.Tensor.cpu):
            for value in (*args[1:], *kwargs.values()):
                _cpu(value)
            return self._seen(self._aligned(args[0].clone(memory_format=torch.preserve_format)))
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
        if isinstance(result, torch.Tensor) and (
            (moved and _has_memory(result)) or _is_new(function, result, args, kwargs)
        ):
            result = self._aligned(result)
        return self._seen(result, may_grow=function not in (torch.as_strided, torch.Tensor.as_strided))

    def _seen(self, result: Any, may_grow: bool = True) -> Any:
        """The result, whose memory is now the session's. may_grow: whether torch may have resized it."""
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, torch.Tensor) and _has_memory(value):
                storage = value.untyped_storage()
                start, size = _moved.get(storage, (0, None))
                if size is not None and may_grow and value.numel():
                    size = max(size, _end(value) - start)
                    _moved[storage] = start, size
                self.session.lend(storage, start, size)
        return result

    def _aligned(self, tensor: torch.Tensor) -> torch.Tensor:
        """A new tensor where a GPU's allocator would have put it: at a multiple of 256 bytes."""
        size = tensor.untyped_storage().nbytes()
        if tensor.data_ptr() % ALIGNMENT == 0 or tensor.requires_grad or tensor.storage_offset() or not size:
            return tensor
        memory = torch.empty(size + ALIGNMENT, dtype=torch.uint8)
        start = -memory.data_ptr() % ALIGNMENT
        _moved[memory.untyped_storage()] = start, size
        flat = memory[start : start + size].view(tensor.dtype)
        moved = flat.as_strided(tensor.shape, tensor.stride(), flat.storage_offset())
        return moved.copy_(tensor)


def _has_memory(tensor: torch.Tensor) -> bool:
    """Whether its elements are where they seem to be: not so of subclasses such as fake tensors."""
    plain = type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    return plain and tensor.layout == torch.strided and tensor.device.type == "cpu"


def _end(tensor: torch.Tensor) -> int:
    """Of its last element, in bytes from the storage's start."""
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.storage_offset() + last + 1) * tensor.element_size()


def _is_new(function: Any, result: torch.Tensor, args: Any, kwargs: Any) -> bool:
    """Whether a function has allocated its result: it is no part of an argument, nor memory of somebody else."""
    if getattr(function, "__name__", "") in _OF_OTHERS or not _has_memory(result):
        return False
    given = [*args, *kwargs.values()]
    tensors = [one for value in given for one in (value if isinstance(value, list | tuple) else (value,))]
    own = result.untyped_storage().data_ptr()
    return all(not isinstance(one, torch.Tensor) or one.untyped_storage().data_ptr() != own for one in tensors)


def _is_device(value: Any) -> bool:
    return isinstance(value, torch.device) or (isinstance(value, str) and value.startswith("cuda"))


def _cpu(value: Any) -> Any:
    """The CPU in the place of a device of torch, by name or number; other values as they are."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = torch.device("cuda", value)
    if not _is_device(value):
        return value
    index = torch.device(value).index or 0
    if index >= torch.cuda.device_count():
        raise RuntimeError(f"device {value}; the devices that there are: {torch.cuda.device_count()}, from cuda:0")
    return torch.device("cpu")


class Stream:
    """In the place of a CUDA stream."""

    cuda_stream = 0
    device = torch.device("cpu")

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def synchronize(self) -> None: ...

    def wait_stream(self, _: Any) -> None: ...


class Graph:
    """In the place of a CUDA graph: what would be captured has run at once, which counts as the first replay."""

    replayed = False

    def replay(self) -> None:
        if self.replayed:
            raise NotImplementedError("a graph that is replayed twice")
        self.replayed = True


class Event:
    """In the place of a CUDA event."""

    cuda_event = 0

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def wait(self, *_: Any) -> None: ...

    def elapsed_time(self, _: Any) -> float:
        return 1.0


@contextmanager
def cpu_as_gpu(session: JitSession, *, multiprocessors: int | None = None) -> Iterator[None]:
    """Within the block of a `jit` session, torch shows one GPU of its chip, for libraries that look for one.

    `device="cuda"` is the CPU, all tensors say that they are on "cuda:0", and every one that torch makes is memory that
    the session's kernels may use, at multiples of 256 bytes. `torch.cuda` has one current device with the chip's
    properties, streams and events that do nothing, since a launch is over when it returns, and graphs that run what
    they capture at once, for one replay. CuTe-DSL's `HardwareInfo` and the few questions that Python asks the driver
    (`cuda.bindings`) are answered alike.

    multiprocessors: what the host code is told, if not the chip's number; kernels that divide their work by it are
        faster to emulate with few.

    Exactly the bytes of a storage are memory, and as long as it lives: what is beside it, and what has died, is out of
    bounds, unless another tensor has come to be there.

    Raises TypeError for anything but a session of `jit`, RuntimeError for one whose block has ended; within the block
    RuntimeError for a device that is not there ("cuda:1"), as torch does.

    What torch computes "on the GPU" is the CPU's result, and functions that torch has for CUDA alone stay missing.
    """
    if not isinstance(session, JitSession):
        raise TypeError(f"session: {type(session).__name__}; accepted: what `jit` gives")
    if not session.is_open:
        raise RuntimeError("session: its block has ended; open another one (`with jit(...)`)")
    if multiprocessors is not None:
        multiprocessors = whole("multiprocessors", multiprocessors, 1, 1024)
    utils = importlib.import_module("cutlass.utils")
    chip = parse(session.chip)
    told = multiprocessors or chip.multiprocessors
    major, minor = divmod(int("".join(filter(str.isdigit, session.chip))), 10)
    properties = types.SimpleNamespace(
        name=f"emulated {session.chip}",
        multi_processor_count=told,
        major=major,
        minor=minor,
        L2_cache_size=_L2_BYTES,
        shared_memory_per_block_optin=_SHARED_BYTES,
        shared_memory_per_multiprocessor=_SHARED_BYTES + 1024,
    )

    class Hardware:
        def __init__(self, *_: Any) -> None: ...

        def get_max_active_clusters(self, cluster_size: int, *_: Any, **__: Any) -> int:
            return max(1, told // cluster_size)

        def get_device_multiprocessor_count(self) -> int:
            return told

        def get_l2_cache_size_in_bytes(self) -> int:
            return _L2_BYTES

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
        "Event": Event,
        "stream": lambda _: nullcontext(),
        "CUDAGraph": Graph,
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
        stack.enter_context(driver_of(session.chip, told))
        stack.enter_context(mock.patch.object(utils, "HardwareInfo", Hardware))
        mode = CpuAsGpu(session)
        run_backward = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

        def run_backward_too(*args: Any, **kwargs: Any) -> Any:
            with mode:  # torch takes it away while one of its functions runs, of which `backward` is one
                return run_backward(*args, **kwargs)

        stack.enter_context(mock.patch.object(torch.autograd, "_engine_run_backward", run_backward_too))
        stack.enter_context(mode)
        yield
