"""moe against code that others wrote: MiniMax-M3 in transformers, and weights packed by compressed-tensors."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization.quant_scheme import preset_name_to_scheme
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from torch import Tensor
from transformers.models.minimax_m3_vl import MiniMaxM3VLTextConfig
from transformers.models.minimax_m3_vl.modeling_minimax_m3_vl import MiniMaxM3VLSparseMoeBlock

import msa_ops
from msa_ops.ops.moe import Args
from tests.contract.oracles import experts
from tests.contract.target import Target, assert_close

OP = "moe"
TOKENS, HIDDEN, INTERMEDIATE, EXPERTS, TOP_K = 13, 64, 96, 8, 4


@pytest.fixture(scope="module")
def block() -> torch.nn.Module:
    """A MoE block in fp32 with weights that reach the clips of the activation."""
    config = MiniMaxM3VLTextConfig(
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        shared_intermediate_size=160,
        num_local_experts=EXPERTS,
        num_experts_per_tok=TOP_K,
    )
    config._experts_implementation = "eager"
    found = MiniMaxM3VLSparseMoeBlock(config).float()
    generator = torch.Generator().manual_seed(0)
    for name, parameter in found.named_parameters():
        width = 0.4 if "gate_up" in name else 0.1
        parameter.data.normal_(0, width, generator=generator)
    found.gate.e_score_correction_bias.normal_(0, 0.2, generator=generator)
    return found


def inputs() -> Tensor:
    return torch.randn(TOKENS, HIDDEN, generator=torch.Generator().manual_seed(1))


def test_transformers_experts(target: Target, block: torch.nn.Module) -> None:
    x = inputs()
    with torch.no_grad():
        _, weights, ids = block.gate(x)
        ids[2, 1] = EXPERTS  # its mark for a slot without an expert
        expected = block.experts(x, ids, weights)
    w13, w2 = block.experts.gate_up_proj.data, block.experts.down_proj.data
    assert bool((torch.einsum("th,erh->etr", x, w13).abs() > 7).any()), "the clips are not reached"
    (out,) = target.run(Args(x, w13, w2, ids.int(), weights))
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=2e-5)


def test_transformers_block(target: Target, block: torch.nn.Module) -> None:
    """Router, experts, factor and shared expert, the latter as a mixture of one."""
    x = inputs()
    with torch.no_grad():
        expected = block(x[None])[0]
        logits = x @ block.gate.weight.T
    weights, ids = msa_ops.route_experts(
        logits, block.gate.e_score_correction_bias, top_k=TOP_K, scaling=block.routed_scaling_factor
    )
    (routed,) = target.run(Args(x, block.experts.gate_up_proj.data, block.experts.down_proj.data, ids, weights))
    shared_w13 = block.shared_experts.gate_up_proj.weight.data[None]
    shared_w2 = block.shared_experts.down_proj.weight.data[None]
    (shared,) = target.run(
        Args(x, shared_w13, shared_w2, torch.zeros(TOKENS, 1, dtype=torch.int32), torch.ones(TOKENS, 1))
    )
    torch.testing.assert_close(routed + shared, expected, rtol=1e-5, atol=5e-5)


def packed(weight: Tensor, scheme_name: str, divisor: Tensor | None = None) -> dict[str, Tensor]:
    """A weight as compressed-tensors writes it, with its own scales; `divisor` is a weight_global_scale of NVFP4."""
    scheme = preset_name_to_scheme(scheme_name, ["Linear"])
    groups = weight.unflatten(-1, (-1, scheme.weights.group_size))
    scale, _ = calculate_qparams(groups.amin(-1), groups.amax(-1), scheme.weights, global_scale=divisor)
    state = {"weight": weight, "weight_scale": scale}
    if divisor is not None:
        state["weight_global_scale"] = divisor
    name = {"NVFP4": "nvfp4-pack-quantized", "MXFP4": "mxfp4-pack-quantized", "MXFP8": "mxfp8-quantized"}[scheme_name]
    written = BaseCompressor.get_value_from_registry(name).compress(state, scheme)
    read = BaseCompressor.get_value_from_registry(name).decompress(written, scheme)["weight"]
    return {
        "codes": written.get("weight_packed", written.get("weight")),
        "scale": written["weight_scale"],
        "read": read.float(),
    }


def routed() -> SimpleNamespace:
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(TOKENS, EXPERTS, generator=generator)
    weights, ids = msa_ops.route_experts(logits, top_k=TOP_K)
    w1, w3 = (torch.randn(EXPERTS, INTERMEDIATE, HIDDEN, generator=generator) * 0.3 for _ in range(2))
    w2 = torch.randn(EXPERTS, HIDDEN, INTERMEDIATE, generator=generator) * 0.02
    return SimpleNamespace(x=inputs(), ids=ids, weights=weights, w1=w1, w2=w2, w3=w3)


def close_to_its_own_reader(out: Tensor, data: SimpleNamespace, w13: Tensor, w2: Tensor) -> None:
    """Against a mixture of the values that compressed-tensors reads back (in bf16), so within bf16's accuracy."""
    expected = experts.moe(Args(data.x, w13, w2, data.ids, data.weights))
    error = (out.double() - expected).norm() / expected.norm()
    assert error < 2.0**-7, f"relative error {error:.4f}"


