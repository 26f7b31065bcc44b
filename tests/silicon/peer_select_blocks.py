"""select_blocks beside torch.topk and a sort of the ids, on a GPU: `python -m tests.silicon.peer_select_blocks > OUT`.

Both in CUDA graphs over the same sets of scores, which together displace the caches; medians, in turns.
"""

from __future__ import annotations

import dataclasses
import json
import statistics

import torch
from torch import Tensor

from msa_ops.bench import timer
from msa_ops.bench.argument_sets import make_call, poisoned_outputs
from msa_ops.ops import select_blocks
from msa_ops.ops.select_blocks import SPEC

BACKEND = "cute_sm90"
SETS_BYTES = 140 << 20
SAMPLES = 30
SHAPES = [(128, 1, 4096, 16), (32, 4, 1024, 16), (128, 1, 16384, 64), (8192, 4, 1024, 16)]
"""Tokens, heads, blocks, topk."""


def topk_sort(args: select_blocks.Args) -> Tensor:
    return torch.topk(args.scores, args.topk, dim=-1, sorted=False).indices.sort(dim=-1).values


def measure(tokens: int, heads: int, blocks: int, topk: int) -> dict[str, object]:
    dims = {"tokens": tokens, "num_heads": heads, "max_blocks": blocks, "topk": topk, "local_blocks": 0}
    count = min(64, max(2, -(-SETS_BYTES // (4 * tokens * heads * blocks))))
    sets = []
    for seed in range(count):
        args = SPEC.generate(seed, device="cuda", **dims)
        scores = torch.randn(args.scores.shape, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))
        sets.append(dataclasses.replace(args, scores=scores, num_blocks=torch.full_like(args.num_blocks, blocks)))
    outs = [poisoned_outputs(SPEC, args) for args in sets]
    ours = [make_call(SPEC, BACKEND, args, out) for args, out in zip(sets, outs, strict=True)]
    clock = timer.GraphTimer(torch.device("cuda"))
    samplers = [clock.prepare(ours), clock.prepare([lambda args=args: topk_sort(args) for args in sets])]
    ours_us, peer_us = (
        statistics.median(samples) * 1e6 for samples in timer.take(samplers, SAMPLES, 0.0, SAMPLES, SAMPLES)
    )
    same = all(bool((out[0] == topk_sort(args)).all()) for args, out in zip(sets, outs, strict=True))
    shape = {"tokens": tokens, "heads": heads, "blocks": blocks, "topk": topk, "sets": count, "same_ids": same}
    return shape | {
        "us": round(ours_us, 2),
        "torch_topk_sort_us": round(peer_us, 2),
        "faster": round(peer_us / ours_us, 2),
    }


def main() -> None:
    cases = [measure(*shape) for shape in SHAPES]
    print(json.dumps({"device": torch.cuda.get_device_name(), "samples": SAMPLES, "cases": cases}, indent=1))


if __name__ == "__main__":
    main()
