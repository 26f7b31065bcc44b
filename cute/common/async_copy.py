"""Copies of 16 bytes from global to shared memory that run while the thread goes on."""

from cutlass import Int32, Int64
from msa_ops.cute.common.asm import asm


def copy_16(target: Int32, source: Int64) -> None:
    asm("cp.async.cg.shared.global [$0], [$1], 16;", [], [target, source])


def commit() -> None:
    """Makes a group of the copies since the last one; it may be empty."""
    asm("cp.async.commit_group;", [])


def wait(newer: int) -> None:
    """Until all groups of this thread but the `newer` newest are there, for this thread."""
    asm(f"cp.async.wait_group {newer};", [])
