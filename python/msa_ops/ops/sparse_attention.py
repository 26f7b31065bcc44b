"""sparse_attention: causal attention over the tokens of chosen blocks of a paged cache, chosen for each KV head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, overload

from torch import Tensor

from msa_ops.ops import attention_arguments as arguments
from msa_ops.ops import attention_inputs as inputs
from msa_ops.ops import checks
from msa_ops.ops.paged_softmax import attend
from msa_ops.registry import Cost, OpSpec, Tolerance
from msa_ops.registry.torch_library import register

ID_VARIANTS = ("unsorted", "holes", "nothing")
VARIANTS = (*inputs.VARIANTS, *ID_VARIANTS)


@dataclass(slots=True)
class Args:
    q: Tensor
    kv_cache: Tensor
    block_ids: Tensor
    block_table: Tensor
    seq_lens: Tensor
    cu_seqlens_q: Tensor | None = None
    _: KW_ONLY
    num_kv_heads: int
    kv_format: str = "nvfp4"
    kv_layout: str = "planes"
    k_scale_layout: str = "linear"
    v_scale_layout: str = "linear"
    k_scale: Tensor | None = None
    v_scale: Tensor | None = None
    softmax_scale: float | None = None
    rounding: str = "exact"
    topk_layout: str = "THK"
    max_seqlen_q: int | None = None
    workspace: Tensor | None = None


@dataclass(frozen=True)
class Facts(arguments.Facts):
    topk: int = 16
    topk_layout: str = "THK"


def check(a: Args) -> None:
    arguments.check_paged(a)
    arguments.check_block_ids(a, a.block_ids, a.topk_layout)


def meta(a: Args) -> tuple[Tensor, ...]:
    return arguments.empty_results(a)


def reference(a: Args) -> tuple[Tensor, ...]:
    return attend(a, arguments.token_major(a.block_ids, a.topk_layout))


def facts(a: Args) -> Facts:
    return Facts(**arguments.common_facts(a), topk=a.block_ids.shape[2], topk_layout=a.topk_layout)


def tolerance(a: Args) -> tuple[Tolerance, ...]:
    return arguments.tolerances(a)


def cost(a: Args) -> Cost:
    reach = inputs.reach_of_ids(a, arguments.token_major(a.block_ids, a.topk_layout))
    return inputs.attention_cost(a, reach, 4 * a.block_ids.numel())


def generate(
    seed: int,
    *,
    device: str = "cpu",
    batch: int = 3,
    seq_len: int = 600,
    q_len: int = 2,
    num_heads: int = 64,
    num_kv_heads: int = 4,
    topk: int = 3,
    local_blocks: int = 1,
    overlap: float = 0.0,
    neighbours: int = 1,
    kv_format: str = "nvfp4",
    kv_layout: str = "planes",
    k_scale_layout: str = "linear",
    v_scale_layout: str = "linear",
    q_dtype: str = "bfloat16",
    rounding: str = "exact",
    softmax_scale: float | None = None,
    topk_layout: str = "THK",
    max_seqlen_q: int | None = None,
    content: str = "random",
    page_stride: int | None = None,
    seq_lens: Sequence[int] | None = None,
    q_lens: Sequence[int] | None = None,
    max_blocks: int | None = None,
    spare_pages: int = 3,
    variant: str = "plain",
) -> Args:
    """Seeded inputs; the ids are those of attention_inputs.block_choice.

    Variants: those of dense_attention, and for the ids "unsorted", "holes" (unsorted, with ids among them that name
    no block) and "nothing" (half of the rows have no id).
    """
    checks.choice("variant", variant, VARIANTS)
    common = inputs.paged_inputs(
        seed,
        variant="ragged" if variant in ID_VARIANTS else variant,
        device=device,
        batch=batch,
        seq_len=seq_len,
        q_len=q_len,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        kv_format=kv_format,
        kv_layout=kv_layout,
        k_scale_layout=k_scale_layout,
        v_scale_layout=v_scale_layout,
        q_dtype=q_dtype,
        content=content,
        page_stride=page_stride,
        seq_lens=seq_lens,
        q_lens=q_lens,
        max_blocks=max_blocks,
        spare_pages=spare_pages,
    )
    ids = inputs.block_choice(
        seed + 4,
        common["seq_lens"],
        common["cu_seqlens_q"],
        common["q"].shape[0],
        heads=num_kv_heads,
        topk=topk,
        max_blocks=common["block_table"].shape[1],
        local_blocks=local_blocks,
        overlap=overlap,
        neighbours=neighbours,
    )
    if variant in ("unsorted", "holes"):
        ids = inputs.scramble(seed + 5, ids, holes=variant == "holes")
    if variant == "nothing":
        ids[::2] = -1
    if topk_layout == "HTK":
        ids = ids.transpose(0, 1).contiguous()
    return Args(
        **common,
        block_ids=ids,
        rounding=rounding,
        softmax_scale=softmax_scale,
        topk_layout=topk_layout,
        max_seqlen_q=max_seqlen_q,
    )


SPEC = OpSpec(
    name="sparse_attention",
    version=1,
    params=(
        "Tensor q, Tensor kv_cache, Tensor block_ids, Tensor block_table, Tensor seq_lens, Tensor? cu_seqlens_q=None, "
        '*, int num_kv_heads, str kv_format="nvfp4", str kv_layout="planes", str k_scale_layout="linear", '
        'str v_scale_layout="linear", Tensor? k_scale=None, Tensor? v_scale=None, float? softmax_scale=None, '
        'str rounding="exact", str topk_layout="THK", int? max_seqlen_q=None, Tensor(workspace!)? workspace=None'
    ),
    outputs=("out", "lse"),
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


@overload
def sparse_attention(
    q: Tensor,
    kv_cache: Tensor,
    block_ids: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    cu_seqlens_q: Tensor | None = None,
    *,
    num_kv_heads: int,
    kv_format: str = "nvfp4",
    kv_layout: str = "planes",
    k_scale_layout: str = "linear",
    v_scale_layout: str = "linear",
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    softmax_scale: float | None = None,
    rounding: str = "exact",
    topk_layout: str = "THK",
    max_seqlen_q: int | None = None,
    workspace: Tensor | None = None,
    return_lse: Literal[False] = False,
    out: Tensor | tuple[Tensor, Tensor] | None = None,
    backend: str | None = None,
) -> Tensor: ...
@overload
def sparse_attention(
    q: Tensor,
    kv_cache: Tensor,
    block_ids: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    cu_seqlens_q: Tensor | None = None,
    *,
    num_kv_heads: int,
    kv_format: str = "nvfp4",
    kv_layout: str = "planes",
    k_scale_layout: str = "linear",
    v_scale_layout: str = "linear",
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    softmax_scale: float | None = None,
    rounding: str = "exact",
    topk_layout: str = "THK",
    max_seqlen_q: int | None = None,
    workspace: Tensor | None = None,
    return_lse: Literal[True],
    out: Tensor | tuple[Tensor, Tensor] | None = None,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]: ...
@OP.public
def sparse_attention(
    q: Tensor,
    kv_cache: Tensor,
    block_ids: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    cu_seqlens_q: Tensor | None = None,
    *,
    num_kv_heads: int,
    kv_format: str = "nvfp4",
    kv_layout: str = "planes",
    k_scale_layout: str = "linear",
    v_scale_layout: str = "linear",
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    softmax_scale: float | None = None,
    rounding: str = "exact",
    topk_layout: str = "THK",
    max_seqlen_q: int | None = None,
    workspace: Tensor | None = None,
    return_lse: bool = False,
    out: Tensor | tuple[Tensor, Tensor] | None = None,
    backend: str | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Softmax attention of each query token over the tokens of the blocks that were chosen for its KV head.

    q: [T, Hq, 128] bf16, fp16, fp32 or float8_e4m3fn (values as they are, no scale); Hq a multiple of num_kv_heads.
        Query head h reads KV head h // (Hq / num_kv_heads). Rows are aligned to 16 bytes.
    kv_cache: uint8 [num_pages, page bytes], pages of 128 tokens with any stride that is a multiple of 16 bytes; what a
        page holds follows from kv_format (fp32, bf16, fp8 = E4M3, nvfp4), kv_layout (planes, slots, or packed for
        formats without scales), num_kv_heads, and for nvfp4 k_scale_layout and v_scale_layout (linear, token_quads,
        swizzle_128x4). See msa_ops.cache.page.
    block_ids: int32 [T, num_kv_heads, K], or [num_kv_heads, T, K] with topk_layout "HTK"; K is 1 to 64. Block i holds
        tokens 128 i to 128 i + 127 of the request. Any order. Ids below 0, or at or beyond p // 128 + 1, are skipped
        wherever they stand. The ids of a row must differ: the reference counts a block once, kernels may not look.
    block_table: int32 [B, max_blocks], any row stride. Entries behind ceil(seq_len / 128) are never read; one in use
        that names no page leaves its block without tokens. Tokens beyond the table's width are not seen.
    seq_lens: int32 [B], the new tokens included. cu_seqlens_q: int32 [B + 1], where each request's query tokens begin;
        None if all have T / B. Query token i of q_len stands at p = seq_len - q_len + i and sees tokens 0 to p. Tokens
        outside cu_seqlens_q are padding.
    k_scale, v_scale: one finite fp32 element each, on the device; multiplies the stored K or V. None is 1.
    softmax_scale: multiplies q . k; 2^-126 to 1,024; None is 128 ** -0.5. Where |softmax_scale * q . k| is above 2^28,
        which leaves a difference of scores no digits in fp32, a row may become NaN.
    rounding: of dequantised nvfp4 values, "exact" or "e4m3" (code x scale rounded once to E4M3, before k_scale).
    max_seqlen_q: upper bound of a request's query tokens if the host knows one; may choose a kernel, not a result.
    workspace: uint8 memory for kernels that need some; made if None.
    backend: name of a backend; see `msa_ops.explain("sparse_attention")`.
    out: a tensor for the output, or the pair (output, lse).
    Returns out [T, Hq, 128] in q's dtype (bf16 for float8), or with return_lse the pair (out, lse) where lse is fp32
    [T, Hq], the natural log of the sum of exp(softmax_scale * q . k). A row that sees nothing gives exactly 0 and
    -inf. Not-a-number or infinity in a token reaches only rows and heads that see it.
    Raises ValueError for arguments of another shape, dtype, stride, alignment, page size or layout.
    Source: Vaswani et al., Attention Is All You Need, 2017, equation 1.
    """
    results: tuple[Tensor, Tensor] = OP.call(
        q,
        kv_cache,
        block_ids,
        block_table,
        seq_lens,
        cu_seqlens_q,
        num_kv_heads=num_kv_heads,
        kv_format=kv_format,
        kv_layout=kv_layout,
        k_scale_layout=k_scale_layout,
        v_scale_layout=v_scale_layout,
        k_scale=k_scale,
        v_scale=v_scale,
        softmax_scale=softmax_scale,
        rounding=rounding,
        topk_layout=topk_layout,
        max_seqlen_q=max_seqlen_q,
        workspace=workspace,
        out=None if out is None else arguments.results_to_fill(out),
        backend=backend,
    )
    return results if return_lse else results[0]
