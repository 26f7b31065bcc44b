"""Configurations of the CDNA4 kernel of quantize_nvfp4."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msa_ops.build.unit import Family
from msa_ops.registry import Refusal
from msa_ops.registry.platform import Platform


@dataclass(frozen=True)
class Config:
    """dtype: of x. global_scale: whether a tensor scale is read. division: "divide" or "reciprocal"."""

    dtype: str
    global_scale: bool
    division: str
    threads: int = 256

    @property
    def name(self) -> str:
        return f"{self.dtype}_{'global' if self.global_scale else 'plain'}_{self.division}"


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    return ()


FAMILY = Family(
    op="quantize_nvfp4",
    module="msa_ops.flydsl.quantize_nvfp4.gfx950",
    archs=("gfx950",),
    arguments=("x", "codes", "scales", "global_scale", "scale_floor", "num_groups"),
    configs=tuple(
        Config(dtype, global_scale, division)
        for dtype in ("bfloat16", "float16", "float32")
        for global_scale in (False, True)
        for division in ("divide", "reciprocal")
    ),
    supports=supports,
    shared_memory=lambda config: 0,
)
