"""Programs of several processes, a GPU each, as threads of one: torch.distributed, symmetric memory and NVSHMEM.

Threads run one at a time and change places where processes would wait for each other, in a collective call, or for
their GPU. Kernels launched up to there run at the same time, each on a device of its own; that is also when all ranks
have launched, so they may wait for each other. The kernels and the rest of the host code are the program's own.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
from torch import Tensor

from msa_ops.emulator import JitSession, multicast
from msa_ops.emulator.cpu_as_gpu import Stream


class _Ended(BaseException):
    """Ends the other ranks when one has failed."""


class Ranks:
    """Threads with a rank each, one of which runs at a time."""

    def __init__(self, session: JitSession, size: int, in_thread: Callable[[], Any]) -> None:
        self.size = size
        self._session = session
        self._in_thread = in_thread
        self._changed = threading.Condition()
        self._turn = 0
        self._brought: dict[int, Any] = {}
        self._met: list[Any] = []
        self._round = 0
        self._waiting: set[int] = set()
        self._steps: list[tuple[int, int, int | None]] = []  # rank, stream, and what that waits for; None: a launch
        self._launched = 0
        self._done: set[int] = set()
        self._failure: BaseException | None = None
        self._own = threading.local()
        self.held: list[Any] = []  # as long as the program runs
        self.at_turn: list[Callable[[int], None]] = []  # called with the rank whose turn it is

    @property
    def rank(self) -> int:
        rank: int = self._own.rank
        return rank

    def run(self, program: Callable[[], Any]) -> None:
        """Runs the program in every rank; raises what the first one raised that failed."""
        self._session._session.begin_together()
        threads = [threading.Thread(target=self._one, args=(rank, program)) for rank in range(self.size)]
        try:
            with self._session.holding():
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                if self._failure is not None:
                    raise self._failure
                self._launch()
        finally:
            self._session._session.forget_together()

    def meet(self, value: Any = None) -> list[Any]:
        """Waits for all ranks and their launches; what each brought, by rank."""
        this_round = self._round
        self._note_launches()
        self._brought[self.rank] = value
        if len(self._brought) == self.size:
            self._launch()
            self._met = [self._brought[rank] for rank in range(self.size)]
            self._brought, self._round = {}, self._round + 1
        while self._round == this_round:
            if self._done and self._failure is None:
                raise RuntimeError(f"rank {self.rank} waits for ranks that have ended: {sorted(self._done)}")
            self.synchronize()
        return self._met  # of this round: the next one ends when all have come again

    def synchronize(self) -> None:
        """Waits for what this rank has launched; that runs when no rank can go on without it."""
        launched = self._launched
        self._note_launches()
        self._waiting.add(self.rank)
        if len(self._waiting | self._done) == self.size:
            self._launch()
        while self._launched == launched:
            self._give_way()

    def wait_stream(self, stream: int, waited_for: int) -> None:
        """What this rank launches on a stream from now on comes after what it has launched on another one."""
        self._note_launches()
        self._steps.append((self.rank, stream, waited_for))

    def _note_launches(self) -> None:
        streams = self._session._session.kept_streams()
        noted = sum(waited_for is None for *_, waited_for in self._steps)
        self._steps += [(self.rank, stream, None) for stream in streams[noted:]]

    def _rounds(self) -> list[list[int]]:
        """What is launched together: of each stream the first one, then the second, as far as streams do not wait."""
        reached: dict[tuple[int, int], int] = {}
        rounds: list[list[int]] = []
        number = 0
        for rank, stream, waited_for in self._steps:
            at = reached.get((rank, stream), 0)
            if waited_for is not None:
                reached[rank, stream] = max(at, reached.get((rank, waited_for), 0))
                continue
            if at == len(rounds):
                rounds.append([])
            rounds[at].append(number)
            reached[rank, stream] = at + 1
            number += 1
        return rounds

    def _launch(self) -> None:
        self._session._session.run_together(self._rounds())
        self._session._session.begin_together()
        self._steps.clear()
        self._waiting.clear()
        self._launched += 1

    def _one(self, rank: int, program: Callable[[], Any]) -> None:
        self._own.rank = rank
        try:
            self._wait()
            with self._session.in_this_thread(), self._in_thread():
                program()
                self._note_launches()
        except _Ended:
            pass
        except BaseException as error:
            self._failure = self._failure or error
        self._done.add(rank)
        self._next()

    def _give_way(self) -> None:
        self._next()
        self._wait()

    def _next(self) -> None:
        with self._changed:
            for step in range(1, self.size + 1):
                rank = (self.rank + step) % self.size
                if rank not in self._done:
                    self._turn = rank
                    break
            self._changed.notify_all()

    def _wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == self.rank)
        if self._failure is not None:
            raise _Ended
        os.environ["LOCAL_RANK"] = os.environ["RANK"] = str(self.rank)
        for tell in self.at_turn:
            tell(self.rank)


class _Handle:
    """What a rendezvous of symmetric memory gives: everybody's tensor, and an address of all of them."""

    def __init__(self, tensors: list[Tensor], ranks: Ranks) -> None:
        self._tensors, self._ranks = tensors, ranks
        self.rank, self.world_size = ranks.rank, len(tensors)
        self.buffer_ptrs = [tensor.data_ptr() for tensor in tensors]
        of_all = multicast(tensors)
        self.multicast_ptr = of_all.data_ptr()
        ranks.held.append(of_all)  # some programs drop the handle and keep its address

    def barrier(self, *_: Any, **__: Any) -> None:
        self._ranks.meet()

    def get_buffer(self, rank: int, sizes: Any, dtype: torch.dtype, storage_offset: int = 0) -> Tensor:
        return self._tensors[rank].view(-1)[storage_offset:].view(dtype).as_strided(sizes, _strides(sizes))


