"""indexer_scores: how well each block of 128 keys answers each query token, as the maximum over the block's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from msa_ops.cache.access import read_pages
from msa_ops.cache.page import HEAD_DIM, PAGE_SIZE, CacheFormat, index_page
from msa_ops.formats import e4m3
from msa_ops.ops import batches, checks, fact_values, ragged
from msa_ops.registry import Cost, OpSpec, Tolerance
from msa_ops.registry.torch_library import register

VARIANTS = (*batches.VARIANTS, "integers", "nan_query", "nan_keys", "infinite")
"""Those of `batches`, and: small integers, whose scores are exact in fp32 in any order and often tie; NaN in some
queries; NaN in some visible keys; infinities in some queries."""

QUERY_DTYPES = (*checks.FLOATS, torch.float8_e4m3fn)
QUERY_ROWS = 1024
"""(query token, head) rows that the reference scores at a time."""

KEY_BLOCKS = 64
"""Blocks that the reference scores at a time."""


@dataclass(slots=True)
class Args:
    index_q: Tensor
    index_cache: Tensor
    block_table: Tensor
    seq_lens: Tensor
    cu_seqlens_q: Tensor | None = None
    index_format: str = "nvfp4"
    index_k_scale: Tensor | None = None
    score_scale: float = 1.0
    rounding: str = "exact"
    max_seqlen_q: int | None = None


@dataclass(frozen=True)
class Facts(fact_values.Checked):
    """`max_seqlen_q` and `max_blocks` are upper bounds, rounded up to powers of two."""

    q_dtype: str = "bfloat16"
    index_format: str = "nvfp4"
    num_heads: int = 4
    rounding: str = "exact"
    max_seqlen_q: int = 1
    max_blocks: int = 1024
    index_k_scale: bool = False
    score_scale: bool = False


def check_index(
    index_q: Tensor,
    index_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    cu_seqlens_q: Tensor | None,
    index_format: str,
    index_k_scale: Tensor | None,
    rounding: str,
    max_seqlen_q: int | None,
) -> None:
    """The arguments that `indexer_scores` and `indexer` share."""
    checks.choice("index_format", index_format, tuple(CacheFormat))
    checks.choice("rounding", rounding, e4m3.ROUNDINGS)
    checks.tensor("index_q", index_q, (None, None, HEAD_DIM), *QUERY_DTYPES)
    checks.contiguous_rows("index_q", index_q)
    checks.cache_pages("index_cache", index_cache, index_page(index_format).bytes)
    checks.ragged(index_q.shape[0], block_table, seq_lens, cu_seqlens_q)
    checks.scalar("index_k_scale", index_k_scale)
    if max_seqlen_q is not None and max_seqlen_q < 0:
        raise ValueError(f"max_seqlen_q: {max_seqlen_q}; accepted: 0 or more, or None")


def check(a: Args) -> None:
    check_index(
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
    checks.positive_fp32("score_scale", a.score_scale)


def meta(a: Args) -> tuple[Tensor, ...]:
    tokens, heads = a.index_q.shape[:2]
    return (torch.empty(tokens, heads, a.block_table.shape[1], dtype=torch.float32, device=a.index_q.device),)


def reference(a: Args) -> tuple[Tensor, ...]:
    (scores,) = meta(a)
    scorer = Scorer(
        a.index_q, a.index_cache, a.block_table, a.seq_lens, a.cu_seqlens_q, a.index_format, a.index_k_scale, a.rounding
    )
    for begin, end in scorer.chunks(QUERY_ROWS):
        torch.mul(scorer.score(begin, end), a.score_scale, out=scores[begin:end])
    return (scores,)


class Scorer:
    """Block scores of any run of query tokens, one matrix product per request and group of blocks.

    A dot product of 128 is summed in fp64 and rounded once to fp32. For the values that the formats can hold the sum
    is exact but for extreme ranges, so the score has the same bits whatever the batch around it.
    """

    def __init__(
        self,
        index_q: Tensor,
        index_cache: Tensor,
        block_table: Tensor,
        seq_lens: Tensor,
        cu_seqlens_q: Tensor | None,
        index_format: str,
        index_k_scale: Tensor | None,
        rounding: str,
    ) -> None:
        self.index_q, self.index_cache, self.block_table = index_q, index_cache, block_table
        self.page = index_page(index_format)
        self.index_k_scale, self.rounding = index_k_scale, rounding
        self.num_tokens, self.num_heads = index_q.shape[:2]
        self.width = block_table.shape[1]
        _, self.position = ragged.token_positions(self.num_tokens, seq_lens, cu_seqlens_q)
        self.num_blocks = ragged.num_blocks(self.position, self.width)
        self.spans = ragged.query_spans(self.num_tokens, seq_lens.shape[0], cu_seqlens_q)

    def chunks(self, rows: int) -> list[tuple[int, int]]:
        """Runs of query tokens of at most `rows` (token, head) rows, at least one token each."""
        step = max(rows // max(self.num_heads, 1), 1)
        return [(begin, min(begin + step, self.num_tokens)) for begin in range(0, self.num_tokens, step)]

    def score(self, begin: int, end: int) -> Tensor:
        """fp32 [end - begin, H, max_blocks] of query tokens begin to end; -inf where nothing is visible."""
        scores = self.index_q.new_full((end - begin, self.num_heads, self.width), -torch.inf, dtype=torch.float32)
        for request, (first, last) in enumerate(self.spans):
            low, high = max(first, begin), min(last, end)
            if low < high:
                self._score_request(request, low, high, scores[low - begin : high - begin])
        return scores

    def _score_request(self, request: int, low: int, high: int, scores: Tensor) -> None:
        count = int(self.num_blocks[high - 1])  # the last token sees most
        position = self.position[low:high]
        query = self.index_q[low:high].double()
        page_ids, exists = ragged.request_pages(self.block_table, request, count, self.index_cache.shape[0])
        for first in range(0, count, KEY_BLOCKS):
            blocks = torch.arange(first, min(first + KEY_BLOCKS, count), device=query.device)
            good = exists[blocks]
            keys = read_pages(
                self.index_cache, self.page, "k", page_ids[blocks][good], rounding=self.rounding
            )  # [blocks that exist, 1, 128, 128]
            dots = query.flatten(0, 1) @ keys.double().flatten(0, 2).T
            dots = dots.view(*query.shape[:2], len(keys), PAGE_SIZE)
            token = blocks[good].unsqueeze(1) * PAGE_SIZE + torch.arange(PAGE_SIZE, device=query.device)
            visible = token <= position[:, None, None, None]
            # Select, do not add: what lies behind the last token may be NaN.
            best = torch.where(visible & ~dots.isnan(), dots, -torch.inf).amax(-1).float()
            if self.index_k_scale is not None:
                best = torch.where(best == -torch.inf, best, best * self.index_k_scale)
            scores[:, :, blocks[good]] = best


def facts(a: Args) -> Facts:
    tokens, heads = a.index_q.shape[:2]
    return Facts(
        str(a.index_q.dtype).removeprefix("torch."),
        a.index_format,
        heads,
        a.rounding,
        ragged.query_length_bucket(tokens, a.seq_lens.shape[0], a.cu_seqlens_q, a.max_seqlen_q),
        ragged.bucket(a.block_table.shape[1]),
        a.index_k_scale is not None,
        a.score_scale != 1.0,
    )


def generate(
    seed: int,
    *,
    device: str = "cpu",
    batch: int = 3,
    seq_len: int = 700,
    q_len: int = 2,
    num_heads: int = 4,
    q_dtype: str = "bfloat16",
    index_format: str = "nvfp4",
    index_k_scale: float | None = None,
    score_scale: float = 1.0,
    rounding: str = "exact",
    seq_lens: Sequence[int] | None = None,
    q_lens: Sequence[int] | None = None,
    max_blocks: int | None = None,
    page_stride: int | None = None,
    variant: str = "plain",
) -> Args:
    """Seeded inputs; `batches.ragged_batch` explains the dimensions, VARIANTS the variants."""
    checks.choice("variant", variant, VARIANTS)
    ragged_variant = variant if variant in batches.VARIANTS else "ragged"
    given = batches.ragged_batch(
        seed,
        batch=batch,
        seq_len=seq_len,
        q_len=q_len,
        seq_lens=seq_lens,
        q_lens=q_lens,
        max_blocks=max_blocks,
        variant=ragged_variant,
        device=device,
    )
    page = index_page(index_format)
    content = "integers" if variant == "integers" else "random"
    cache = batches.paged_cache(seed + 1, page, given, content=content, page_stride=page_stride)
    query = batches.query(
        seed + 2, given.num_tokens, num_heads, dtype=q_dtype, content=content, device=given.block_table.device
    )
    generator = torch.Generator().manual_seed(seed + 3)
    if variant in ("nan_query", "infinite"):
        values = query.float()
        hit = torch.rand(values.shape, generator=generator).to(values.device) < 0.003
        values[hit] = torch.nan if variant == "nan_query" else torch.inf
        query = values.to(query.dtype)
    if variant == "nan_keys":
        hit = torch.rand(given.num_pages, PAGE_SIZE, generator=generator) < 0.05
        hit[::3] = True
        batches.poison(cache, page, hit.to(cache.device))
    scale = None if index_k_scale is None else torch.tensor(index_k_scale, device=device)
    return Args(
        query,
        cache,
        given.block_table,
        given.seq_lens,
        given.cu_seqlens_q,
        index_format=index_format,
        index_k_scale=scale,
        score_scale=score_scale,
        rounding=rounding,
    )


def tolerance(a: Args) -> tuple[Tolerance, ...]:
    """For keys of about unit size: fp32 sums of 128 products in any order, or of tensor cores that truncate."""
    largest = a.index_q.float().nan_to_num(0.0, 0.0, 0.0).abs().max().item() if a.index_q.numel() else 0.0
    return (Tolerance(rtol=1e-5, atol=1e-4 * max(largest, 1.0) * a.score_scale),)


def index_cost(
    index_q: Tensor, block_table: Tensor, seq_lens: Tensor, cu_seqlens_q: Tensor | None, index_format: str
) -> Cost:
    """Reads of queries, lengths, table entries and visible keys, once each; 2 x 128 flops a query, head and key."""
    page = index_page(index_format)
    key_bytes = sum(member.row_bytes for _, member in page.members)
    tokens, heads = index_q.shape[:2]
    request, position = ragged.token_positions(tokens, seq_lens, cu_seqlens_q)
    visible = (position + 1).clamp(max=block_table.shape[1] * PAGE_SIZE)
    longest = torch.zeros(seq_lens.shape[0] + 1, dtype=torch.int64, device=seq_lens.device)
    longest.scatter_reduce_(0, request + 1, visible, "amax")
    keys = longest[1:]
    blocks = int((keys + PAGE_SIZE - 1).div(PAGE_SIZE, rounding_mode="floor").sum())
    lengths = seq_lens.numel() + (0 if cu_seqlens_q is None else cu_seqlens_q.numel())
    read = index_q.numel() * index_q.element_size() + 4 * (lengths + blocks) + int(keys.sum()) * key_bytes
    return Cost(read, 0, 2 * HEAD_DIM * heads * int(visible.sum()))


def cost(a: Args) -> Cost:
    cost = index_cost(a.index_q, a.block_table, a.seq_lens, a.cu_seqlens_q, a.index_format)
    tokens, heads = a.index_q.shape[:2]
    return Cost(cost.bytes_read, 4 * tokens * heads * a.block_table.shape[1], cost.flops)


SPEC = OpSpec(
    name="indexer_scores",
    version=1,
    params=(
        "Tensor index_q, Tensor index_cache, Tensor block_table, Tensor seq_lens, Tensor? cu_seqlens_q=None, *, "
        'str index_format="nvfp4", Tensor? index_k_scale=None, float score_scale=1.0, str rounding="exact", '
        "int? max_seqlen_q=None"
    ),
    outputs=("scores",),
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
)
OP = register(SPEC)


@OP.public
def indexer_scores(
    index_q: Tensor,
    index_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    cu_seqlens_q: Tensor | None = None,
    *,
    index_format: str = "nvfp4",
    index_k_scale: Tensor | None = None,
    score_scale: float = 1.0,
    rounding: str = "exact",
    max_seqlen_q: int | None = None,
    out: Tensor | None = None,
    backend: str | None = None,
) -> Tensor:
    """Maximum over the visible tokens j of block b of dot(index_q[t, h], index_k[j]), for every block of a request.

    A query token at position p sees tokens 0 to p; token-level masking comes before the maximum. A NaN product sum is
    left out of the maximum. The score is -inf for blocks behind p, blocks whose page does not exist, and blocks whose
    visible sums are all NaN. Forced blocks are not applied here, see `select_blocks`.

    index_q: [T, H, 128] fp32, bf16, fp16 or float8_e4m3fn, normed and rotated.
        Of a row, kernels may lose up to 2^-40 of its largest element in the others.
    index_cache: uint8 [num_pages, page bytes], any page stride that is a multiple of 16; one key of 128 a token, which
        all heads share.
    block_table: int32 [B, max_blocks], page ids, any row stride. Entries at or beyond ceil(seq_len / 128) are not
        read; an entry in use outside [0, num_pages) is a block without tokens.
    seq_lens: int32 [B], tokens of each request, the new ones included; 0 for a padding request. Longer than the table:
        tokens beyond it do not exist.
    cu_seqlens_q: int32 [B + 1], where the query tokens of each request begin; None if all have T // B. Query token i
        of a request is at position seq_len - q_len + i. Tokens from cu_seqlens_q[B] on are padding.
    index_format: fp32, bf16, fp8 or nvfp4. index_k_scale: fp32 scalar tensor, positive, multiplies all keys.
    score_scale: positive number that multiplies all scores; a normal fp32 number.
    rounding: "exact", or "e4m3" to round NVFP4 keys to E4M3 first.
    max_seqlen_q: an upper bound of query tokens a request, for the choice of a kernel.
    out: receives the result. backend: name of a backend; see `msa_ops.explain("indexer_scores")`.
    Returns fp32 [T, H, max_blocks]. Raises ValueError for arguments of another shape, dtype, stride or name.
    Source: MiniMax-M3, block-sparse attention; scores as in the indexer of its transformers implementation.
    """
    result: Tensor = OP.call(
        index_q,
        index_cache,
        block_table,
        seq_lens,
        cu_seqlens_q,
        index_format=index_format,
        index_k_scale=index_k_scale,
        score_scale=score_scale,
        rounding=rounding,
        max_seqlen_q=max_seqlen_q,
        out=out,
        backend=backend,
    )
    return result
