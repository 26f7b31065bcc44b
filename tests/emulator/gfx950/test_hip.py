"""Kernels in HIP, compiled by the clang of our build extra (no ROCm, no headers): code objects of versions 4 to 6."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest
import torch

from msa_ops.build import toolchain
from msa_ops.emulator import run_gfx950

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed; pip install 'msa-ops[build]'"
)
SOURCE = Path(__file__).with_name("kernels.hip")
HIP = "clang -x hip --cuda-device-only --offload-arch=gfx950 -nogpuinc -nogpulib -S".split()
ASSEMBLE = "clang -target amdgcn-amd-amdhsa -mcpu=gfx950 -x assembler -c".split()


@pytest.fixture(scope="module", params=[("-O1", 5), ("-O3", 4), ("-O3", 6)], ids=lambda p: f"{p[0]}-v{p[1]}")
def code(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    optimised, version = request.param
    text = tmp_path_factory.mktemp("hip") / "kernels.s"
    compiler, linked = str(toolchain.zig()), text.with_suffix(".o")
    options = [optimised, f"-mcode-object-version={version}"]
    subprocess.run([compiler, *HIP, *options, str(SOURCE), "-o", str(text)], check=True)
    subprocess.run([compiler, *ASSEMBLE, str(text), "-o", str(linked)], check=True)
    return linked.read_bytes()


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_results(code: bytes, seed: int | None) -> None:
    random = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 1000, generator=random)
    expected = y + 2 * x
    run_gfx950(code, "saxpy", 8, 128, [2.0, x, y, 1000], seed=seed)
    torch.testing.assert_close(y, expected)

    total = torch.zeros(1)
    run_gfx950(code, "total", 4, 256, [x, total, 1000], seed=seed)
    torch.testing.assert_close(total[0], x.sum(), rtol=1e-4, atol=1e-4)

    square, turned = torch.randn(64, 64, generator=random), torch.zeros(64, 64)
    run_gfx950(code, "transpose", 16, 256, [square, turned, 64], seed=seed)
    assert (turned == square.T).all()

    a, b = torch.randn(2, 16, 128, generator=random).bfloat16()
    c = torch.zeros(16, 16)
    run_gfx950(code, "product", 1, 64, [a, b, c, 128], seed=seed)
    torch.testing.assert_close(c.double(), a.double() @ b.double().T, rtol=1e-4, atol=1e-4)
