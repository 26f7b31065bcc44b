"""`st.bulk`: zeros in shared memory, of which the rest stays as it is."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, PtxError, run_ptx
from tests.emulator.programs import kernel


def run(store: str, *, wait: str = "bar.sync 0;", target: str = "sm_100a") -> list[int]:
    """A word for each of 64 threads, of shared memory that held their numbers, 1 to 64."""
    out = np.zeros(64, np.uint32)
    body = f"""mov.u32 %r2, s; mad.lo.u32 %r1, %r0, 4, %r2; add.u32 %r3, %r0, 1; st.shared.b32 [%r1], %r3;
    mov.u64 %rd2, s; cvta.shared.u64 %rd3, %rd2; mov.u64 %rd4, 64; mov.u32 %r5, 64;
    bar.sync 0;
    setp.eq.u32 %p1, %r0, 40;
    @%p1 {store} // here
    {wait}
    ld.shared.b32 %r3, [%r1]; mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.b32 [%rd1], %r3;"""
    text = kernel(body, declarations=".shared .align 8 .b8 s[256];").replace("sm_90a", target)
    run_ptx(text, "k", 1, 64, [out], chip="sm_100a")
    return [int(word) for word in out]


@pytest.mark.parametrize("store", [
    "st.bulk.weak.shared::cta [%r2+32], %rd4, 0;",
    "st.bulk.shared::cta [%r2+32], 64, 0;",
    "st.bulk.weak.shared::cta [%r2+32], %r5, 0;",
    "st.bulk.weak [%rd3+32], %rd4, 0;",
    "st.bulk [%rd3+32], %rd4, 0;",
])  # fmt: skip
def test_zeros(store: str) -> None:
    assert run(store) == [*range(1, 9), *[0] * 16, *range(25, 65)]


def test_nothing() -> None:
    assert run("st.bulk.weak.shared::cta [%r2], 0, 0;") == [*range(1, 65)]


@pytest.mark.parametrize("store, kind", [
    ("st.bulk.weak.shared::cta [%r2+4], 64, 0;", "misaligned"),
    ("st.bulk.weak.shared::cta [%r2+200], 64, 0;", "out of bounds"),
    ("st.bulk.weak [%rd0], 64, 0;", "out of bounds"),
    ("mov.u64 %rd4, 63;\n@%p1 st.bulk.weak.shared::cta [%r2], %rd4, 0;", "out of bounds"),
])  # fmt: skip
def test_faults(store: str, kind: str) -> None:
    with pytest.raises(EmulatorFault) as caught:
        run(store)
    assert caught.value.kind == kind and caught.value.lane == 8


def test_it_is_a_store() -> None:
    with pytest.raises(EmulatorFault, match="race"):
        run("st.bulk.weak.shared::cta [%r2], 64, 0;", wait="")


@pytest.mark.parametrize("store, message", [
    ("st.bulk.weak.shared::cta [%r2], 64, 1;", "0 as its value"),
    ("st.bulk.weak.shared::cta [%r2], 64, %r5;", "0 as its value"),
    ("st.bulk.weak.shared::cta [%r2], 63, 0;", "multiples of 8"),
    ("st.bulk.weak.shared::cta [%r2], 16777224, 0;", "up to 16777216"),
])  # fmt: skip
def test_refusals(store: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        run(store)


def test_not_on_hopper() -> None:
    with pytest.raises(PtxError, match=r"not supported on .target sm_90a"):
        run("st.bulk.weak.shared::cta [%r2], 64, 0;", target="sm_90a")
