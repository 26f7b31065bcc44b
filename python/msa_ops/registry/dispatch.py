"""From a call of a torch op to the chosen backend: check, select, allocate, run."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from msa_ops.registry import platform as platforms
from msa_ops.registry import selection, trace
from msa_ops.registry.backend import Backend
from msa_ops.registry.op import OpSpec
from msa_ops.registry.platform import Platform


class Dispatcher:
    """The kernel of one op's overloads, registered with torch for every device."""

    _trace: trace.Trace | None = None
    _trace_ready = False

    def __init__(self, spec: OpSpec) -> None:
        self.spec = spec
        fields = spec.args.__dataclass_fields__
        self.tensors = tuple(name for name, info in fields.items() if "Tensor" in str(info.type))
        self.has_workspace = "workspace" in fields

    def functional(self, *args: Any, backend: str | None = None, **kwargs: Any) -> Tensor | tuple[Tensor, ...]:
        """Kernel of the overload that makes its results."""
        call = self.spec.args(*args, **kwargs)
        results = self.run(call, backend, None)
        return results[0] if len(results) == 1 else results

    def out(self, *args: Any, backend: str | None = None, **kwargs: Any) -> None:
        """Kernel of the overload that writes into given tensors."""
        outs = tuple(kwargs.pop(name) for name in self.spec.outputs)
        call = self.spec.args(*args, **kwargs)
        self.run(call, backend, outs)

    def fake(self, *args: Any, backend: str | None = None, **kwargs: Any) -> Tensor | tuple[Tensor, ...]:
        call = self.spec.args(*args, **kwargs)
        self.spec.check(call)
        self._device(call)
        results = self.spec.meta(call)
        return results[0] if len(results) == 1 else results

    def fake_out(self, *args: Any, backend: str | None = None, **kwargs: Any) -> None:
        outs = tuple(kwargs.pop(name) for name in self.spec.outputs)
        call = self.spec.args(*args, **kwargs)
        self.spec.check(call)
        self._device(call)
        self._check_outs(call, outs)

    def run(self, call: Any, backend: str | None, outs: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        spec = self.spec
        spec.check(call)
        device = self._device(call)
        if outs is not None:
            self._check_outs(call, outs)
            self._check_overlap(call, outs)
        platform = platforms.of_device(device)
        chosen = selection.choose(spec.name, platform, backend, lambda: spec.facts(call))
        if not Dispatcher._trace_ready:
            Dispatcher._trace, Dispatcher._trace_ready = trace.from_environment(), True
        if Dispatcher._trace is not None:
            Dispatcher._trace(spec.name, chosen.name, call)
        if self.has_workspace:
            self._provide_workspace(call, chosen, platform, device)
        return execute(chosen, spec, call, outs)

    def _device(self, call: Any) -> torch.device:
        """The one device of all tensors of the call."""
        device: torch.device | None = None
        for name in self.tensors:
            value = getattr(call, name)
            if value is None:
                continue
            if device is None:
                device = value.device
            elif value.device != device:
                raise ValueError(
                    f"{name}: on {value.device}, but other arguments are on {device}; accepted: one device"
                )
        assert device is not None
        return device

    def _check_outs(self, call: Any, outs: tuple[Tensor, ...]) -> None:
        for name, out, expected in zip(self.spec.outputs, outs, self.spec.meta(call), strict=True):
            if out.shape != expected.shape or out.dtype != expected.dtype or out.device != expected.device:
                raise ValueError(
                    f"{name}: {out.dtype}{list(out.shape)} on {out.device}; accepted: "
                    f"{expected.dtype}{list(expected.shape)} on {expected.device}"
                )
            if not out.is_contiguous():
                raise ValueError(f"{name}: strides {out.stride()}; accepted: contiguous")

    def _check_overlap(self, call: Any, outs: tuple[Tensor, ...]) -> None:
        inputs = [(name, getattr(call, name)) for name in self.tensors if getattr(call, name) is not None]
        named = [*inputs, *zip(self.spec.outputs, outs, strict=True)]
        for position, (name, out) in enumerate(named[len(inputs) :], len(inputs)):
            for other, tensor in named[:position]:
                if _overlap(out, tensor):
                    raise ValueError(f"{name}: shares memory with {other}; accepted: memory of its own")

    def _provide_workspace(self, call: Any, chosen: Backend, platform: Platform, device: torch.device) -> None:
        needed = chosen.workspace_bytes(platform, self.spec.facts(call)) if chosen.workspace else 0
        given = call.workspace
        if given is None:
            if needed:
                call.workspace = torch.empty(needed, dtype=torch.uint8, device=device)
        elif given.dtype != torch.uint8 or not given.is_contiguous() or given.numel() < needed:
            raise ValueError(
                f"workspace: {given.dtype}{list(given.shape)}; accepted: contiguous uint8 of at least {needed} bytes"
            )


def execute(backend: Backend, spec: OpSpec, call: Any, outs: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
    """Runs a chosen backend on checked arguments."""
    function = backend.load()
    if backend.functional:
        results: tuple[Tensor, ...] = function(call)
        if outs is None:
            return results
        for out, result in zip(outs, results, strict=True):
            out.copy_(result)
        return outs
    if outs is None:
        outs = spec.meta(call)
    function(call, outs)
    return outs


def _span(tensor: Tensor) -> tuple[int, int]:
    """First byte and one past the last byte that the tensor may touch."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (last + 1) * tensor.element_size()


def _overlap(one: Tensor, other: Tensor) -> bool:
    if one.numel() == 0 or other.numel() == 0 or one.device != other.device:
        return False
    (start, end), (other_start, other_end) = _span(one), _span(other)
    return start < other_end and other_start < end
