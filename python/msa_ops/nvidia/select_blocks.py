"""select_blocks on Hopper."""

from __future__ import annotations

from torch import Tensor

from msa_ops.cute.select_blocks import sm90_configs as kernel  # type: ignore[import-untyped]
from msa_ops.nvidia.launch import launch, pointer
from msa_ops.ops.select_blocks import Args


def sm90(a: Args, outs: tuple[Tensor, ...]) -> None:
    """Target of the backend "cute_sm90"."""
    width = a.scores.shape[2]
    start(a, outs, next(config for config in kernel.CONFIGS if width <= config.capacity))


def start(a: Args, outs: tuple[Tensor, ...], config: kernel.Config) -> None:
    """Launches one configuration."""
    tokens, heads, width = a.scores.shape
    if tokens * heads == 0:
        return
    ids = outs[0] if a.topk_layout == "THK" else outs[0].transpose(0, 1)
    launch(
        f"select_blocks__{config.name}__sm_90a",
        a.scores.device,
        pointer(a.scores),
        pointer(a.num_blocks),
        pointer(outs[0]),
        a.num_blocks.stride(0),
        a.scores.stride(0),
        a.scores.stride(1),
        ids.stride(0),
        ids.stride(1),
        tokens,
        heads,
        width,
        a.topk,
        min(a.init_blocks, a.topk),
        min(a.local_blocks, a.topk),
    )
