"""Warps that spin for what never comes end as a deadlock at once; those that are released, or count, go on."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from numpy.typing import NDArray

from msa_ops.emulator import EmulatorFault, run_ptx, run_ptx_on_devices
from tests.emulator.programs import kernel, line_of

LIMIT = 50_000_000
SHARED = ".shared .align 8 .b64 bar;\n.shared .align 4 .b32 flag;\n"
START = """
setp.eq.u32 %p0, %r0, 0;
@%p0 mbarrier.init.shared.b64 [bar], 1;
mov.u32 %r1, 0;
@%p0 st.shared.b32 [flag], %r1;
bar.sync 0;
setp.lt.u32 %p1, %r0, 32;
"""
# The second warp takes long; then it releases the first one, or not.
DELAY = """
mov.u32 %r2, 0;
delay: add.u32 %r2, %r2, 1;
setp.lt.u32 %p2, %r2, 60000;
@%p2 bra delay;
setp.eq.u32 %p3, %r0, 32;
"""
SPINS = {
    "test_wait": (
        "again: mbarrier.test_wait.parity.shared.b64 %p4, [bar], 0; // spin\n@!%p4 bra again;",
        "@%p3 mbarrier.arrive.shared.b64 %rd1, [bar];",
    ),
    "shared flag": (
        "again: ld.acquire.cta.shared.b32 %r3, [flag]; // spin\nsetp.eq.u32 %p4, %r3, 0;\n@%p4 bra again;",
        "mov.u32 %r4, 1;\n@%p3 st.release.cta.shared.b32 [flag], %r4;",
    ),
    "global flag": (
        "again: nanosleep.u32 20;\nld.acquire.gpu.global.b32 %r3, [%rd0]; // spin\nsetp.eq.u32 %p4, %r3, 0;\n"
        "@%p4 bra again;",
        "mov.u32 %r4, 1;\n@%p3 st.release.gpu.global.b32 [%rd0], %r4;",
    ),
    "lock": (
        "again: atom.global.cas.b32 %r3, [%rd0+4], 1, 2; // spin\nsetp.eq.u32 %p4, %r3, 0;\n@%p4 bra again;",
        "@%p3 atom.global.exch.b32 %r3, [%rd0+4], 1;",
    ),
}


def program(spin: str, after: str) -> str:
    body = f"{START}@!%p1 bra other;\n{spin}\nbra end;\nother:\n{DELAY}\n{after}\nend:"
    return kernel(body, declarations=SHARED)


def deadlock(text: str, *, grid: int = 1, block: int = 64, **options: object) -> EmulatorFault:
    with pytest.raises(EmulatorFault) as caught:
        run_ptx(text, "k", grid, block, [np.zeros(4, np.uint32)], max_instructions=LIMIT, **options)  # type: ignore[arg-type]
    assert caught.value.kind == "deadlock", str(caught.value)
    return caught.value


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("spin", SPINS)
def test_spin_that_nobody_ends(spin: str, seed: int | None, threads: int) -> None:
    body, release = SPINS[spin]
    text = program(body, "")
    fault = deadlock(text, seed=seed, threads=threads)
    assert fault.line == line_of(text, "// spin")
    assert "warp 0 loops for ever" in str(fault)
    run_ptx(program(body, release), "k", 1, 64, [np.zeros(4, np.uint32)], seed=seed, threads=threads,
            max_instructions=LIMIT)  # fmt: skip


def test_others_that_wait_are_named() -> None:
    text = program(SPINS["shared flag"][0], "barrier.sync 1, 64;")
    assert "warp 1 at line" in str(deadlock(text)) and "waits for barrier 1" in str(deadlock(text))


def grid_barrier(blocks: int) -> str:
    return kernel(
        f"""setp.eq.u32 %p0, %r0, 0;
        @!%p0 bra end;
        atom.global.add.u32 %r1, [%rd0], 1;
        again: ld.acquire.gpu.global.u32 %r1, [%rd0]; // spin
        setp.lt.u32 %p1, %r1, {blocks};
        @%p1 bra again;
        end:"""
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_grid_barrier_of_more_blocks_than_the_chip_holds(threads: int) -> None:
    count = np.zeros(4, np.uint32)
    run_ptx(grid_barrier(64), "k", 64, 32, [count], multiprocessors=2, threads=threads, max_instructions=LIMIT)
    assert count[0] == 64
    fault = deadlock(grid_barrier(68), grid=68, block=32, multiprocessors=2, threads=threads)
    assert "4 blocks have not started" in str(fault)
    assert fault.line == line_of(grid_barrier(68), "// spin")


@pytest.mark.parametrize("seed", [None, 2])
def test_flag_of_another_device(seed: int | None) -> None:
    """Each device waits for the other's flag; the twin sets it after long work."""

    def run(released: bool) -> None:
        flags = [np.zeros(1, np.uint32) for _ in range(2)]
        release = "st.release.sys.global.b32 [%rd1], %r4;" if released else ""
        body = f"""mov.u32 %r4, 1;
        {DELAY}
        {release}
        again: ld.acquire.sys.global.b32 %r3, [%rd0];
        setp.eq.u32 %p4, %r3, 0;
        @%p4 bra again;"""
        arguments: list[list[NDArray[np.uint32]]] = [[flags[0], flags[1]], [flags[1], flags[0]]]
        run_ptx_on_devices(kernel(body, 2), "k", 1, 32, arguments, seed=seed, max_instructions=LIMIT)

    run(released=True)
    with pytest.raises(EmulatorFault, match=r"deadlock.*device 0 block.*loops.*device 1 block") as caught:
        run(released=False)
    assert caught.value.kind == "deadlock"


