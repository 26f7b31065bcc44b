"""Ranks of the public runner: threads that change places in collectives, with launches on devices of their own."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from msa_ops.emulator import JitSession, jit

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler"),
]
SIZE = 64


@pytest.fixture
def run() -> Iterator[Callable[..., JitSession]]:
    pytest.importorskip("cutlass")
    from msa_ops.emulator.cpu_as_gpu import CpuAsGpu
    from tests.emulator.public.host import cpu_as_gpu
    from tests.emulator.public.ranks import ranks_of

    def run(program: Callable[[], Any], ranks: int = 3, seed: int | None = None) -> JitSession:
        @contextlib.contextmanager
        def in_thread() -> Iterator[None]:
            with CpuAsGpu(session):
                yield

        with jit("sm_90a", seed=seed) as session, cpu_as_gpu(session), ranks_of(session, ranks, in_thread) as group:
            session.run(lambda: group.run(program))
        return session

    yield run


@pytest.mark.parametrize("seed", [None, 1])
def test_launches_happen_in_collectives(run: Callable[..., JitSession], seed: int | None) -> None:
    """Each rank adds its number to the next one's tensor."""
    import cutlass.cute as cute
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric
    from cutlass.cute.runtime import from_dlpack

    sums = []

    def program() -> None:
        from tests.emulator.jit_kernels import add

        rank, ranks = dist.get_rank(), dist.get_world_size()
        own = symmetric.empty((SIZE,), device="cuda").fill_(10.0 * rank)
        handle = symmetric.rendezvous(own, "all")
        peer = handle.get_buffer((rank + 1) % ranks, own.shape, own.dtype)
        out = torch.full((SIZE,), torch.nan, device="cuda")
        views = from_dlpack(peer), from_dlpack(out)
        cute.compile(add, *views, float(rank))(*views)
        assert out.isnan().all()
        dist.all_reduce(total := torch.full((1,), float(rank), device="cuda"))
        assert torch.equal(out, torch.full_like(out, 10.0 * ((rank + 1) % ranks) + rank))
        sums.append((rank, total.item()))

    session = run(program, seed=seed)
    assert sorted(sums) == [(0, 3.0), (1, 3.0), (2, 3.0)] and len(session.launches) == 3


def test_a_rank_that_fails(run: Callable[..., JitSession]) -> None:
    import torch.distributed as dist

    def program() -> None:
        if dist.get_rank() == 1:
            raise KeyError("of rank 1")
        dist.barrier()

    with pytest.raises(KeyError, match="of rank 1"):
        run(program)


def test_a_rank_that_does_not_come(run: Callable[..., JitSession]) -> None:
    import torch.distributed as dist

    def program() -> None:
        if dist.get_rank() != 1:
            dist.barrier()

    with pytest.raises(RuntimeError, match=r"have ended: \[1\]"):
        run(program)
