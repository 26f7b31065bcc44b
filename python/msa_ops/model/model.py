"""The decoder: embedding, layers, norm, and logits. M3 and M3.1 differ in the config alone."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

import msa_ops
from msa_ops.model import names
from msa_ops.model.config import ModelConfig
from msa_ops.model.kv import Batch, KVCache
from msa_ops.model.layers import DecoderLayer, Observer
from msa_ops.model.weights import Linear, WeightFormat


class Model(nn.Module):
    """A MiniMax-M3 or M3.1 text model for inference. All tensors are buffers; `load` fills them.

    formats: the storage format of each module that `names.parts` calls a group; None stores all as plain values.
    max_seq_len: positions for which the RoPE table is made; 32,768, or the config's limit if that is lower, if None.
    """

    embedding: Tensor
    norm: Tensor
    cos_sin: Tensor

    def __init__(
        self,
        config: ModelConfig,
        formats: Mapping[str, WeightFormat] | None = None,
        *,
        dtype: torch.dtype | None = None,
        device: str | torch.device = "cpu",
        max_seq_len: int | None = None,
    ) -> None:
        super().__init__()
        if max_seq_len is None:
            max_seq_len = min(config.max_position, 32768)
        if not 1 <= max_seq_len <= config.max_position:
            raise ValueError(
                f"max_seq_len: {max_seq_len}; accepted: 1 to max_position_embeddings, {config.max_position}"
            )
        self.config = config
        self.dtype = dtype or getattr(torch, config.dtype)
        if formats is None:
            formats = {part.group: WeightFormat.NONE for part in names.parts(config)}
        self.register_buffer(
            "embedding", torch.empty(config.vocab_size, config.hidden_size, dtype=self.dtype, device=device)
        )
        self.layers = nn.ModuleList(
            DecoderLayer(config, layer, formats, self.dtype, device) for layer in range(config.num_layers)
        )
        self.register_buffer("norm", torch.empty(config.hidden_size, dtype=torch.float32, device=device))
        self.lm_head = (
            None
            if config.tied_embeddings
            else Linear(config.vocab_size, config.hidden_size, formats["lm_head"], self.dtype, device)
        )
        self.register_buffer("cos_sin", rope_table(config, max_seq_len).to(device), persistent=False)

    @property
    def max_seq_len(self) -> int:
        return self.cos_sin.shape[0]

    @torch.inference_mode()
    def forward(self, batch: Batch, cache: KVCache, observe: Observer | None = None) -> Tensor:
        """Final hidden states [T, hidden] of the batch's tokens, whose keys and values go into the cache."""
        delta = functional.embedding(batch.tokens, self.embedding)
        residual = torch.zeros_like(delta)
        for layer in self.layers:
            delta = layer(delta, residual, self.cos_sin, batch, cache, observe)
        return msa_ops.rms_norm(delta, self.norm, eps=self.config.rms_norm_eps, residual=residual)

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """fp32 [n, vocabulary] of hidden states [n, hidden]."""
        matrix = self.embedding if self.lm_head is None else self.lm_head.dequantize(0)
        return functional.linear(hidden, matrix).float()


def rope_table(config: ModelConfig, positions: int) -> Tensor:
    """fp32 [positions, rotary_dim]: cosines, then sines, of position * theta^(-2i / rotary_dim).

    Frequencies and angles are rounded to fp32, as in training; fp64 would turn far positions by another angle.
    Source: Su et al., RoFormer, 2021, section 3.2.2.
    """
    exponents = torch.arange(0, config.rotary_dim, 2, dtype=torch.float32) / config.rotary_dim
    frequencies = 1.0 / (config.rope_theta**exponents)
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * frequencies
    return torch.cat((angles.cos(), angles.sin()), dim=-1)
