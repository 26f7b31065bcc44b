"""quack-kernels: no alarm, and torch's results."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from msa_ops.emulator import JitSession
from tests.emulator.wheels.session import poisoned, under_schedules

pytestmark = [
    pytest.mark.slow,
    # Looked for, not imported: collecting tests must not load CuTe-DSL into a process that may need another LLVM.
    pytest.mark.skipif(
        importlib.util.find_spec("quack") is None,
        reason="quack-kernels is not installed; pip install 'msa-ops[public]'",
    ),
]


ROWS = [(5, 256), (3, 4096), (2, 32768)]
"""Rows of one warp, of several, and of a cluster."""


def randn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to("cuda", dtype)


@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_softmax(session: JitSession, rows: int, columns: int) -> None:
    from quack.softmax import softmax_fwd

    x = randn(rows, columns) * 3
    expected = torch.softmax(x.float(), -1).bfloat16()
    under_schedules(
        session, lambda: softmax_fwd(x), lambda out: torch.testing.assert_close(out, expected, rtol=0.01, atol=1e-6)
    )


@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_softmax_backward(session: JitSession, rows: int, columns: int) -> None:
    from quack.softmax import softmax_bwd

    y, dy = torch.softmax(randn(rows, columns).float(), -1).bfloat16(), randn(rows, columns)
    wide = y.float()
    expected = wide * (dy.float() - (wide * dy.float()).sum(-1, keepdim=True))
    under_schedules(
        session,
        lambda: softmax_bwd(dy, y),
        lambda dx: torch.testing.assert_close(dx.float(), expected, rtol=0.02, atol=1e-4),
    )


@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_rmsnorm(session: JitSession, rows: int, columns: int) -> None:
    from quack.rmsnorm import rmsnorm_fwd

    x, weight = randn(rows, columns), randn(columns, dtype=torch.float32)
    expected = torch.nn.functional.rms_norm(x.double(), (columns,), weight.double(), 1e-6).bfloat16()
    under_schedules(
        session,
        lambda: rmsnorm_fwd(x, weight)[0],
        lambda out: torch.testing.assert_close(out, expected, rtol=0.01, atol=1e-6),
    )


@pytest.mark.parametrize(("rows", "columns"), ROWS)
def test_cross_entropy(session: JitSession, rows: int, columns: int) -> None:
    from quack.cross_entropy import cross_entropy_fwd

    x = randn(rows, columns) * 3
    target = torch.randint(columns, (rows,), generator=torch.Generator().manual_seed(1)).to("cuda")
    wide = x.float().requires_grad_()
    expected = torch.nn.functional.cross_entropy(wide, target, reduction="none")
    expected.sum().backward()

    def check(results: tuple[torch.Tensor, ...]) -> None:
        loss, lse, dx = results
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(lse, torch.logsumexp(x.float(), -1), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(dx.float(), wide.grad, rtol=0.01, atol=1e-5)

    under_schedules(session, lambda: cross_entropy_fwd(x, target, return_lse=True, return_dx=True), check)


def test_topk(session: JitSession) -> None:
    from quack.topk import topk_fwd

    x, k = randn(5, 256, dtype=torch.float32), 16
    expected = torch.topk(x, k).values

    def check(results: tuple[torch.Tensor, ...]) -> None:
        values, indices = results
        # The kernel keeps an element's place in the low bits of its value.
        torch.testing.assert_close(values, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(x.gather(1, indices.long()), expected, rtol=1e-4, atol=1e-4)

    under_schedules(session, lambda: topk_fwd(x, k), check)


@pytest.mark.parametrize(("m", "n", "k"), [(256, 512, 192), (136, 264, 72)])
def test_gemm(session: JitSession, m: int, n: int, k: int) -> None:
    from quack.gemm_interface import gemm

    # Whole numbers, so that every order of sums is exact.
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-2, 3, shape, generator=generator).to("cuda", torch.bfloat16) for shape in ((m, k), (n, k)))
    expected = a.float() @ b.float().mT
    out = poisoned(m, n, dtype=torch.bfloat16)
    under_schedules(
        session,
        lambda: gemm(a, b.mT, out=out.fill_(torch.nan), tuned=False),
        lambda result: torch.testing.assert_close(result.float(), expected, rtol=0, atol=0),
    )
