"""The virtual chip in whose memory CPU tensors are, inside `with msa_ops.emulate(ARCH):`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, Protocol

from torch import Tensor

if TYPE_CHECKING:
    from msa_ops.registry.platform import Platform


class Region(NamedTuple):
    """A tensor of a call: memory that the call's kernels may use."""

    name: str
    tensor: Tensor
    writable: bool


class Chip(Protocol):
    """What executes kernels in place of a GPU."""

    @property
    def platform(self) -> Platform: ...

    def call(self, op: str, backend: str, regions: Sequence[Region]) -> contextlib.AbstractContextManager[None]:
        """For the length of the block, kernels may use these regions and nothing else."""

    def launch(self, kernel: str, arguments: Sequence[int]) -> None:
        """Executes a compiled kernel: pointers and integers as they are, fp32 as its bits."""


_chip: ContextVar[Chip | None] = ContextVar("msa_ops_chip", default=None)


def current() -> Chip | None:
    return _chip.get()


@contextlib.contextmanager
def use(chip: Chip) -> Iterator[None]:
    token = _chip.set(chip)
    try:
        yield
    finally:
        _chip.reset(token)


def launch(kernel: str, arguments: Sequence[int]) -> None:
    """On the chip in force. Raises NotImplementedError if there is none."""
    chip = current()
    if chip is None:
        raise NotImplementedError(f"kernel {kernel}: its tensors are on the CPU; run it within msa_ops.emulate")
    chip.launch(kernel, arguments)
