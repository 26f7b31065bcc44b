"""sparse_attention on Hopper."""

from __future__ import annotations

from torch import Tensor

from msa_ops.cache.page import main_page
from msa_ops.nvidia.launch import bits, launch, pointer
from msa_ops.ops.attention_arguments import scale_of_softmax
from msa_ops.ops.sparse_attention import Args

MAX_SPLITS = 8
EVICT_NORMAL = 0x1000000000000000
EVICT_FIRST = 0x12F0000000000000


def sm90(a: Args, outs: tuple[Tensor, ...]) -> None:
    """Target of the backend "cute_sm90"."""
    tokens, batch = a.q.shape[0], a.seq_lens.shape[0]
    if tokens == 0:
        return
    pairs = tokens * a.num_kv_heads
    splits = choose_splits(pairs, a.block_ids.shape[2])
    start(a, outs, warps=4, splits=splits, evict_first=tokens <= batch)


def choose_splits(pairs: int, topk: int) -> int:
    """Thread blocks that share a query token and KV head: enough to fill the chip, at most one a selected block."""
    splits = 1
    while splits < MAX_SPLITS and 2 * splits <= topk and pairs * splits < 512:
        splits *= 2
    return splits


def start(a: Args, outs: tuple[Tensor, ...], *, warps: int, splits: int, evict_first: bool) -> None:
    """Launches one configuration."""
    out, lse = outs
    page = main_page(a.kv_format, a.num_kv_heads, a.kv_layout)
    k, v = page.member("k"), page.member("v")
    scaled = a.kv_format == "nvfp4"
    token_major = a.topk_layout == "THK"
    ids_strides = a.block_ids.stride()
    packed = "packed" if a.kv_layout == "packed" else "planes"
    launch(
        f"sparse_attention__{a.kv_format}_{packed}_w{warps}__sm_90a",
        a.q.device,
        pointer(a.q),
        pointer(a.kv_cache),
        pointer(a.block_ids),
        pointer(a.block_table),
        pointer(a.seq_lens),
        pointer(a.cu_seqlens_q),
        pointer(a.k_scale),
        pointer(a.v_scale),
        pointer(out),
        pointer(lse),
        a.q.stride(0),
        a.q.stride(1),
        a.kv_cache.stride(0),
        ids_strides[0 if token_major else 1],
        ids_strides[1 if token_major else 0],
        a.block_table.stride(0),
        EVICT_FIRST if evict_first else EVICT_NORMAL,
        a.q.shape[0],
        a.seq_lens.shape[0],
        a.num_kv_heads,
        a.q.shape[1] // a.num_kv_heads,
        a.block_ids.shape[2],
        a.kv_cache.shape[0],
        a.block_table.shape[1],
        k.head_stride,
        page.member("k_scale").head_stride if scaled else 0,
        page.member("k_scale").offset if scaled else 0,
        v.offset,
        page.member("v_scale").offset if scaled else 0,
        splits,
        bits(scale_of_softmax(a)),
    )
