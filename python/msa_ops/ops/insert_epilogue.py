"""What qk_norm_rope_insert and qkv_insert share: everything that happens to a row q | k | v | index_q | index_k."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from msa_ops.cache import access
from msa_ops.cache.page import HEAD_DIM, PAGE_SIZE, Page, index_page, main_page
from msa_ops.formats import e4m3
from msa_ops.formats.scale_layout import ScaleLayout
from msa_ops.ops import checks, fact_values
from msa_ops.ops.norm_rope import norm_heads, rotate, rows_at
from msa_ops.ops.token_bucket import token_bucket

INTEGERS = (torch.int64, torch.int32)


class Epilogue(Protocol):
    """The arguments that both ops have."""

    q_weight: Tensor
    k_weight: Tensor
    cos_sin_cache: Tensor
    positions: Tensor
    slot_mapping: Tensor
    kv_cache: Tensor
    num_heads: int
    num_kv_heads: int
    num_index_heads: int
    index_q_weight: Tensor | None
    index_k_weight: Tensor | None
    index_cache: Tensor | None
    kv_format: str
    kv_layout: str
    k_scale_layout: str
    v_scale_layout: str
    index_format: str
    k_scale: Tensor | None
    v_scale: Tensor | None
    index_k_scale: Tensor | None
    q_dtype: torch.dtype | None
    eps: float
    gemma: bool


def head_counts(a: Epilogue) -> tuple[int, int, int, int, int]:
    """Heads of q, k, v, index_q and index_k, in the order in which a row holds them."""
    return a.num_heads, a.num_kv_heads, a.num_kv_heads, a.num_index_heads, min(a.num_index_heads, 1)


def row_width(a: Epilogue) -> int:
    """Elements of a row."""
    return sum(head_counts(a)) * HEAD_DIM


def pages(a: Epilogue) -> tuple[Page, Page]:
    """Pages of the main and the index cache."""
    return main_page(a.kv_format, a.num_kv_heads, a.kv_layout), index_page(a.index_format)


class EpilogueFacts(fact_values.Checked):
    """The facts that the epilogue has in every op."""

    ACCEPTED = fact_values.accepted(
        norm_weight_dtype=fact_values.FLOATS,
        positions_dtype=fact_values.dtypes(*INTEGERS),
        slot_mapping_dtype=fact_values.dtypes(*INTEGERS),
        num_heads=fact_values.AT_LEAST_1,
        rotary_dim=fact_values.Range(2, HEAD_DIM, 2),
    )
    kv_format: str
    kv_layout: str
    num_kv_heads: int

    def check(self) -> None:
        super().check()
        main_page(self.kv_format, self.num_kv_heads, self.kv_layout)


def check(a: Epilogue, num_tokens: int, dtype: torch.dtype) -> None:
    """Everything but the row itself, which has `num_tokens` tokens and the query dtype `dtype`."""
    for name in ("num_heads", "num_kv_heads"):
        if getattr(a, name) < 1:
            raise ValueError(f"{name}: {getattr(a, name)}; accepted: 1 or more")
    if a.num_index_heads < 0:
        raise ValueError(f"num_index_heads: {a.num_index_heads}; accepted: 0 or more")
    _check_weights(a, dtype)
    rotary_dim = a.cos_sin_cache.shape[-1] if a.cos_sin_cache.dim() == 2 else 0
    checks.tensor("cos_sin_cache", a.cos_sin_cache, (None, None), torch.float32)
    checks.contiguous_rows("cos_sin_cache", a.cos_sin_cache)
    if a.cos_sin_cache.shape[0] < 1 or not 2 <= rotary_dim <= HEAD_DIM or rotary_dim % 2:
        raise ValueError(
            f"cos_sin_cache: shape {list(a.cos_sin_cache.shape)}; accepted: [1 or more, even up to {HEAD_DIM}]"
        )
    for name, value in (("positions", a.positions), ("slot_mapping", a.slot_mapping)):
        checks.tensor(name, value, (num_tokens,), *INTEGERS)
        checks.contiguous_rows(name, value)
    _check_caches(a)
    if a.q_dtype not in (None, dtype, torch.float8_e4m3fn):
        raise ValueError(f"q_dtype: {a.q_dtype}; accepted: None, {dtype}, torch.float8_e4m3fn")
    checks.positive_fp32("eps", a.eps)


def check_rows(name: str, value: Tensor) -> None:
    """Rows of a matrix are contiguous and begin at multiples of 16 bytes, as vector loads need."""
    checks.contiguous_rows(name, value)
    size = value.element_size()
    if value.shape[0] > 1 and value.stride(0) * size % checks.ALIGNMENT:
        raise ValueError(
            f"{name}: row stride of {value.stride(0) * size} bytes; accepted: multiples of {checks.ALIGNMENT}"
        )
    if not checks.is_fake(value) and value.data_ptr() % checks.ALIGNMENT:
        raise ValueError(
            f"{name}: starts at address {value.data_ptr():#x}; accepted: multiples of {checks.ALIGNMENT} bytes"
        )


def _check_weights(a: Epilogue, dtype: torch.dtype) -> None:
    checks.tensor("q_weight", a.q_weight, (HEAD_DIM,), torch.float32, dtype)
    checks.tensor("k_weight", a.k_weight, (HEAD_DIM,), a.q_weight.dtype)
    for name in ("index_q_weight", "index_k_weight", "index_cache"):
        value = getattr(a, name)
        if (value is None) != (a.num_index_heads == 0):
            given = "None" if value is None else "a tensor"
            wanted = "a tensor" if value is None else "None"
            raise ValueError(f"{name}: {given} with num_index_heads {a.num_index_heads}; accepted: {wanted}")
        if value is not None and name != "index_cache":
            checks.tensor(name, value, (HEAD_DIM,), a.q_weight.dtype)
    if a.index_k_scale is not None and a.num_index_heads == 0:
        raise ValueError("index_k_scale: a tensor with num_index_heads 0; accepted: None")


def _check_caches(a: Epilogue) -> None:
    for name in ("k_scale_layout", "v_scale_layout"):
        checks.choice(name, getattr(a, name), list(ScaleLayout))
    main, index = pages(a)
    checks.cache_pages("kv_cache", a.kv_cache, main.bytes)
    if a.index_cache is not None:
        checks.cache_pages("index_cache", a.index_cache, index.bytes)
        if a.index_cache.shape[0] != a.kv_cache.shape[0]:
            raise ValueError(
                f"index_cache: {a.index_cache.shape[0]} pages; accepted: {a.kv_cache.shape[0]}, as in kv_cache"
            )
        if _pages_collide(a.kv_cache, a.index_cache):
            raise ValueError("index_cache: shares bytes with kv_cache; accepted: bytes of its own")
    for name in ("k_scale", "v_scale", "index_k_scale"):
        checks.scalar(name, getattr(a, name))


def _pages_collide(one: Tensor, other: Tensor) -> bool:
    """Whether any page of one shares bytes with any page of the other."""
    if checks.is_fake(one) or checks.is_fake(other) or one.device != other.device:
        return False
    stride = one.stride(0)
    if stride == 0 or stride != other.stride(0):
        return _any_page_within(*sorted((one, other), key=len))
    pages, rest = divmod(other.data_ptr() - one.data_ptr(), stride)
    # Page i of `other` starts `rest` bytes behind the start of page i + pages of `one`, and before the next.
    count = one.shape[0]
    behind = rest < one.shape[1] and abs(pages) < count
    before = rest + other.shape[1] > stride and abs(pages + 1) < count
    return behind or before


def _any_page_within(few: Tensor, many: Tensor) -> bool:
    """The same for any two strides, page by page of the one."""
    stride, count = many.stride(0), many.shape[0]
    for page in range(len(few)):
        # Page i of `many` starts at `stride * i`; it ends behind `begin` and starts before `end`, or shares no byte.
        begin = few.data_ptr() + page * few.stride(0) - many.data_ptr()
        end = begin + few.shape[1]
        if stride == 0:
            if count and begin < many.shape[1] and end > 0:
                return True
            continue
        first = max((begin - many.shape[1]) // stride + 1, 0)
        last = min((end - 1) // stride, count - 1)
        if first <= last:
            return True
    return False


def meta(a: Epilogue, num_tokens: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Empty q and index_q."""
    kind, device = a.q_dtype or dtype, a.positions.device
    return (
        torch.empty((num_tokens, a.num_heads, HEAD_DIM), dtype=kind, device=device),
        torch.empty((num_tokens, a.num_index_heads, HEAD_DIM), dtype=kind, device=device),
    )


