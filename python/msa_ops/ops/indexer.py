"""indexer: block scores and selection in one call, without a score buffer of T x H x max_blocks in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from msa_ops.ops import fact_values, indexer_scores, ragged, select_blocks
from msa_ops.registry import Cost, OpSpec, Tolerance
from msa_ops.registry.torch_library import register

VARIANTS = indexer_scores.VARIANTS


@dataclass(slots=True)
class Args:
    index_q: Tensor
    index_cache: Tensor
    block_table: Tensor
    seq_lens: Tensor
    cu_seqlens_q: Tensor | None = None
    topk: int = 16
    init_blocks: int = 0
    local_blocks: int = 1
    index_format: str = "nvfp4"
    index_k_scale: Tensor | None = None
    rounding: str = "exact"
    topk_layout: str = "THK"
    max_seqlen_q: int | None = None
    workspace: Tensor | None = None


@dataclass(frozen=True)
class Facts(fact_values.Checked):
    """`max_seqlen_q` and `max_blocks` are upper bounds, rounded up to powers of two."""

    q_dtype: str = "bfloat16"
    index_format: str = "nvfp4"
    num_heads: int = 4
    rounding: str = "exact"
    topk: int = 16
    init_blocks: int = 0
    local_blocks: int = 1
    topk_layout: str = "THK"
    max_seqlen_q: int = 1
    max_blocks: int = 1024


def check(a: Args) -> None:
    indexer_scores.check_index(
        a.index_q,
        a.index_cache,
        a.block_table,
        a.seq_lens,
        a.cu_seqlens_q,
        a.index_format,
        a.index_k_scale,
        a.rounding,
        a.max_seqlen_q,
    )
    select_blocks.check_selection(a.topk, a.init_blocks, a.local_blocks, a.topk_layout)


def meta(a: Args) -> tuple[Tensor, ...]:
    tokens, heads = a.index_q.shape[:2]
    return (select_blocks.block_ids_meta(tokens, heads, a.topk, a.topk_layout, a.index_q.device),)


def reference(a: Args) -> tuple[Tensor, ...]:
    (result,) = meta(a)
    rows = result if a.topk_layout == "THK" else result.transpose(0, 1)
    scorer = indexer_scores.Scorer(
        a.index_q, a.index_cache, a.block_table, a.seq_lens, a.cu_seqlens_q, a.index_format, None, a.rounding
    )
    # Both the rows that are scored and the scores that are ranked at a time are bounded.
    most = min(indexer_scores.QUERY_ROWS, select_blocks.ELEMENTS // max(scorer.width, 1))
    for begin, end in scorer.chunks(most):
        scores, count = scorer.score(begin, end), scorer.num_blocks[begin:end]
        rows[begin:end] = select_blocks.choose_blocks(scores, count, a.topk, a.init_blocks, a.local_blocks)
    return (result,)


def facts(a: Args) -> Facts:
    tokens, heads = a.index_q.shape[:2]
    return Facts(
        str(a.index_q.dtype).removeprefix("torch."),
        a.index_format,
        heads,
        a.rounding,
        a.topk,
        a.init_blocks,
        a.local_blocks,
        a.topk_layout,
        ragged.query_length_bucket(tokens, a.seq_lens.shape[0], a.cu_seqlens_q, a.max_seqlen_q),
        ragged.bucket(a.block_table.shape[1]),
    )


def generate(
    seed: int,
    *,
    device: str = "cpu",
    batch: int = 3,
    seq_len: int = 3000,
    q_len: int = 2,
    num_heads: int = 4,
    q_dtype: str = "bfloat16",
    topk: int = 16,
    init_blocks: int = 0,
    local_blocks: int = 1,
    index_format: str = "nvfp4",
    index_k_scale: float | None = None,
    rounding: str = "exact",
    topk_layout: str = "THK",
    seq_lens: Sequence[int] | None = None,
    q_lens: Sequence[int] | None = None,
    max_blocks: int | None = None,
    page_stride: int | None = None,
    variant: str = "plain",
) -> Args:
    """Seeded inputs as in `indexer_scores`; by default longer than 16 blocks, so that there is a choice."""
    given = indexer_scores.generate(
        seed,
        device=device,
        batch=batch,
        seq_len=seq_len,
        q_len=q_len,
        num_heads=num_heads,
        q_dtype=q_dtype,
        index_format=index_format,
        index_k_scale=index_k_scale,
        seq_lens=seq_lens,
        q_lens=q_lens,
        max_blocks=max_blocks,
        page_stride=page_stride,
        variant=variant,
    )
    return Args(
        given.index_q,
        given.index_cache,
        given.block_table,
        given.seq_lens,
        given.cu_seqlens_q,
        topk,
        init_blocks,
        local_blocks,
        index_format,
        given.index_k_scale,
        rounding,
        topk_layout,
    )


def tolerance(a: Args) -> tuple[Tolerance, ...]:
    """Ids, of which near ties in the score may differ. The contract tests judge those by the scores themselves."""
    return (Tolerance(mismatch=0.01),)


def cost(a: Args) -> Cost:
    cost = indexer_scores.index_cost(a.index_q, a.block_table, a.seq_lens, a.cu_seqlens_q, a.index_format)
    tokens, heads = a.index_q.shape[:2]
    return Cost(cost.bytes_read, 4 * tokens * heads * a.topk, cost.flops)


SPEC = OpSpec(
    name="indexer",
    version=1,
    params=(
        "Tensor index_q, Tensor index_cache, Tensor block_table, Tensor seq_lens, Tensor? cu_seqlens_q=None, *, "
        'int topk=16, int init_blocks=0, int local_blocks=1, str index_format="nvfp4", Tensor? index_k_scale=None, '
        'str rounding="exact", str topk_layout="THK", int? max_seqlen_q=None, Tensor(workspace!)? workspace=None'
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
def indexer(
    index_q: Tensor,
    index_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    cu_seqlens_q: Tensor | None = None,
    *,
    topk: int = 16,
    init_blocks: int = 0,
    local_blocks: int = 1,
    index_format: str = "nvfp4",
    index_k_scale: Tensor | None = None,
    rounding: str = "exact",
    topk_layout: str = "THK",
    max_seqlen_q: int | None = None,
    workspace: Tensor | None = None,
    out: Tensor | None = None,
    backend: str | None = None,
) -> Tensor:
    """The blocks that each query token and head attends to: `select_blocks` of `indexer_scores`.

    The scores are not held in memory as a whole. Any ragged batch is taken: decode, verification of drafts, chunked
    prefill, mixed, and padding. The choice for a token depends on its own query and its request alone.

    index_q, index_cache, block_table, seq_lens, cu_seqlens_q, index_format, rounding, max_seqlen_q: as in
    `indexer_scores`.
    index_k_scale: fp32 scalar tensor, positive. It multiplies all scores alike, so it does not affect the choice.
    topk, init_blocks, local_blocks, topk_layout, workspace: as in `select_blocks`. A block whose page does not exist
    has score -inf; it can still be chosen, and attention skips it.
    out: receives the result. backend: name of a backend; see `msa_ops.explain("indexer")`.
    Returns int32 ids, [T, H, topk] or [H, T, topk]: ascending, -1 behind them. A token that sees nothing gets -1 only.
    Raises ValueError for arguments of another shape, dtype, stride, name or range.
    Source: MiniMax-M3, block-sparse attention; see `indexer_scores` and `select_blocks` for the two halves.
    """
    result: Tensor = OP.call(
        index_q,
        index_cache,
        block_table,
        seq_lens,
        cu_seqlens_q,
        topk=topk,
        init_blocks=init_blocks,
        local_blocks=local_blocks,
        index_format=index_format,
        index_k_scale=index_k_scale,
        rounding=rounding,
        topk_layout=topk_layout,
        max_seqlen_q=max_seqlen_q,
        workspace=workspace,
        out=out,
        backend=backend,
    )
    return result
