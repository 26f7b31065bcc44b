"""Importing the package is metadata only: no CUDA context, no kernel language, little time."""

from __future__ import annotations

import json
import os
import subprocess
import sys

FORBIDDEN = ("cutlass", "flydsl", "triton", "numpy", "safetensors", "tqdm", "transformers")

PROBE = """
import json, sys, time
start = time.perf_counter()
import torch
after_torch = time.perf_counter()
before = set(sys.modules)
import msa_ops
after = time.perf_counter()
print(json.dumps({
    "torch": after_torch - start,
    "msa_ops": after - after_torch,
    "new": sorted({name.split(".")[0] for name in set(sys.modules) - before}),
    "cuda": torch.cuda.is_initialized(),
    "ops": sorted(name for name in msa_ops.__all__ if hasattr(torch.ops.msa_ops, name)),
}))
"""


def probe() -> dict[str, object]:
    # With compiled bytecode, as an installed package has it, whatever this process was told.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout)


def test_import_is_lean() -> None:
    found = probe()
    assert found["cuda"] is False
    assert not set(FORBIDDEN) & set(found["new"]), found["new"]
    assert "rms_norm" in found["ops"]


def test_import_adds_at_most_150_ms_to_torch() -> None:
    """As a share of what torch itself takes, 0.9 s where the budget was set: 150 ms are a sixth of that."""
    runs = [probe() for _ in range(5)]
    share = min(run["msa_ops"] / run["torch"] for run in runs)
    assert share <= 0.150 / 0.9, f"importing msa_ops takes {share:.1%} of importing torch"
