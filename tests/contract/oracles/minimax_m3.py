"""The projections of one attention layer as transformers' minimax_m3_vl computes them, up to what enters its caches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.models.minimax_m3_vl import modeling_minimax_m3_vl as m3
from transformers.models.minimax_m3_vl.configuration_minimax_m3_vl import MiniMaxM3VLTextConfig


@dataclass
class Layer:
    """A layer with random fp32 weights. rope_parameters as in the release: theta 5e6, half of the dimensions."""

    attention: m3.MiniMaxM3VLAttention
    rotary: m3.MiniMaxM3VLRotaryEmbedding

    @classmethod
    def make(cls, seed: int, hidden: int, heads: int, kv_heads: int, index_heads: int) -> Layer:
        config = MiniMaxM3VLTextConfig(
            hidden_size=hidden,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            num_hidden_layers=1,
            index_n_heads=index_heads,
            layer_types=["minimax_m3_sparse"],
            rope_parameters={"rope_type": "default", "rope_theta": 5e6, "partial_rotary_factor": 0.5},
        )
        torch.manual_seed(seed)
        attention = m3.MiniMaxM3VLAttention(config, 0)
        for norm in (attention.q_norm, attention.k_norm, attention.indexer.q_norm, attention.indexer.k_norm):
            torch.nn.init.normal_(norm.weight, std=0.2)
        return cls(attention.float().requires_grad_(False), m3.MiniMaxM3VLRotaryEmbedding(config))

    @property
    def qkv_weight(self) -> Tensor:
        a = self.attention
        projections = (a.q_proj, a.k_proj, a.v_proj, a.indexer.q_proj, a.indexer.k_proj)
        return torch.cat([projection.weight for projection in projections])

    def table(self, num_positions: int) -> Tensor:
        """cos | sin rows of all positions; transformers repeats each half."""
        cos, sin = self.rotary(torch.zeros(1), torch.arange(num_positions)[None])
        half = cos.shape[-1] // 2
        return torch.cat((cos[0, :, :half], sin[0, :, :half]), dim=-1)

    def rows(self, x: Tensor, positions: Tensor) -> dict[str, Tensor]:
        """q, k, v, index_q and index_k [T, heads, 128] of x [T, hidden]."""
        a, x = self.attention, x[None]

        def heads(projection: torch.nn.Linear) -> Tensor:
            return projection(x).view(1, x.shape[1], -1, 128)

        cos, sin = self.rotary(x, positions[None])
        found = {"v": heads(a.v_proj)}
        for prefix, part in (("", a), ("index_", a.indexer)):
            q, k = part.q_norm(heads(part.q_proj)).transpose(1, 2), part.k_norm(heads(part.k_proj)).transpose(1, 2)
            q, k = m3.apply_rotary_pos_emb(q, k, cos, sin)
            found[f"{prefix}q"], found[f"{prefix}k"] = q.transpose(1, 2), k.transpose(1, 2)
        return {name: value[0] for name, value in found.items()}
