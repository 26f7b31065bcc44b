"""The kernel of sparse_attention over tiles of query tokens, for the compiler driver."""

from msa_ops.cute.tiled_attention.tile_kernel import trace

__all__ = ["trace"]
