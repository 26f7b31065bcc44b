"""`emulate`: a virtual chip as the platform of the CPU, so that ops run its compiled kernels in the emulator."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from msa_ops import _C
from msa_ops.emulator import kernel_text, units
from msa_ops.emulator.arguments import MAX_INSTRUCTIONS, check_options, whole
from msa_ops.emulator.memory import Allocation, Pending, allocation
from msa_ops.emulator.run import Report, pending_of, report_of
from msa_ops.emulator.source_lines import HINT_FOR_BUILT, told
from msa_ops.registry import parse_platform, virtual
from msa_ops.registry import platform as platforms
from msa_ops.registry.platform import Platform

ARCHS = ("sm_90a", "sm_100a", "sm_103a", "sm_107a", "gfx950")
"""Chips that can be emulated."""


@dataclass(frozen=True)
class Launch:
    """A kernel that ran: for which op and backend, and what it did."""

    op: str
    backend: str
    kernel: str
    report: Report


@dataclass
class _Call:
    """Whose kernels run, their memory, and what the launch before the next one may still be writing."""

    op: str
    backend: str
    memory: list[Allocation]
    pending: Sequence[Pending]


_call: ContextVar[_Call | None] = ContextVar("msa_ops_emulated_call", default=None)
"""Each thread has its own, also on a chip that several use."""


@dataclass
class VirtualChip:
    """What a block of `emulate` has: the platform, and the launches since it began, in order."""

    platform: Platform
    max_instructions: int = MAX_INSTRUCTIONS
    seed: int | None = None
    threads: int = 1
    sum_order: int | None = None
    pending: Sequence[Any] = ()
    launches: list[Launch] = field(default_factory=list)

    @contextlib.contextmanager
    def call(self, op: str, backend: str, regions: Sequence[virtual.Region]) -> Iterator[None]:
        """Kernels of one call may read the tensors of these regions, and write those that are writable."""
        memory = [
            one._replace(writable=one.writable and region.writable)
            for region in regions
            for one in [allocation(region.name, region.tensor)]
        ]
        token = _call.set(_Call(op, backend, memory, pending_of(self.pending)))
        try:
            yield
        finally:
            _call.reset(token)

    def launch(self, kernel: str, arguments: Sequence[int]) -> None:
        """Runs the host launcher of a compiled kernel and executes what it launches."""
        call = _call.get()
        if call is None:
            raise RuntimeError(f"kernel {kernel}: launched outside of an op's call")
        op, backend, memory = call.op, call.backend, call.memory
        if self.platform.vendor == "amd":
            with told(kernel=kernel, place="the code object of this build"):
                counters = self._launch_code_object(kernel, arguments, memory)
            self.launches.append(Launch(op, backend, kernel, report_of(counters)))
            return
        try:
            position = _C.find_kernel(kernel)
        except IndexError as error:
            raise NotImplementedError(str(error)) from None
        text = kernel_text.ptx(kernel)
        units.load_for(text)
        with told(HINT_FOR_BUILT, kernel, kernel_text.place(kernel)):
            counters = _C.emulate_launch(
                position,
                text,
                memory,
                list(arguments),
                self.max_instructions,
                chip=self.platform.arch,
                seed=self.seed,
                sum_order=self.sum_order,
                threads=self.threads,
                multiprocessors=self.platform.multiprocessors,
                pending=call.pending,
            )
            call.pending = [Pending(first, end - first, 0) for first, end in counters.last_writes]
        self.launches.append(Launch(op, backend, kernel, report_of(counters)))

    def _launch_code_object(self, kernel: str, arguments: Sequence[int], memory: list[Allocation]) -> Any:
        """The first argument is the number of workgroups; see msa_ops.amd.launch."""
        try:
            position = _C.find_code_object(kernel)
        except IndexError as error:
            raise NotImplementedError(str(error)) from None
        found = _C.code_object(position)
        return _C.emulate_code_object(
            found["code"],
            found["kernel"],
            (arguments[0], 1, 1),
            (found["threads"], 1, 1),
            0,
            _C.kernel_arguments(position, arguments[1:]),
            memory,
            self.max_instructions,
            self.seed,
        )


_open: ContextVar[tuple[contextlib.AbstractContextManager[None], ...]] = ContextVar("msa_ops_emulations", default=())
"""What the blocks of this context end with, the innermost last."""


class Emulation(contextlib.ContextDecorator):
    """What `emulate` gives: `with` begins a chip and gives it."""

    def __init__(self, begin: Callable[[], VirtualChip]) -> None:
        self._begin = begin

    def __enter__(self) -> VirtualChip:
        chip = self._begin()
        block = virtual.use(chip)
        block.__enter__()
        _open.set((*_open.get(), block))
        return chip

    def __exit__(self, *error: object) -> None:
        if not _open.get():
            raise RuntimeError("the block of an emulated chip ends that never began")
        *outer, block = _open.get()
        _open.set(tuple(outer))
        block.__exit__(None, None, None)


def emulate(
    arch: str = "sm_90a",
    *,
    seed: int | None = None,
    multiprocessors: int | None = None,
    max_instructions: int = MAX_INSTRUCTIONS,
    threads: int = 1,
    sum_order: int | None = None,
    pending: Sequence[Any] = (),
) -> Emulation:
    """Within the block, CPU tensors are the memory of a virtual chip: ops choose backends for it, and its compiled
    kernels are executed by the emulator, through their own host launchers.

    A kernel may use exactly the tensors of the call, and write only those that the op writes. Of ops without a
    kernel for the chip the reference runs if it is asked for, as on the chip. Tensors on a GPU are not concerned, nor
    are other threads: a thread that is started in the block computes on the CPU, unless it runs in a copy of the
    block's context (`contextvars.copy_context().run`). What is returned may be used for several blocks, one
    in the other too; each has a chip of its own.

    arch: a chip of `ARCHS`, by arch or name ("sm_90a", "H200"). seed: of a random schedule and random times at which
        asynchronous work is done; None: warps in turn, and everything as late as the memory model allows.
    multiprocessors: another number than the chip has, for kernels that divide their work by it.
    max_instructions: warp instructions after which a launch is given up.
    threads: of the host, over which the blocks of NVIDIA's chips are spread; with more than one, atomics of different
        blocks come in any order.
    sum_order: seed of the order in which matrix instructions of NVIDIA's chips add products in fp32; None: k ascending.
    pending: what the launch before each call may still be writing while the call's first kernel begins (on NVIDIA's
        chips, if it is launched so): tensors, or pairs of a tensor and what it held before; as in
        `msa_ops.emulator.run_ptx`.

    Raises ValueError for a chip that is not emulated and for options outside of their ranges. Ops raise EmulatorFault
    for what a kernel does wrong, UnsupportedPtx for instructions that the emulator lacks.
    """
    if not isinstance(arch, str):
        raise ValueError(f"arch: {arch!r}; accepted: {', '.join(ARCHS)}")
    platform = parse_platform(arch)
    if platform.arch not in ARCHS:
        raise ValueError(f"arch: {arch!r}; accepted: {', '.join(ARCHS)}")
    if multiprocessors is not None:
        platform = platforms.with_multiprocessors(platform, whole("multiprocessors", multiprocessors, 1, 1024))
    check_options(max_instructions=max_instructions, seed=seed, threads=threads, sum_order=sum_order)
    return Emulation(lambda: VirtualChip(platform, max_instructions, seed, threads, sum_order, pending))
