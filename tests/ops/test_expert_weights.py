"""Values of one expert against ml_dtypes, and what each format counts."""

from __future__ import annotations

import pytest
import torch

from msa_ops.ops import expert_weights, moe_inputs
from tests.contract.oracles import experts


@pytest.mark.parametrize("weight_format", expert_weights.FORMATS)
@pytest.mark.parametrize("global_parts", [0, 1, 2])
def test_dequantize(weight_format: str, global_parts: int) -> None:
    """Exact, but for the product with a global scale, which is rounded to fp32 once."""
    generator = torch.Generator().manual_seed(0)
    parts = moe_inputs.weights(generator, (3, 10, 64), weight_format, torch.bfloat16, global_parts)
    expected = torch.from_numpy(experts.decode_weight(*parts, weight_format))
    assert expert_weights.columns(parts[0], weight_format) == 64
    for expert in range(3):
        values = expert_weights.dequantize(*parts, weight_format, expert)
        assert values.dtype == torch.float32
        assert torch.equal(values, expected[expert].float())


def test_bytes_of_expert() -> None:
    parts = moe_inputs.weights(torch.Generator().manual_seed(0), (3, 10, 64), "nvfp4", torch.bfloat16, 2)
    assert expert_weights.bytes_of_expert(*parts) == 10 * 32 + 10 * 4 + 8
