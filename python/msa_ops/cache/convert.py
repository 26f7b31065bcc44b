"""Exact conversion of pools: between pool layouts, page layouts and scale layouts. No value is decoded."""

from __future__ import annotations

from torch import Tensor

from msa_ops.cache.page import PAGE_SIZE
from msa_ops.cache.pool import CachePool
from msa_ops.cache.spec import CacheMember, CacheSpec
from msa_ops.formats.scale_layout import from_linear, to_linear

_CHUNK = 256  # pages whose scales are re-ordered at once, so that a large pool needs little extra memory


def convert_pool(pool: CachePool, *, layout: str | None = None, spec: CacheSpec | None = None) -> CachePool:
    """A new pool on the same device with the same contents in pool layout `layout` and with the pages of `spec`.

    None keeps what `pool` has. `spec` may differ from `pool.spec` in the order of bytes alone: kv_layout, draft_layout,
    k_scale_layout and v_scale_layout. Raises ValueError if it differs in what is stored (formats, heads, layers).
    """
    target_spec = spec or pool.spec
    check_same_contents(pool.spec, target_spec)
    target = CachePool.allocate(target_spec, pool.num_blocks, layout or pool.layout, device=pool.memory.device)
    for old, new in zip(pool.spec.members, target_spec.members, strict=True):
        _convert(pool.view(old.kind, old.layer), old, target.view(new.kind, new.layer), new)
    return target


def check_same_contents(source: CacheSpec, target: CacheSpec) -> None:
    """Raises ValueError naming the first member of `source` and `target` that differs in kind, format or heads."""
    left, right = _contents(source), _contents(target)
    for name in left | right:
        if left.get(name) != right.get(name):
            raise ValueError(
                f"spec: {name} is {right.get(name, 'absent')} where the source has {left.get(name, 'none')}; accepted: "
                "specs that differ in page and scale layouts alone"
            )


def _contents(spec: CacheSpec) -> dict[str, str]:
    return {member.name: f"{member.page.format} of {member.page.num_heads} heads" for member in spec.members}


def _convert(source: Tensor, old: CacheMember, target: Tensor, new: CacheMember) -> None:
    if old == new:
        target.copy_(source)
        return
    for name, _ in old.page.members:
        before, after = old.page.view(source, name), new.page.view(target, name)
        from_order, to_order = old.scale_layout(name), new.scale_layout(name)
        if from_order is None or to_order is None or from_order is to_order:
            after.copy_(before)
            continue
        columns = old.page.format.scale_bytes
        for part, goal in zip(before.split(_CHUNK), after.split(_CHUNK), strict=True):
            linear = to_linear(part.flatten(-2), from_order, PAGE_SIZE, columns)
            goal.copy_(from_linear(linear, to_order).unflatten(-1, (PAGE_SIZE, columns)))
