"""The kernel that merges parts of results of sparse_attention, for the compiler driver."""

from msa_ops.cute.tiled_attention.merge_kernel import trace

__all__ = ["trace"]
