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
    """A registered op. Calling it goes through torch, so that torch.compile and modes see one node."""

    def __init__(self, spec: OpSpec) -> None:
        self.spec = spec
        self.dispatcher = Dispatcher(spec)
        packet = getattr(torch.ops.msa_ops, spec.name)
        self._functional, self._out = packet.default, packet.out

    def __call__(self, *args: Any, out: Tensor | tuple[Tensor, ...] | None = None, **kwargs: Any) -> Any:
        if out is None:
            return self._functional(*args, **kwargs)
        outs = (out,) if isinstance(out, Tensor) else tuple(out)
        names = self.spec.outputs
        if len(outs) != len(names):
            raise ValueError(f"out: {len(outs)} tensors; accepted: {len(names)} ({', '.join(names)})")
        self._out(*args, **kwargs, **dict(zip(names, outs, strict=True)))
        return out


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
    return Op(spec)
