"""Registration with torch.library: schemas, kernels for every device, fakes, and the Python entry of each op."""

from __future__ import annotations

import functools
import numbers
import operator
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from msa_ops import _C
from msa_ops.launch_arguments import Launch
from msa_ops.registry import overrides
from msa_ops.registry.dispatch import ALIGNMENT, READER, Dispatcher, Plan
from msa_ops.registry.op import OpSpec
from msa_ops.registry.store import STORE

NAMESPACE = "msa_ops"

Function = TypeVar("Function", bound=Callable[..., Any])

_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")  # must live as long as the process


_OBSTACLES = [
    torch._C._len_torch_dispatch_stack,
    torch._C._len_torch_function_stack,
    torch._C._functorch.peek_interpreter_stack,
    torch._C._get_tracing_state,
    torch._C._autograd._profiler_enabled,
]
"""Give something true while calls of ops are not plain: modes, transforms, tracing, the profiler."""

STATE = _C.TorchState.without_python() or _C.TorchState(_OBSTACLES, torch.is_grad_enabled)


def _maker(results: tuple[Tensor, ...]) -> Callable[[], tuple[Tensor, ...]]:
    """Makes results like these, where `_C.ResultMaker` cannot."""
    if len(results) == 1:
        make = _maker_of_one(results[0])
        return lambda: (make(),)
    if len(results) == 2:
        first, second = map(_maker_of_one, results)
        return lambda: (first(), second())
    makers = tuple(map(_maker_of_one, results))
    return lambda: tuple(make() for make in makers)


def _maker_of_one(result: Tensor) -> Callable[[], Tensor]:
    return functools.partial(torch.empty, result.shape, dtype=result.dtype, device=result.device)


class Op:
    """A registered op, called as torch would call it.

    Under torch.compile, modes, tensor subclasses, the profiler or autograd the call goes through torch's dispatcher and
    is one node there. Otherwise it goes straight to the registry, which saves the dispatcher's cost; and a call like
    one before it, on a compiled backend, goes straight to the launch: bindings/op_entry.cpp.
    """

    def __init__(self, spec: OpSpec, dispatcher: Dispatcher) -> None:
        self.spec = spec
        self.dispatcher = dispatcher
        packet = getattr(torch.ops.msa_ops, spec.name)
        self._functional, self._out = packet.default, packet.out
        # Inductor (torch 2.11 to 2.13 at least) fails on one result beside a written argument that is None, and takes
        # the same call with a given result.
        self._compiles_through_out = len(spec.outputs) == 1 and bool(spec.mutates)
        arguments = {argument.name: argument for argument in self._functional._schema.arguments}
        self._kinds = tuple((name, _KINDS[str(arguments[name].real_type)]) for name in dispatcher.values)
        names = list(spec.args.__dataclass_fields__)
        self.replays = _C.CallReplays(READER, names, [*spec.mutates, "workspace"], ALIGNMENT)
        self._eager = _C.op_entry(self.replays, self.__call__, overrides.context_variable(), STORE, STATE)

    def public(self, function: Function) -> Function:
        """Decorates the op's public function, which hands its arguments on to `call` as they are and by their names.

        Where a call of it goes straight to the launch, none of its lines run: bindings/public_function.hpp.
        """
        _C.call_without_frames(function, self._eager)
        return function

    @property
    def call(self) -> Callable[..., Any]:
        """What the op's public function calls; torch.compile can look inside `__call__` alone."""
        return self if is_dynamo_compiling() else self._eager

    def __call__(
        self, *args: Any, out: Tensor | tuple[Tensor, ...] | None = None, backend: str | None = None, **kwargs: Any
    ) -> Any:
        """The long way, which takes every call."""
        if not torch.compiler.is_compiling() and STATE.is_plain():
            return self._first_call(args, kwargs, out, backend)
        outs = self._given(out)
        if outs is None and self._compiles_through_out and torch.compiler.is_compiling():
            call = self.spec.args(*args, **kwargs)
            if all(getattr(call, name) is None for name in self.spec.mutates):
                outs = self.spec.meta(call)
                self._out(*args, **kwargs, backend=backend, **dict(zip(self.spec.outputs, outs, strict=True)))
                return outs[0]
        return self._through_torch(args, kwargs, out, backend)

    def _given(self, out: Any) -> tuple[Tensor, ...] | None:
        """The results to fill. Raises ValueError for anything but as many tensors as the op has results."""
        if out is None:
            return None
        outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        names = self.spec.outputs
        for each in outs:
            if not isinstance(each, Tensor):
                raise ValueError(f"out: {type(each).__name__}; accepted: tensors ({', '.join(names)})")
        if len(outs) != len(names):
            raise ValueError(f"out: {len(outs)} tensors; accepted: {len(names)} ({', '.join(names)})")
        return outs

    def _through_torch(self, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, backend: str | None) -> Any:
        outs = self._given(out)
        if outs is None:
            return self._functional(*args, **kwargs, backend=backend)
        self._out(*args, **kwargs, backend=backend, **dict(zip(self.spec.outputs, outs, strict=True)))
        return out

    def _first_call(self, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, backend: str | None) -> Any:
        """A call of this metadata for the first time, or one that is not kept."""
        outs = self._given(out)
        grad, generation = torch.is_grad_enabled(), STORE.generation
        call = self.spec.args(*args, **kwargs)
        self._convert_values(call)
        signature = self.dispatcher.signature(call, outs, grad)
        if signature is None:
            self.dispatcher.require_tensors(call)
            return self._through_torch(args, kwargs, out, backend)
        if backend is not None and type(backend) is not str:
            backend = _convert("backend", backend, str)
        given = call.workspace if self.dispatcher.has_workspace else None

        def launched(plan: Plan, results: tuple[Tensor, ...], launches: list[Launch]) -> None:
            made = results if outs is None else ()
            workspace = call.workspace if self.dispatcher.has_workspace and given is None else None
            self._remember(args, kwargs, outs, backend, grad, generation, plan, made, workspace, launches)

        results = self.dispatcher.run_signed(call, signature, backend, outs, launched)
        return out if out is not None else results[0] if len(results) == 1 else results

    def _remember(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outs: tuple[Tensor, ...] | None,
        backend: str | None,
        grad: bool,
        generation: int,
        plan: Plan,
        made: tuple[Tensor, ...],
        workspace: Tensor | None,
        launches: list[Launch],
    ) -> None:
        """Keeps what a call launched for calls like it; nothing if no launch was noted, as of code objects."""
        if not launches:
            return
        if not all(result.is_contiguous() for result in made):
            return
        make = (_C.ResultMaker.of(made) or _maker(made)) if made else None
        self.replays.remember(
            args, kwargs, outs, backend, grad, generation, made, workspace, plan.device.index, launches, make
        )

    def _convert_values(self, call: Any) -> None:
        """What torch does with values that are not of the schema's types: converts or refuses them."""
        for name, kinds in self._kinds:
            value = getattr(call, name)
            if type(value) not in kinds:
                setattr(call, name, _convert(name, value, kinds[0]))


