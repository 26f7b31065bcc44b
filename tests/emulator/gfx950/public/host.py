"""torch as public host code expects it on a GPU: device "cuda" is the CPU, streams and events are there."""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode


class _OnCpu(TorchFunctionMode):
    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.cuda:
            return args[0]
        if "device" in kwargs:
            kwargs["device"] = _cpu(kwargs["device"])
        if function is torch.Tensor.to:
            args = tuple(_cpu(value) for value in args)
        if kwargs.pop("pin_memory", False):
            kwargs["pin_memory"] = False
        return function(*args, **kwargs)


def _cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, str) and value.startswith("cuda"):
        return "cpu"
    return value


class _Stream:
    cuda_stream = 0
    device = torch.device("cpu")

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def synchronize(self) -> None: ...

    def wait_stream(self, _: Any) -> None: ...

    def wait_event(self, _: Any) -> None: ...


class _Event:
    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, _: Any) -> float:
        return 1.0


def _properties(*_: Any) -> Any:
    return types.SimpleNamespace(
        gcnArchName="gfx950",
        name="emulated gfx950",
        multi_processor_count=256,
        warp_size=64,
        major=9,
        minor=5,
        total_memory=288 << 30,
        L2_cache_size=4 << 20,
    )


@contextmanager
def torch_on_gfx950() -> Iterator[None]:
    """Inside, torch shows one gfx950 whose memory is the CPU's."""
    replaced = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda *_: None,
        "synchronize": lambda *_: None,
        "empty_cache": lambda: None,
        "manual_seed_all": lambda *_: None,
        "manual_seed": lambda *_: None,
        "current_stream": lambda *_: _Stream(),
        "default_stream": lambda *_: _Stream(),
        "Stream": _Stream,
        "stream": lambda _: nullcontext(),
        "Event": _Event,
        "get_device_properties": _properties,
        "get_device_name": lambda *_: "emulated gfx950",
        "get_device_capability": lambda *_: (9, 5),
        "device": lambda _: nullcontext(),
        "is_current_stream_capturing": lambda: False,
        "mem_get_info": lambda *_: (1 << 34, 1 << 34),
    }
    with ExitStack() as stack:
        for name, value in replaced.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        stack.enter_context(mock.patch.object(torch.version, "hip", "7.0"))
        stack.enter_context(mock.patch.object(torch.Tensor, "is_cuda", True, create=True))
        stack.enter_context(_OnCpu())
        yield


@contextmanager
def cpu_as_gpu() -> Iterator[None]:
    """The same, and FlyDSL launches on CPU tensors."""
    from flydsl.compiler import jit_argument, jit_function
    from flydsl.expr.typing import Stream

    if _Stream not in jit_argument.JitArgumentRegistry.registry:
        jit_argument.JitArgumentRegistry.register(_Stream)(Stream)
    # FlyDSL takes CPU tensors for placeholders that it compiles for and does not launch with.
    with mock.patch.object(jit_function, "_is_compile_placeholder", lambda *_, **__: False), torch_on_gfx950():
        yield


def stand_in_for_absent_packages() -> None:
    """What FlyDSL's tests import for timing and comparisons that do not happen here: Triton, pandas."""
    if importlib.util.find_spec("triton") is None:
        triton, language = types.ModuleType("triton"), types.ModuleType("triton.language")
        triton.jit = lambda function: function  # type: ignore[attr-defined]
        triton.cdiv = lambda a, b: -(-a // b)  # type: ignore[attr-defined]
        triton.__version__ = "0"  # type: ignore[attr-defined]
        triton.language = language  # type: ignore[attr-defined]
        language.constexpr = object  # type: ignore[attr-defined]
        sys.modules |= {"triton": triton, "triton.language": language}
    if importlib.util.find_spec("pandas") is None:
        pandas = types.ModuleType("pandas")
        pandas.set_option = lambda *_: None  # type: ignore[attr-defined]
        sys.modules["pandas"] = pandas


def take_plain_types() -> None:
    """FlyDSL 0.5.0 makes a value of the class that names a load's type; older sources name a class of no values."""
    from flydsl.expr import typing

    wrap = typing.as_dsl_value

    def as_dsl_value(value: Any, exemplar: Any = None) -> Any:
        plain = isinstance(exemplar, type) and exemplar.__bases__ == (object,) and exemplar.__init__ is object.__init__
        return value if plain and hasattr(exemplar, "ir_type") else wrap(value, exemplar)

    typing.as_dsl_value = as_dsl_value
