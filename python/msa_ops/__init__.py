"""Kernels for block-sparse attention models with an NVFP4 KV cache, behind one op registry.

Importing this package registers the ops; it creates no CUDA context and imports no kernel language.
"""

from msa_ops._version import __version__
from msa_ops.amd import backends as _amd_backends
from msa_ops.emulator import emulate
from msa_ops.nvidia import backends as _nvidia_backends
from msa_ops.ops.dense_attention import dense_attention
from msa_ops.ops.dequantize_mxfp4 import dequantize_mxfp4
from msa_ops.ops.dequantize_mxfp8 import dequantize_mxfp8
from msa_ops.ops.dequantize_nvfp4 import dequantize_nvfp4
from msa_ops.ops.indexer import indexer
from msa_ops.ops.indexer_scores import indexer_scores
from msa_ops.ops.moe import moe
from msa_ops.ops.qk_norm_rope_insert import qk_norm_rope_insert
from msa_ops.ops.qkv_insert import qkv_insert
from msa_ops.ops.quantize_mxfp4 import quantize_mxfp4
from msa_ops.ops.quantize_mxfp8 import quantize_mxfp8
from msa_ops.ops.quantize_nvfp4 import quantize_nvfp4
from msa_ops.ops.rms_norm import rms_norm
from msa_ops.ops.route_experts import route_experts
from msa_ops.ops.select_blocks import select_blocks
from msa_ops.ops.sparse_attention import sparse_attention
from msa_ops.registry import explain, use_backend, workspace_bytes

__all__ = [
    "__version__",
    "dense_attention",
    "dequantize_mxfp4",
    "dequantize_mxfp8",
    "dequantize_nvfp4",
    "emulate",
    "explain",
    "indexer",
    "indexer_scores",
    "moe",
    "qk_norm_rope_insert",
    "qkv_insert",
    "quantize_mxfp4",
    "quantize_mxfp8",
    "quantize_nvfp4",
    "rms_norm",
    "route_experts",
    "select_blocks",
    "sparse_attention",
    "use_backend",
    "workspace_bytes",
]

_amd_backends.register()
_nvidia_backends.register()
