"""sparse_attention block by block on Hopper: configurations and memory of its kernels. Pure Python.

A pair is one of the ids of a query token and KV head. In the workspace, as int32 unless said otherwise:
  counters  number of items, of listed pairs, of tiles
  counts    pairs of each (request, KV head, block), 32 bytes apart; that number is the block's key
  offsets   where a key's pairs begin in `listed`
  ways      how a (token, KV head) is worked on
  keys      of a pair, or -1
  ranks     of a pair among those of its key
  listed    pairs, those of a key side by side
  items     32 bytes each: page, KV head, block, what to add to a token for its position, first pair in `listed`, pairs
  tiles     32 bytes for each tile that goes over its blocks: first token, tokens, what to add to a token for its
            position, KV head, blocks
  lists     for each of these, 8 bytes a block: block + 2^24 x (a bit for each token that chose it), page
  queries   rows of q of each (token, KV head) as they are to lie in shared memory, 4,096 bytes
  factors   fp32, of those rows, 64 bytes
  parts     result of a pair, 4,096 bytes
  logs      fp32, base-2 logarithms of the weights of these, 64 bytes
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msa_ops.cute.tiled_attention.layout import (
    OPERAND_BYTES,
    PRODUCERS,
    QUERY_BYTES,
    ROW_BYTES,
    STAGES,
    WAYS,
)

from msa_ops.registry import Refusal
from msa_ops.registry.platform import Platform

TILE = 8
"""Query tokens that are looked at, and that a thread block multiplies, together."""
ITEM_PAIRS = 32
"""Pairs of an item of work, which unpacks its page once."""
ITEM_BYTES = 32
TILE_BYTES = 32
LIST_ENTRY_BYTES = 8
COUNT_BYTES = 32
"""Counts lie apart from each other, for many threads add to them at once."""
PREPARE_THREADS = 256
THREADS_OF_A_KEY = 256
QUERY_ROW_BYTES = 4096
FACTOR_BYTES = 64

# Shared memory of the kernel that multiplies: barriers; records of stages of K and V; factors; queries; K;
# V; raw bytes of pages.
RECORDS_AT = 128
FACTORS_AT = 256
RAW_BARRIERS_AT = 1280
QUERIES_AT = 2048
STEP_QUERY_BYTES = 2 * QUERY_BYTES
STEP_FACTOR_BYTES = TILE * FACTOR_BYTES
K_AT = QUERIES_AT + STAGES * STEP_QUERY_BYTES
V_AT = K_AT + STAGES * OPERAND_BYTES
RAW_AT = V_AT + STAGES * OPERAND_BYTES


@dataclass(frozen=True)
class Config:
    """The kernel that multiplies, for caches of a format."""

    kv_format: str
    groups: int = 2
    alternate: bool = False

    @property
    def name(self) -> str:
        return f"blocks_{self.kv_format}"

    @property
    def mma(self) -> str:
        """Type of the operands of matrix products."""
        return "bf16" if self.kv_format == "bf16" else "f16"

    @property
    def row_bytes(self) -> int:
        """Of a token of K, or of V."""
        return ROW_BYTES[self.kv_format]

    @property
    def way(self) -> str:
        """How raw bytes come to the threads that unpack them: see msa_ops.cute.tiled_attention.pages."""
        return WAYS[self.kv_format]

    @property
    def slot_bytes(self) -> int:
        """Bytes in shared memory for raw K or V of 32 tokens."""
        return 32 * self.row_bytes if self.way == "bulk" else 0


def shared_memory(config: Config) -> int:
    """Of the kernel that multiplies."""
    return RAW_AT + PRODUCERS // 32 * 2 * config.slot_bytes


def supports(config: object, platform: Platform) -> Iterable[Refusal]:
    return ()
