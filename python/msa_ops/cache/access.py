"""Reading and writing cache pages in torch: the definition that every kernel's loads and stores follow."""

from __future__ import annotations

import torch
from torch import Tensor

from msa_ops.cache.page import PAGE_SIZE, CacheFormat, Page
from msa_ops.formats import e4m3, nvfp4
from msa_ops.formats.scale_layout import ScaleLayout, offsets


def read_pages(
    cache: Tensor,
    page: Page,
    member: str,
    page_ids: Tensor,
    *,
    scale: Tensor | None = None,
    scale_layout: str = "linear",
    rounding: str = "exact",
) -> Tensor:
    """fp32 [n, num_heads, 128, 128] of member "k" or "v" of the pages `page_ids` (int64 [n], all valid).

    `scale`: fp32 scalar tensor that multiplies the stored values (FP8 descale, NVFP4 tensor scale).
    `rounding` applies to NVFP4 alone: "exact", or "e4m3" before `scale`.
    """
    data = page.view(cache, member)[page_ids]
    if page.format is CacheFormat.NVFP4:
        stored = page.view(cache, f"{member}_scale")[page_ids].flatten(-2)
        order = offsets(ScaleLayout(scale_layout), PAGE_SIZE, page.format.scale_bytes).to(cache.device)
        return nvfp4.dequantize(data, stored[..., order], global_scale=scale, rounding=rounding)
    values = _decode(data, page.format)
    return values if scale is None else values * scale


def write_tokens(
    cache: Tensor,
    page: Page,
    member: str,
    slots: Tensor,
    values: Tensor,
    *,
    scale: Tensor | None = None,
    scale_layout: str = "linear",
) -> None:
    """Writes values [n, num_heads, 128] (fp32) to member "k" or "v" at `slots` (int64 [n], page * 128 + offset).

    Slots below 0 or beyond the cache are skipped. `scale`: fp32 scalar; stored = value / scale. With a slot twice,
    which of its values stays is not defined.
    """
    kept = (slots >= 0) & (slots < cache.shape[0] * PAGE_SIZE)
    slots, values = slots[kept], values[kept].float()
    pages, tokens = slots // PAGE_SIZE, slots % PAGE_SIZE
    target = page.view(cache, member)
    if page.format is CacheFormat.NVFP4:
        codes, scales = nvfp4.quantize(values, global_scale=scale)
        target[pages, :, tokens] = codes
        order = offsets(ScaleLayout(scale_layout), PAGE_SIZE, page.format.scale_bytes).to(cache.device)[tokens]
        # Scales of one (page, head) are contiguous whatever their order, so they are addressed as one row.
        plane = page.view(cache, f"{member}_scale")
        flat = plane.as_strided(
            (*plane.shape[:2], PAGE_SIZE * page.format.scale_bytes), (*plane.stride()[:2], 1), plane.storage_offset()
        )
        heads = torch.arange(page.num_heads, device=cache.device)
        flat[pages[:, None, None], heads[None, :, None], order[:, None, :]] = scales
        return
    target[pages, :, tokens] = _encode(values if scale is None else values / scale, page.format)


def _decode(data: Tensor, fmt: CacheFormat) -> Tensor:
    if fmt is CacheFormat.FP8:
        return e4m3.from_bytes(data)
    return data.contiguous().view(torch.float32 if fmt is CacheFormat.FP32 else torch.bfloat16).float()


def _encode(values: Tensor, fmt: CacheFormat) -> Tensor:
    if fmt is CacheFormat.FP8:
        return e4m3.to_bytes(values)
    return values.to(torch.float32 if fmt is CacheFormat.FP32 else torch.bfloat16).contiguous().view(torch.uint8)
