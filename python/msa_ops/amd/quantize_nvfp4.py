"""quantize_nvfp4 on CDNA4."""

from __future__ import annotations

from torch import Tensor

from msa_ops.amd.launch import launch
from msa_ops.flydsl.quantize_nvfp4 import gfx950_configs as kernel  # type: ignore[import-untyped]
from msa_ops.launch_arguments import bits, pointer, require_aligned
from msa_ops.ops.quantize_nvfp4 import Args
from msa_ops.ops.scaled import short

THREADS = kernel.FAMILY.configs[0].threads


def gfx950(a: Args, outs: tuple[Tensor, ...]) -> None:
    """Target of the backend "flydsl_gfx950"."""
    codes, scales = outs
    if codes.numel() == 0:
        return
    require_aligned("x", a.x)
    require_aligned("codes", codes)
    groups = scales.numel()
    launch(
        f"quantize_nvfp4__{short(a.x.dtype)}_{'plain' if a.global_scale is None else 'global'}_{a.division}__gfx950",
        a.x.device,
        -(-groups // THREADS),
        pointer(a.x),
        pointer(codes),
        pointer(scales),
        pointer(a.global_scale),
        bits(a.scale_floor),
        groups,
    )
