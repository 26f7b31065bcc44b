"""quantize_nvfp4 on Hopper."""

from __future__ import annotations

from torch import Tensor

from msa_ops.nvidia.launch import bits, launch, pointer, require_aligned
from msa_ops.ops.quantize_nvfp4 import Args
from msa_ops.ops.scaled import short


def sm90(a: Args, outs: tuple[Tensor, ...]) -> None:
    """Target of the backend "cute_sm90"."""
    codes, scales = outs
    if codes.numel() == 0:
        return
    require_aligned("x", a.x)
    require_aligned("codes", codes)
    kind = "plain" if a.global_scale is None else "global"
    launch(
        f"quantize_nvfp4__{short(a.x.dtype)}_{kind}_{a.division}__sm_90a",
        a.x.device,
        pointer(a.x),
        pointer(codes),
        pointer(scales),
        pointer(a.global_scale),
        bits(a.scale_floor),
        scales.numel(),
    )
