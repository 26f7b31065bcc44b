"""Nominal peaks of chips that need not be there, for `msa-ops roofline`. Dense rates, one GPU, from vendor documents.

Measured roofs are 80 to 95 % of these; a bench report never uses this table.
"""

from __future__ import annotations

import contextlib

from msa_ops.bench.decode import FormatError, suggest
from msa_ops.bench.roof import Roof
from msa_ops.registry import parse_platform

TERA = 1e12


def _chip(name: str, bandwidth: float, rates: dict[str, float], *sources: str) -> Roof:
    """Bandwidth in TB/s, rates in Tflop/s."""
    return Roof(
        name, {"nominal": bandwidth * TERA}, {key: rate * TERA for key, rate in rates.items()}, False, list(sources)
    )


_HOPPER = {"bf16": 989.5, "fp8": 1979.0}

CHIPS: dict[str, Roof] = {
    chip.name: chip
    for chip in (
        _chip("h100", 3.35, _HOPPER, "NVIDIA H100 Tensor Core GPU datasheet, SXM, sparse rates halved"),
        _chip("h200", 4.8, _HOPPER, "NVIDIA H200 Tensor Core GPU datasheet, SXM, sparse rates halved"),
        _chip(
            "b200",
            8.0,
            {"bf16": 2250.0, "fp8": 4500.0, "fp4": 9000.0},
            "NVIDIA DGX B200 datasheet (8 GPUs: 64 TB/s, 72 PF FP8 sparse, 72 PF FP4 dense)",
        ),
        _chip(
            "b300",
            8.0,
            {"bf16": 2250.0, "fp8": 4500.0, "fp4": 13500.0},
            "NVIDIA HGX B300 specifications (8 GPUs: 108 PF FP4 dense, 72 PF FP8 sparse, 36 PF BF16 sparse)",
        ),
        _chip(
            "rubin",
            22.0,
            {"bf16": 4000.0, "fp8": 17500.0, "fp4": 35000.0},
            "NVIDIA Vera Rubin NVL72 preliminary specifications, a GPU; FP4 is the rate stated for training",
        ),
        _chip(
            "mi350x",
            8.0,
            {"bf16": 2306.9, "fp8": 4613.7, "fp4": 9227.5},
            "AMD Instinct MI350X GPU datasheet, without sparsity (256 CUs x 8192 FP8 flop a clock x 2.2 GHz)",
        ),
        _chip(
            "mi355x",
            8.0,
            {"bf16": 2516.6, "fp8": 5033.2, "fp4": 10066.3},
            "AMD Instinct MI355X GPU datasheet, without sparsity (256 CUs x 8192 FP8 flop a clock x 2.4 GHz)",
        ),
    )
}

BY_ARCH = {"sm_90a": "h200", "sm_100a": "b200", "sm_103a": "b300", "sm_107a": "rubin", "gfx950": "mi355x"}
"""The chip meant by the name of an architecture."""


def chip(name: str) -> Roof:
    """Nominal roof of a chip, or of the chip meant by a name that `parse_platform` knows. Raises FormatError."""
    key = name.lower()
    if key not in CHIPS:
        with contextlib.suppress(ValueError):  # no name of a platform either
            key = BY_ARCH.get(parse_platform(name).arch, key)
    if key not in CHIPS:
        raise FormatError(f"--chip {name!r}: unknown{suggest(name, [*CHIPS, *BY_ARCH, 'this'])}")
    return CHIPS[key]
