"""The reference model of MiniMax-M3 and M3.1: its text, and nothing but public ops below it."""

from msa_ops.model.config import ModelConfig
from msa_ops.model.errors import CheckpointError, ConfigError, MissingPackageError, ModelError
from msa_ops.model.kv import Batch, Chunk, KVCache
from msa_ops.model.loader import load
from msa_ops.model.model import Model
from msa_ops.model.serve import Completion, Engine, Request, Sampling

__all__ = [
    "Batch",
    "CheckpointError",
    "Chunk",
    "Completion",
    "ConfigError",
    "Engine",
    "KVCache",
    "MissingPackageError",
    "Model",
    "ModelConfig",
    "ModelError",
    "Request",
    "Sampling",
    "load",
]
