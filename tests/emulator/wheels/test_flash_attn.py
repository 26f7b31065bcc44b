"""flash-attn-4: no alarm, and torch's results."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from msa_ops.emulator import JitSession
from tests.emulator.wheels.session import under_schedules

pytestmark = [
    pytest.mark.slow,
    # Looked for, not imported: collecting tests must not load CuTe-DSL into a process that may need another LLVM.
    pytest.mark.skipif(
        importlib.util.find_spec("flash_attn") is None,
        reason="flash-attn-4 is not installed; pip install 'msa-ops[public]'",
    ),
]


CASES = {
    "causal": (256, 384, 2, 1, 128, True),
    "full": (200, 136, 1, 1, 64, False),
    "one query": (1, 520, 8, 1, 128, True),
}


@pytest.mark.parametrize("case", CASES)
def test_forward(session: JitSession, case: str) -> None:
    from flash_attn.cute.interface import flash_attn_func

    queries, keys, heads, kv_heads, head_dim, causal = CASES[case]
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(1, length, number, head_dim, generator=generator).to("cuda", torch.bfloat16)
        for length, number in ((queries, heads), (keys, kv_heads), (keys, kv_heads))
    )
    wide = [x.float().transpose(1, 2) for x in (q, k, v)]
    mask = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries) if causal else None
    expected = torch.nn.functional.scaled_dot_product_attention(*wide, attn_mask=mask, enable_gqa=True).transpose(1, 2)

    def check(results: tuple[torch.Tensor, ...]) -> None:
        torch.testing.assert_close(results[0].float(), expected, rtol=0.02, atol=0.01)

    under_schedules(session, lambda: flash_attn_func(q, k, v, causal=causal, return_lse=True), check)


@pytest.mark.parametrize("causal", [True, False])
def test_backward(session: JitSession, causal: bool) -> None:
    from flash_attn.cute.interface import flash_attn_func

    length, heads, kv_heads, head_dim = 256, 2, 1, 128
    generator = torch.Generator().manual_seed(0)
    q, k, v, gradient = (
        torch.randn(1, length, number, head_dim, generator=generator).to("cuda", torch.bfloat16)
        for number in (heads, kv_heads, kv_heads, heads)
    )
    wide = [x.float().transpose(1, 2).clone().requires_grad_() for x in (q, k, v)]
    torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=causal, enable_gqa=True).backward(
        gradient.float().transpose(1, 2)
    )

    def call() -> list[torch.Tensor | None]:
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        result = flash_attn_func(*leaves, causal=causal)
        (result[0] if isinstance(result, tuple) else result).backward(gradient)
        return [leaf.grad for leaf in leaves]

    def check(gradients: list[torch.Tensor | None]) -> None:
        for found, expected in zip(gradients, wide, strict=True):
            assert found is not None and expected.grad is not None
            torch.testing.assert_close(found.float(), expected.grad.transpose(1, 2), rtol=0.03, atol=0.03)

    under_schedules(session, call, check)
