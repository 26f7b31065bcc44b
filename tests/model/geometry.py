"""A geometry small enough for a test of a millisecond, and checkpoints of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from msa_ops.model import ModelConfig
from msa_ops.model.writer import random_tensors, write


def tiny(**changes: Any) -> ModelConfig:
    """Two layers, the first with a dense MLP, and one expert too many for top-2."""
    return ModelConfig(
        **{
            "hidden_size": 64,
            "vocab_size": 96,
            "num_heads": 4,
            "num_kv_heads": 2,
            "num_index_heads": 2,
            "sparse_layers": (True, True),
            "moe_layers": (False, True),
            "topk_blocks": 4,
            "num_experts": 3,
            "experts_per_token": 2,
            "expert_size": 32,
            "shared_size": 32,
            "dense_size": 64,
            "max_position": 8192,
            "eos_token_ids": (),
        }
        | changes
    )


def checkpoint(folder: Path, config: ModelConfig | None = None, **options: Any) -> Path:
    """A random checkpoint; `options` are those of `writer.write`."""
    config = config or tiny()
    return write(folder, config, random_tensors(config), **{"shard_bytes": 40_000} | options)


def change_tensors(folder: Path, change: Any) -> None:
    """Rewrites every shard and the index with `change(tensors)` applied to each shard's dictionary."""
    weight_map = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors = load_file(file)
        change(tensors)
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)
        weight_map |= dict.fromkeys(tensors, file.name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def logits(model: Any, tokens: list[int], **formats: str) -> torch.Tensor:
    """fp32 [T, vocabulary] of one prompt on a fresh cache."""
    from msa_ops.model import Batch, Chunk, KVCache

    pages = -(-len(tokens) // 128)
    cache = KVCache(model.config, pages, **formats)
    return model.logits(model(Batch.of([Chunk(tokens, 0, list(range(pages)))]), cache))
