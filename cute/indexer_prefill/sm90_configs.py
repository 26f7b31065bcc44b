"""Configurations of the Hopper kernel that scores long queries block by block and chooses among the blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from msa_ops.build.unit import Family
from msa_ops.registry import Code, Refusal
from msa_ops.registry.platform import Platform

PAGE = 128
ROW_BYTES = {"nvfp4": 64, "fp8": 128, "bf16": 256}
STAGE_BYTES = PAGE * 256
"""A block's keys as operands of 16 bits."""

CHUNK = 32
"""Blocks that are scored between two turns of choosing, a bit each of a word."""

TABLE_STRIDE = CHUNK + 1
"""Words of a row in the table of scores; one more against bank conflicts."""

MAX_TOPK = 16
LIST_STRIDE = 160
"""Bytes of a row's list: 16 keys, 16 block ids, and 32 bytes against bank conflicts."""


@dataclass(frozen=True)
class Config:
    """index_format: of the keys. groups: warpgroups that multiply, of 64 x `tiles` query rows each. alternate: there
    are two, which have the same rows and take turns of blocks. loaders: warpgroups that make keys ready, in turns.
    stages: blocks of keys in shared memory. choose: whether blocks are chosen, or else scores stored. registers: of a
    thread that multiplies, and of one that makes keys ready.
    """

    index_format: str
    groups: int = 2
    tiles: int = 2
    alternate: bool = False
    loaders: int = 1
    stages: int = 4
    choose: bool = True
    registers: tuple[int, int] = (208, 88)

    @property
    def name(self) -> str:
        purpose = "prefill" if self.choose else "blocks"
        return f"{purpose}_{self.index_format}_{self.rows}"

    @property
    def kind(self) -> str:
        """Type of the operands of matrix products."""
        return "bf16" if self.index_format == "bf16" else "f16"

    @property
    def rows(self) -> int:
        """(query token, head) pairs that are multiplied with each block that is read."""
        return 64 * self.tiles * (1 if self.alternate else self.groups)

    @property
    def warp_rows(self) -> int:
        return 16 * self.tiles

    @property
    def multiplying_warps(self) -> int:
        return 4 * self.groups

    @property
    def threads(self) -> int:
        return 128 * (self.groups + self.loaders)

    @property
    def table_bytes(self) -> int:
        """Scores of a chunk of blocks, of the rows of one warp."""
        return 4 * TABLE_STRIDE * self.warp_rows

    @property
    def list_bytes(self) -> int:
        """What is kept of the blocks before (or the factors of the rows), of one warp."""
        return self.warp_rows * (LIST_STRIDE if self.choose else 4)

    @property
    def lists(self) -> int:
        """Warps with lists of their own; two warps with the same rows share theirs."""
        return 4 if self.alternate and self.choose else self.multiplying_warps

    @property
    def shared_memory(self) -> int:
        """Keys, tables, lists, two barriers a stage, and a word a stage that says whether its page exists."""
        tables, lists = self.multiplying_warps * self.table_bytes, self.lists * self.list_bytes
        return STAGE_BYTES * self.stages + tables + lists + 20 * self.stages


def supports(config: Config, platform: Platform) -> Iterable[Refusal]:
    """A stage must always be filled by the same warpgroup, and always be read by the same ones.

    Else one of them could be two turns ahead of another, and a barrier tells only odd turns from even ones.
    """
    turns = config.groups if config.alternate else 1
    if config.stages % config.loaders or config.stages % turns:
        yield Refusal(
            Code.ARGUMENT,
            f"{config.stages} stages for {config.loaders} loaders and {turns} in turns; accepted: a multiple of both",
            "change stages",
        )


ARGUMENTS = (
    "index_q",
    "index_cache",
    "block_table",
    "seq_lens",
    "cu_seqlens_q",
    "out",
    "workspace",
    "k_scale",
    "q_token_stride",
    "q_head_stride",
    "page_stride",
    "table_stride",
    "out_token_stride",
    "out_head_stride",
    "num_pages",
    "num_tokens",
    "batch",
    "q_len",
    "num_heads",
    "max_blocks",
    "tile_tokens",
    "topk",
    "init_blocks",
    "local_blocks",
    "q_dtype",
    "num_blocks",
    "code_factor",
    "score_scale",
)

LONG: dict[str, Any] = {"groups": 2, "tiles": 2, "registers": (208, 88)}
SHORT: dict[str, Any] = {"groups": 2, "tiles": 1, "alternate": True}
"""For few query rows: reading and decoding keys is what takes time then."""

LOADERS: dict[str, dict[str, Any]] = {
    "nvfp4": {"loaders": 3, "stages": 6, "registers": (144, 64)},
    "fp8": {"loaders": 2, "registers": (168, 88)},
    "bf16": {"loaders": 2, "registers": (168, 88)},
}


def configs(choose: bool) -> tuple[Config, ...]:
    found = []
    for index_format in ("nvfp4", "fp8", "bf16"):
        found.append(Config(index_format, choose=choose, **SHORT, **LOADERS[index_format]))
        found.append(Config(index_format, choose=choose, **LONG))
    return tuple(found)


FAMILY = Family(
    op="indexer",
    module="msa_ops.cute.indexer_prefill.sm90",
    archs=("sm_90a",),
    arguments=ARGUMENTS,
    configs=configs(choose=True),
    supports=supports,
    shared_memory=lambda config: config.shared_memory,
)
