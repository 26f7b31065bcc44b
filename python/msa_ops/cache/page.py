"""The inside of one page of 128 tokens: which members it has, where they start, and how heads and tokens stride.

Ops take a cache as `uint8 [num_pages, page bytes]` with any page stride, and the names below; a page of a
block-outer pool is a column slice of its rows. Members of a main page: k, k_scale, v, v_scale; of an index page:
k, k_scale (one head). Scales exist in NVFP4 pages only. Within a token's row the lower dimension comes first; the
1,024 scale bytes of a page and head are one run of bytes in any scale layout.

Layouts of a main page, in bytes:
  planes   K of all heads | K scales of all heads | V of all heads | V scales of all heads
  slots    for each head: K | K scales, then V | V scales (a slot of 9,216 bytes in NVFP4)
  packed   for each head and token: K row, V row side by side (formats without scales)
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import torch
from torch import Tensor

from msa_ops.formats import nvfp4

PAGE_SIZE = 128
"""Tokens a page, which is also the block that the indexer scores."""

HEAD_DIM = 128

_Choice = TypeVar("_Choice", bound=StrEnum)


def choose(kind: type[_Choice], argument: str, value: str) -> _Choice:
    """The member of `kind` with that value; ValueError naming the argument and all values otherwise."""
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"{argument}: {value!r}; accepted: {', '.join(kind)}") from None


class CacheFormat(StrEnum):
    """Element format of a cache. fp32 is for comparing models, not for serving."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP8 = "fp8"
    NVFP4 = "nvfp4"

    @property
    def row_bytes(self) -> int:
        """Bytes of one head's 128 elements of one token, without scales."""
        return {"fp32": 512, "bf16": 256, "fp8": 128, "nvfp4": 64}[self.value]

    @property
    def scale_bytes(self) -> int:
        """Scale bytes of one head's 128 elements of one token."""
        return HEAD_DIM // nvfp4.GROUP if self is CacheFormat.NVFP4 else 0


class PageLayout(StrEnum):
    PLANES = "planes"
    SLOTS = "slots"
    PACKED = "packed"


@dataclass(frozen=True)
class Member:
    """One member of a page: byte offset, strides in bytes, and bytes of a (head, token) row."""

    offset: int
    head_stride: int
    token_stride: int
    row_bytes: int


@dataclass(frozen=True)
class Page:
    """The inside of a page: its members by name and its size in bytes."""

    format: CacheFormat
    num_heads: int
    members: tuple[tuple[str, Member], ...]
    bytes: int

    def member(self, name: str) -> Member:
        for found, member in self.members:
            if found == name:
                return member
        raise ValueError(f"member: {name!r}; accepted: {', '.join(found for found, _ in self.members)}")

    def view(self, cache: Tensor, name: str) -> Tensor:
        """The member in all pages of `cache`: uint8 [num_pages, num_heads, 128, row_bytes], no copy.

        Scales appear in stored order: with a layout other than linear, flatten the last two dimensions and use
        `formats.scale_layout`. Raises ValueError if `cache` is not uint8 [num_pages, >= page bytes] with
        contiguous pages, or has no such member.
        """
        member = self.member(name)
        if cache.dtype != torch.uint8 or cache.dim() != 2:
            raise ValueError(f"cache: {cache.dtype} {list(cache.shape)}; accepted: uint8 [num_pages, {self.bytes}]")
        if cache.shape[1] < self.bytes or cache.stride(1) != 1:
            raise ValueError(
                f"cache: pages of {cache.shape[1]} bytes with strides {cache.stride()}; accepted: pages of "
                f"{self.bytes} contiguous bytes"
            )
        return cache.as_strided(
            (cache.shape[0], self.num_heads, PAGE_SIZE, member.row_bytes),
            (cache.stride(0), member.head_stride, member.token_stride, 1),
            cache.storage_offset() + member.offset,
        )


@functools.cache
def main_page(kv_format: str, num_heads: int, kv_layout: str = "planes") -> Page:
    """The page of K and V of one layer for `num_heads` KV heads.

    Raises ValueError for an unknown format or layout, no heads, or packed pages of a format that has scales.
    """
    fmt, layout = choose(CacheFormat, "kv_format", kv_format), choose(PageLayout, "kv_layout", kv_layout)
    if num_heads < 1:
        raise ValueError(f"num_heads: {num_heads}; accepted: 1 or more")
    row, scale = fmt.row_bytes, fmt.scale_bytes
    plane, scales = PAGE_SIZE * row, PAGE_SIZE * scale
    names = ("k", "k_scale", "v", "v_scale") if scale else ("k", "v")
    sizes = {"k": (plane, row), "v": (plane, row), "k_scale": (scales, scale), "v_scale": (scales, scale)}
    members: list[tuple[str, Member]] = []
    if layout is PageLayout.PACKED:
        if scale:
            raise ValueError(f"kv_layout: packed pages hold no scales; accepted for {fmt}: planes, slots")
        stride = PAGE_SIZE * 2 * row
        members = [("k", Member(0, stride, 2 * row, row)), ("v", Member(row, stride, 2 * row, row))]
    elif layout is PageLayout.SLOTS:
        offset, stride = 0, 2 * (plane + scales)
        for name in names:
            size, width = sizes[name]
            members.append((name, Member(offset, stride, width, width)))
            offset += size
    else:
        offset = 0
        for name in names:
            size, width = sizes[name]
            members.append((name, Member(offset, size, width, width)))
            offset += num_heads * size
    return Page(fmt, num_heads, tuple(members), num_heads * 2 * (plane + scales))


@functools.cache
def index_page(index_format: str) -> Page:
    """The page of index keys of one layer: one head that all index query heads share, K then linear scales.

    Raises ValueError for an unknown format.
    """
    fmt = choose(CacheFormat, "index_format", index_format)
    plane, scales = PAGE_SIZE * fmt.row_bytes, PAGE_SIZE * fmt.scale_bytes
    members = [("k", Member(0, plane, fmt.row_bytes, fmt.row_bytes))]
    if scales:
        members.append(("k_scale", Member(plane, scales, fmt.scale_bytes, fmt.scale_bytes)))
    return Page(fmt, 1, tuple(members), plane + scales)
