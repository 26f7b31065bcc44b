"""A kernel's arguments, read by scalar loads where they are used.

All of them at once may not fit into scalar registers. Offsets are those of the argument segment: in order, each
aligned to its size.
"""

from __future__ import annotations

from types import SimpleNamespace

from msa_ops.flydsl.common.intrinsics import raw, scalar_anew

from msa_ops.build.flydsl_adapter import fx, ir, llvm


class Arguments:
    """Attributes are the values of `given` (name -> argument, in the kernel's order), loaded anew at each access."""

    def __init__(self, given: dict) -> None:
        self._places, at = {}, 0
        for name, value in given.items():
            size = type(value).width // 8
            at = -(-at // size) * size
            self._places[name] = type(value), at
            at += size

    def __getattr__(self, name: str):
        return getattr(self.now(name), name)

    def now(self, *names: str) -> SimpleNamespace:
        """Several at once: neighbours take one load."""
        constant = ir.Type.parse("!llvm.ptr<4>")
        segment = llvm.call_intrinsic(constant, "llvm.amdgcn.kernarg.segment.ptr", [], [], [])
        # Anew, or LLVM loads everything once, at the start.
        begin = scalar_anew(fx.Int64(llvm.ptrtoint(fx.Int64.ir_type, segment)))
        found = {}
        for name in names:
            dtype, at = self._places[name]
            pointer = llvm.inttoptr(constant, raw(begin + fx.Int64(at)))
            found[name] = dtype(llvm.LoadOp(dtype.ir_type, pointer, alignment=dtype.width // 8).result)
        return SimpleNamespace(**found)