def reference(a: Epilogue, rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Norm, rotation and insert of fp32 rows [T, width]; q and index_q in a.q_dtype or `dtype`."""
    q, k, v, index_q, index_k = rows.unflatten(-1, (-1, HEAD_DIM)).split(head_counts(a), dim=1)
    cos_sin = rows_at(a.cos_sin_cache, a.positions)
    kind = a.q_dtype or dtype

    def normed(x: Tensor, weight: Tensor) -> Tensor:
        return rotate(norm_heads(x, weight, a.eps, a.gemma), cos_sin)

    slots = a.slot_mapping.long()
    main, index = pages(a)
    k = normed(k, a.k_weight)
    access.write_tokens(a.kv_cache, main, "k", slots, k, scale=a.k_scale, scale_layout=a.k_scale_layout)
    access.write_tokens(a.kv_cache, main, "v", slots, v, scale=a.v_scale, scale_layout=a.v_scale_layout)
    if a.index_cache is not None and a.index_q_weight is not None and a.index_k_weight is not None:
        index_q, index_k = normed(index_q, a.index_q_weight), normed(index_k, a.index_k_weight)
        access.write_tokens(a.index_cache, index, "k", slots, index_k, scale=a.index_k_scale)
    return _cast(normed(q, a.q_weight), kind), _cast(index_q, kind)


def _cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """A contiguous tensor of `dtype`; E4M3 saturates."""
    if dtype == torch.float8_e4m3fn:
        x = e4m3.round_to(x)
    return torch.empty(x.shape, dtype=dtype, device=x.device).copy_(x)


def facts(a: Epilogue, num_tokens: int, dtype: torch.dtype) -> dict[str, Any]:
    """The fields that the Facts of both ops share. `tokens` is rounded up to a power of two."""
    return {
        "q_dtype": dtype_name(a.q_dtype or dtype),
        "norm_weight_dtype": dtype_name(a.q_weight.dtype),
        "positions_dtype": dtype_name(a.positions.dtype),
        "slot_mapping_dtype": dtype_name(a.slot_mapping.dtype),
        "tokens": token_bucket(num_tokens),
        "num_heads": a.num_heads,
        "num_kv_heads": a.num_kv_heads,
        "num_index_heads": a.num_index_heads,
        "rotary_dim": a.cos_sin_cache.shape[1],
        "kv_format": a.kv_format,
        "kv_layout": a.kv_layout,
        "k_scale_layout": a.k_scale_layout,
        "v_scale_layout": a.v_scale_layout,
        "index_format": a.index_format,
        "scaled": any(scale is not None for scale in (a.k_scale, a.v_scale, a.index_k_scale)),
        "gemma": a.gemma,
    }


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def small_reads(a: Epilogue) -> int:
    """Bytes of weights, table rows (each position once), positions, slots and scales."""
    rows = a.positions.clamp(0, a.cos_sin_cache.shape[0] - 1).unique().numel()
    tensors = [a.q_weight, a.k_weight, a.index_q_weight, a.index_k_weight, a.positions, a.slot_mapping]
    tensors += [a.k_scale, a.v_scale, a.index_k_scale]
    return rows * a.cos_sin_cache.shape[1] * 4 + sum(t.numel() * t.element_size() for t in tensors if t is not None)


def writes(a: Epilogue, num_tokens: int, dtype: torch.dtype) -> int:
    """Bytes of q, index_q and of the cache rows whose slot exists."""
    slots = a.slot_mapping
    kept = int(((slots >= 0) & (slots < a.kv_cache.shape[0] * PAGE_SIZE)).sum())
    main, index = pages(a)
    per_token = main.bytes // PAGE_SIZE + (index.bytes // PAGE_SIZE if a.num_index_heads else 0)
    query = (a.num_heads + a.num_index_heads) * HEAD_DIM * (a.q_dtype or dtype).itemsize
    return num_tokens * query + kept * per_token


def flops(a: Epilogue, num_tokens: int) -> int:
    """Square, sum, scale and weight of each normed element; two products and a sum of each rotated one."""
    normed = sum(head_counts(a)) - a.num_kv_heads
    return num_tokens * normed * (4 * HEAD_DIM + 3 * a.cos_sin_cache.shape[1])
