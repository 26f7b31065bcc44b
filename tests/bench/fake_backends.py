"""Backends, good and bad, for the tests of the runner: of rms_norm unless the name says otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from msa_ops.bench.argument_sets import poison
from msa_ops.ops import qk_norm_rope_insert, rms_norm, route_experts, select_blocks
from msa_ops.registry import STORE, Backend, Band, OneOf

calls: list[str] = []


def right(args: Any, outs: tuple[Tensor, ...]) -> None:
    calls.append("right")
    outs[0].copy_(rms_norm.reference(args)[0])


def wrong(args: Any, outs: tuple[Tensor, ...]) -> None:
    outs[0].copy_(rms_norm.reference(args)[0] * 1.5)


def unwritten(args: Any, outs: tuple[Tensor, ...]) -> None:
    outs[0][:-1].copy_(rms_norm.reference(args)[0][:-1])


def spoils_input(args: Any, outs: tuple[Tensor, ...]) -> None:
    outs[0].copy_(rms_norm.reference(args)[0])
    args.x[0, 0] += 1


def forgets_residual(args: Any, outs: tuple[Tensor, ...]) -> None:
    before = None if args.residual is None else args.residual.clone()
    outs[0].copy_(rms_norm.reference(args)[0])
    if before is not None:
        args.residual.copy_(before)


def raises(args: Any, outs: tuple[Tensor, ...]) -> None:
    raise RuntimeError("out of luck\nand of memory")


def lazy(args: Any, outs: tuple[Tensor, ...]) -> None:
    """Right when checked, then does nothing any more."""
    calls.append("lazy")
    if calls.count("lazy") < 2:
        outs[0].copy_(rms_norm.reference(args)[0])


def expects_poison(args: Any, outs: tuple[Tensor, ...]) -> None:
    """Wrong if its output already holds something, say the reference's result in memory that was used again."""
    if bool(outs[0].isnan().all()):
        outs[0].copy_(rms_norm.reference(args)[0])


def insert(args: Any, outs: tuple[Tensor, ...]) -> None:
    for out, expected in zip(outs, qk_norm_rope_insert.reference(args), strict=True):
        out.copy_(expected)


def insert_and_touch_a_neighbour(args: Any, outs: tuple[Tensor, ...]) -> None:
    """One byte of a slot that belongs to no token of the call."""
    before = args.kv_cache.clone()
    insert(args, outs)
    same = (args.kv_cache == before).nonzero()[-1]
    args.kv_cache[same[0], same[1]] ^= 1


def route_all_but_one(args: Any, outs: tuple[Tensor, ...]) -> None:
    """Leaves one id of a thousand unwritten, which the tolerance for near ties must not cover."""
    for out, expected in zip(outs, route_experts.reference(args), strict=True):
        out.copy_(expected)
    poison(outs[1][-1, -1:])


def workspace(platform: object, facts: object) -> int:
    return 1024


def select_blocks_with_workspace(args: Any, outs: tuple[Tensor, ...]) -> None:
    assert args.workspace.numel() == 1024
    outs[0].copy_(select_blocks.reference(args)[0])


@contextlib.contextmanager
def registered(*names: str, **settings: Any) -> Iterator[None]:
    """Backends `fake_NAME` of rms_norm, never chosen by themselves; `fake_picky` accepts hidden = 64 alone."""
    calls.clear()
    done = []
    try:
        for name in names:
            limits = (("hidden", OneOf(64)),) if name == "picky" else ()
            target = f"tests.bench.fake_backends:{'right' if name == 'picky' else name}"
            backend = Backend(
                op="rms_norm",
                name=f"fake_{name}",
                target=target,
                archs=frozenset({"cpu"}),
                automatic=frozenset(),
                band=Band.PORTABLE,
                limits=limits,
                **settings,
            )
            STORE.add_backend(backend)
            done.append(backend.name)
        yield
    finally:
        for name in done:
            STORE.remove_backend("rms_norm", name)