COUNTED = """
mov.u32 %r5, 0;
tries: ld.volatile.global.b32 %r3, [%rd0];
add.u32 %r5, %r5, 1;
setp.lt.u32 %p5, %r5, 1000000;
@%p5 bra tries;
"""


def test_tries_that_are_counted_are_no_endless_loop() -> None:
    out = np.zeros(4, np.uint32)
    run_ptx(kernel(COUNTED + "st.global.b32 [%rd0+4], %r5;"), "k", 1, 1, [out], max_instructions=LIMIT)
    assert out[1] == 1_000_000
    with pytest.raises(EmulatorFault) as caught:
        run_ptx(kernel(COUNTED + "trap;"), "k", 1, 1, [out], max_instructions=LIMIT)
    assert caught.value.kind == "trap"


def test_a_warp_that_spins_for_one_that_counts() -> None:
    body = f"{START}@!%p1 bra other;\n{SPINS['global flag'][0]}\nbra end;\nother:\n{COUNTED}\n"
    body += "mov.u32 %r4, 1;\nst.release.gpu.global.b32 [%rd0], %r4;\nend:"
    body = body.replace("ld.volatile.global.b32 %r3, [%rd0]", "ld.volatile.global.b32 %r3, [%rd0+4]")
    run_ptx(kernel(body, declarations=SHARED), "k", 1, 64, [np.zeros(4, np.uint32)], max_instructions=LIMIT)


def test_a_wait_that_may_end_without_success_may_do_something_else() -> None:
    """The second warp's try_wait fails; then it releases the first one."""
    text = program(
        SPINS["global flag"][0],
        "mbarrier.try_wait.parity.shared.b64 %p6, [bar], 0;\n" + SPINS["global flag"][1],
    )
    run_ptx(text, "k", 1, 64, [np.zeros(4, np.uint32)], max_instructions=LIMIT)


def test_time_goes_on() -> None:
    """A loop that waits for a time is none for ever, even where it keeps nothing of it."""
    wait = "again: mov.u32 %r1, %clock;\nsetp.lt.u32 %p1, %r1, 400000;\nmov.u32 %r1, 0;\n@%p1 bra again;"
    run_ptx(kernel(wait), "k", 1, 32, [np.zeros(4, np.uint32)], max_instructions=LIMIT)
    with pytest.raises(EmulatorFault) as caught:
        run_ptx(kernel("again: mov.u32 %r1, %clock;\nbra again;"), "k", 1, 32, [np.zeros(4, np.uint32)],
                max_instructions=200_000)  # fmt: skip
    assert caught.value.kind == "limit"


TRIES = """
setp.eq.u32 %p0, %r0, 0;
@%p0 mbarrier.init.shared.b64 [bar], 1;
bar.sync 0;
mov.u32 %r5, 0;
tries: mbarrier.try_wait.parity.shared.b64 %p4, [bar], 0;
@%p4 bra done;
"""


def test_failed_waits_that_are_counted() -> None:
    """`try_wait` fails as often as the kernel counts, then it does something else; without a count it is a deadlock."""
    counts = "add.u32 %r5, %r5, 1;\nsetp.lt.u32 %p5, %r5, 1000;\n@%p5 bra tries;\nst.global.b32 [%rd0], %r5;\ndone:"
    out = np.zeros(4, np.uint32)
    run_ptx(kernel(TRIES + counts, declarations=SHARED), "k", 1, 32, [out], max_instructions=LIMIT)
    assert out[0] == 1000
    fault = deadlock(kernel(TRIES + "bra tries;\ndone:", declarations=SHARED), block=32)
    assert "waits for the mbarrier at" in str(fault)
    assert "0 of 1 arrivals" in str(fault)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("released", [True, False])
def test_wait_that_another_block_gives_up_for_it(released: bool, threads: int) -> None:
    """The first block waits for an mbarrier, and between two tries looks at a flag that the second block sets late."""
    store = "mov.u32 %r4, 1;\nst.release.gpu.global.b32 [%rd0], %r4;" if released else ""
    body = f"""mov.u32 %r1, %ctaid.x;
    setp.eq.u32 %p1, %r1, 1;
    @%p1 bra other;
    {TRIES}
    ld.acquire.gpu.global.b32 %r3, [%rd0];
    setp.eq.u32 %p4, %r3, 0;
    @%p4 bra tries;
    bra done;
    other: {DELAY}
    {store}
    done:"""
    text = kernel(body, declarations=SHARED)
    if released:
        run_ptx(text, "k", 2, 32, [np.zeros(4, np.uint32)], threads=threads, max_instructions=LIMIT)
    else:
        assert "block (0, 0, 0) warp 0" in str(deadlock(text, grid=2, block=32, threads=threads))


