"""The kernel of sparse_attention for verification: tiles of tokens that chose alike, and of tokens that did not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import msa_ops
from msa_ops import _C
from msa_ops.ops import sparse_attention

KERNEL = "sparse_attention__chosen_nvfp4__sm_90a"
BYTES = 128 * 2 * (64 + 8)
"""K and V of a page and KV head with their scales."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        (KERNEL, "sm_90a") not in _C.compiled_kernels(), reason=f"this build of msa_ops does not hold {KERNEL}"
    ),
]


def run(args: sparse_attention.Args, seed: int | None = None) -> tuple[tuple[torch.Tensor, ...], int]:
    """Results, and the bytes that were read of the cache."""
    values: dict[str, Any] = {name: getattr(args, name) for name in args.__dataclass_fields__ if name != "workspace"}
    with msa_ops.emulate("sm_90a", seed=seed) as chip:
        outs = msa_ops.sparse_attention(**values, backend="cute_sm90", return_lse=True)
    (launch,) = chip.launches
    assert launch.kernel == KERNEL
    return outs, launch.report.tensors["kv_cache"].read


def of_tiles(ids: torch.Tensor) -> torch.Tensor:
    """[tiles, ids] of tiles of 8 tokens."""
    return ids.reshape(-1, 8 * ids.shape[-1])


@pytest.mark.parametrize("batch", [24, 34], ids=["two blocks a tile", "one block a tile"])
def test_pages_are_read_once_for_tokens_that_chose_alike_and_for_each_of_others(batch: int) -> None:
    dims = {"batch": batch, "q_len": 16, "seq_len": 2048, "num_heads": 2, "num_kv_heads": 1, "topk": 4}
    alike = sparse_attention.generate(1, **dims, overlap=1.0)
    apart = sparse_attention.generate(1, **dims, overlap=0.0)
    _, read = run(alike)
    assert read == BYTES * sum(row.unique().numel() for row in of_tiles(alike.block_ids))
    _, read = run(apart)
    different = torch.tensor([row.unique().numel() for row in of_tiles(apart.block_ids)])
    assert bool((3 * different > 32).any())
    assert read == BYTES * int(torch.where(3 * different > 32, 32, different).sum())


def test_tiles_decide_for_themselves_and_every_schedule_gives_the_same() -> None:
    dims = {"batch": 24, "q_len": 16, "seq_len": 2048, "num_heads": 16, "num_kv_heads": 1, "topk": 4}
    args = sparse_attention.generate(2, **dims)
    ids = args.block_ids.view(24, 2, 8, 4)
    ids[::2, :, 1:, :3] = ids[::2, :, :1, :3]  # the tokens of every second request choose alike but for the last block
    expected = sparse_attention.reference(args)
    tolerances = sparse_attention.tolerance(args)
    first, read = run(args)
    assert BYTES * 24 * 2 * 4 < read < BYTES * 24 * 2 * 32
    for value, want, tolerance in zip(first, expected, tolerances, strict=True):
        torch.testing.assert_close(value.float(), want.float(), rtol=tolerance.rtol, atol=tolerance.atol)
    for seed in range(3):
        assert all(map(torch.equal, run(args, seed)[0], first)), f"schedule {seed}"
