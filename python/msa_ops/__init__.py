"""Kernels for block-sparse attention models with an NVFP4 KV cache, behind one op registry.

Importing this package registers the ops; it creates no CUDA context and imports no kernel language.
"""

from msa_ops._version import __version__
from msa_ops.ops.rms_norm import rms_norm
from msa_ops.registry import explain, use_backend

__all__ = [
    "__version__",
    "explain",
    "rms_norm",
    "use_backend",
]