def _copy(to: Any, source: Any, size: int, *_: Any) -> tuple[int]:
    """In the place of a copy from device to device on a stream: at once, as soon as anything may need it."""
    ctypes.memmove(int(to), int(source), size)
    return (0,)


class _Fabric:
    """In the place of torch's `_SymmetricMemory`: every device has multicast addresses."""

    @staticmethod
    def has_multicast_support(*_: Any) -> bool:
        return True


def _strides(sizes: Any) -> list[int]:
    strides = [1]
    for size in reversed(list(sizes)[1:]):
        strides.insert(0, strides[0] * size)
    return strides


def _nvshmem(ranks: Ranks) -> types.ModuleType:
    """`nvshmem.core`, of whose functions the tensors of peers are what host code needs."""
    core = types.ModuleType("nvshmem.core")
    peers: dict[int, list[Tensor]] = {}  # by the address of the own tensor

    def tensor(shape: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        own = torch.zeros(shape, dtype=dtype, device="cuda")
        peers[own.data_ptr()] = ranks.meet(own)
        return own

    changes = {
        "tensor": tensor,
        "get_peer_tensor": lambda own, rank: peers[own.data_ptr()][rank],
        "get_multicast_tensor": lambda _, own: multicast(peers[own.data_ptr()]),
        "Teams": types.SimpleNamespace(TEAM_NODE=0),
        "free_tensor": lambda _: None,
    }
    for name, function in changes.items():
        setattr(core, name, function)
    return core


@contextmanager
def ranks_of(session: JitSession, size: int, in_thread: Callable[[], Any]) -> Iterator[Ranks]:
    """Within the block torch.distributed is that of `size` ranks. `in_thread` makes what every thread is to be in."""
    ranks = Ranks(session, size, in_thread)

    def all_reduce(tensor: Tensor, op: Any = dist.ReduceOp.SUM, **_: Any) -> None:
        if op != dist.ReduceOp.SUM:
            raise NotImplementedError(f"all_reduce of {op}")
        total = sum(ranks.meet(tensor.clone()), torch.zeros_like(tensor))
        tensor.copy_(total)

    def all_gather(gathered: list[Tensor], tensor: Tensor, *_: Any, **__: Any) -> None:
        for to, brought in zip(gathered, ranks.meet(tensor.clone()), strict=True):
            to.copy_(brought)

    def sum_of_all(tensor: Tensor, operation: str, _: Any) -> Tensor:
        if operation != "sum":
            raise NotImplementedError(f"multimem_all_reduce_ of {operation}")
        all_reduce(tensor)
        return tensor

    handles = itertools.count(1)

    class OwnStream(Stream):
        def __init__(self, *_: Any, **__: Any) -> None:
            self.cuda_stream = next(handles)

        def wait_stream(self, other: Stream) -> None:
            ranks.wait_stream(self.cuda_stream, other.cuda_stream)

    package, core = types.ModuleType("nvshmem"), _nvshmem(ranks)
    package.core = core  # type: ignore[attr-defined]
    device = types.ModuleType("cuda.core")
    device.Device = object  # type: ignore[attr-defined]
    distributed = {
        "is_initialized": lambda: True,
        "get_rank": lambda *_: ranks.rank,
        "get_world_size": lambda *_: size,
        "barrier": lambda *_, **__: ranks.meet(),
        "all_reduce": all_reduce,
        "all_gather": all_gather,
        "init_process_group": lambda *_, **__: None,
        "destroy_process_group": lambda *_: None,
    }
    memory = {
        "empty": lambda *sizes, **keywords: torch.zeros(*sizes, **keywords),
        "rendezvous": lambda tensor, *_, **__: _Handle(ranks.meet(tensor), ranks),
    }
    cuda = {
        "device_count": lambda: size,
        "can_device_access_peer": lambda *_: True,
        "synchronize": lambda *_: ranks.synchronize(),
    }
    with ExitStack() as stack:
        for name, value in distributed.items():
            stack.enter_context(mock.patch.object(dist, name, value))
        for name, value in memory.items():
            stack.enter_context(mock.patch.object(symmetric, name, value))
        for name, value in cuda.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        stack.enter_context(mock.patch.object(Stream, "synchronize", lambda _: ranks.synchronize()))
        stack.enter_context(mock.patch.object(torch.cuda, "Stream", OwnStream))
        stack.enter_context(mock.patch("cuda.bindings.driver.cuMemcpyDtoDAsync", _copy))
        stack.enter_context(mock.patch.object(symmetric, "_SymmetricMemory", _Fabric))
        stack.enter_context(mock.patch.object(torch._C._distributed_c10d, "_SymmetricMemory", _Fabric))
        stack.enter_context(mock.patch.object(torch.ops.symm_mem, "multimem_all_reduce_", sum_of_all))
        stack.callback(setattr, dist.group, "WORLD", dist.group.WORLD)  # a property that cannot be deleted
        dist.group.WORLD = types.SimpleNamespace(group_name="0")  # type: ignore[assignment]
        for name, module in {"nvshmem": package, "nvshmem.core": core, "cuda.core": device}.items():
            # What is imported meanwhile stays, as mock.patch.dict would not have it.
            stack.callback(
                sys.modules.__setitem__ if name in sys.modules else sys.modules.pop, name, sys.modules.get(name)
            )
            sys.modules[name] = module
        stack.enter_context(mock.patch("cuda.pathfinder.load_nvidia_dynamic_lib", lambda _: None))
        stack.enter_context(mock.patch.dict(os.environ, {"WORLD_SIZE": str(size)}))
        yield ranks
