"""Kernels that Triton compiles to PTX: no alarm, and torch's results."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from msa_ops.emulator import run_ptx
from tests.emulator.wheels.session import SCHEDULES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None,
        reason="triton is not installed; pip install 'msa-ops[public]'",
    ),
]

CHIPS = {"sm_90a": 90, "sm_100a": 100}
TYPES = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.int32: "i32",
    torch.uint8: "u8",
    torch.float8_e4m3fn: "fp8e4nv",
}


def compiled(chip: str, name: str, arguments: Sequence[Any], constants: dict[str, Any], warps: int) -> Any:
    """What Triton makes for the chip, as it would for a call with these arguments."""
    compiler = importlib.import_module("triton.compiler")
    target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", CHIPS[chip], 32)
    function = getattr(importlib.import_module("tests.emulator.wheels.triton_ptx_kernels"), name)
    given = iter(arguments)
    kinds, hints = {}, {}
    for i, parameter in enumerate(function.arg_names):
        if parameter in constants:
            kinds[parameter] = "constexpr"
            continue
        value = next(given)
        is_tensor = isinstance(value, Tensor)
        kinds[parameter] = f"*{TYPES[value.dtype]}" if is_tensor else "i32" if isinstance(value, int) else "fp32"
        if is_tensor or (isinstance(value, int) and value % 16 == 0):
            hints[(i,)] = [["tt.divisibility", 16]]
    places = {(function.arg_names.index(key),): value for key, value in constants.items()}
    source = compiler.ASTSource(function, kinds, places, hints)
    return compiler.compile(source, target=target, options={"num_warps": warps})


def launch(
    chip: str,
    name: str,
    grid: tuple[int, int],
    arguments: Sequence[Any],
    check: Callable[[list[Any]], None],
    warps: int = 4,
    **constants: Any,
) -> None:
    """Runs the kernel under all schedules, each on copies of the arguments, which `check` looks at afterwards."""
    kernel = compiled(chip, name, arguments, constants, warps)
    text, about = kernel.asm["ptx"], kernel.metadata
    found = re.search(r"\.reqntid (\d+)", text)  # more than asked for, if Triton parts warps by roles
    threads = int(found.group(1)) if found else 32 * warps
    size = about.global_scratch_size * grid[0] * grid[1]  # where a kernel makes its tensor maps
    for seed in SCHEDULES:
        own = [value.clone() if isinstance(value, Tensor) else value for value in arguments]
        scratch = torch.empty(size + 128, dtype=torch.uint8)
        hidden = [scratch[-scratch.data_ptr() % 128 :] if size else None, None]
        run_ptx(
            text,
            about.name,
            grid,
            threads,
            [*own, *hidden],
            shared_memory=about.shared,
            chip=chip,
            seed=seed,
            max_instructions=20_000_000,
        )
        check(own)


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


def close(result: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(result.float(), expected.float(), atol=tolerance, rtol=tolerance)


@pytest.fixture(params=list(CHIPS))
def chip(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("warps", [1, 4, 8])
def test_softmax(chip: str, warps: int) -> None:
    x = randn(8, 777)
    launch(chip, "softmax", (8, 1), [x, torch.zeros_like(x), 777],
           lambda own: close(own[1], x.softmax(1), 1e-5), warps, BLOCK=1024)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn, torch.float32])
@pytest.mark.parametrize("warps", [4, 8])
def test_product(chip: str, dtype: torch.dtype, warps: int) -> None:
    """Tensor cores by wgmma and tcgen05; 200 x 176 x 144, which no tile divides."""
    a, b = randn(200, 144, dtype=dtype), randn(144, 176, dtype=dtype)
    out = torch.zeros(200, 176, dtype=torch.float16)
    expected = a.float() @ b.float()
    launch(chip, "product", (2, 2), [a, b, out, 200, 176, 144],
           lambda own: close(own[2], expected, 0.06), warps, BM=128, BN=128, BK=32)  # fmt: skip


@pytest.mark.parametrize("roles", [False, True])
def test_product_by_descriptors(chip: str, roles: bool) -> None:
    """Tensor maps that the kernel makes itself; with roles, warps that load, multiply and store."""
    a, b = randn(256, 192, dtype=torch.float16), randn(256, 192, dtype=torch.float16)
    expected = a.float() @ b.float().T
    launch(chip, "product_by_descriptors", (2, 2), [a, b, torch.zeros(256, 256, dtype=torch.float16), 256, 256, 192],
           lambda own: close(own[2], expected, 0.06), BM=128, BN=128, BK=64, ROLES=roles)  # fmt: skip


@pytest.mark.parametrize("warps", [4, 8])
def test_attention(chip: str, warps: int) -> None:
    q, k, v = (randn(2, 200, 64, dtype=torch.float16) + i for i in range(3))
    expected = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=True)
    launch(chip, "attention", (2, 2), [q, k, v, torch.zeros_like(q), 200, 0.125 * 1.4426950408889634],
           lambda own: close(own[3], expected, 0.01), warps, D=64, BM=128, BN=64)  # fmt: skip


def test_histogram(chip: str) -> None:
    x = torch.randint(0, 16, (1000,), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    expected = torch.bincount(torch.nn.functional.pad(x, (0, 24)), minlength=16)
    launch(chip, "histogram", (4, 1), [x, torch.zeros(16, dtype=torch.int32), 1000],
           lambda own: close(own[1], expected, 0), BLOCK=256, BINS=16)  # fmt: skip


def test_sums_and_order(chip: str) -> None:
    x = randn(512)

    def check(own: list[Any]) -> None:
        close(own[1], x.cumsum(0), 1e-4)
        close(own[2], x.sort().values, 0)

    launch(chip, "sums_and_order", (1, 1), [x, torch.zeros(512), torch.zeros(512)], check, BLOCK=512)


def test_blocks_that_wait_for_a_lock(chip: str) -> None:
    x = randn(4, 128)
    numbers = [torch.zeros(1, dtype=torch.int32) for _ in range(2)]
    launch(chip, "sum_behind_a_lock", (4, 1), [x, torch.zeros(128), *numbers],
           lambda own: close(own[1], x.sum(0), 1e-5), BLOCK=128)  # fmt: skip


def test_scaled_product(chip: str) -> None:
    """MXFP8: block-scaled tcgen05 on sm_100a, unpacked on sm_90a."""
    a, b = (randn(128, 128).add(i).to(torch.float8_e4m3fn) for i in range(2))
    scales = [torch.randint(120, 130, (128, 4), dtype=torch.uint8) for _ in range(2)]
    wide = [
        one.float() * torch.exp2(scale.float() - 127).repeat_interleave(32, 1)
        for one, scale in zip((a, b), scales, strict=True)
    ]
    expected = wide[0] @ wide[1].T
    launch(chip, "scaled_product", (1, 1), [a, b, *scales, torch.zeros(128, 128)],
           lambda own: close(own[4], expected, 0.01), M=128, N=128, K=128)  # fmt: skip


def test_print(chip: str, capfd: pytest.CaptureFixture[str]) -> None:
    launch(chip, "tell", (1, 1), [torch.arange(32, dtype=torch.int32)], lambda _: None, 1, BLOCK=32)
    lines = capfd.readouterr().out.splitlines()
    assert sorted(int(line.rpartition(": ")[2]) for line in lines) == sorted(list(range(32)) * len(SCHEDULES))
