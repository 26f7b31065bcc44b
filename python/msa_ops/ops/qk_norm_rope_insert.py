"""qk_norm_rope_insert: per-head norm and rotation of q and k, and one rounding of k and v into the paged cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from msa_ops.ops import checks, fact_values, insert_epilogue, insert_inputs
from msa_ops.registry import Cost, OpSpec, Tolerance
from msa_ops.registry.torch_library import register

VARIANTS = insert_inputs.VARIANTS


@dataclass(slots=True)
class Args:
    qkv: Tensor
    q_weight: Tensor
    k_weight: Tensor
    cos_sin_cache: Tensor
    positions: Tensor
    slot_mapping: Tensor
    kv_cache: Tensor
    num_heads: int
    num_kv_heads: int
    num_index_heads: int = 0
    index_q_weight: Tensor | None = None
    index_k_weight: Tensor | None = None
    index_cache: Tensor | None = None
    kv_format: str = "nvfp4"
    kv_layout: str = "planes"
    k_scale_layout: str = "linear"
    v_scale_layout: str = "linear"
    index_format: str = "nvfp4"
    k_scale: Tensor | None = None
    v_scale: Tensor | None = None
    index_k_scale: Tensor | None = None
    q_dtype: torch.dtype | None = None
    eps: float = 1e-6
    gemma: bool = True


@dataclass(frozen=True)
class Facts(insert_epilogue.EpilogueFacts):
    """`tokens` is the number of tokens rounded up to a power of two; `scaled` says whether any scale is given."""

    ACCEPTED = fact_values.accepted(
        insert_epilogue.EpilogueFacts.ACCEPTED,
        qkv_dtype=fact_values.FLOATS,
    )

    qkv_dtype: str = "bfloat16"
    q_dtype: str = "bfloat16"
    norm_weight_dtype: str = "bfloat16"
    positions_dtype: str = "int64"
    slot_mapping_dtype: str = "int64"
    tokens: int = 1
    num_heads: int = 64
    num_kv_heads: int = 4
    num_index_heads: int = 4
    rotary_dim: int = 64
    kv_format: str = "nvfp4"
    kv_layout: str = "planes"
    k_scale_layout: str = "linear"
    v_scale_layout: str = "linear"
    index_format: str = "nvfp4"
    scaled: bool = False
    gemma: bool = True


def check(a: Args) -> None:
    checks.tensor("qkv", a.qkv, (None, insert_epilogue.row_width(a)), *checks.FLOATS)
    insert_epilogue.check_rows("qkv", a.qkv)
    insert_epilogue.check(a, a.qkv.shape[0], a.qkv.dtype)


def meta(a: Args) -> tuple[Tensor, ...]:
    return insert_epilogue.meta(a, a.qkv.shape[0], a.qkv.dtype)


def reference(a: Args) -> tuple[Tensor, ...]:
    return insert_epilogue.reference(a, a.qkv.float(), a.qkv.dtype)


def facts(a: Args) -> Facts:
    shared = insert_epilogue.facts(a, a.qkv.shape[0], a.qkv.dtype)
    return Facts(qkv_dtype=insert_epilogue.dtype_name(a.qkv.dtype), **shared)


def generate(
    seed: int,
    *,
    device: str = "cpu",
    batch: int = 3,
    q_len: int = 4,
    seq_len: int = 130,
    num_heads: int = 8,
    num_kv_heads: int = 2,
    num_index_heads: int = 2,
    rotary_dim: int = 64,
    dtype: str = "bfloat16",
    weight_dtype: str | None = None,
    q_dtype: str | None = None,
    index_dtype: str = "int64",
    kv_format: str = "nvfp4",
    kv_layout: str = "planes",
    k_scale_layout: str = "linear",
    v_scale_layout: str = "linear",
    index_format: str = "nvfp4",
    eps: float = 1e-6,
    gemma: bool = True,
    variant: str = "plain",
) -> Args:
    """The last q_len tokens of `batch` requests of seq_len tokens.

    Variants: see insert_inputs.VARIANTS. `weight_dtype`: of the norm weights, by default `dtype`.
    """
    generator = torch.Generator().manual_seed(seed)
    shared = insert_inputs.epilogue(
        generator, variant=variant, device=device, batch=batch, q_len=q_len, seq_len=seq_len, num_heads=num_heads,
        num_kv_heads=num_kv_heads, num_index_heads=num_index_heads, rotary_dim=rotary_dim, kv_format=kv_format,
        kv_layout=kv_layout, k_scale_layout=k_scale_layout, v_scale_layout=v_scale_layout, index_format=index_format,
        weight_dtype=weight_dtype or dtype, q_dtype=q_dtype, index_dtype=index_dtype, gemma=gemma, eps=eps,
    )  # fmt: skip
    a = Args(torch.empty(0), **shared)
    a.qkv = insert_inputs.rows(generator, batch * q_len, insert_epilogue.row_width(a), dtype, device, variant)
    return a


def tolerance(a: Args) -> tuple[Tolerance, ...]:
    """Two units in the last place of the result's dtype; the rotation may cancel down to fp32 noise."""
    bound = Tolerance(rtol=2 * torch.finfo(a.q_dtype or a.qkv.dtype).eps, atol=1e-5)
    return bound, bound


def cost(a: Args) -> Cost:
    tokens, dtype = a.qkv.shape[0], a.qkv.dtype
    return Cost(
        a.qkv.numel() * dtype.itemsize + insert_epilogue.small_reads(a),
        insert_epilogue.writes(a, tokens, dtype),
        insert_epilogue.flops(a, tokens),
    )


