"""fence.sc and membar of several threads: they order what one strong access between them tells, others do not.

The pattern of reductions over a grid: all threads store and fence, one of them counts the block; the last block's
threads fence and read what the others have stored.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx, run_ptx_on_devices
from tests.emulator.programs import kernel

SEEDS = [None, 1, 2, 3]
BLOCKS, THREADS = 4, 64
SHARED = ".shared .align 4 .b32 is_last;"
# Results in p0, partial sums in p1, the counter in p2. A grid that is reduced as PyTorch reduces one.
REDUCE = (
    "setp.eq.u32 %p1, %r0, 0; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 64, %r0; mul.wide.u32 %rd3, %r2, 4;\n"
    "add.s64 %rd3, %rd1, %rd3; st.global.b32 [%rd3], %r2;\n"
    "{first}\n{gather}\n"
    "@%p1 {count} %r3, [%rd2], 1; @%p1 st.shared.b32 [is_last], %r3;\n"
    "bar.sync 0; ld.shared.b32 %r3, [is_last]; setp.ne.u32 %p2, %r3, 3; @%p2 bra END;\n"
    "{second}\n"
    "mul.wide.u32 %rd4, %r0, 4; add.s64 %rd5, %rd1, %rd4; mov.b32 %r4, 0;\n"
    + "".join(f"ld.global.b32 %r5, [%rd5+{4 * THREADS * i}]; add.u32 %r4, %r4, %r5;\n" for i in range(BLOCKS))
    + "add.s64 %rd6, %rd0, %rd4; st.global.b32 [%rd6], %r4;\nEND:"
)


def reduced(seed: int | None, first: str, second: str, gather: str = "bar.sync 0;", count: str = "atom.global.add.u32"):
    out, sums, counter = np.zeros(THREADS, np.uint32), np.zeros(BLOCKS * THREADS, np.uint32), np.zeros(1, np.uint32)
    text = kernel(REDUCE.format(first=first, second=second, gather=gather, count=count), 3, SHARED)
    run_ptx(text, "k", BLOCKS, THREADS, [out, sums, counter], seed=seed)
    return out


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fence", ["membar.gl;", "membar.sys;", "fence.sc.gpu;", "fence.sc.sys;"])
@pytest.mark.parametrize("count", ["atom.global.add.u32", "atom.acq_rel.gpu.global.add.u32"])
def test_reduction_over_a_grid(count: str, fence: str, seed: int | None) -> None:
    expected = np.arange(BLOCKS * THREADS).reshape(BLOCKS, THREADS).sum(0)
    assert (reduced(seed, fence, fence, count=count) == expected).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("fence.acq_rel.gpu;", "fence.acq_rel.gpu;"),  # orders only with accesses of the same thread
        ("fence.sc.gpu;", "fence.acq_rel.gpu;"),
        ("fence.acq_rel.gpu;", "fence.sc.gpu;"),
        ("", "fence.sc.gpu;"),
        ("fence.sc.gpu;", ""),
        ("fence.sc.cta;", "fence.sc.gpu;"),
        ("fence.sc.gpu;", "membar.cta;"),
        ("@%p1 membar.gl;", "membar.gl;"),
        ("membar.gl;", "@%p1 membar.gl;"),
    ],
)
def test_less_than_that(first: str, second: str, seed: int | None) -> None:
    with pytest.raises(EmulatorFault) as caught:
        reduced(seed, first, second)
    assert caught.value.kind == "race"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "parts",
    [
        {"gather": ""},  # the thread that counts knows of no other
        {"count": "atom.relaxed.cta.global.add.u32"},
    ],
)
def test_nothing_tells_of_the_fence(parts: dict[str, str], seed: int | None) -> None:
    with pytest.raises(EmulatorFault) as caught:
        reduced(seed, "membar.gl;", "membar.gl;", **parts)
    assert caught.value.kind == "race"


def raced(run: Callable[[], None], expected: bool) -> bool:
    """Runs it; it must be a race if that is expected."""
    if expected:
        with pytest.raises(EmulatorFault) as caught:
            run()
        assert caught.value.kind == "race"
    else:
        run()
    return expected


FLAG = (  # of two blocks, one hands over by a flag
    "mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p3, %r0, 0; mul.wide.u32 %rd3, %r0, 4;\n"
    "add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd0, %rd3; @%p1 bra WRITER;\n"
    "LOOP: ld.relaxed.gpu.global.b32 %r2, [%rd2]; setp.eq.u32 %p2, %r2, 0; @%p2 bra LOOP;\n"
    "{reader} ld.global.b32 %r2, [%rd4]; st.global.b32 [%rd5], %r2; bra END;\n"
    "WRITER: st.global.b32 [%rd4], %r0; {writer} @%p3 st.relaxed.gpu.global.b32 [%rd2], 1;\nEND:"
)


def handed_over(seed: int | None, writer: str, reader: str, threads: int = 32) -> np.ndarray:
    arrays = [np.zeros(threads, np.uint32), np.zeros(threads, np.uint32), np.zeros(1, np.uint32)]
    run_ptx(kernel(FLAG.format(writer=writer, reader=reader), 3), "k", 2, threads, arrays, seed=seed)
    return arrays[0]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        ("fence.release.gpu;", "fence.acquire.gpu;"),
        ("fence.acq_rel.gpu;", "fence.acquire.gpu;"),
        ("fence.release.gpu;", "fence.acq_rel.gpu;"),
        ("fence.sc.gpu;", "fence.acquire.gpu;"),
    ],
)
def test_halves_of_fences(writer: str, reader: str, seed: int | None) -> None:
    assert (handed_over(seed, writer, reader) == np.arange(32)).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("writer", "reader"),
    [("fence.acquire.gpu;", "fence.acquire.gpu;"), ("fence.release.gpu;", "fence.release.gpu;")],
)
def test_the_other_half(writer: str, reader: str, seed: int | None) -> None:
    with pytest.raises(EmulatorFault) as caught:
        handed_over(seed, writer, reader)
    assert caught.value.kind == "race"


@pytest.mark.parametrize("seed", SEEDS)
def test_two_warps_write(seed: int | None) -> None:
    assert (handed_over(seed, "fence.sc.gpu; bar.sync 0;", "fence.sc.gpu;", 64) == np.arange(64)).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("fence", "races"), [("fence.sc.sys", False), ("fence.sc.gpu", True)])
def test_devices(fence: str, races: bool, seed: int | None) -> None:
    """Between devices the scope must hold both."""
    body = FLAG.replace("%ctaid.x", "%r20").replace("relaxed.gpu", "relaxed.sys")
    body = f"cvt.u32.u64 %r20, %rd3; {body.format(writer=f'{fence}; bar.sync 0;', reader=f'{fence};')}"
    out, data, flag = np.zeros(64, np.uint32), np.zeros(64, np.uint32), np.zeros(1, np.uint32)

    def run() -> None:
        run_ptx_on_devices(kernel(body, 4), "k", 1, 64, [[out, data, flag, device] for device in (0, 1)], seed=seed)

    if not raced(run, races):
        assert (out == np.arange(64)).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fence", ["membar.gl;", "fence.sc.sys;"])
def test_each_device_for_itself(fence: str, seed: int | None) -> None:
    arguments = [
        [np.zeros(THREADS, np.uint32), np.zeros(BLOCKS * THREADS, np.uint32), np.zeros(1, np.uint32)] for _ in range(2)
    ]
    text = kernel(
        REDUCE.format(first=fence, second=fence, gather="bar.sync 0;", count="atom.global.add.u32"), 3, SHARED
    )
    run_ptx_on_devices(text, "k", BLOCKS, THREADS, arguments, seed=seed)
    expected = np.arange(BLOCKS * THREADS).reshape(BLOCKS, THREADS).sum(0)
    assert all((own[0] == expected).all() for own in arguments)


# Device 0 writes and fences; device 1 hears of it in block 0, by an order of all devices, and block 1 hears of block 0.
PASSED_ON = (
    "cvt.u32.u64 %r10, %rd2; setp.eq.u32 %p1, %r10, 0; mov.u32 %r11, %ctaid.x; setp.eq.u32 %p2, %r11, 0;\n"
    "@%p1 bra WRITER; @%p2 bra BETWEEN;\n"
    "LOOP: ld.relaxed.gpu.global.b32 %r1, [%rd0+64]; setp.eq.u32 %p3, %r1, 0; @%p3 bra LOOP;\n"
    "{last}; ld.global.b32 %r2, [%rd0]; st.global.b32 [%rd1], %r2; bra END;\n"
    "BETWEEN: ld.acquire.sys.global.b32 %r1, [%rd0+32]; setp.eq.u32 %p3, %r1, 0; @%p3 bra BETWEEN;\n"
    "st.relaxed.gpu.global.b32 [%rd0+64], 1; bra END;\n"
    "WRITER: @!%p2 bra END; st.global.b32 [%rd0], 7; {first}; st.release.sys.global.b32 [%rd0+32], 1;\nEND:"
)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("first", "last", "races"),
    [
        ("fence.sc.sys", "fence.sc.sys", False),
        ("fence.sc.gpu", "fence.sc.gpu", True),
        ("fence.sc.sys", "fence.sc.gpu", True),
        ("fence.sc.gpu", "fence.sc.sys", True),
    ],
)
def test_fences_of_a_device_end_there(first: str, last: str, races: bool, seed: int | None) -> None:
    data, out = np.zeros(64, np.uint32), np.zeros(1, np.uint32)

    def run() -> None:
        text = kernel(PASSED_ON.format(first=first, last=last), 3)
        run_ptx_on_devices(text, "k", 2, 1, [[data, out, device] for device in (0, 1)], seed=seed)

    if not raced(run, races):
        assert out[0] == 7
