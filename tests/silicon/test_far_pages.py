from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from tests.contract.target import Target, assert_close
from tests.silicon.cases import Case, call, outputs

# Byte offsets at which 32-bit arithmetic on bytes, halves, words and 16-byte units goes wrong, signed or unsigned.
THRESHOLDS = tuple(2**bits * unit for bits in (31, 32) for unit in (1, 2, 4, 8))


def cache_name(args: Any) -> str | None:
    names = [name for name in ("kv_cache", "index_cache") if getattr(args, name, None) is not None]
    return names[0] if len(names) == 1 and hasattr(args, "block_table") else None


def test_pages_on_both_sides_of_each_threshold(target: Target, case: Case) -> None:
    args = case.args(6)
    name = cache_name(args)
    if name is None:
        pytest.skip("reads no pages")
    near = getattr(args, name)
    pages, page_bytes = near.shape
    free, _ = torch.cuda.mem_get_info()
    reachable = [threshold for threshold in THRESHOLDS if threshold < 0.8 * free]
    assert len(reachable) >= 4
    memory = torch.empty(max(reachable) + pages * page_bytes, dtype=torch.uint8, device="cuda")
    far = memory[: memory.numel() // page_bytes * page_bytes].view(-1, page_bytes)
    expected = case.spec.reference(args)
    for threshold in reachable:
        shift = threshold // page_bytes - pages // 2
        far[shift : shift + pages] = near
        moved = dataclasses.replace(args, **{name: far}, block_table=args.block_table + shift)
        outs = outputs(case, moved)
        call(case, target.backend, moved, outs)
        for output, out, value, bound in zip(case.spec.outputs, outs, expected, case.spec.tolerance(args), strict=True):
            assert_close(out.cpu(), value.cpu(), bound, f"offset {threshold}: {output}")
