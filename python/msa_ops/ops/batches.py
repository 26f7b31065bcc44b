"""Seeded inputs of ops that read a paged cache: ragged batches, block tables, cache pages, and hostile forms of them.

The same seed on the same kind of device gives the same bytes. Pages are made on the device by in-place random bytes,
so that caches of many gigabytes take seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from msa_ops.cache.page import PAGE_SIZE, CacheFormat, Page
from msa_ops.formats.scale_layout import ScaleLayout, offsets
from msa_ops.ops import checks

VARIANTS = ("plain", "ragged", "chunked", "padding", "short", "garbage", "bad_pages", "too_long")
"""Kinds of batches.

plain: every request has seq_len tokens and q_len query tokens; cu_seqlens_q is None.
ragged: lengths between 1 and seq_len, query lengths between 0 and q_len, in cu_seqlens_q.
chunked: query chunks that begin and end inside a block, of up to q_len + 128 tokens.
padding: some requests have length 0, and query tokens follow that belong to no request.
short: lengths from 0 to 3, also fewer than there are query tokens.
garbage: ragged, with unusable entries behind the lengths in the table, rows of a wider table, pages of a wider pool,
    and NaN bytes in every token of the cache that no request has written (see `poison`).
bad_pages: some entries in use name pages that do not exist.
too_long: some lengths exceed the width of the table.
"""

CONTENTS = ("random", "integers")
_E4M3_INTEGERS = (0x00, 0x38, 0x40, 0x44, 0x00, 0xB8, 0xC0, 0xC4)  # 0, 1, 2, 3 and their negatives
GARBAGE_IDS = (-1, -(2**31), 2**31 - 1, -7)
POOL_GAP = 4096
"""Bytes between pages in variants with a larger page stride."""


@dataclass(frozen=True)
class Batch:
    """A ragged batch: block_table int32 [B, max_blocks], seq_lens int32 [B], cu_seqlens_q int32 [B + 1] or None."""

    block_table: Tensor
    seq_lens: Tensor
    cu_seqlens_q: Tensor | None
    num_tokens: int
    num_pages: int
    variant: str

    def written(self) -> Tensor:
        """bool [num_pages, 128]: the cache tokens that belong to a request of the batch."""
        batch, width = self.block_table.shape
        device = self.block_table.device
        token = torch.arange(width * PAGE_SIZE, device=device).view(width, PAGE_SIZE)
        result = torch.zeros(self.num_pages, PAGE_SIZE, dtype=torch.bool, device=device)
        for request in range(batch):
            page = self.block_table[request].long()
            seen = token < self.seq_lens[request]
            used = seen[:, 0] & (page >= 0) & (page < self.num_pages)
            result[page[used]] |= seen[used]
        return result


def ragged_batch(
    seed: int,
    *,
    batch: int = 4,
    seq_len: int = 700,
    q_len: int = 1,
    seq_lens: Sequence[int] | None = None,
    q_lens: Sequence[int] | None = None,
    max_blocks: int | None = None,
    spare_pages: int = 3,
    variant: str = "plain",
    device: str = "cpu",
) -> Batch:
    """A batch of `batch` requests of up to `seq_len` tokens with up to `q_len` query tokens each.

    `seq_lens` and `q_lens` replace the drawn lengths (and `batch`). `max_blocks`: width of the table, by default what
    the longest request needs and one more. Page ids are a random permutation; `spare_pages` more pages exist than are
    in use.
    """
    checks.choice("variant", variant, VARIANTS)
    generator = torch.Generator().manual_seed(seed)
    if seq_lens is not None or q_lens is not None:
        batch = len(seq_lens if seq_lens is not None else q_lens or ())
    lengths, queries, padding = _lengths(generator, batch, seq_len, q_len, variant)
    lengths = lengths if seq_lens is None else list(seq_lens)
    queries = queries if q_lens is None else list(q_lens)
    if len(queries) != len(lengths):
        raise ValueError(f"q_lens: {len(queries)} requests; accepted: {len(lengths)}, one for each of seq_lens")
    needed = torch.tensor([-(-max(length, 0) // PAGE_SIZE) for length in lengths], dtype=torch.int64)
    width = max_blocks if max_blocks is not None else int(needed.max() if len(lengths) else 0) + 1
    used = torch.arange(width) < needed.clamp(max=width).unsqueeze(1)
    total = int(used.sum())
    num_pages = total + spare_pages
    table = torch.zeros(len(lengths), width, dtype=torch.int64)
    if variant == "garbage":
        choices = torch.tensor([*GARBAGE_IDS, 0, num_pages, num_pages + 1])
        table = choices[torch.randint(len(choices), table.shape, generator=generator)]
    table[used] = torch.randperm(num_pages, generator=generator)[:total]
    if variant == "bad_pages":
        choices = torch.tensor([*GARBAGE_IDS, num_pages])
        bad = used & (torch.rand(table.shape, generator=generator) < 0.3)
        table[bad] = choices[torch.randint(len(choices), (int(bad.sum()),), generator=generator)]
    if variant == "too_long":
        lengths = [width * PAGE_SIZE + 1 + 77 * i if i % 2 == 0 else n for i, n in enumerate(lengths)]
    rows = table.to(device, torch.int32)
    if variant == "garbage":
        wide = torch.full((len(lengths), width + 5), -1, dtype=torch.int32, device=device)
        wide[:, 2 : width + 2] = rows
        rows = wide[:, 2 : width + 2]
    uniform = padding == 0 and len(set(queries)) == 1 and variant == "plain"
    starts = torch.tensor([0, *queries]).cumsum(0)
    return Batch(
        rows,
        torch.tensor(lengths, dtype=torch.int32).to(device),
        None if uniform else starts.to(device, torch.int32),
        int(starts[-1]) + padding,
        num_pages,
        variant,
    )


def paged_cache(
    seed: int,
    page: Page,
    batch: Batch,
    *,
    content: str = "random",
    k_scale_layout: str = "linear",
    v_scale_layout: str = "linear",
    page_stride: int | None = None,
) -> Tensor:
    """uint8 [num_pages, page.bytes] for `batch`: valid codes and scales of values of about unit size.

    `content`: "random", or "integers" (values that are small multiples of 0.5, so that sums of products with integers
    are exact in any order and in both rounding modes). The variant "garbage" widens the page stride and puts NaN
    bytes into every token that no request has written.
    """
    checks.choice("content", content, CONTENTS)
    device = batch.block_table.device
    generator = torch.Generator(device).manual_seed(seed)
    if page_stride is None:
        page_stride = page.bytes + (POOL_GAP if batch.variant == "garbage" else 0)
    memory = torch.empty(batch.num_pages, page_stride, dtype=torch.uint8, device=device)
    cache = memory.random_(0, 256, generator=generator)[:, : page.bytes]
    for name, _ in page.members:
        _fill(page.view(cache, name), page.format, name.endswith("_scale"), content, generator)
    if batch.variant == "garbage":
        poison(cache, page, ~batch.written(), k_scale_layout=k_scale_layout, v_scale_layout=v_scale_layout)
    return cache


def poison(
    cache: Tensor,
    page: Page,
    tokens: Tensor,
    *,
    value: int = 0xFF,
    k_scale_layout: str = "linear",
    v_scale_layout: str = "linear",
) -> None:
    """Overwrites codes and scales of `tokens` (bool [num_pages, 128]) with bytes `value`; 0xFF means NaN."""
    layouts = {"k_scale": k_scale_layout, "v_scale": v_scale_layout}
    for name, member in page.members:
        view = page.view(cache, name)
        if name not in layouts:
            view.masked_fill_(tokens[:, None, :, None], value)
            continue
        # Scales of one page and head are one run of bytes in any layout; `order` says where a token's stand in it.
        flat = view.as_strided(
            (*view.shape[:2], PAGE_SIZE * member.row_bytes), (*view.stride()[:2], 1), view.storage_offset()
        )
        order = offsets(ScaleLayout(layouts[name]), PAGE_SIZE, member.row_bytes).to(cache.device)
        stored = torch.zeros(len(tokens), PAGE_SIZE * member.row_bytes, dtype=torch.bool, device=cache.device)
        stored[:, order.flatten()] = tokens.repeat_interleave(member.row_bytes, dim=1)
        flat.masked_fill_(stored[:, None, :], value)


def query(
    seed: int,
    num_tokens: int,
    num_heads: int,
    *,
    dtype: str = "bfloat16",
    content: str = "random",
    device: str | torch.device = "cpu",
) -> Tensor:
    """[T, num_heads, 128] of `dtype` (also float8_e4m3fn): unit normal, or integers between -3 and 3."""
    checks.choice("content", content, CONTENTS)
    generator = torch.Generator(device).manual_seed(seed)
    shape = (num_tokens, num_heads, 128)
    if content == "integers":
        return (
            torch.randint(-3, 4, shape, generator=generator, device=device)
            .to(torch.float32)
            .to(checks.dtype_named(dtype))
        )
    return torch.randn(shape, generator=generator, device=device).to(checks.dtype_named(dtype))


def _lengths(
    generator: torch.Generator, batch: int, seq_len: int, q_len: int, variant: str
) -> tuple[list[int], list[int], int]:
    """seq_lens, query lengths, and the number of padding tokens."""

    def draw(low: int, high: int) -> list[int]:
        return torch.randint(low, max(low, high) + 1, (batch,), generator=generator).tolist()

    if variant in ("plain", "bad_pages", "too_long"):
        return [seq_len] * batch, [q_len] * batch, 0
    if variant == "short":
        return draw(0, 3), draw(0, max(q_len, 4)), 0
    lengths = draw(1, seq_len)
    queries = draw(1, q_len + PAGE_SIZE) if variant == "chunked" else draw(0, q_len)
    queries = [min(q, n) for q, n in zip(queries, lengths, strict=True)]
    if variant == "padding":
        lengths = [0 if i % 2 else n for i, n in enumerate(lengths)]
        queries = [max(q, 1) for q in queries]
        return lengths, queries, 3
    return lengths, queries, 0


def _fill(view: Tensor, fmt: CacheFormat, is_scale: bool, content: str, generator: torch.Generator) -> None:
    """Turns random bytes in place into valid values of the member."""
    if is_scale:
        if content == "integers":
            view.fill_(0x38)  # 1.0
        else:
            view.bitwise_and_(0x0F).add_(0x22)  # 0.156 to 0.56
        return
    if fmt is CacheFormat.NVFP4:
        return  # every byte holds two valid codes
    if fmt is CacheFormat.FP8:
        if content == "integers":
            values = torch.tensor(_E4M3_INTEGERS, dtype=torch.uint8, device=view.device)
            view.copy_(values[view.long() & 7])
        else:
            view.bitwise_and_(0x9F).add_(0x28)  # magnitudes 0.25 to 3.75
        return
    values = view.view(checks.dtype_named("float32" if fmt is CacheFormat.FP32 else "bfloat16"))
    if content == "integers":
        values.random_(-3, 4, generator=generator)
    else:
        values.normal_(generator=generator)
