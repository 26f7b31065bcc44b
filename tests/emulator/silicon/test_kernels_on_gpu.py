"""The compiled kernels on this machine's GPU and in the emulator: the same bits, or for matrix kernels the same within
the tolerance of the op. Without a GPU of an arch whose kernels this build holds there is nothing to compare.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from msa_ops.registry import STORE
from msa_ops.registry import platform as platforms
from tests.contract.target import Target, assert_close, targets

EXACT = ("quantize_nvfp4", "select_blocks", "qk_norm_rope_insert")
"""Ops whose kernels have no matrix instruction."""
SMALL: dict[str, dict[str, Any]] = {
    "quantize_nvfp4": {},
    "select_blocks": {"tokens": 5, "num_heads": 2, "max_blocks": 700},
    "qk_norm_rope_insert": {},
    "indexer": {"q_len": 3, "seq_len": 1500, "topk": 4, "num_heads": 2},
    "indexer_scores": {"q_len": 3, "seq_len": 1500, "num_heads": 2},
    "sparse_attention": {"batch": 2, "q_len": 2, "seq_len": 1500, "topk": 4},
}


def cases() -> list[Any]:
    """(op, backend, variant) of every backend with kernels that this GPU runs."""
    if not torch.cuda.is_available():
        return []
    arch = platforms.of_device(torch.device("cuda")).arch
    return [
        pytest.param(op, target.backend, variant, id=f"{op}-{target.backend}-{variant}")
        for op in SMALL
        for target in targets(op)
        if target.chip == arch
        for variant in STORE.op(op).variants
    ]


def written(target: Target, args: Any) -> list[Tensor]:
    results = list(target.run(args))
    return results + [value for name in target.spec.mutates if (value := getattr(args, name)) is not None]


@pytest.mark.parametrize(("op", "backend", "variant"), cases())
def test_same_results(op: str, backend: str, variant: str) -> None:
    spec = STORE.op(op)
    arch = platforms.of_device(torch.device("cuda")).arch
    both = []
    for target in (Target(op, backend, "cuda"), Target(op, backend, "cpu", arch)):
        both.append(written(target, spec.generate(17, device="cpu", variant=variant, **SMALL[op])))
    args = spec.generate(17, device="cpu", variant=variant, **SMALL[op])
    tolerances = [*spec.tolerance(args), *[None] * len(both[0])]
    for real, emulated, tolerance in zip(*both, tolerances, strict=False):
        one, other = (value.contiguous().view(torch.uint8) for value in (real, emulated))
        same = torch.equal(one, other)
        if op in EXACT or tolerance is None:
            assert same, f"{int((one != other).sum())} of {one.numel()} bytes differ"
        elif not same:
            equal = (real == emulated) | (real.isnan() & emulated.isnan())
            print(f"{op} {backend} {variant}: {float(equal.float().mean()):.4%} of the elements equal")
            assert_close(emulated, real, tolerance)