SPEC = OpSpec(
    name="qk_norm_rope_insert",
    version=1,
    params="Tensor qkv, Tensor q_weight, Tensor k_weight, Tensor cos_sin_cache, Tensor positions, "
    "Tensor slot_mapping, Tensor(kv_cache!) kv_cache, *, int num_heads, int num_kv_heads, int num_index_heads=0, "
    "Tensor? index_q_weight=None, Tensor? index_k_weight=None, Tensor(index_cache!)? index_cache=None, "
    'str kv_format="nvfp4", str kv_layout="planes", str k_scale_layout="linear", str v_scale_layout="linear", '
    'str index_format="nvfp4", Tensor? k_scale=None, Tensor? v_scale=None, Tensor? index_k_scale=None, '
    "ScalarType? q_dtype=None, float eps=1e-06, bool gemma=True",
    outputs=("q", "index_q"),
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
    mutates=("kv_cache", "index_cache"),
)
OP = register(SPEC)


@OP.public
def qk_norm_rope_insert(
    qkv: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    cos_sin_cache: Tensor,
    positions: Tensor,
    slot_mapping: Tensor,
    kv_cache: Tensor,
    *,
    num_heads: int,
    num_kv_heads: int,
    num_index_heads: int = 0,
    index_q_weight: Tensor | None = None,
    index_k_weight: Tensor | None = None,
    index_cache: Tensor | None = None,
    kv_format: str = "nvfp4",
    kv_layout: str = "planes",
    k_scale_layout: str = "linear",
    v_scale_layout: str = "linear",
    index_format: str = "nvfp4",
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    index_k_scale: Tensor | None = None,
    q_dtype: torch.dtype | None = None,
    eps: float = 1e-6,
    gemma: bool = True,
    out: tuple[Tensor, Tensor] | None = None,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Norms and rotates the heads of q, k, index_q and index_k, and writes k, v and index_k into the paged caches.

    For each head of 128: rms_norm in fp32 with the weight of its kind, then rotation of the first rotary_dim
    dimensions at the token's position (NeoX half-split); v is taken as it is. k, v and index_k are rounded once, from
    fp32 to the cache's format, and written to the token's slot; q and index_q are returned.

    qkv: [T, (num_heads + 2 num_kv_heads + num_index_heads + 1) * 128] fp32, bf16 or fp16, each row
        q | k | v | index_q | index_k (one index key for all index heads). Rows are contiguous, start at multiples of
        16 bytes and may have any stride. Without index heads a row ends behind v.
    q_weight, k_weight, index_q_weight, index_k_weight: [128], all fp32 or all of qkv's dtype; one weight for all
        heads of a kind. gemma: multiply by 1 + weight (MiniMax-M3); False multiplies by weight. eps: see rms_norm.
    cos_sin_cache: fp32 [positions, rotary_dim], cosines of the rotary_dim / 2 frequencies, then sines; rotary_dim
        even, 2 to 128. positions: int64 or int32 [T], absolute. A position below 0 or beyond the table is bad data:
        it takes the first or last row of the table, so that padding rows need no care.
    slot_mapping: int64 or int32 [T], page * 128 + offset, for both caches. A slot below 0 or beyond the cache writes
        nothing; the row's q and index_q are computed all the same. With a slot twice, what it holds is not defined.
    kv_cache: uint8 [num_pages, page bytes] with any page stride that is a multiple of 16, laid out as kv_format
        (fp32, bf16, fp8, nvfp4) and kv_layout (planes, slots, packed) say; see msa_ops.cache.page. k_scale_layout,
        v_scale_layout: linear, token_quads or swizzle_128x4; formats without block scales ignore them.
    index_cache: uint8 [num_pages, index page bytes] in index_format, scales linear. It may be a slice of the pool
        that kv_cache is a slice of, but may not share bytes with it.
    num_index_heads: 0 serves layers with dense attention; index_q_weight, index_k_weight, index_cache and
        index_k_scale are then None, and index_q comes back as [T, 0, 128].
    k_scale, v_scale, index_k_scale: one positive fp32 element on the device; what is stored is value / scale.
    q_dtype: dtype of q and index_q: None for qkv's, or float8_e4m3fn, a plain cast that saturates at 448.
    out: (q, index_q) to write into. backend: name of a backend; see `msa_ops.explain("qk_norm_rope_insert")`.

    Formats: fp8 saturates at 448 and keeps NaN; nvfp4 follows the contract of msa_ops.formats.nvfp4.
    A NaN or infinity in a row reaches that row's outputs and slot alone.
    Returns (q [T, num_heads, 128], index_q [T, num_index_heads, 128]).
    Raises ValueError for arguments of another shape, dtype, stride, alignment, format or layout, and when the index
    arguments and num_index_heads disagree.
    """
    result: tuple[Tensor, Tensor] = OP.call(
        qkv, q_weight, k_weight, cos_sin_cache, positions, slot_mapping, kv_cache, num_heads=num_heads,
        num_kv_heads=num_kv_heads, num_index_heads=num_index_heads, index_q_weight=index_q_weight,
        index_k_weight=index_k_weight, index_cache=index_cache, kv_format=kv_format, kv_layout=kv_layout,
        k_scale_layout=k_scale_layout, v_scale_layout=v_scale_layout, index_format=index_format, k_scale=k_scale,
        v_scale=v_scale, index_k_scale=index_k_scale, q_dtype=q_dtype, eps=eps, gemma=gemma, out=out, backend=backend,
    )  # fmt: skip
    return result
