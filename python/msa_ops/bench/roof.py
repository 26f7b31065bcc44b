"""Roofs: the memory bandwidth and matrix rate that bound a call, measured on this machine or nominal for a chip.

The time at the roof is max(bytes / bandwidth, flops / rate). `bytes` counts every operand byte once a call, so it is
a lower bound. The bandwidth of a measured roof is the best of reading, writing and copying, seen in the same run.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from msa_ops.bench import timer as timers
from msa_ops.registry.op import Cost

PRECISIONS = ("fp4", "fp8", "bf16", "fp32")
"""Narrow to wide; a roof without a rate for one precision uses the next wider one that it has."""

_NARROW = ("fp8", "nvfp4", "mxfp8", "mxfp4")


@dataclass(frozen=True)
class Roof:
    """`bandwidth` in bytes/s by kind of access, `rates` in flop/s by precision (dense)."""

    name: str
    bandwidth: dict[str, float]
    rates: dict[str, float]
    measured: bool
    sources: list[str] = field(default_factory=list)

    @property
    def bytes_per_second(self) -> float:
        return max(self.bandwidth.values())

    def rate(self, precision: str) -> float:
        """flop/s of matrix products of operands of `precision`, or of the next wider one."""
        for name in PRECISIONS[PRECISIONS.index(precision) :]:
            if name in self.rates:
                return self.rates[name]
        return self.rates[max(self.rates, key=PRECISIONS.index)]

    def bound(self, cost: Cost, precision: str) -> tuple[float, str]:
        """Seconds at the roof, and which of "memory" and "compute" it is."""
        memory, compute = cost.bytes / self.bytes_per_second, cost.flops / self.rate(precision)
        return max(memory, compute), "memory" if memory >= compute else "compute"


def precision(args: Any) -> str:
    """Precision of the matrix unit that a call can use: fp8 if an operand is stored narrower than 16 bits.

    fp4 units need both operands in FP4; no MSA op has that, except experts with NVFP4 activations.
    """
    formats: Mapping[str, object] = {
        name: getattr(args, name) for name in args.__dataclass_fields__ if name.endswith("format")
    }
    if formats.get("weight_format") == "nvfp4" and formats.get("activation_format") == "nvfp4":
        return "fp4"
    if any(value in _NARROW for value in formats.values()):
        return "fp8"
    operands = [getattr(args, name, None) for name in ("x", "q", "index_q", "qkv")]
    wide = any(isinstance(operand, torch.Tensor) and operand.dtype == torch.float32 for operand in operands)
    return "fp32" if wide else "bf16"


def measure(device: torch.device, cache_bytes: int) -> Roof:
    """Bandwidth and matrix rates of this machine, in about a second."""
    if device.type == "cpu":
        size = max(4 * cache_bytes, 64 << 20)
        timer: timers.Timer = timers.WallTimer()
        shapes = {"fp32": (torch.float32, 1024)}
        name = "cpu"
    else:
        size = 2 << 30
        timer = timers.GraphTimer(device)
        shapes = {"bf16": (torch.bfloat16, 8192)}
        name = torch.cuda.get_device_name(device)
    bandwidth = _bandwidth(timer, size, device)
    rates = {}
    for kind, (dtype, width) in shapes.items():
        # Random operands: zeros draw less power and can run faster than data do.
        left = torch.randn(width, width, device=device).to(dtype)
        right = torch.randn(width, width, device=device).to(dtype)
        product = torch.empty_like(left)
        rates[kind] = 2 * width**3 / _seconds(timer, lambda a=left, b=right, c=product: torch.mm(a, b, out=c))  # type: ignore[misc]
    if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9):
        rates["fp8"] = _fp8_rate(timer, device)
    return Roof(name, bandwidth, rates, True, ["measured in this run: sum, fill, copy and in-place add, torch.mm"])


def _bandwidth(timer: timers.Timer, size: int, device: torch.device) -> dict[str, float]:
    one = torch.ones(size // 4, dtype=torch.float32, device=device)
    other = torch.empty_like(one)
    both = min(_seconds(timer, lambda: other.copy_(one)), _seconds(timer, lambda: other.add_(0.5)))
    return {
        "read": size / _seconds(timer, one.sum),
        "write": size / _seconds(timer, lambda: other.fill_(1.5)),
        "copy": 2 * size / both,
    }


def _fp8_rate(timer: timers.Timer, device: torch.device, width: int = 8192) -> float:
    left, right = (torch.randn(width, width, device=device).to(torch.float8_e4m3fn) for _ in range(2))
    unit = torch.ones((), device=device)
    seconds = _seconds(
        timer, lambda: torch._scaled_mm(left, right.t(), scale_a=unit, scale_b=unit, out_dtype=torch.bfloat16)
    )
    return 2 * width**3 / seconds


def _seconds(timer: timers.Timer, call: Callable[[], object]) -> float:
    sample = timer.prepare([call])
    return statistics.median(sample() for _ in range(5))
