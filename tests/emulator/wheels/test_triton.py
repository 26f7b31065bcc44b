"""Triton's AMD backend compiles for gfx950, and its code objects run on the emulator: no alarm, and torch's results."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import pytest
import torch

from tests.emulator.wheels.triton_driver import Launches, emulated_triton

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="triton is not installed; pip install 'msa-ops[public]'"
    ),
]
SEEDS = (None, 1, 2)


@pytest.fixture
def launches() -> Iterator[Launches]:
    with emulated_triton() as launches:
        yield launches


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def under_schedules(launches: Launches, call: Callable[[], torch.Tensor], expected: torch.Tensor, error: float) -> None:
    for launches.seed in SEEDS:
        torch.testing.assert_close(call().double(), expected.double(), rtol=error, atol=error)
    assert len(launches.reports) >= len(SEEDS)


def test_add(launches: Launches) -> None:
    from tests.emulator.wheels.triton_kernels import add

    x, y = randn(2, 5000)

    def call() -> torch.Tensor:
        out = torch.full_like(x, torch.nan)
        add[(5,)](x, y, out, 5000, SIZE=1024)
        return out

    under_schedules(launches, call, x + y, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rows(launches: Launches, dtype: torch.dtype) -> None:
    from tests.emulator.wheels.triton_kernels import layer_norm, softmax

    x, (weight, bias) = randn(5, 1000, dtype=dtype), randn(2, 1000)
    error = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]

    def call_softmax() -> torch.Tensor:
        out = torch.full_like(x, torch.nan)
        softmax[(5,)](x, out, 1000, SIZE=1024)
        return out

    def call_norm() -> torch.Tensor:
        out = torch.full_like(x, torch.nan)
        layer_norm[(5,)](x, weight, bias, out, 1000, 1e-5, SIZE=1024)
        return out

    under_schedules(launches, call_softmax, x.double().softmax(-1), error)
    wide = (x.double(), (1000,), weight.double(), bias.double(), 1e-5)
    under_schedules(launches, call_norm, torch.nn.functional.layer_norm(*wide), error)


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
)
def test_matmul(launches: Launches, dtype: torch.dtype, warps: int) -> None:
    from tests.emulator.wheels.triton_kernels import matmul

    m, n, k = 200, 120, 264
    a, b = randn(m, k).to(dtype), randn(k, n).to(dtype)

    def call() -> torch.Tensor:
        c = torch.full((m, n), torch.nan)
        matmul[(4, 2)](a, b, c, m, n, k, ROWS=64, COLUMNS=64, DEPTH=64, num_warps=warps)
        return c

    under_schedules(launches, call, a.double() @ b.double(), 1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_attention(launches: Launches, dtype: torch.dtype) -> None:
    from tests.emulator.wheels.triton_kernels import attention

    q, k, v = randn(3, 2, 300, 64, dtype=dtype)

    def call() -> torch.Tensor:
        out = torch.full_like(q, torch.nan)
        attention[(5, 2)](q, k, v, out, 300, 0.125, D=64, ROWS=64, KEYS=64)
        return out

    wide = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    under_schedules(launches, call, wide, 0.02)


def test_atomics_sorting_and_sums(launches: Launches) -> None:
    from tests.emulator.wheels.triton_kernels import histogram, sort_and_sum

    x, rows = torch.arange(3000, dtype=torch.int32) ** 2 % 37, torch.randint(1000, (3, 256), dtype=torch.int32)
    for launches.seed in SEEDS:
        counts, ordered, sums = torch.zeros(37, dtype=torch.int32), torch.zeros_like(rows), torch.zeros_like(rows)
        histogram[(3,)](x, counts, 3000, SIZE=1024)
        sort_and_sum[(3,)](rows, ordered, sums, SIZE=256)
        assert (counts == torch.bincount(x, minlength=37)).all()
        assert (ordered == rows.sort(-1).values).all()
        assert (sums == rows.cumsum(-1)).all()
