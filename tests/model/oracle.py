"""transformers' text model as the oracle: the same geometry and weights, and what it computes.

Names are translated here once more, on purpose apart from the package's own table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.models.minimax_m3_vl import modeling_minimax_m3_vl as modeling
from transformers.models.minimax_m3_vl.configuration_minimax_m3_vl import MiniMaxM3VLTextConfig


def text_config(geometry: str, **changes: Any) -> MiniMaxM3VLTextConfig:
    """M3 (half of the layers attend densely) or M3.1 (all layers attend sparsely), scaled down."""
    layers = changes.pop("num_hidden_layers", 4)
    dense = layers // 2 if geometry == "m3" else 0
    return MiniMaxM3VLTextConfig(
        **{
            "vocab_size": 512,
            "hidden_size": 256,
            "intermediate_size": 96,
            "dense_intermediate_size": 384,
            "shared_intermediate_size": 128,
            "num_hidden_layers": layers,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "max_position_embeddings": 8192,
            "num_local_experts": 8,
            "num_experts_per_tok": 4,
            "routed_scaling_factor": 2.0,
            "rotary_dim": 64,
            "rope_parameters": {"rope_theta": 5e6, "partial_rotary_factor": 0.5, "rope_type": "default"},
            "mlp_layer_types": ["dense"] + ["sparse"] * (layers - 1),
            "layer_types": ["full_attention"] * dense + ["minimax_m3_sparse"] * (layers - dense),
            "index_n_heads": 4,
            "bos_token_id": None,
            "eos_token_id": None,
            "attn_implementation": "eager",
        }
        | changes
    )


def build(config: MiniMaxM3VLTextConfig, seed: int = 0) -> modeling.MiniMaxM3VLForCausalLM:
    """The model with random weights in fp32: norms and router biases that differ from their neutral values too."""
    torch.manual_seed(seed)
    model = modeling.MiniMaxM3VLForCausalLM(config).float().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith("inv_freq"):
                continue
            noise = torch.randn(tensor.shape, generator=generator)
            if name.endswith("norm.weight"):
                tensor.copy_(noise * 0.2)
            elif name.endswith("e_score_correction_bias"):
                tensor.copy_(noise * 0.1)
            elif name.endswith("embed_tokens.weight"):
                tensor.copy_(noise)
            else:
                tensor.copy_(noise / tensor.shape[-1] ** 0.5)
    return model


def checkpoint_tensors(model: modeling.MiniMaxM3VLForCausalLM) -> Iterator[tuple[str, Tensor]]:
    """The model's tensors under the names of checkpoints."""
    for name, tensor in model.state_dict().items():
        name = re.sub(r"\.self_attn\.indexer\.([qk])_(proj|norm)", r".self_attn.index_\1_\2", name)
        name = re.sub(r"\.mlp\.gate\.e_score", ".block_sparse_moe.e_score", name)
        name = re.sub(r"\.mlp\.(gate|experts|shared_experts)\b", r".block_sparse_moe.\1", name)
        if name.endswith(".experts.gate_up_proj"):
            for expert, matrix in enumerate(tensor):
                gate, up = matrix.chunk(2)
                stem = name.removesuffix("gate_up_proj")
                yield f"{stem}{expert}.w1.weight", gate
                yield f"{stem}{expert}.w3.weight", up
        elif name.endswith(".experts.down_proj"):
            for expert, matrix in enumerate(tensor):
                yield f"{name.removesuffix('down_proj')}{expert}.w2.weight", matrix
        elif name.endswith(".gate_up_proj.weight"):
            gate, up = tensor.chunk(2)
            stem = name.removesuffix("gate_up_proj.weight")
            yield f"{stem}gate_proj.weight", gate
            yield f"{stem}up_proj.weight", up
        else:
            yield name, tensor


@dataclass
class Run:
    """A prompt and tokens chosen greedily after it. logits: fp32 [T + n - 1, vocabulary], one row a computed token.

    block_ids: by layer int64 [T + n - 1, heads, k], ascending, with -1 for nothing at the left.
    """

    prompt: list[int]
    tokens: list[int]
    logits: Tensor
    block_ids: dict[int, Tensor]


@torch.no_grad()
def run(model: modeling.MiniMaxM3VLForCausalLM, prompt: list[int], new_tokens: int = 1) -> Run:
    """The prompt in one shot, then `new_tokens` greedy ones."""
    found: dict[int, list[Tensor]] = {}
    hooks = []
    for layer, block in enumerate(model.model.layers):
        if block.self_attn.indexer is not None:

            def keep(_module: object, _args: object, output: Tensor, layer: int = layer) -> None:
                found.setdefault(layer, []).append(output[0].transpose(0, 1))

            hooks.append(block.self_attn.indexer.register_forward_hook(keep))
    cache = DynamicCache(config=model.config)
    logits = [model(torch.tensor([prompt]), cache=cache, use_cache=True).logits[0]]
    tokens = [int(logits[0][-1].argmax())]
    while len(tokens) < new_tokens:
        logits.append(model(torch.tensor([tokens[-1:]]), cache=cache, use_cache=True).logits[0])
        tokens.append(int(logits[-1][-1].argmax()))
    for hook in hooks:
        hook.remove()
    block_ids = {layer: torch.cat(list(map(_sixteen, each))) for layer, each in found.items()}
    return Run(prompt, tokens, torch.cat(logits), block_ids)


def _sixteen(ids: Tensor) -> Tensor:
    padded = torch.nn.functional.pad(ids, (0, 16 - ids.shape[-1]), value=-1)
    return padded.sort(-1).values