_KINDS: dict[str, tuple[type, ...]] = {
    schema: (kind, *more)
    for name, kind in (("int", int), ("float", float), ("bool", bool), ("str", str), ("ScalarType", torch.dtype))
    for schema, more in ((name, ()), (f"Optional[{name}]", (type(None),)))
}
"""Python types of the values of a schema, by torch's name."""


def _convert(name: str, value: Any, kind: type) -> Any:
    """The value as a `kind`. A bool is no number, and a number or a string no bool. Raises ValueError."""
    if not isinstance(value, (bool, Tensor)):
        if kind is int and hasattr(value, "__index__"):
            return operator.index(value)
        if kind is float and isinstance(value, numbers.Real):
            try:
                return float(value)
            except OverflowError:
                raise ValueError(f"{name}: a number beyond those of a {kind.__name__}") from None
    if kind is str and isinstance(value, str):
        return str.__str__(value)  # of an enum: its value
    raise ValueError(f"{name}: {value!r}; accepted: {kind.__name__}")


def register(spec: OpSpec) -> Op:
    """Defines the op's two overloads in torch and adds it to the registry."""
    dispatcher = Dispatcher(spec)
    tags = (torch.Tag.pt2_compliant_tag,)
    _LIBRARY.define(spec.schema, tags=tags)
    _LIBRARY.define(spec.out_schema, tags=tags)
    for overload, kernel, fake in (
        (spec.name, dispatcher.functional, dispatcher.fake),
        (f"{spec.name}.out", dispatcher.out, dispatcher.fake_out),
    ):
        for key in ("CPU", "CUDA"):
            _LIBRARY.impl(overload, kernel, key)
        # Autograd is passed by: results ask for no gradient, in eager as under torch.compile.
        _LIBRARY.impl(overload, torch.library.fallthrough_kernel, "Autograd")
        torch.library.register_fake(f"{NAMESPACE}::{overload}", fake, lib=_LIBRARY)
    STORE.add_op(spec)
    return Op(spec, dispatcher)
