"""The calls that are captured, repeated and overlapped: decode and verification in the shapes of one GPU."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import msa_ops  # noqa: F401  (registers the ops)
from msa_ops.bench.argument_sets import copy
from msa_ops.registry import STORE
from msa_ops.registry import platform as platforms
from msa_ops.registry.op import OpSpec


@functools.lru_cache(maxsize=4)
def _generated(op: str, dims: tuple[tuple[str, Any], ...], seed: int) -> Any:
    """Tests use the same ones many times, and making them takes up to seconds."""
    return STORE.op(op).generate(seed, device="cuda", **dict(dims))


@functools.cache
def _facts(op: str, dims: tuple[tuple[str, Any], ...]) -> Any:
    """Every test and every process of xdist asks when tests are collected."""
    spec = STORE.op(op)
    return spec.facts(spec.generate(0, device="cuda", **dict(dims)))


@dataclass(frozen=True)
class Case:
    """One op with the dims of its generator. `ragged`: the op reads `seq_lens`, which a graph may replay changed."""

    op: str
    dims: Mapping[str, Any] = field(default_factory=dict)
    ragged: bool = False

    @property
    def spec(self) -> OpSpec:
        return STORE.op(self.op)

    def args(self, seed: int) -> Any:
        """In memory of their own each time."""
        return copy(_generated(self.op, tuple(self.dims.items()), seed))

    def accepted(self, backend: str) -> bool:
        """Whether this GPU's backend takes the case."""
        record = next(record for record in STORE.backends(self.op) if record.name == backend)
        platform = platforms.of_device(torch.device("cuda"))
        return not record.call_refusals(platform, _facts(self.op, tuple(self.dims.items())))


LONGEST = 8192  # tokens, of ragged cases
ATTENTION = {"seq_len": LONGEST, "topk": 16}
DENSE = {"seq_len": LONGEST, "batch": 4}
INDEXER = {"seq_len": LONGEST, "batch": 4}

CASES = {
    "quantize": Case("quantize_nvfp4", {"rows": 256, "columns": 6144}),
    "insert": Case("qk_norm_rope_insert", {"batch": 32, "q_len": 1, "num_heads": 64, "num_kv_heads": 4}),
    "insert-tp4-fp8": Case(
        "qk_norm_rope_insert",
        {"batch": 8, "q_len": 4, "num_heads": 16, "num_kv_heads": 1, "num_index_heads": 1, "kv_format": "fp8"},
    ),
    "select": Case("select_blocks", {"tokens": 128, "num_heads": 1, "max_blocks": 4096}),
    "indexer-decode": Case("indexer", INDEXER | {"q_len": 1}, ragged=True),
    "indexer-verify-tp4": Case("indexer", INDEXER | {"q_len": 4, "num_heads": 1}, ragged=True),
    # At their full length warpgroups multiply, at others warps; see msa_ops.cute.indexer.sm90_group_scan_configs.
    "indexer-verify-many": Case("indexer", INDEXER | {"batch": 168, "q_len": 4, "num_heads": 4}, ragged=True),
    "indexer-fp8": Case("indexer", INDEXER | {"q_len": 1, "index_format": "fp8"}, ragged=True),
    "indexer-prefill": Case("indexer", INDEXER | {"q_len": 300, "num_heads": 1}, ragged=True),
    "scores": Case("indexer_scores", INDEXER | {"q_len": 4}, ragged=True),
    "sparse-decode": Case("sparse_attention", ATTENTION | {"batch": 8, "q_len": 1}, ragged=True),
    "sparse-one": Case("sparse_attention", ATTENTION | {"batch": 1, "q_len": 1}, ragged=True),
    "sparse-parts": Case(  # 33 pairs of a token and a KV head, also when `sanitize` makes other cases smaller
        "sparse_attention", ATTENTION | {"batch": 3, "q_len": 11, "num_heads": 16, "num_kv_heads": 1}, ragged=True
    ),
    "sparse-verify-tp4": Case(
        "sparse_attention", ATTENTION | {"batch": 8, "q_len": 8, "num_heads": 16, "num_kv_heads": 1}, ragged=True
    ),
    "sparse-verify-shared": Case(  # enough rows for the kernel that shares pages, also when `sanitize` makes it smaller
        "sparse_attention",
        ATTENTION | {"batch": 8, "q_len": 8, "num_heads": 64, "num_kv_heads": 16, "overlap": 0.8},
        ragged=True,
    ),
    "sparse-fp8": Case("sparse_attention", ATTENTION | {"batch": 8, "q_len": 1, "kv_format": "fp8"}, ragged=True),
    "sparse-bf16": Case("sparse_attention", ATTENTION | {"batch": 8, "q_len": 1, "kv_format": "bf16"}, ragged=True),
    "sparse-prefill": Case(
        "sparse_attention",
        ATTENTION | {"batch": 2, "q_len": 300, "num_heads": 16, "num_kv_heads": 1, "overlap": 0.5},
        ragged=True,
    ),
    "dense-decode": Case("dense_attention", DENSE | {"q_len": 1, "num_heads": 16, "num_kv_heads": 1}, ragged=True),
    "dense-prefill": Case("dense_attention", DENSE | {"q_len": 300, "num_heads": 16, "num_kv_heads": 1}, ragged=True),
}


def outputs(case: Case, args: Any) -> list[Tensor]:
    """Outputs full of what a kernel must overwrite."""
    outs = []
    for result in case.spec.meta(args):
        out = torch.empty_like(result)
        out.view(torch.uint8).fill_(0xA5)
        outs.append(out)
    return outs


def call(case: Case, backend: str, args: Any, outs: list[Tensor]) -> None:
    """The op as users call it, into the given outputs."""
    values = {name: getattr(args, name) for name in args.__dataclass_fields__}
    packet = getattr(torch.ops.msa_ops, case.op)
    packet.out(**values, backend=backend, **dict(zip(case.spec.outputs, outs, strict=True)))


def written(case: Case, args: Any, outs: list[Tensor]) -> list[Tensor]:
    """Everything that a call writes."""
    return outs + [value for name in case.spec.mutates if (value := getattr(args, name)) is not None]


def same(one: list[Tensor], other: list[Tensor]) -> Tensor:
    """Bitwise, as a tensor on the device, so that a loop does not wait for it."""
    equal = [
        (a.contiguous().view(torch.uint8) == b.contiguous().view(torch.uint8)).all()
        for a, b in zip(one, other, strict=True)
    ]
    return torch.stack(equal).all()