def test_wait_that_fails_although_another_warp_is_busy() -> None:
    """The first warp reads a clock until the second one, whose `try_wait` has to fail for it, sets a flag."""
    body = f"""{START}@!%p1 bra other;
    again: mov.u32 %r6, %clock;
    ld.acquire.cta.shared.b32 %r3, [flag];
    setp.eq.u32 %p4, %r3, 0;
    @%p4 bra again;
    bra end;
    other: mbarrier.try_wait.parity.shared.b64 %p4, [bar], 0;
    mov.u32 %r4, 1;
    @%p4 mov.u32 %r4, 2;
    st.release.cta.shared.b32 [flag], %r4;
    end:"""
    run_ptx(kernel(body, declarations=SHARED), "k", 1, 64, [np.zeros(4, np.uint32)], max_instructions=LIMIT)


def test_flag_of_a_thread_of_the_host() -> None:
    """Nothing is known of a loop that the host may end; one in shared memory is out of its reach."""
    flag = np.zeros(4, np.uint32)
    text = kernel("again: ld.relaxed.sys.global.b32 %r3, [%rd0];\nsetp.eq.u32 %p4, %r3, 0;\n@%p4 bra again;")
    goes_on = threading.Event()

    def store() -> None:
        time.sleep(0.2)
        flag[0] = 1
        goes_on.wait()

    thread = threading.Thread(target=store)
    thread.start()
    try:
        run_ptx(text, "k", 1, 32, [flag], max_instructions=10**10)
        flag[0] = 0
        with pytest.raises(EmulatorFault, match="limit"):
            run_ptx(text, "k", 1, 32, [flag], max_instructions=10**6)
        deadlock(program(SPINS["shared flag"][0], ""))
    finally:
        goes_on.set()
        thread.join()
    flag[0] = 0
    deadlock(text, block=32)


@pytest.mark.parametrize("threads", [2, 3])
def test_all_threads_of_the_host_together_hold_what_the_chip_does(threads: int) -> None:
    count = np.zeros(4, np.uint32)
    run_ptx(grid_barrier(5), "k", 5, 32, [count], multiprocessors=5, shared_memory=200_000, threads=threads,
            max_instructions=LIMIT)  # fmt: skip
    assert count[0] == 5
    fault = deadlock(grid_barrier(6), grid=6, block=32, multiprocessors=5, shared_memory=200_000, threads=threads)
    assert "1 blocks have not started" in str(fault)


def test_daemons_do_not_count() -> None:
    """Libraries leave some behind, such as tqdm's monitor, which store nothing."""
    over = threading.Event()
    daemon = threading.Thread(target=over.wait, daemon=True)
    daemon.start()
    try:
        deadlock(program(SPINS["global flag"][0], ""))
    finally:
        over.set()
        daemon.join()


def test_asynchronous_work_goes_on_soon_while_others_spin() -> None:
    """A warp copies 20 times and waits each time; seven spin for its flag."""
    body = """setp.eq.u32 %p0, %r0, 0;
    @%p0 mbarrier.init.shared.b64 [bar], 1;
    bar.sync 0;
    setp.ge.u32 %p1, %r0, 32;
    @%p1 bra again;
    @!%p0 bra end;
    mov.u32 %r2, 0;
    copy: and.b32 %r4, %r2, 1;
    mbarrier.arrive.expect_tx.shared.b64 %rd3, [bar], 16;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [data], [%rd1], 16, [bar];
    wait: mbarrier.try_wait.parity.shared.b64 %p3, [bar], %r4;
    @!%p3 bra wait;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p2, %r2, 20;
    @%p2 bra copy;
    st.release.gpu.global.b32 [%rd0], %r2;
    bra end;
    again: ld.acquire.gpu.global.b32 %r3, [%rd0];
    setp.eq.u32 %p4, %r3, 0;
    @%p4 bra again;
    end:"""
    flag = np.zeros(4, np.uint32)
    text = kernel(body, 2, SHARED + ".shared .align 16 .b8 data[16];")
    run_ptx(text, "k", 1, 256, [flag, np.zeros(4, np.uint32)], max_instructions=3_000_000)
    assert flag[0] == 20


def test_blocks_that_spin_leave_their_turn_to_others() -> None:
    """Each block waits for the next one, while a thread of the host may store."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    flags = np.zeros(17, np.uint32)
    flags[16] = 1
    body = """mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %rd1, %r1, 4;
    add.u64 %rd0, %rd0, %rd1;
    again: ld.acquire.gpu.global.b32 %r3, [%rd0+4];
    setp.eq.u32 %p4, %r3, 0;
    @%p4 bra again;
    st.release.gpu.global.b32 [%rd0], %r3;"""
    try:
        run_ptx(kernel(body), "k", 16, 32, [flags], max_instructions=5_000_000)
    finally:
        over.set()
        thread.join()
    assert flags.all()
