"""qkv_insert: the fused projection to q, k, v, index_q and index_k, with norm, rotation and insert as its epilogue."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from msa_ops.formats import mxfp8
from msa_ops.ops import checks, fact_values, insert_epilogue, insert_inputs
from msa_ops.registry import Cost, OpSpec, Tolerance
from msa_ops.registry.torch_library import register

VARIANTS = insert_inputs.VARIANTS
INPUT_FORMATS = ("none", "mxfp8")
WEIGHT_FORMATS = ("none", "mxfp8")
_CHUNK = 1024  # rows of the weight that the reference widens at a time


@dataclass(slots=True)
class Args:
    x: Tensor
    qkv_weight: Tensor
    q_weight: Tensor
    k_weight: Tensor
    cos_sin_cache: Tensor
    positions: Tensor
    slot_mapping: Tensor
    kv_cache: Tensor
    num_heads: int
    num_kv_heads: int
    qkv_weight_scale: Tensor | None = None
    input_format: str = "none"
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
    """`tokens` is the number of tokens rounded up to a power of two; `scaled` says whether any cache scale is given."""

    ACCEPTED = fact_values.accepted(
        insert_epilogue.EpilogueFacts.ACCEPTED,
        x_dtype=fact_values.FLOATS,
        qkv_weight_dtype=(*fact_values.FLOATS, *fact_values.E4M3),
        input_format=INPUT_FORMATS,
    )

    x_dtype: str = "bfloat16"
    qkv_weight_dtype: str = "float8_e4m3fn"
    input_format: str = "mxfp8"
    hidden: int = 6144
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
    checks.tensor("x", a.x, (None, None), *checks.FLOATS)
    insert_epilogue.check_rows("x", a.x)
    hidden, width = a.x.shape[1], insert_epilogue.row_width(a)
    checks.tensor("qkv_weight", a.qkv_weight, (width, hidden), *checks.FLOATS, torch.float8_e4m3fn)
    insert_epilogue.check_rows("qkv_weight", a.qkv_weight)
    checks.choice("input_format", a.input_format, INPUT_FORMATS)
    quantized = a.qkv_weight.dtype == torch.float8_e4m3fn
    if (quantized or a.input_format == "mxfp8") and hidden % mxfp8.GROUP:
        raise ValueError(f"x: hidden {hidden}; accepted with MXFP8: multiples of {mxfp8.GROUP}")
    scale = a.qkv_weight_scale
    if quantized != (scale is not None):
        given, wanted = ("None", "E8M0 bytes") if scale is None else ("a tensor", "None")
        raise ValueError(
            f"qkv_weight_scale: {given} with a qkv_weight of {insert_epilogue.dtype_name(a.qkv_weight.dtype)}; "
            f"accepted: {wanted}"
        )
    if scale is not None:
        checks.tensor("qkv_weight_scale", scale, (width, hidden // mxfp8.GROUP), torch.uint8, torch.float8_e8m0fnu)
        checks.contiguous_rows("qkv_weight_scale", scale)
    insert_epilogue.check(a, a.x.shape[0], a.x.dtype)


def meta(a: Args) -> tuple[Tensor, ...]:
    return insert_epilogue.meta(a, a.x.shape[0], a.x.dtype)


def project(a: Args) -> Tensor:
    """fp32 [T, width] of x @ qkv_weight^T: the exact sum of products, as far as fp64 holds it, rounded once.

    fp64 makes a token's row independent of how many tokens it comes with; a kernel accumulates in fp32.
    """
    x = a.x.float()
    if a.input_format == "mxfp8":
        x = mxfp8.dequantize(*mxfp8.quantize(x))
    columns = []
    for first in range(0, a.qkv_weight.shape[0], _CHUNK):
        weight = a.qkv_weight[first : first + _CHUNK]
        if a.qkv_weight_scale is not None:
            weight = mxfp8.dequantize(weight, a.qkv_weight_scale[first : first + _CHUNK])
        columns.append((x.double() @ weight.double().T).float())
    return torch.cat(columns, dim=-1)


def reference(a: Args) -> tuple[Tensor, ...]:
    return insert_epilogue.reference(a, project(a), a.x.dtype)


def facts(a: Args) -> Facts:
    return Facts(
        x_dtype=insert_epilogue.dtype_name(a.x.dtype),
        qkv_weight_dtype=insert_epilogue.dtype_name(a.qkv_weight.dtype),
        input_format=a.input_format,
        hidden=a.x.shape[1],
        **insert_epilogue.facts(a, a.x.shape[0], a.x.dtype),
    )


def generate(
    seed: int,
    *,
    device: str = "cpu",
    batch: int = 3,
    q_len: int = 4,
    seq_len: int = 130,
    hidden: int = 256,
    num_heads: int = 4,
    num_kv_heads: int = 1,
    num_index_heads: int = 1,
    rotary_dim: int = 64,
    dtype: str = "bfloat16",
    weight_format: str = "none",
    input_format: str = "none",
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
    """As of qk_norm_rope_insert; the projection is of `dtype` or in MXFP8."""
    checks.choice("weight_format", weight_format, WEIGHT_FORMATS)
    generator = torch.Generator().manual_seed(seed)
    shared = insert_inputs.epilogue(
        generator, variant=variant, device=device, batch=batch, q_len=q_len, seq_len=seq_len, num_heads=num_heads,
        num_kv_heads=num_kv_heads, num_index_heads=num_index_heads, rotary_dim=rotary_dim, kv_format=kv_format,
        kv_layout=kv_layout, k_scale_layout=k_scale_layout, v_scale_layout=v_scale_layout, index_format=index_format,
        weight_dtype=weight_dtype or dtype, q_dtype=q_dtype, index_dtype=index_dtype, gemma=gemma, eps=eps,
    )  # fmt: skip
    x = insert_inputs.rows(generator, batch * q_len, hidden, dtype, device, variant)
    a = Args(x, torch.empty(0), input_format=input_format, **shared)
    weight = torch.randn(insert_epilogue.row_width(a), hidden, generator=generator).div_(hidden**0.5).to(device)
    if weight_format == "mxfp8":
        a.qkv_weight, a.qkv_weight_scale = mxfp8.quantize(weight)
    else:
        a.qkv_weight = weight.to(checks.dtype_named(dtype))
    return a


def tolerance(a: Args) -> tuple[Tolerance, ...]:
    """Two units in the last place of the result's dtype, and the noise of fp32 sums in another order."""
    bound = Tolerance(rtol=2 * torch.finfo(a.q_dtype or a.x.dtype).eps, atol=1e-4)
    return bound, bound


