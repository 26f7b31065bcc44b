"""dense_attention on Hopper, and what its launches have in common with those of sparse_attention of long queries."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from msa_ops.cache.page import main_page
from msa_ops.cute.tiled_attention import layout  # type: ignore[import-untyped]
from msa_ops.nvidia.launch import bits, launch, pointer, require_aligned
from msa_ops.ops.attention_arguments import Facts, scale_of_softmax
from msa_ops.ops.dense_attention import Args as DenseArgs
from msa_ops.ops.sparse_attention import Args as SparseArgs
from msa_ops.registry import platform as platforms
from msa_ops.registry.platform import Platform

MOST_ALTERNATE_ROWS = 8192
"""(query token, KV head) rows for which results in two parts, and their merge, cost little."""


@dataclass(frozen=True)
class Shape:
    """alternate: a thread block has four query tokens, and its two warpgroups take the pages in turn; else eight, four
    for each. splits: parts of a tile's pages.
    """

    alternate: bool
    splits: int

    @property
    def tokens(self) -> int:
        """Of a tile."""
        return layout.TOKENS_OF_GROUP * (1 if self.alternate else 2)

    @property
    def parts(self) -> int:
        """Of a row of results; one is the result."""
        return self.splits * (2 if self.alternate else 1)


@dataclass(frozen=True)
class CacheStrides:
    """Bytes inside a page, as the kernels take them."""

    token: int
    head: int
    scale_head: int
    k_scale: int
    v: int
    v_scale: int


def cache_strides(a: SparseArgs | DenseArgs) -> CacheStrides:
    page = main_page(a.kv_format, a.num_kv_heads, a.kv_layout)
    k, v = page.member("k"), page.member("v")
    if a.kv_format != "nvfp4":
        return CacheStrides(k.token_stride, k.head_stride, 0, 0, v.offset, 0)
    scales = page.member("k_scale")
    return CacheStrides(
        k.token_stride, k.head_stride, scales.head_stride, scales.offset, v.offset, page.member("v_scale").offset
    )


def choose_shape(tokens: int, batch: int, ragged: bool, num_kv_heads: int, max_blocks: int, processors: int) -> Shape:
    """For a call of dense_attention, from what the host knows.

    Up to four tokens a request fill one warpgroup's products. With fewer tiles than multiprocessors, the pages of a
    tile are divided until all have work, but not below eight pages each.
    """
    alternate = tokens <= layout.TOKENS_OF_GROUP * batch and tokens * num_kv_heads <= MOST_ALTERNATE_ROWS
    tiles = number_of_tiles(tokens, batch, ragged, Shape(alternate, 1).tokens) * num_kv_heads
    return Shape(alternate, max(1, min(processors // max(tiles, 1), max_blocks // 8)))


def number_of_tiles(tokens: int, batch: int, ragged: bool, size: int) -> int:
    """As many tiles of `size` tokens as there may be, whatever the lengths on the device are."""
    if ragged:
        return min(tokens, tokens // size + batch + 2)
    each = tokens // max(batch, 1)
    return batch * -(-each // size) + -(-(tokens - batch * each) // size)


def require_plain(a: SparseArgs | DenseArgs, outs: tuple[Tensor, ...]) -> None:
    """Raises ValueError for lengths that lie apart, and for results at addresses that vector stores cannot take."""
    require_aligned("out", outs[0])
    for name in ("seq_lens", "cu_seqlens_q"):
        value = getattr(a, name)
        if value is not None and not value.is_contiguous():
            raise ValueError(f"{name}: strides {value.stride()}; accepted: contiguous")


def dense_workspace(platform: Platform, facts: Facts) -> int:
    """Parts of results. Divided tiles are fewer than multiprocessors, and have up to eight tokens."""
    parts = 8 * platform.multiprocessors
    if facts.tokens <= layout.TOKENS_OF_GROUP * facts.batch:
        parts = max(parts, 2 * min(facts.tokens * facts.num_kv_heads, MOST_ALTERNATE_ROWS))
    return parts * (layout.PART_BYTES + layout.PART_LSE_BYTES)


def sm90_dense(a: DenseArgs, outs: tuple[Tensor, ...]) -> None:
    """Target of the backend "cute_sm90" of dense_attention."""
    tokens, batch = a.q.shape[0], a.seq_lens.shape[0]
    if tokens == 0:
        return
    processors = platforms.of_device(a.q.device).multiprocessors
    ragged = a.cu_seqlens_q is not None
    start_dense(a, outs, choose_shape(tokens, batch, ragged, a.num_kv_heads, a.block_table.shape[1], processors))


def start_dense(a: DenseArgs, outs: tuple[Tensor, ...], shape: Shape) -> None:
    """Launches one configuration, and the merge of parts if it makes some."""
    if shape.parts == 1:
        start_tiles(a, outs, shape)
        return
    assert a.workspace is not None
    parts = a.q.shape[0] * a.num_kv_heads * shape.parts
    partial_out = pointer(a.workspace)
    partial_lse = partial_out + parts * layout.PART_BYTES
    if parts * (layout.PART_BYTES + layout.PART_LSE_BYTES) > a.workspace.numel():
        raise ValueError(f"workspace: {a.workspace.numel()} bytes are too few for {parts} parts")
    start_tiles(a, outs, shape, partial_out=partial_out, partial_lse=partial_lse)
    merge(a, outs, partial_out, partial_lse, 0, 0, a.num_kv_heads, shape.parts)


def start_tiles(
    a: DenseArgs, outs: tuple[Tensor, ...], shape: Shape, *, partial_out: int = 0, partial_lse: int = 0
) -> None:
    """Launches the kernel; partial_out and partial_lse are addresses."""
    require_plain(a, outs)
    out, lse = outs
    tokens, batch = a.q.shape[0], a.seq_lens.shape[0]
    strides = cache_strides(a)
    launch(
        f"dense_attention__tiles_{a.kv_format}_{'a2' if shape.alternate else 'g2'}__sm_90a",
        a.q.device,
        pointer(a.q),
        pointer(a.kv_cache),
        pointer(a.block_table),
        pointer(a.seq_lens),
        pointer(a.cu_seqlens_q),
        pointer(a.k_scale),
        pointer(a.v_scale),
        pointer(out),
        pointer(lse),
        partial_out,
        partial_lse,
        a.q.stride(0),
        a.q.stride(1),
        a.q.element_size(),
        a.kv_cache.stride(0),
        a.block_table.stride(0),
        tokens,
        batch,
        a.num_kv_heads,
        a.q.shape[1] // a.num_kv_heads,
        a.kv_cache.shape[0],
        a.block_table.shape[1],
        strides.token,
        strides.head,
        strides.scale_head,
        strides.k_scale,
        strides.v,
        strides.v_scale,
        number_of_tiles(tokens, batch, a.cu_seqlens_q is not None, shape.tokens),
        shape.splits,
        bits(scale_of_softmax(a)),
    )


def merge(
    a: SparseArgs | DenseArgs,
    outs: tuple[Tensor, ...],
    partial_out: int,
    partial_lse: int,
    ways: int,
    head_begin: int,
    num_kv_heads: int,
    parts: int,
) -> None:
    """Launches the merge of parts [tokens, num_kv_heads, parts] of KV heads from head_begin on."""
    op = "sparse_attention" if isinstance(a, SparseArgs) else "dense_attention"
    launch(
        f"{op}__merge_{a.kv_format}__sm_90a",
        a.q.device,
        partial_out,
        partial_lse,
        ways,
        pointer(a.v_scale),
        pointer(outs[0]),
        pointer(outs[1]),
        a.q.shape[0],
        num_kv_heads,
        head_begin,
        a.num_kv_heads,
        a.q.shape[1] // a.num_kv_heads,
        parts,
    )
