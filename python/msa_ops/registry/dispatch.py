"""From a call of a torch op to the chosen backend: check, select, allocate, run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from msa_ops import _C
from msa_ops.launch_arguments import Launch, record
from msa_ops.registry import overrides, plugins, selection, trace, virtual
from msa_ops.registry import platform as platforms
from msa_ops.registry.backend import Backend
from msa_ops.registry.op import OpSpec
from msa_ops.registry.store import STORE

ALIGNMENT = 128
"""Bytes; checks and backends may look at an address modulo this and no closer."""

READER = _C.SignatureReader(torch.Tensor, torch.nn.Parameter)

WORKSPACE_ALIGNMENT = 16
"""Bytes; what a backend may count on."""


@dataclass(frozen=True)
class Plan:
    """What was found out about one signature of a call: it passed its checks, and this is who runs it."""

    backend: Backend
    workspace_bytes: int
    device: torch.device
    generation: int


class Dispatcher:
    """The kernel of one op's overloads, registered with torch for every device.

    Everything that checks, facts and selection look at is metadata: shapes, strides, dtypes, devices, the alignment
    of addresses, where memory that is written is shared, and plain values. Calls with equal metadata share one `Plan`,
    so that a decode loop pays for a look-up and not for the checks.
    """

    MAX_PLANS = 4096
    _trace: trace.Trace | None = None
    _trace_ready = False

    def __init__(self, spec: OpSpec) -> None:
        self.spec = spec
        fields = spec.args.__dataclass_fields__
        self.tensors = tuple(name for name, info in fields.items() if "Tensor" in str(info.type))
        self.required = tuple(name for name in self.tensors if "None" not in str(fields[name].type))
        self.values = tuple(name for name in fields if name not in self.tensors)
        self.names = (*self.tensors, *self.values)
        self.has_workspace = "workspace" in fields
        self._plans: dict[Any, Plan] = {}

    def functional(self, *args: Any, backend: str | None = None, **kwargs: Any) -> Tensor | tuple[Tensor, ...]:
        """Kernel of the overload that makes its results."""
        with _without_grad():
            results = self.run(self.spec.args(*args, **kwargs), backend, None)
        return results[0] if len(results) == 1 else results

    def out(self, *args: Any, backend: str | None = None, **kwargs: Any) -> None:
        """Kernel of the overload that writes into given tensors."""
        outs = tuple(kwargs.pop(name) for name in self.spec.outputs)
        with _without_grad():
            self.run(self.spec.args(*args, **kwargs), backend, outs)

    def fake(self, *args: Any, backend: str | None = None, **kwargs: Any) -> Tensor | tuple[Tensor, ...]:
        call = self.spec.args(*args, **kwargs)
        self._check(call)
        results = self.spec.meta(call)
        return results[0] if len(results) == 1 else results

    def fake_out(self, *args: Any, backend: str | None = None, **kwargs: Any) -> None:
        outs = tuple(kwargs.pop(name) for name in self.spec.outputs)
        call = self.spec.args(*args, **kwargs)
        self._check(call)
        self._check_outs(call, outs)

    def run(self, call: Any, backend: str | None, outs: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        """Checks the call, chooses a backend and runs it. `outs` None: results are allocated."""
        return self.run_signed(call, self.signature(call, outs, False), backend, outs)

    def signature(self, call: Any, outs: tuple[Tensor, ...] | None, grad_enabled: bool) -> bytes | None:
        """The call's metadata, with the Python types of its values; None if it is not of plain tensors and values."""
        return READER.read(call, self.names, self.spec.mutates, outs, ALIGNMENT, grad_enabled)

    def run_signed(
        self,
        call: Any,
        signature: bytes | None,
        backend: str | None,
        outs: tuple[Tensor, ...] | None,
        launched: Callable[[Plan, tuple[Tensor, ...], list[Launch]], None] | None = None,
    ) -> tuple[Tensor, ...]:
        """`run` of a call whose signature is known; without one nothing is remembered.

        launched: told what a compiled backend launched, where the same call would launch the same again.
        """
        plugins.load_once()
        override = overrides.current(self.spec.name, backend)
        chip = virtual.current()
        key = (signature, override, None if chip is None else chip.platform)
        plan = self._plans.get(key)
        if plan is None or signature is None or plan.generation != STORE.generation:
            plan = self._plan(call, outs, override)
            if len(self._plans) >= self.MAX_PLANS:
                self._plans.clear()
            if signature is not None:
                self._plans[key] = plan
        if not Dispatcher._trace_ready:
            Dispatcher._trace, Dispatcher._trace_ready = trace.from_environment(), True
        if Dispatcher._trace is not None:
            Dispatcher._trace(self.spec.name, plan.backend.name, call)
        if plan.workspace_bytes and call.workspace is None:
            call.workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device=plan.device)
        if chip is not None and plan.device.type == "cpu":
            return self._run_on(chip, plan.backend, call, outs)
        if launched is None or not self._may_repeat(plan, override):
            return execute(plan.backend, self.spec, call, outs)
        results = self.spec.meta(call) if outs is None else outs
        with record() as launches:
            execute(plan.backend, self.spec, call, results)
        if not launches.others:
            launched(plan, results, launches)
        return results

    def _may_repeat(self, plan: Plan, override: overrides.Override) -> bool:
        """Whether nothing but the call decides what is launched, and nothing else wants to know of it."""
        own = plan.backend.compiled and not plan.backend.functional and plan.device.type == "cuda"
        return own and override.source in ("automatic", "the call") and Dispatcher._trace is None

    def _run_on(
        self, chip: virtual.Chip, backend: Backend, call: Any, outs: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, ...]:
        """On an emulated chip: the kernels of the call may use its tensors and write those that it writes."""
        if outs is None and not backend.functional:
            outs = self.spec.meta(call)
        written = {*self.spec.mutates, "workspace"}
        regions = [
            virtual.Region(name, value, name in written)
            for name in self.tensors
            if (value := getattr(call, name)) is not None
        ]
        regions += [
            virtual.Region(name, out, True) for name, out in zip(self.spec.outputs, outs or (), strict=bool(outs))
        ]
        with chip.call(self.spec.name, backend.name, regions):
            return execute(backend, self.spec, call, outs)

    def _plan(self, call: Any, outs: tuple[Tensor, ...] | None, override: overrides.Override) -> Plan:
        generation = STORE.generation  # read first: a change from here on makes the plan stale, not wrong
        device = self._check(call)
        if outs is not None:
            self._check_outs(call, outs)
        mutates = [name for name in self.spec.mutates if getattr(call, name) is not None]
        for name in mutates:
            _check_writable(name, getattr(call, name))
        self._check_overlap(call, mutates, outs or ())
        platform = platforms.of_device(device)
        chosen = selection.SELECTOR.choose(self.spec.name, platform, override, lambda: self.spec.facts(call))
        needed = chosen.workspace_bytes(platform, self.spec.facts(call)) if chosen.workspace else 0
        if self.has_workspace and call.workspace is not None:
            _check_workspace(call.workspace, needed)
        return Plan(
            backend=chosen,
            workspace_bytes=needed,
            device=device,
            generation=generation,
        )

    def _check(self, call: Any) -> torch.device:
        """The op's checks and those that hold for every op; the device of the call."""
        self.require_tensors(call)
        for name in self.values:
            value = getattr(call, name)
            if type(value) is int and not -(2**63) <= value < 2**63:
                raise ValueError(f"{name}: {value}; accepted: integers of 64 bits")
        self.spec.check(call)
        return self._device(call)

    def require_tensors(self, call: Any) -> None:
        """Raises ValueError naming the argument; torch takes None for any tensor and answers others with a dump."""
        for name in self.tensors:
            value = getattr(call, name)
            if value is None and name in self.required:
                raise ValueError(f"{name}: None; accepted: a tensor")
            if value is not None and not isinstance(value, Tensor):
                raise ValueError(f"{name}: {type(value).__name__}; accepted: a tensor")

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

    def _check_overlap(self, call: Any, mutates: list[str], outs: tuple[Tensor, ...]) -> None:
        """Results, and arguments that are written, must have memory of their own.

        The two caches of one pool are the exception: their pages may alternate. The ops that take both check that.
        """
        given = [(name, value) for name in self.tensors if (value := getattr(call, name)) is not None]
        spans = [(name, *_span(value)) for name, value in (*given, *zip(self.spec.outputs, outs, strict=bool(outs)))]
        written = {*mutates, *(self.spec.outputs if outs else ())}
        for position, (name, start, end) in enumerate(spans):
            for other, other_start, other_end in spans[:position]:
                if start < other_end and other_start < end and not _POOLED.issuperset((name, other)):
                    if name in written:
                        raise ValueError(f"{name}: shares memory with {other}; accepted: memory of its own")
                    if other in written:
                        raise ValueError(f"{other}: shares memory with {name}; accepted: memory of its own")


