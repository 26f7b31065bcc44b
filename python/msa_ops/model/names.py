"""Which tensors a checkpoint of a given geometry has, under which names, and where each goes in the model.

Names are those of the MiniMax-M3 checkpoints on the Hugging Face hub. A matrix `q_proj` is stored as

    q_proj.weight                                             bf16, fp16 or fp32 [rows, columns]
    q_proj.weight (float8_e4m3fn), q_proj.weight_scale        MXFP8; uint8 E8M0 [rows, columns / 32]
    q_proj.weight_packed, .weight_scale, .weight_global_scale NVFP4; uint8 [rows, columns / 2],
                                                              float8_e4m3fn [rows, columns / 16], fp32 [1]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from msa_ops.cache.page import HEAD_DIM
from msa_ops.model.config import ModelConfig

_CANONICAL = (
    (re.compile(r"^(language_model\.)(?=model\.|lm_head\.)"), ""),
    (re.compile(r"^model\.language_model\."), "model."),
    (re.compile(r"\.weight_scale_inv$"), ".weight_scale"),  # what some MXFP8 writers call the same bytes
)

_NOT_READ = re.compile(
    r"^(model\.)?(vision_tower|multi_modal_projector|patch_merge_mlp|mtp|dspark)\."  # other parts of the release
    r"|\.rotary_emb\.inv_freq$"
    r"|\.(input_scale|input_global_scale|weight_shape)$"  # activations stay in the model's dtype
)


def canonical(name: str) -> str:
    """The name without the wrapper that multimodal checkpoints put around the language model."""
    for pattern, replacement in _CANONICAL:
        name = pattern.sub(replacement, name)
    return name


def is_read(name: str) -> bool:
    """False for tensors of the vision tower and of draft models, and for scales of quantised activations."""
    return not _NOT_READ.search(name)


@dataclass(frozen=True)
class Plain:
    """A tensor that is never quantised, and the model's tensor that receives it."""

    name: str
    shape: tuple[int, ...]
    target: str


@dataclass(frozen=True)
class Part:
    """A matrix of the checkpoint, and the place that it takes in one of the model's stacks.

    name: without the suffix (".weight" and the like). group: the module whose matrices share one format.
    target: path of the `Matrices`; index: which of its matrices; row: the first row; half: its column in a
    [count, 2] global scale.
    """

    name: str
    rows: int
    columns: int
    group: str
    target: str
    index: int = 0
    row: int = 0
    half: int = 0


def plain_tensors(config: ModelConfig) -> Iterator[Plain]:
    """All tensors of the model that are not matrices of a quantisable module."""
    hidden = config.hidden_size
    yield Plain("model.embed_tokens.weight", (config.vocab_size, hidden), "embedding")
    yield Plain("model.norm.weight", (hidden,), "norm")
    for layer, (sparse, moe) in enumerate(zip(config.sparse_layers, config.moe_layers, strict=True)):
        theirs, ours = f"model.layers.{layer}", f"layers.{layer}"
        yield Plain(f"{theirs}.input_layernorm.weight", (hidden,), f"{ours}.attention_norm")
        yield Plain(f"{theirs}.post_attention_layernorm.weight", (hidden,), f"{ours}.mlp_norm")
        for norm in ("q_norm", "k_norm") + (("index_q_norm", "index_k_norm") if sparse else ()):
            yield Plain(f"{theirs}.self_attn.{norm}.weight", (HEAD_DIM,), f"{ours}.attention.{norm}")
        if moe:
            block = f"{theirs}.block_sparse_moe"
            yield Plain(f"{block}.gate.weight", (config.num_experts, hidden), f"{ours}.mlp.router")
            if config.routing_bias:
                yield Plain(f"{block}.e_score_correction_bias", (config.num_experts,), f"{ours}.mlp.bias")


def parts(config: ModelConfig) -> Iterator[Part]:
    """All matrices that a checkpoint may hold quantised."""
    hidden = config.hidden_size
    if not config.tied_embeddings:
        yield Part("lm_head", config.vocab_size, hidden, "lm_head", "lm_head")
    for layer, (sparse, moe) in enumerate(zip(config.sparse_layers, config.moe_layers, strict=True)):
        theirs, ours = f"model.layers.{layer}", f"layers.{layer}"
        widths = {"q": config.num_heads, "k": config.num_kv_heads, "v": config.num_kv_heads}
        if sparse:
            widths |= {"index_q": config.num_index_heads, "index_k": 1}
        row, target = 0, f"{ours}.attention.qkv"
        for name, heads in widths.items():
            rows = heads * HEAD_DIM
            yield Part(f"{theirs}.self_attn.{name}_proj", rows, hidden, target, target, row=row)
            row += rows
        target = f"{ours}.attention.out"
        yield Part(f"{theirs}.self_attn.o_proj", hidden, config.num_heads * HEAD_DIM, target, target)
        if not moe:
            yield from _gated(f"{theirs}.mlp", f"{ours}.mlp.experts", hidden, config.dense_size)
            continue
        block = f"{theirs}.block_sparse_moe"
        yield from _gated(f"{block}.shared_experts", f"{ours}.mlp.shared", hidden, config.shared_size)
        for expert in range(config.num_experts):
            yield from _gated(
                f"{block}.experts.{expert}",
                f"{ours}.mlp.experts",
                hidden,
                config.expert_size,
                expert,
                ("w1", "w3", "w2"),
            )


def _gated(
    theirs: str,
    ours: str,
    hidden: int,
    size: int,
    index: int = 0,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> Iterator[Part]:
    gate, up, down = names
    yield Part(f"{theirs}.{gate}", size, hidden, ours, f"{ours}.w13", index)
    yield Part(f"{theirs}.{up}", size, hidden, ours, f"{ours}.w13", index, row=size, half=1)
    yield Part(f"{theirs}.{down}", hidden, size, ours, f"{ours}.w2", index)
