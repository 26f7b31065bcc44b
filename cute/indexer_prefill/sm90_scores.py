"""indexer_scores on Hopper: the prefill kernel of the indexer with its scores stored and nothing chosen."""

from msa_ops.cute.indexer_prefill.sm90 import trace

__all__ = ["trace"]