def cost(a: Args) -> Cost:
    tokens, hidden = a.x.shape
    scale = 0 if a.qkv_weight_scale is None else a.qkv_weight_scale.numel()
    weight = a.qkv_weight.numel() * a.qkv_weight.element_size() + scale
    return Cost(
        a.x.numel() * a.x.element_size() + weight + insert_epilogue.small_reads(a),
        insert_epilogue.writes(a, tokens, a.x.dtype),
        2 * tokens * hidden * a.qkv_weight.shape[0] + insert_epilogue.flops(a, tokens),
    )


SPEC = OpSpec(
    name="qkv_insert",
    version=1,
    params="Tensor x, Tensor qkv_weight, Tensor q_weight, Tensor k_weight, Tensor cos_sin_cache, Tensor positions, "
    "Tensor slot_mapping, Tensor(kv_cache!) kv_cache, *, int num_heads, int num_kv_heads, "
    'Tensor? qkv_weight_scale=None, str input_format="none", int num_index_heads=0, '
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
def qkv_insert(
    x: Tensor,
    qkv_weight: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    cos_sin_cache: Tensor,
    positions: Tensor,
    slot_mapping: Tensor,
    kv_cache: Tensor,
    *,
    num_heads: int,
    num_kv_heads: int,
    qkv_weight_scale: Tensor | None = None,
    input_format: str = "none",
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
    """x @ qkv_weight^T in fp32, then what qk_norm_rope_insert does to the row, without rounding in between.

    x: [T, hidden] fp32, bf16 or fp16; rows contiguous, beginning at multiples of 16 bytes, of any stride.
    qkv_weight: [(num_heads + 2 num_kv_heads + num_index_heads + 1) * 128, hidden], rows q | k | v | index_q | index_k
        (nothing behind v without index heads), fp32, bf16, fp16, or float8_e4m3fn as the elements of MXFP8.
    qkv_weight_scale: E8M0 scales of an MXFP8 weight, uint8 or float8_e8m0fnu [rows, hidden / 32], linear; else None.
    input_format: "none", or "mxfp8": x is rounded to MXFP8 first, by msa_ops.formats.mxfp8.quantize.
    q_weight, k_weight, index_q_weight, index_k_weight, gemma, eps, cos_sin_cache, positions, slot_mapping, kv_cache,
    index_cache, num_index_heads, kv_format, kv_layout, k_scale_layout, v_scale_layout, index_format, k_scale, v_scale,
    index_k_scale, q_dtype: as of qk_norm_rope_insert, with x's dtype for qkv's.
    out: (q, index_q) to write into. backend: name of a backend; see `msa_ops.explain("qkv_insert")`.

    The products are accumulated in fp32 and enter the norm unrounded; v and the other rows are rounded once, to what
    is stored. A NaN or infinity in a row of x reaches that row's outputs and slot alone.
    Returns (q [T, num_heads, 128], index_q [T, num_index_heads, 128]).
    Raises ValueError for arguments of another shape, dtype, stride, alignment, format or layout, for a hidden size
    that is no multiple of 32 with MXFP8, and when the index arguments and num_index_heads disagree.
    """
    result: tuple[Tensor, Tensor] = OP.call(
        x, qkv_weight, q_weight, k_weight, cos_sin_cache, positions, slot_mapping, kv_cache, num_heads=num_heads,
        num_kv_heads=num_kv_heads, qkv_weight_scale=qkv_weight_scale, input_format=input_format,
        num_index_heads=num_index_heads, index_q_weight=index_q_weight, index_k_weight=index_k_weight,
        index_cache=index_cache, kv_format=kv_format, kv_layout=kv_layout, k_scale_layout=k_scale_layout,
        v_scale_layout=v_scale_layout, index_format=index_format, k_scale=k_scale, v_scale=v_scale,
        index_k_scale=index_k_scale, q_dtype=q_dtype, eps=eps, gemma=gemma, out=out, backend=backend,
    )  # fmt: skip
    return result
