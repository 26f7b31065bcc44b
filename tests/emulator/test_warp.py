"""Instructions between lanes, control flow and barriers."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault
from tests.emulator.programs import run

LANES = np.arange(32)
OUT = "shl.b64 %rd16, %rd15, 2; add.s64 %rd16, %rd16, %rd1; st.global.b32 [%rd16], %r9;"
IN = "shl.b64 %rd17, %rd15, 2; add.s64 %rd17, %rd17, %rd0; ld.global.b32 %r8, [%rd17];\n"


def lanes(body: str, data: np.ndarray, threads: int = 32, target: str = "sm_90a") -> np.ndarray:
    """%r8 holds the lane's element of data; the body leaves a result in %r9."""
    out = np.zeros(threads, np.uint32)
    run(IN + body + "\n" + OUT, data.view(np.uint32), out, threads=threads, target=target)
    return out


DATA = np.random.default_rng(6).integers(0, 2**32, 32, dtype=np.uint32)


@pytest.mark.parametrize("width", [32, 16, 8, 4])
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffle(mode: str, width: int) -> None:
    """As the warp shuffle functions of CUDA define it, for segments of `width` lanes."""
    distance = (LANES * 7 + 3) % width
    body = "mul.lo.s32 %r1, %r0, 7; add.s32 %r1, %r1, 3; " + f"and.b32 %r1, %r1, {width - 1};\n"
    c = (32 - width) << 8 | (0 if mode == "up" else 31)
    body += f"shfl.sync.{mode}.b32 %r9|%p1, %r8, %r1, {c}, -1; selp.b32 %r7, 1, 0, %p1;\n"
    start = LANES // width * width
    source = {"up": LANES - distance, "down": LANES + distance, "bfly": LANES ^ distance, "idx": start + distance}[mode]
    inside = (source >= start) & (source < start + width)
    np.testing.assert_array_equal(lanes(body, DATA), DATA[np.where(inside, source, LANES)])
    np.testing.assert_array_equal(lanes(body + "mov.b32 %r9, %r7;", DATA), inside)


