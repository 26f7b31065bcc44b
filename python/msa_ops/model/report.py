"""What happened while a model ran: ops and their backends, blocks selected, throughput, bytes; and how to print it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from msa_ops.cache.page import PAGE_SIZE
from msa_ops.cache.spec import CacheSpec
from msa_ops.model.kv import Batch, KVCache
from msa_ops.model.serve import Completion, StepStats
from msa_ops.registry import STORE, explain
from msa_ops.registry import platform as platforms
from msa_ops.registry.explain import Explanation
from msa_ops.registry.platform import Platform


@dataclass
class OpCalls:
    """Calls of one op with one set of facts."""

    op: str
    facts: Any
    platform: Platform
    calls: int = 0
    seconds: float = 0.0

    def explanation(self) -> Explanation:
        """Why the backend that served these calls was chosen, and the others were not."""
        facts = {name: getattr(self.facts, name) for name in self.facts.__dataclass_fields__}
        return explain(self.op, self.platform, facts)


class OpLog(TorchDispatchMode):
    """Within `with OpLog() as log:` every call of a public op is counted and timed (host time)."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: dict[tuple[str, Any, Platform], OpCalls] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace != "msa_ops":
            return func(*args, **kwargs)
        spec = STORE.op(func._schema.name.partition("::")[2])
        given = {name: value for name, value in kwargs.items() if name not in ("backend", *spec.outputs)}
        call = spec.args(*args, **given)
        facts = spec.facts(call)
        device = next(value.device for value in (*args, *given.values()) if isinstance(value, Tensor))
        platform = platforms.of_device(device)
        record = self._calls.setdefault((spec.name, facts, platform), OpCalls(spec.name, facts, platform))
        start = time.perf_counter()
        result = func(*args, **kwargs)
        record.seconds += time.perf_counter() - start
        record.calls += 1
        return result

    def calls(self) -> list[OpCalls]:
        """The records, those of the same op together, most time first."""
        total: dict[str, float] = {}
        for record in self._calls.values():
            total[record.op] = total.get(record.op, 0.0) + record.seconds
        return sorted(self._calls.values(), key=lambda record: (-total[record.op], record.op, -record.calls))


class SelectionLog:
    """Observer of a model: how many blocks queries could see, and how many were selected for them.

    Counts (query, index head) pairs of all sparse layers, apart for queries that see more than `topk` blocks.
    """

    def __init__(self, topk: int) -> None:
        self.topk = topk
        self.queries = self.selected = self.visible = 0
        self.long_queries = self.long_selected = self.long_visible = 0

    def __call__(self, layer: int, name: str, ids: Tensor, batch: Batch) -> None:
        if name != "block_ids":
            return
        selected = (ids >= 0).sum(-1)  # [T, heads]
        visible = (batch.positions // PAGE_SIZE + 1)[:, None].expand_as(selected)
        long = visible > self.topk
        self.queries += selected.numel()
        self.selected += int(selected.sum())
        self.visible += int(visible.sum())
        self.long_queries += int(long.sum())
        self.long_selected += int(selected[long].sum())
        self.long_visible += int(visible[long].sum())

    def lines(self) -> list[str]:
        if not self.queries:
            return ["no layer selects blocks"]
        text = [
            f"{self.selected / self.queries:.1f} of {self.visible / self.queries:.1f} visible blocks a query, "
            "over all queries, heads and layers"
        ]
        if self.long_queries:
            text.append(
                f"{self.long_selected / self.long_queries:.1f} of {self.long_visible / self.long_queries:.1f} for "
                f"the {self.long_queries / self.queries:.0%} of queries that see more than {self.topk} blocks"
            )
        return text


def throughput_lines(stats: Sequence[StepStats], completions: Sequence[Completion]) -> list[str]:
    """Tokens per second: overall, of steps that computed prompt chunks, and of steps that only decoded."""
    lines = []
    seconds = sum(step.seconds for step in stats)
    prompts = sum(step.prefill_tokens for step in stats)
    new = sum(len(completion.tokens) for completion in completions)
    lines.append(f"{prompts} prompt and {new} new tokens in {seconds:.1f} s, {len(stats)} steps")
    for what, steps in (
        ("with prompt chunks", [step for step in stats if step.prefill_tokens]),
        ("of decoding alone", [step for step in stats if not step.prefill_tokens]),
    ):
        spent = sum(step.seconds for step in steps)
        if spent:
            tokens = sum(step.prefill_tokens + step.decode_tokens for step in steps)
            lines.append(f"{tokens / spent:,.1f} tokens/s in the {len(steps)} steps {what}")
    return lines


def cache_lines(cache: KVCache) -> list[str]:
    """Bytes of a token over all layers, and what other formats of the same cache would take."""
    spec = cache.spec
    parts = f"{spec.bytes_per_token('kv'):,} for K and V, {spec.bytes_per_token('index'):,} for index keys"
    lines = [f"{cache.bytes_per_token:,} bytes a token ({parts}) over {spec.geometry.num_layers} layers"]
    others = []
    for fmt in ("bf16", "fp8", "nvfp4"):
        if (fmt, fmt) != (spec.kv_format, spec.index_format):
            other = CacheSpec(spec.geometry, kv_format=fmt, index_format=fmt).bytes_per_token()
            others.append(f"{other:,} in {fmt} ({other / cache.bytes_per_token:.2f} x)")
    lines.append("the same cache would take " + ", ".join(others))
    pages, page = cache.num_pages, spec.block_bytes()
    lines.append(f"{pages} pages of {PAGE_SIZE} tokens and {page:,} bytes, {pages * page / 2**20:.1f} MiB in all")
    return lines


def backend_rows(calls: Sequence[OpCalls]) -> list[list[str]]:
    """Rows of BACKEND_HEADER: each op once, with the backend that served it."""
    rows: dict[tuple[str, str], tuple[int, float]] = {}
    for record in calls:
        key = (record.op, record.explanation().choice or "-")
        count, seconds = rows.get(key, (0, 0.0))
        rows[key] = (count + record.calls, seconds + record.seconds)
    return [[op, backend, str(count), f"{seconds:.2f}"] for (op, backend), (count, seconds) in rows.items()]


BACKEND_HEADER = ("op", "backend", "calls", "seconds")


def backend_reasons(calls: Sequence[OpCalls]) -> list[str]:
    """Why other backends did not run; ops with the same reasons share a paragraph."""
    by_reasons: dict[tuple[str, ...], list[str]] = {}
    for op in dict.fromkeys(record.op for record in calls):
        reasons: dict[str, None] = {}
        for record in calls:
            if record.op != op:
                continue
            explanation = record.explanation()
            for verdict in explanation.verdicts:
                if not verdict.chosen:
                    why = "; ".join(refusal.message for refusal in verdict.refusals)
                    reasons[f"{verdict.backend}: {why or f'{explanation.choice} ranks higher'}"] = None
            for provider, refusal in explanation.failures:
                reasons[f"plugin {provider}: {refusal.message}"] = None
        by_reasons.setdefault(tuple(reasons) or ("no other backend is registered",), []).append(op)
    return [
        line for reasons, ops in by_reasons.items() for line in (", ".join(ops), *(f"  {reason}" for reason in reasons))
    ]


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """The result and the seconds it took, with the device waited for."""
    start = time.perf_counter()
    result = function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return result, time.perf_counter() - start
