"""Long queries of sparse_attention on an emulated chip with so few multiprocessors that each works on many items."""

from __future__ import annotations

import pytest
import torch

import msa_ops
from msa_ops import _C
from msa_ops.ops import sparse_attention


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize(("neighbours", "kv_format"), [(1, "nvfp4"), (64, "nvfp4"), (1, "fp8"), (64, "bf16")])
def test_thread_blocks_go_from_item_to_item(neighbours: int, kv_format: str, seed: int | None) -> None:
    """Warps that wait for barriers of each other's items are far apart under a random schedule."""
    if f"sparse_attention__blocks_{kv_format}__sm_90a" not in {name for name, _ in _C.compiled_kernels()}:
        pytest.skip("this build of msa_ops holds no such kernel")
    args = sparse_attention.generate(
        3,
        batch=1,
        q_len=72,
        seq_len=2500,
        num_heads=16,
        num_kv_heads=1,
        topk=8,
        neighbours=neighbours,
        kv_format=kv_format,
    )
    wanted = sparse_attention.reference(args)
    with msa_ops.emulate("sm_90a", multiprocessors=1, seed=seed):
        found = msa_ops.sparse_attention(
            args.q,
            args.kv_cache,
            args.block_ids,
            args.block_table,
            args.seq_lens,
            args.cu_seqlens_q,
            num_kv_heads=1,
            kv_format=kv_format,
            return_lse=True,
            backend="cute_sm90_prefill",
        )
    for one, other, tolerance in zip(found, wanted, sparse_attention.tolerance(args), strict=True):
        torch.testing.assert_close(one.float(), other.float(), rtol=tolerance.rtol, atol=tolerance.atol)