@pytest.mark.parametrize("shared_divisor", [True, False])
def test_compressed_tensors_nvfp4(target: Target, shared_divisor: bool) -> None:
    """weight_global_scale divides: the multiplier of this op is its inverse, one for gate and up or one for each."""
    data = routed()
    experts_w13, experts_w2 = [], []
    for expert in range(EXPERTS):
        gate, up, down = data.w1[expert], data.w3[expert] * 3.0, data.w2[expert]
        divisors = [generate_gparam(w.amin(), w.amax()) for w in (gate, up, down)]
        if shared_divisor:
            divisors[0] = divisors[1] = torch.minimum(divisors[0], divisors[1])
        parts = [packed(w, "NVFP4", d) | {"divisor": d} for w, d in zip((gate, up, down), divisors, strict=True)]
        experts_w13.append({key: torch.cat((parts[0][key], parts[1][key])) for key in parts[0]})
        experts_w2.append(parts[2])

    def stacked(parts: list[dict[str, Tensor]], key: str) -> Tensor:
        return torch.stack([part[key] for part in parts])

    multipliers = 1.0 / stacked(experts_w13, "divisor")
    assert bool((multipliers.log2() % 1 != 0).all()), "the test needs scales that are no powers of two"
    args = Args(
        data.x,
        stacked(experts_w13, "codes"),
        stacked(experts_w2, "codes"),
        data.ids,
        data.weights,
        weight_format="nvfp4",
        w13_scale=stacked(experts_w13, "scale"),
        w2_scale=stacked(experts_w2, "scale"),
        w13_global_scale=multipliers[:, 0].contiguous() if shared_divisor else multipliers,
        w2_global_scale=1.0 / stacked(experts_w2, "divisor")[:, 0],
    )
    assert args.w13_scale.dtype == torch.float8_e4m3fn
    (out,) = target.run(args)
    assert_close(out, experts.moe(args), target.spec.tolerance(args)[0])
    close_to_its_own_reader(out, data, stacked(experts_w13, "read"), stacked(experts_w2, "read"))


@pytest.mark.parametrize(("scheme", "weight_format"), [("MXFP4", "mxfp4"), ("MXFP8", "mxfp8")])
def test_compressed_tensors_mx(target: Target, scheme: str, weight_format: str) -> None:
    data = routed()
    w13 = packed(torch.cat((data.w1, data.w3), 1).flatten(0, 1), scheme)
    w2 = packed(data.w2.flatten(0, 1), scheme)
    w13, w2 = ({key: part.unflatten(0, (EXPERTS, -1)) for key, part in parts.items()} for parts in (w13, w2))
    args = Args(
        data.x,
        w13["codes"],
        w2["codes"],
        data.ids,
        data.weights,
        weight_format=weight_format,
        w13_scale=w13["scale"],
        w2_scale=w2["scale"],
    )
    (out,) = target.run(args)
    assert_close(out, experts.moe(args), target.spec.tolerance(args)[0])
    close_to_its_own_reader(out, data, w13["read"], w2["read"])
