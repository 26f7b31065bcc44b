"""Run by `.ci/wheel-test` in an environment with torch and the wheel alone: every op, from the installed package."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import torch

import msa_ops
from msa_ops import _C
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

# Host launchers run without a device, and launch what their metadata says.
file = Path(msa_ops.__file__).parent / "kernels.json"
kernels = json.loads(file.read_text()) if file.exists() else []
assert sorted(kernel["name"] for kernel in kernels) == sorted(
    name for name, _ in _C.compiled_kernels() + _C.code_objects()
)
code_objects = {name for name, _ in _C.code_objects()}
for kernel in kernels:
    if kernel["name"] in code_objects:  # for AMD chips: no host launcher
        position = _C.find_code_object(kernel["name"])
        found = _C.code_object(position)
        assert found["arch"] == kernel["arch"] and found["code"][:4] == b"\x7fELF", kernel["name"]
        assert _C.kernel_arguments(position, [1 << 20] * len(kernel["arguments"])), kernel["name"]
        continue
    launches = _C.record_launch(_C.find_kernel(kernel["name"]), [1 << 20] * len(kernel["arguments"]))
    assert launches, kernel["name"]
    for launch in launches:
        assert launch.dynamic_shared_memory == kernel["dynamic_shared_memory"], kernel["name"]
        assert max(launch.block) <= 1024 and min(launch.block) >= 1, kernel["name"]

print(f"{len(kernels)} compiled kernels: {', '.join(sorted({k['arch'] for k in kernels})) or 'none'}")
print(f"msa_ops {msa_ops.__version__}: {len(STORE.ops())} ops ran with torch {torch.__version__} alone")
print(f"{len(STORE.ops())} passed, 0 failed")
