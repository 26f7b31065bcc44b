"""Registration with torch.library: schemas, kernels for every device, fakes, and the Python entry of each op."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from msa_ops.registry.dispatch import Dispatcher
from msa_ops.registry.op import OpSpec
from msa_ops.registry.store import STORE

NAMESPACE = "msa_ops"

_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")  # must live as long as the process


class Op:
    """A registered op, called as torch would call it.

    Under torch.compile, modes, tensor subclasses, the profiler or autograd the call goes through torch's dispatcher and
    is one node there. Otherwise it goes straight to the registry, which saves the dispatcher's cost.
    """

    def __init__(self, spec: OpSpec, dispatcher: Dispatcher) -> None:
        self.spec = spec
        self.dispatcher = dispatcher
        packet = getattr(torch.ops.msa_ops, spec.name)
        self._functional, self._out = packet.default, packet.out

    def __call__(
        self, *args: Any, out: Tensor | tuple[Tensor, ...] | None = None, backend: str | None = None, **kwargs: Any
    ) -> Any:
        outs = None
        if out is not None:
            outs = (out,) if isinstance(out, Tensor) else tuple(out)
            names = self.spec.outputs
            if len(outs) != len(names):
                raise ValueError(f"out: {len(outs)} tensors; accepted: {len(names)} ({', '.join(names)})")
        if not torch.compiler.is_compiling() and _is_plain_eager():
            call = self.spec.args(*args, **kwargs)
            if self._is_plain(call):
                results = self.dispatcher.run(call, backend, outs)
                return out if out is not None else results[0] if len(results) == 1 else results
        if outs is None:
            return self._functional(*args, **kwargs, backend=backend)
        self._out(*args, **kwargs, backend=backend, **dict(zip(self.spec.outputs, outs, strict=True)))
        return out

    def _is_plain(self, call: Any) -> bool:
        """Only tensors of torch's own, for none of which autograd is watching."""
        for name in self.dispatcher.tensors:
            value = getattr(call, name)
            if value is None:
                continue
            if type(value) is not Tensor and type(value) is not torch.nn.Parameter:
                return False
            if value.device.type not in ("cpu", "cuda") or (value.requires_grad and torch.is_grad_enabled()):
                return False
        return True


def _is_plain_eager() -> bool:
    return (
        torch._C._len_torch_dispatch_stack() == 0
        and torch._C._len_torch_function_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and not torch._C._autograd._profiler_enabled()
    )


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
        torch.library.register_fake(f"{NAMESPACE}::{overload}", fake, lib=_LIBRARY)
    STORE.add_op(spec)
    return Op(spec, dispatcher)
