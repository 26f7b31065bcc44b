"""What a sparse layer does of its own in a decode step, one op after the other: insert, choose blocks, attend.

A workload names it as if it were an op: `layer_step`. One query token a request. The ops hand their results on, and the
caches that the first one writes are those that the others read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from msa_ops.bench import argument_sets
from msa_ops.bench.check import WRITTEN_BYTES_MISMATCH, Comparison, compare
from msa_ops.bench.outline import Outline, outline
from msa_ops.cache.page import PAGE_SIZE
from msa_ops.ops import indexer, qk_norm_rope_insert, sparse_attention
from msa_ops.registry.op import Cost, OpSpec

NAME = "layer_step"
OPS: tuple[OpSpec, ...] = (qk_norm_rope_insert.SPEC, indexer.SPEC, sparse_attention.SPEC)
VERSION = 1


@dataclass
class Step:
    """Arguments and outputs of the ops, in order. Query tensors and block ids are outputs of one and arguments of the
    next.
    """

    args: tuple[Any, Any, Any]
    outs: tuple[tuple[Tensor, ...], ...]

    def copy(self) -> Step:
        """The same with memory of its own."""
        insert, choose, attend = map(argument_sets.copy, self.args)
        return _joined(insert, choose, attend)

    def call(self, backends: Sequence[str]) -> Callable[[], None]:
        """The calls, through the torch ops, with one name of a backend for each."""
        calls = [
            argument_sets.make_call(spec, backend, args, outs)
            for spec, backend, args, outs in zip(OPS, backends, self.args, self.outs, strict=True)
        ]

        def run() -> None:
            for one in calls:
                one()

        return run

    def poison(self) -> None:
        """What is not written anew shows."""
        for outs in self.outs:
            for out in outs:
                argument_sets.poison(out)

    def cost(self) -> Cost:
        costs = [spec.cost(args) for spec, args in zip(OPS, self.args, strict=True)]
        return Cost(
            sum(one.bytes_read for one in costs),
            sum(one.bytes_written for one in costs),
            sum(one.flops for one in costs),
        )

    def check(self) -> list[Comparison]:
        """Each op's outputs against its reference, on the arguments that the ops before have left; of what is inserted,
        1 % of the bytes may differ, as in `check`.
        """
        found = []
        for spec, args, outs in zip(OPS, self.args, self.outs, strict=True):
            own = argument_sets.copy(args)
            expected = spec.reference(own)
            for name, out, value, bound in zip(spec.outputs, outs, expected, spec.tolerance(args), strict=True):
                found.append(compare(f"{spec.name}.{name}", out, value, bound))
            for name in spec.mutates:
                if name != "workspace":
                    found.append(
                        _compare_inserted(f"{spec.name}.{name}", getattr(args, name), getattr(own, name), args)
                    )
        return found


def _compare_inserted(name: str, found: Tensor, expected: Tensor, args: Any) -> Comparison:
    written = args.slot_mapping.numel() * found.shape[1] // PAGE_SIZE
    wrong = int((found != expected).sum())
    return Comparison(name, written, wrong, 0.0, 0.0, wrong <= WRITTEN_BYTES_MISMATCH * written)


def generate(
    seed: int,
    *,
    device: str = "cpu",
    batch: int = 1,
    seq_len: int = 3000,
    num_heads: int = 16,
    num_kv_heads: int = 1,
    num_index_heads: int = 1,
    topk: int = 16,
    kv_format: str = "nvfp4",
    index_format: str = "nvfp4",
) -> Step:
    """Seeded inputs: each request's token is the last of seq_len tokens."""
    insert, choose, attend = [spec.generate(seed, device=device, **dims) for spec, dims in _dims(locals())]
    last = choose.seq_lens.long() - 1
    pages = choose.block_table.gather(1, (last // PAGE_SIZE)[:, None])[:, 0].long()
    insert = replace(
        insert,
        kv_cache=attend.kv_cache,
        index_cache=choose.index_cache,
        positions=last.to(insert.positions.dtype),
        slot_mapping=(pages * PAGE_SIZE + last % PAGE_SIZE).to(insert.slot_mapping.dtype),
    )
    return _joined(insert, choose, attend)


def outline_of(dims: Mapping[str, Any]) -> Outline:
    """As `outline` of an op. Raises what it raises."""
    known = {name: value for name, value in (generate.__kwdefaults__ or {}).items() if name != "device"}
    parts = [outline(spec, own) for spec, own in _dims({**known, **dims})]
    costs = [part.cost for part in parts]
    cost = Cost(
        sum(one.bytes_read for one in costs), sum(one.bytes_written for one in costs), sum(one.flops for one in costs)
    )
    return Outline(cost, sum(part.call_bytes for part in parts), parts[-1].precision)


def _dims(given: dict[str, Any]) -> list[tuple[OpSpec, dict[str, Any]]]:
    """What each op's generator is told."""
    shared = {"batch": given["batch"], "seq_len": given["seq_len"], "q_len": 1}
    heads = {"num_heads": given["num_heads"], "num_kv_heads": given["num_kv_heads"]}
    own = (
        heads | {"kv_format": given["kv_format"], "num_index_heads": given["num_index_heads"]},
        {"num_heads": given["num_index_heads"], "topk": given["topk"]},
        heads | {"kv_format": given["kv_format"], "topk": given["topk"]},
    )
    index = {"index_format": given["index_format"]}
    return [
        (OPS[0], shared | own[0] | index),
        (OPS[1], shared | own[1] | index),
        (OPS[2], shared | own[2]),
    ]


def _joined(insert: Any, choose: Any, attend: Any) -> Step:
    """One set of caches and lengths, and outputs that are arguments of what follows."""
    insert = replace(insert, kv_cache=attend.kv_cache, index_cache=choose.index_cache)
    q, index_q = argument_sets.poisoned_outputs(OPS[0], insert)
    choose = replace(choose, index_q=index_q)
    (block_ids,) = argument_sets.poisoned_outputs(OPS[1], choose)
    attend = replace(
        attend,
        q=q,
        block_ids=block_ids,
        block_table=choose.block_table,
        seq_lens=choose.seq_lens,
        cu_seqlens_q=choose.cu_seqlens_q,
    )
    return Step((insert, choose, attend), ((q, index_q), (block_ids,), argument_sets.poisoned_outputs(OPS[2], attend)))
