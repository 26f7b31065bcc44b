"""The layers of the decoder. All arithmetic but the plain projections and the router's goes through `msa_ops`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

import msa_ops
from msa_ops.cache.page import HEAD_DIM
from msa_ops.model.config import ModelConfig
from msa_ops.model.kv import Batch, KVCache
from msa_ops.model.weights import Linear, Matrices, WeightFormat

Observer = Callable[[int, str, Tensor, Batch], None]
"""Called with the layer, a name ("block_ids", "expert_ids"), the tensor and the batch; for reports and tests."""


def _vector(size: int, device: str | torch.device) -> Tensor:
    """Norm weights and biases are held in fp32, which represents every checkpoint dtype exactly."""
    return torch.empty(size, dtype=torch.float32, device=device)


class Attention(nn.Module):
    """Grouped-query attention with per-head norms and partial RoPE, over selected blocks or over all keys."""

    q_norm: Tensor
    k_norm: Tensor
    index_q_norm: Tensor
    index_k_norm: Tensor

    def __init__(
        self,
        config: ModelConfig,
        layer: int,
        formats: Mapping[str, WeightFormat],
        dtype: torch.dtype,
        device: str | torch.device,
    ) -> None:
        super().__init__()
        self.config, self.layer, self.sparse = config, layer, config.sparse_layers[layer]
        heads = config.num_heads + 2 * config.num_kv_heads + (config.num_index_heads + 1 if self.sparse else 0)
        path = f"layers.{layer}.attention"
        self.qkv = Linear(heads * HEAD_DIM, config.hidden_size, formats[f"{path}.qkv"], dtype, device)
        self.out = Linear(config.hidden_size, config.num_heads * HEAD_DIM, formats[f"{path}.out"], dtype, device)
        for name in ("q_norm", "k_norm") + (("index_q_norm", "index_k_norm") if self.sparse else ()):
            self.register_buffer(name, _vector(HEAD_DIM, device))

    def forward(self, x: Tensor, cos_sin: Tensor, batch: Batch, cache: KVCache, observe: Observer | None) -> Tensor:
        config = self.config
        main, index = cache.main[self.layer], cache.index[self.layer]
        q, index_q = msa_ops.qkv_insert(
            x,
            self.qkv.values[0],
            self.q_norm,
            self.k_norm,
            cos_sin,
            batch.positions,
            batch.slot_mapping,
            main,
            qkv_weight_scale=None if self.qkv.scale is None else self.qkv.scale[0],
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            num_index_heads=config.num_index_heads if self.sparse else 0,
            index_q_weight=self.index_q_norm if self.sparse else None,
            index_k_weight=self.index_k_norm if self.sparse else None,
            index_cache=index,
            kv_format=cache.kv_format,
            index_format=cache.index_format,
            eps=config.rms_norm_eps,
        )
        lengths = (batch.block_table, batch.seq_lens, batch.cu_seqlens_q)
        if index is None:
            out = msa_ops.dense_attention(
                q,
                main,
                *lengths,
                num_kv_heads=config.num_kv_heads,
                kv_format=cache.kv_format,
                rounding=cache.rounding,
                max_seqlen_q=batch.max_seqlen_q,
            )
            return self.out(out.flatten(1))
        block_ids = msa_ops.indexer(
            index_q,
            index,
            *lengths,
            topk=config.topk_blocks,
            init_blocks=config.init_blocks,
            local_blocks=config.local_blocks,
            index_format=cache.index_format,
            rounding=cache.rounding,
            max_seqlen_q=batch.max_seqlen_q,
        )
        if observe is not None:
            observe(self.layer, "block_ids", block_ids, batch)
        out = msa_ops.sparse_attention(
            q,
            main,
            block_ids,
            *lengths,
            num_kv_heads=config.num_kv_heads,
            kv_format=cache.kv_format,
            rounding=cache.rounding,
            max_seqlen_q=batch.max_seqlen_q,
        )
        return self.out(out.flatten(1))


class Experts(nn.Module):
    """Gated MLPs of one size: the routed experts, or a single one that every token passes through."""

    def __init__(
        self,
        config: ModelConfig,
        count: int,
        size: int,
        weight_format: WeightFormat,
        dtype: torch.dtype,
        device: str | torch.device,
    ) -> None:
        super().__init__()
        self.config = config
        self.w13 = Matrices(count, 2 * size, config.hidden_size, weight_format, dtype, device, halves=2)
        self.w2 = Matrices(count, config.hidden_size, size, weight_format, dtype, device)

    def forward(self, x: Tensor, expert_ids: Tensor, expert_weights: Tensor) -> Tensor:
        """x [T, hidden], expert_ids int32 [T, k], expert_weights fp32 [T, k]."""
        result: Tensor = msa_ops.moe(
            x,
            self.w13.values,
            self.w2.values,
            expert_ids,
            expert_weights,
            weight_format=self.w13.format.value,
            w13_scale=self.w13.scale,
            w2_scale=self.w2.scale,
            w13_global_scale=self.w13.global_scale,
            w2_global_scale=self.w2.global_scale,
            alpha=self.config.swiglu_alpha,
            limit=self.config.swiglu_limit,
            beta=self.config.swiglu_beta,
        )
        return result


def single(x: Tensor) -> tuple[Tensor, Tensor]:
    """Ids and weights that send every token through expert 0 alone."""
    shape = (x.shape[0], 1)
    return torch.zeros(shape, dtype=torch.int32, device=x.device), torch.ones(shape, device=x.device)


class DenseMLP(nn.Module):
    def __init__(
        self,
        config: ModelConfig,
        layer: int,
        formats: Mapping[str, WeightFormat],
        dtype: torch.dtype,
        device: str | torch.device,
    ) -> None:
        super().__init__()
        self.experts = Experts(config, 1, config.dense_size, formats[f"layers.{layer}.mlp.experts"], dtype, device)

    def forward(self, x: Tensor, batch: Batch, observe: Observer | None) -> Tensor:
        result: Tensor = self.experts(x, *single(x))
        return result


class MoE(nn.Module):
    """Routed experts and one shared expert. Router logits are computed in fp32."""

    router: Tensor
    bias: Tensor | None

    def __init__(
        self,
        config: ModelConfig,
        layer: int,
        formats: Mapping[str, WeightFormat],
        dtype: torch.dtype,
        device: str | torch.device,
    ) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        path = f"layers.{layer}.mlp"
        self.register_buffer("router", torch.empty(config.num_experts, config.hidden_size, device=device))
        self.register_buffer("bias", _vector(config.num_experts, device) if config.routing_bias else None)
        self.experts = Experts(
            config, config.num_experts, config.expert_size, formats[f"{path}.experts"], dtype, device
        )
        self.shared = Experts(config, 1, config.shared_size, formats[f"{path}.shared"], dtype, device)

    def forward(self, x: Tensor, batch: Batch, observe: Observer | None) -> Tensor:
        logits = functional.linear(x.float(), self.router)
        expert_weights, expert_ids = msa_ops.route_experts(
            logits,
            self.bias,
            top_k=self.config.experts_per_token,
            renormalize=self.config.renormalize,
            scaling=self.config.routed_scaling,
        )
        if observe is not None:
            observe(self.layer, "expert_ids", expert_ids, batch)
        result: Tensor = self.experts(x, expert_ids, expert_weights) + self.shared(x, *single(x))
        return result


class DecoderLayer(nn.Module):
    attention_norm: Tensor
    mlp_norm: Tensor

    def __init__(
        self,
        config: ModelConfig,
        layer: int,
        formats: Mapping[str, WeightFormat],
        dtype: torch.dtype,
        device: str | torch.device,
    ) -> None:
        super().__init__()
        self.config = config
        self.attention = Attention(config, layer, formats, dtype, device)
        mlp = MoE if config.moe_layers[layer] else DenseMLP
        self.mlp = mlp(config, layer, formats, dtype, device)
        self.register_buffer("attention_norm", _vector(config.hidden_size, device))
        self.register_buffer("mlp_norm", _vector(config.hidden_size, device))

    def forward(
        self,
        delta: Tensor,
        residual: Tensor,
        cos_sin: Tensor,
        batch: Batch,
        cache: KVCache,
        observe: Observer | None,
    ) -> Tensor:
        """Adds `delta`, the previous layer's contribution, to `residual` in place and returns this layer's own."""
        eps = self.config.rms_norm_eps
        x = msa_ops.rms_norm(delta, self.attention_norm, eps=eps, residual=residual)
        delta = self.attention(x, cos_sin, batch, cache, observe)
        x = msa_ops.rms_norm(delta, self.mlp_norm, eps=eps, residual=residual)
        result: Tensor = self.mlp(x, batch, observe)
        return result