def test_groups_with_masks_of_their_own() -> None:
    body = "and.b32 %r1, %r0, 24; shl.b32 %r1, 255, %r1;\n"
    got = lanes(body + "redux.sync.add.s32 %r9, %r8, %r1;", DATA)
    np.testing.assert_array_equal(got, DATA.reshape(4, 8).sum(1, dtype=np.uint32).repeat(8))
    got = lanes(body + "setp.lt.s32 %p1, %r8, 0; vote.sync.ballot.b32 %r9, %p1, %r1;", DATA)
    negative = (DATA >> 31).astype(np.uint64) << LANES.astype(np.uint64)
    np.testing.assert_array_equal(got, negative.reshape(4, 8).sum(1).repeat(8))
    got = lanes(body + "elect.sync %r9|%p1, %r1;", DATA)
    np.testing.assert_array_equal(got, LANES // 8 * 8)
    got = lanes(body + "and.b32 %r8, %r8, 3; match.any.sync.b32 %r9, %r8, %r1;", DATA)
    low = DATA & 3
    same = (low[:, None] == low[None, :]) & (LANES[:, None] // 8 == LANES[None, :] // 8)
    np.testing.assert_array_equal(got, (same.astype(np.uint64) << LANES.astype(np.uint64)).sum(1))


@pytest.mark.parametrize(
    "name", ["add.u32", "min.u32", "max.u32", "min.s32", "max.s32", "and.b32", "or.b32", "xor.b32"]
)
def test_redux(name: str) -> None:
    values = DATA.view(np.int32) if name.endswith("s32") else DATA
    function = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
                "xor": np.bitwise_xor}[name.split(".")[0]]  # fmt: skip
    expected = function.reduce(values, dtype=values.dtype)
    got = lanes(f"redux.sync.{name} %r9, %r8, -1;", DATA).view(values.dtype)
    assert (got == expected).all()


FLOATS = np.concatenate(
    [np.array([np.nan, -np.inf, 0.0, -0.0, 1e-40], np.float32), np.linspace(-9, 7, 27, dtype=np.float32)]
)


@pytest.mark.parametrize("name", ["min", "max", "min.abs", "max.abs"])
@pytest.mark.parametrize("nan", [False, True])
def test_redux_of_floats(name: str, nan: bool) -> None:
    values = np.abs(FLOATS) if "abs" in name else FLOATS
    function = np.minimum if name.startswith("min") else np.maximum
    opcode = f"redux.sync.{name}{'.NaN' if nan else ''}.f32"
    got = lanes(f"{opcode} %r9, %r8, -1;", FLOATS.view(np.uint32), target="sm_100a")
    expected = np.float32(np.nan) if nan else function.reduce(values[1:])
    assert (got == (np.uint32(0x7FFFFFFF) if nan else expected.view(np.uint32))).all()
    zeros = np.array([0.0, -0.0] * 16, np.float32)
    got = lanes(f"{opcode} %r9, %r8, -1;", zeros.view(np.uint32), target="sm_100a")
    assert (got == (0x80000000 if name == "min" else 0)).all()
    nans = np.full(32, 0xFFC00001, np.uint32)
    assert (lanes(f"{opcode} %r9, %r8, -1;", nans, target="sm_100a") == 0x7FFFFFFF).all()


@pytest.mark.parametrize("wide", [False, True])
def test_match_all(wide: bool) -> None:
    """Each half of the warp by itself: the lower one agrees, the upper one does not."""
    data = np.where(LANES < 16, 7, LANES).astype(np.uint32)
    value = "mov.b64 %rd5, {%r8, %r8}; " if wide else ""
    body = "setp.lt.u32 %p2, %r0, 16; selp.b32 %r10, 0xffff, 0xffff0000, %p2;\n" + value
    body += f"match.all.sync.b{64 if wide else 32} %r9|%p1, {'%rd5' if wide else '%r8'}, %r10;\n"
    np.testing.assert_array_equal(lanes(body, data), np.where(LANES < 16, 0xFFFF, 0))
    np.testing.assert_array_equal(lanes(body + "selp.b32 %r9, 1, 0, %p1;", data), (LANES < 16).astype(np.uint32))


def test_match_any_of_64_bits() -> None:
    data = (LANES % 3).astype(np.uint32)
    got = lanes("mov.b64 %rd5, {0, %r8}; match.any.sync.b64 %r9, %rd5, -1;", data)
    same = data[:, None] == data[None, :]
    np.testing.assert_array_equal(got, (same.astype(np.uint64) << LANES.astype(np.uint64)).sum(1))


def test_redux_hands_on_that_a_value_is_missing() -> None:
    """Arithmetic: whoever decides by the result, or stores it, is at fault."""
    body = "setp.lt.u32 %p1, %r0, 31; @%p1 mov.b32 %r1, 5; redux.sync.max.u32 %r9, %r1, -1;\n"
    assert lanes(body + "mov.b32 %r9, 1;", DATA).all()
    with pytest.raises(EmulatorFault, match="%r1 is read and has no value"):
        lanes(body, DATA)


@pytest.mark.parametrize("limit", [0, 5, 32])
def test_votes(limit: int) -> None:
    for mode, expected in {"all": limit == 32, "any": limit > 0, "uni": limit in (0, 32)}.items():
        body = f"setp.lt.u32 %p1, %r0, {limit}; vote.sync.{mode}.pred %p2, %p1, -1; selp.b32 %r9, 1, 0, %p2;"
        assert (lanes(body, DATA) == expected).all(), mode


def test_special_registers() -> None:
    for name, expected in {"laneid": LANES, "lanemask_eq": 1 << LANES, "lanemask_lt": (1 << LANES) - 1,
                           "lanemask_le": (2 << LANES) - 1, "lanemask_gt": 2**32 - (2 << LANES),
                           "lanemask_ge": 2**32 - (1 << LANES), "ntid.x": 32, "warpid": 0,
                           "nwarpid": 1}.items():  # fmt: skip
        np.testing.assert_array_equal(lanes(f"mov.u32 %r9, %{name};", DATA), np.broadcast_to(expected, 32), name)


def test_activemask_on_both_sides_of_a_branch() -> None:
    body = "setp.lt.u32 %p1, %r0, 10; @%p1 bra LOW; activemask.b32 %r9; bra.uni MEET; "
    body += "LOW: activemask.b32 %r9; MEET: bar.warp.sync -1;"
    np.testing.assert_array_equal(lanes(body, DATA), np.where(LANES < 10, 0x3FF, 0xFFFFFC00))


def test_loop_of_different_lengths() -> None:
    """Collatz steps: every lane leaves the loop at another time, and all are together after it."""
    numbers = np.arange(1, 33, dtype=np.uint32)
    body = """mov.b32 %r9, 0;
    LOOP: setp.eq.b32 %p1, %r8, 1; @%p1 bra DONE;
    and.b32 %r1, %r8, 1; setp.eq.b32 %p2, %r1, 0; @%p2 bra EVEN;
    mad.lo.s32 %r8, %r8, 3, 1; bra NEXT;
    EVEN: shr.u32 %r8, %r8, 1;
    NEXT: add.s32 %r9, %r9, 1; bra LOOP;
    DONE: shfl.sync.idx.b32 %r2, %r9, 26, 31, -1; add.s32 %r9, %r9, %r2;"""

    def steps(n: int) -> int:
        return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)

    np.testing.assert_array_equal(lanes(body, numbers), [steps(int(n)) + 111 for n in numbers])


def test_lanes_meet_before_code_that_stands_earlier_in_the_text() -> None:
    """The side of a branch that the compiler put behind the end of the kernel comes back to a barrier."""
    body = """mov.b32 %r9, 1; setp.lt.u32 %p1, %r0, 7; @%p1 bra COLD;
    MEET: bar.sync 0; bra.uni END;
    COLD: mov.b32 %r9, 2; bra MEET;
    END:"""
    np.testing.assert_array_equal(lanes(body, DATA), np.where(LANES < 7, 2, 1))


