"""Bulk copies from global to shared memory and the barriers that count their bytes. Addresses are integers."""

from cutlass import Int32, Int64
from msa_ops.cute.common.asm import asm


def barrier_init(barrier: Int32, arrivals: int) -> None:
    asm("mbarrier.init.shared::cta.b64 [$0], $1;", [], [barrier, Int32(arrivals)])


def barrier_init_fence() -> None:
    """Makes barriers that this thread has initialised visible to bulk copies."""
    asm("fence.mbarrier_init.release.cluster;", [])
    asm("fence.proxy.async.shared::cta;", [])


def order_before_copies() -> None:
    """Orders this thread's accesses to shared memory before bulk copies to the same place that follow a barrier."""
    asm("fence.proxy.async.shared::cta;", [])


def barrier_arrive(barrier: Int32) -> None:
    asm("mbarrier.arrive.shared::cta.b64 _, [$0];", [], [barrier])


def barrier_expect(barrier: Int32, num_bytes: Int32) -> None:
    """Arrives, and holds the phase until that many bytes came in."""
    asm("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", [], [barrier, num_bytes])


def barrier_wait(barrier: Int32, parity: Int32) -> None:
    """Waits for the end of the phase of that parity."""
    asm(
        "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1; @!done bra again; }",
        [],
        [barrier, parity],
    )


def bulk_load(target: Int32, source: Int64, num_bytes: Int32, barrier: Int32, policy: Int64) -> None:
    """Starts a copy; addresses and bytes are multiples of 16."""
    asm(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [$0], [$1], $2, [$3], $4;",
        [],
        [target, source, num_bytes, barrier, policy],
    )
