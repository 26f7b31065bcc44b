"""Run by `.ci/wheel-test` in an environment with torch and the wheel alone: every op, from the installed package."""

from __future__ import annotations

import importlib.util

import torch

import msa_ops
from msa_ops.registry import STORE

for absent in ("numpy", "safetensors", "tqdm", "pytest"):
    assert importlib.util.find_spec(absent) is None, f"{absent} is installed; this environment should hold torch alone"

for op in STORE.ops():
    args = STORE.op(op).generate(0)
    values = {name: getattr(args, name) for name in args.__dataclass_fields__}
    results = getattr(torch.ops.msa_ops, op).default(**values)
    results = (results,) if isinstance(results, torch.Tensor) else results
    for result, expected in zip(results, STORE.op(op).meta(args), strict=True):
        assert result.shape == expected.shape and result.dtype == expected.dtype, op

print(f"msa_ops {msa_ops.__version__}: {len(STORE.ops())} ops ran with torch {torch.__version__} alone")
print(f"{len(STORE.ops())} passed, 0 failed")
