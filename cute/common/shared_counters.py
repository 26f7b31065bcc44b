"""Counters in shared memory that many threads add to."""

from cutlass import Int32
from msa_ops.cute.common.asm import asm


def count(address: Int32) -> None:
    """Adds one."""
    asm("red.shared.add.u32 [$0], 1;", [], [address])


def take_number(address: Int32) -> Int32:
    """Adds one and returns what was there."""
    return asm("atom.shared.add.u32 $0, [$1], 1;", [Int32], [address])
