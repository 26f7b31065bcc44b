"""The numpy oracle on the argument record of sparse_attention or dense_attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.contract.oracles.paged_attention import Cache, attention


def attention_of_args(args: Any) -> tuple[Tensor, Tensor]:
    """float64 out [T, Hq, 128] and lse [T, Hq]."""
    ids = getattr(args, "block_ids", None)
    if ids is not None and args.topk_layout == "HTK":
        ids = ids.transpose(0, 1)
    cache = Cache(
        args.kv_cache.numpy(),
        args.num_kv_heads,
        args.kv_format,
        args.kv_layout,
        args.k_scale_layout,
        args.v_scale_layout,
        1.0 if args.k_scale is None else float(args.k_scale),
        1.0 if args.v_scale is None else float(args.v_scale),
        args.rounding,
    )
    out, lse = attention(
        args.q.double().numpy(),
        cache,
        args.block_table.numpy(),
        args.seq_lens.tolist(),
        None if args.cu_seqlens_q is None else args.cu_seqlens_q.tolist(),
        None if ids is None else ids.numpy(),
        128**-0.5 if args.softmax_scale is None else args.softmax_scale,
    )
    return torch.from_numpy(out), torch.from_numpy(lse)