def test_nested_branches_and_early_return() -> None:
    out = np.zeros(32, np.uint32)
    body = """mov.b32 %r9, 0; setp.lt.u32 %p1, %r0, 20; @!%p1 bra HIGH;
    setp.lt.u32 %p2, %r0, 10; @%p2 bra LOW;
    add.s32 %r9, %r9, 100; bra MIDDLE;
    LOW: setp.lt.u32 %p3, %r0, 3; @%p3 ret; add.s32 %r9, %r9, 200;
    MIDDLE: activemask.b32 %r7; add.s32 %r9, %r9, 1000; bra ALL;
    HIGH: activemask.b32 %r7;
    ALL: popc.b32 %r7, %r7; mad.lo.s32 %r9, %r7, 10000, %r9; bar.sync 0;
    """
    run(body + OUT, out, out)
    expected = np.where(LANES < 3, 0, np.where(LANES < 10, 171200, np.where(LANES < 20, 171100, 120000)))
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("early", ["@%p1 ret;", "@%p1 bra END;", "@!%p1 bra ON; mov.b32 %r1, 1; bra END; ON:",
                                   "@%p1 bra OUT; bra ON; OUT: ret; ON:",
                                   "@!%p1 bra ON; ret; ON:"])  # fmt: skip
def test_lanes_that_return_early_hold_up_nobody(early: str) -> None:
    out = np.zeros(32, np.uint32)
    body = "setp.lt.u32 %p1, %r0, 5; " + early + " bar.sync 0; mov.b32 %r9, 1; redux.sync.add.s32 %r9, %r9, -1;\n"
    run(body + OUT + " END:", out, out)
    np.testing.assert_array_equal(out, np.where(LANES < 5, 0, 27))


def test_block_sum_through_shared_memory() -> None:
    """Eight warps and a half: barrier, shared array and atomics together."""
    threads = 272
    data = np.arange(threads, dtype=np.uint32)
    out = np.zeros(threads, np.uint32)
    body = """setp.eq.b32 %p1, %r0, 0; @%p1 st.shared.b32 [total], 0; bar.sync 0;
    red.shared.add.u32 [total], %r8; bar.sync 0; ld.shared.b32 %r9, [total];\n"""
    run(IN + body + OUT, data, out, threads=threads, declarations=".shared .align 4 .b8 total[4];")
    assert (out == data.sum()).all()


def test_producer_and_consumer_barriers() -> None:
    body = """setp.lt.u32 %p1, %r0, 32; @!%p1 bra CONSUME;
    shl.b32 %r1, %r0, 2; mov.b32 %r2, box; add.s32 %r1, %r1, %r2; st.shared.b32 [%r1], %r8;
    bar.arrive 1, 64; mov.b32 %r9, 0; bra DONE;
    CONSUME: bar.sync 1, 64; sub.s32 %r1, 63, %r0; shl.b32 %r1, %r1, 2; mov.b32 %r2, box; add.s32 %r1, %r1, %r2;
    ld.shared.b32 %r9, [%r1];
    DONE:\n"""
    data, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    run(IN + body + OUT, data, out, threads=64, declarations=".shared .align 4 .b8 box[128];")
    np.testing.assert_array_equal(out, np.r_[np.zeros(32), np.arange(32)[::-1]])


def test_warps_that_have_left_do_not_hold_up_a_barrier() -> None:
    out = np.zeros(64, np.uint32)
    run("setp.lt.u32 %p1, %r0, 32; @%p1 ret; bar.sync 0; mov.b32 %r9, 4;\n" + OUT, out, out, threads=64)
    np.testing.assert_array_equal(out, np.repeat([0, 4], 32))


def test_counts() -> None:
    out = np.zeros(64, np.uint32)
    body = """setp.lt.u32 %p1, %r0, 40; @%p1 bra ON; sub.s32 %r1, %r0, 1; ON: @%p1 st.global.b32 [%rd0], 7;
    mov.b32 %r2, 3; LOOP: sub.s32 %r2, %r2, 1; setp.ne.b32 %p2, %r2, 0; @%p2 bra LOOP;"""
    report = run(body, out, threads=64, blocks=3)
    assert report.launches == 1
    assert report.warp_instructions == {
        "ld.param.u64": 6, "mov.u32": 6, "cvt.u64.u32": 6, "setp.lt.u32": 6, "bra": 6 + 18, "sub.s32": 3 + 18,
        "st.global.b32": 6, "mov.b32": 6, "setp.ne.b32": 18, "ret": 6,
    }  # fmt: skip
    assert report.total_warp_instructions == sum(report.warp_instructions.values())
    assert (report.global_bytes_read, report.global_bytes_written) == (0, 3 * 40 * 4)