_POOLED = frozenset({"kv_cache", "index_cache"})


def execute(backend: Backend, spec: OpSpec, call: Any, outs: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
    """Runs a chosen backend on checked arguments. Autocast does not reach inside: an op fixes its own precision."""
    function = backend.load()
    try:
        if torch._C._is_any_autocast_enabled():
            with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
                return _execute(function, backend, spec, call, outs)
        return _execute(function, backend, spec, call, outs)
    except Exception as error:
        error.add_note(f"raised by backend {backend.name!r} of {spec.name}")
        raise


def _execute(
    function: Callable[..., Any], backend: Backend, spec: OpSpec, call: Any, outs: tuple[Tensor, ...] | None
) -> tuple[Tensor, ...]:
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


class _without_grad:
    """Autograd records nothing inside: a backend in torch is as opaque to it as a kernel."""

    __slots__ = ("enabled",)

    def __enter__(self) -> None:
        self.enabled = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)

    def __exit__(self, *error: object) -> None:
        torch._C._set_grad_enabled(self.enabled)


def _span(tensor: Tensor) -> tuple[int, int]:
    """First byte and one past the last byte that the tensor may touch."""
    start = tensor.data_ptr()
    if tensor.numel() == 0:
        return start, start
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()


def _check_writable(name: str, tensor: Tensor) -> None:
    """No two elements share memory, as those of an expanded tensor do."""
    span = 1
    for stride, size in sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1:
            if stride < span:
                raise ValueError(
                    f"{name}: shape {list(tensor.shape)}, strides {tensor.stride()}; accepted: elements with memory "
                    "of their own, because the op writes them"
                )
            span = (size - 1) * stride + span


def _check_workspace(given: Tensor, needed: int) -> None:
    if given.dtype != torch.uint8 or not given.is_contiguous() or given.numel() < needed:
        raise ValueError(
            f"workspace: {given.dtype}{list(given.shape)}; accepted: contiguous uint8 of at least {needed} bytes"
        )
    if given.data_ptr() % WORKSPACE_ALIGNMENT:
        raise ValueError(
            f"workspace: starts at address {given.data_ptr():#x}; accepted: multiples of {WORKSPACE_ALIGNMENT} bytes"
        )
