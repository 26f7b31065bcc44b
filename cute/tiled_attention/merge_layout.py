"""Configurations of the kernel that merges parts of attention results. Pure Python."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msa_ops.registry import Refusal
from msa_ops.registry.platform import Platform

THREADS = 256
ARGUMENTS = (
    "partial_out",
    "partial_lse",
    "ways",
    "v_scale",
    "out",
    "lse",
    "tokens",
    "num_kv_heads",
    "head_begin",
    "all_kv_heads",
    "group",
    "parts",
)


@dataclass(frozen=True)
class Config:
    """kv_format: of the cache; it says of which type the parts are and in which order their dims stand."""

    kv_format: str

    @property
    def name(self) -> str:
        return f"merge_{self.kv_format}"


def shared_memory(config: Config) -> int:
    return 4096


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    return ()


CONFIGS = tuple(Config(kv_format) for kv_format in ("nvfp4", "fp8", "bf16"))
