"""select_blocks: the blocks that a query token attends to, from its block scores.

Of n blocks, min(topk, n) are chosen in this order: init blocks, ascending; local blocks, the newest first; then by
score, descending, and equal scores by block id, ascending. -0 equals +0; NaN comes after every number, -inf included.
So if the forced blocks alone are more than topk, init blocks go before local ones, and newer local blocks before older.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from msa_ops.ops import checks, fact_values, ragged
from msa_ops.registry import Cost, OpSpec, Tolerance
from msa_ops.registry.torch_library import register

MAX_TOPK = 64
TOPK_LAYOUTS = ("THK", "HTK")
VARIANTS = ("plain", "ties", "equal", "special", "all_nan", "clustered", "few", "counts", "poisoned", "strided")
"""plain: normal scores. ties: few different values. equal: one value. special: NaN, infinities and zeros of both
signs among numbers. all_nan. clustered: values that differ in their lowest bits alone. few: no more blocks than topk.
counts: 0, negative and too large num_blocks. poisoned: NaN and huge values behind num_blocks. strided: rows of a wider
buffer."""

MAX_BLOCKS = 1 << 29
"""Blocks of a row; the reference makes one 64-bit number of a rank of 34 bits and a block."""

ELEMENTS = 1 << 21
"""Scores that the reference ranks at a time."""


@dataclass(slots=True)
class Args:
    scores: Tensor
    num_blocks: Tensor
    topk: int = 16
    init_blocks: int = 0
    local_blocks: int = 1
    topk_layout: str = "THK"
    workspace: Tensor | None = None


@dataclass(frozen=True)
class Facts(fact_values.Checked):
    """`max_blocks` is rounded up to a power of two."""

    ACCEPTED = fact_values.accepted(max_blocks=fact_values.Range(0, MAX_BLOCKS))

    num_heads: int = 4
    topk: int = 16
    init_blocks: int = 0
    local_blocks: int = 1
    topk_layout: str = "THK"
    max_blocks: int = 1024
    contiguous: bool = True


def check_selection(topk: int, init_blocks: int, local_blocks: int, topk_layout: str) -> None:
    """The arguments that `select_blocks` and `indexer` share."""
    checks.between("topk", topk, 1, MAX_TOPK)
    checks.choice("topk_layout", topk_layout, TOPK_LAYOUTS)
    for name, value in (("init_blocks", init_blocks), ("local_blocks", local_blocks)):
        if value < 0:
            raise ValueError(f"{name}: {value}; accepted: 0 or more")


def check(a: Args) -> None:
    checks.tensor("scores", a.scores, (None, None, None), torch.float32)
    checks.contiguous_rows("scores", a.scores)
    checks.tensor("num_blocks", a.num_blocks, (a.scores.shape[0],), torch.int32)
    checks.between("scores", a.scores.shape[2], 0, MAX_BLOCKS)
    check_selection(a.topk, a.init_blocks, a.local_blocks, a.topk_layout)


def block_ids_meta(tokens: int, heads: int, topk: int, topk_layout: str, device: torch.device) -> Tensor:
    shape = (tokens, heads, topk) if topk_layout == "THK" else (heads, tokens, topk)
    return torch.empty(shape, dtype=torch.int32, device=device)


def meta(a: Args) -> tuple[Tensor, ...]:
    tokens, heads = a.scores.shape[:2]
    return (block_ids_meta(tokens, heads, a.topk, a.topk_layout, a.scores.device),)


def reference(a: Args) -> tuple[Tensor, ...]:
    tokens, heads, width = a.scores.shape
    (result,) = meta(a)
    rows = result if a.topk_layout == "THK" else result.transpose(0, 1)
    step = max(ELEMENTS // max(heads * width, 1), 1)
    for begin in range(0, tokens, step):
        part = slice(begin, begin + step)
        rows[part] = choose_blocks(a.scores[part], a.num_blocks[part], a.topk, a.init_blocks, a.local_blocks)
    return (result,)


def choose_blocks(scores: Tensor, num_blocks: Tensor, topk: int, init_blocks: int, local_blocks: int) -> Tensor:
    """int32 [T, H, topk] of scores [T, H, NB]: ascending ids, -1 behind them."""
    width = scores.shape[-1]
    block = torch.arange(width, device=scores.device)
    count = num_blocks.long().clamp(0, width).view(-1, 1, 1)
    # Ranks that no score reaches: init blocks above local blocks above scores, blocks that do not exist below.
    rank = ordered(scores)
    newer = count - 1 - block
    rank = torch.where((newer >= 0) & (newer < local_blocks), 2**32 - newer, rank)
    rank = torch.where(block < init_blocks, 2**33 - block, rank)
    rank = torch.where(block < count, rank, -(2**33))
    kept = min(topk, width)
    # No two blocks of a row have the same key, so the choice does not hang on how topk treats equal ones.
    key = rank * MAX_BLOCKS + (width - block)
    chosen = key.topk(kept, dim=-1, sorted=False).indices
    chosen = torch.where(chosen < count, chosen, width).sort(dim=-1).values
    ids = scores.new_full((*scores.shape[:2], topk), -1, dtype=torch.int32)
    ids[..., :kept] = torch.where(chosen < width, chosen, -1)
    return ids


def ordered(scores: Tensor) -> Tensor:
    """int64 whose order is that of the fp32 scores: -0 equals +0, and NaN lies below -inf."""
    bits = torch.where(scores == 0, 0.0, scores).view(torch.int32)
    # Negative floats have the sign bit and grow towards -inf; flipping the other bits turns that round.
    value = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return torch.where(scores.isnan(), -(2**31), value.long())


def facts(a: Args) -> Facts:
    return Facts(
        a.scores.shape[1],
        a.topk,
        a.init_blocks,
        a.local_blocks,
        a.topk_layout,
        ragged.bucket(a.scores.shape[2]),
        a.scores.is_contiguous(),
    )


def generate(
    seed: int,
    *,
    device: str = "cpu",
    tokens: int = 6,
    num_heads: int = 4,
    max_blocks: int = 40,
    topk: int = 16,
    init_blocks: int = 0,
    local_blocks: int = 1,
    topk_layout: str = "THK",
    variant: str = "plain",
) -> Args:
    """Seeded scores [tokens, num_heads, max_blocks] and counts between 1 and max_blocks; VARIANTS explains the rest."""
    checks.choice("variant", variant, VARIANTS)
    checks.between("max_blocks", max_blocks, 1, MAX_BLOCKS)
    generator = torch.Generator().manual_seed(seed)
    shape = (tokens, num_heads, max_blocks)
    scores = torch.randn(shape, generator=generator)
    count = torch.randint(1, max_blocks + 1, (tokens,), generator=generator, dtype=torch.int32)
    if variant == "ties":
        scores = scores.round()
    elif variant == "equal":
        scores.fill_(-2.5)
    elif variant == "special":
        values = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1.0, -1.0, torch.finfo(torch.float32).max])
        scores = values[torch.randint(len(values), shape, generator=generator)]
    elif variant == "all_nan":
        scores.fill_(torch.nan)
    elif variant == "clustered":
        bits = 0x41234500 + torch.randint(64, shape, generator=generator, dtype=torch.int32)
        scores = bits.view(torch.float32) * torch.where(torch.rand(shape, generator=generator) < 0.3, -1.0, 1.0)
    elif variant == "few":
        count = torch.randint(0, min(topk, max_blocks) + 1, (tokens,), generator=generator, dtype=torch.int32)
    elif variant == "counts":
        count[::2] = torch.tensor([0, -1, max_blocks + 1, -(2**31), 2**31 - 1])[: len(count[::2])].to(torch.int32)[
            torch.arange(len(count[::2])) % 5
        ]
    behind = torch.arange(max_blocks) >= count.view(-1, 1, 1)
    scores = scores.masked_fill(behind, -torch.inf)
    if variant == "poisoned":
        poison = torch.tensor([torch.nan, torch.inf, 1e30])[torch.randint(3, shape, generator=generator)]
        scores = torch.where(behind, poison, scores)
    scores = scores.to(device)
    if variant == "strided":
        wide = torch.full((tokens, num_heads, max_blocks + 24), torch.inf, device=device)
        wide[..., 8 : max_blocks + 8] = scores
        scores = wide[..., 8 : max_blocks + 8]
    return Args(scores, count.to(device), topk, init_blocks, local_blocks, topk_layout)


def tolerance(a: Args) -> tuple[Tolerance, ...]:
    return (Tolerance(exact=True),)


def cost(a: Args) -> Cost:
    """Reads the scores of blocks that exist; comparisons are not counted as flops."""
    tokens, heads, width = a.scores.shape
    existing = int(a.num_blocks.long().clamp(0, width).sum())
    return Cost(4 * (existing * heads + tokens), 4 * tokens * heads * a.topk, 0)


SPEC = OpSpec(
    name="select_blocks",
    version=1,
    params=(
        "Tensor scores, Tensor num_blocks, *, int topk=16, int init_blocks=0, int local_blocks=1, "
        'str topk_layout="THK", Tensor(workspace!)? workspace=None'
    ),
    outputs=("block_ids",),
    args=Args,
    check=check,
    meta=meta,
    reference=reference,
    facts_type=Facts,
    facts=facts,
    generate=generate,
    tolerance=tolerance,
    cost=cost,
    variants=VARIANTS,
    mutates=("workspace",),
)
OP = register(SPEC)


@OP.public
def select_blocks(
    scores: Tensor,
    num_blocks: Tensor,
    *,
    topk: int = 16,
    init_blocks: int = 0,
    local_blocks: int = 1,
    topk_layout: str = "THK",
    workspace: Tensor | None = None,
    out: Tensor | None = None,
    backend: str | None = None,
) -> Tensor:
    """Ids of min(topk, n) of the first n blocks of each query token and head, ascending, -1 behind them.

    Order of choice: blocks 0 to init_blocks - 1, ascending; then the local_blocks newest blocks, n - 1 first; then
    score descending, equal scores by id ascending. -0 equals +0; NaN comes after -inf. With n <= topk all n blocks
    are chosen, whatever the scores. Scores at or behind n are not looked at.

    scores: fp32 [T, H, max_blocks], last dimension contiguous. num_blocks: int32 [T], n of each query token; below 0
    counts as 0, above max_blocks as max_blocks.
    topk: 1 to 64. init_blocks, local_blocks: 0 or more.
    topk_layout: "THK" gives [T, H, topk], "HTK" gives [H, T, topk]. It is never guessed from a shape.
    workspace: uint8 scratch, contiguous; None lets the call allocate what the backend needs.
    out: receives the result. backend: name of a backend; see `msa_ops.explain("select_blocks")`.
    Returns int32 block ids. Raises ValueError for arguments of another shape, dtype, stride or range.
    Source: MiniMax-M3; the order of ties is that of vLLM's context-parallel indexer (score, then lower id).
    """
    result: Tensor = OP.call(
        scores,
        num_blocks,
        topk=topk,
        init_blocks=init_blocks,
        local_blocks=local_blocks,
        topk_layout=topk_layout,
        workspace=workspace,
        out=out,
        backend=backend,
    )
    return result
