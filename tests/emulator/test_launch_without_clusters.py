"""What an H200 executes in a launch without clusters, and where it stops with an illegal instruction (CUresult 715)."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import kernel, line_of

LANDS = "mbarrier::complete_tx::bytes"
SENDS = {
    "copy": f"cp.async.bulk.shared::cluster.shared::cta.{LANDS} [s+128], [s], 64, [bar];",
    "reduction": f"cp.reduce.async.bulk.shared::cluster.shared::cta.{LANDS}.add.u32 [s+128], [s], 64, [bar];",
    "st.async": f"st.async.weak.shared::cluster.{LANDS}.v4.b32 [s+128], {{%r4, %r4, %r4, %r4}}, [bar];",
    "red.async": f"red.async.relaxed.cluster.shared::cluster.{LANDS}.add.u32 [s+128], %r4, [bar];",
}
BYTES = {"copy": 64, "reduction": 64, "st.async": 16, "red.async": 4}
AFTER = {"copy": [0, 1, 2, 3, 4], "reduction": [7, 8, 9, 10, 11], "st.async": [7] * 5, "red.async": [14, 7, 7, 7, 7]}
OTHERS = {
    "load": "ld.shared::cluster.b32 %r5, [s];",
    "atomic": "atom.shared::cluster.add.u32 %r5, [s], 1;",
    "mapa": "mov.u32 %r7, s; mapa.shared::cluster.u32 %r7, %r7, 0; ld.shared::cluster.b32 %r5, [%r7];",
    "multicast": f"mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64; mov.u16 %h1, 1;\n"
    f"cp.async.bulk.shared::cluster.global.{LANDS}.multicast::cluster [s+128], [%rd0], 64, [bar], %h1;\n"
    "W: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra W;",
    "copy from global memory": "mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64;\n"
    f"cp.async.bulk.shared::cluster.global.{LANDS} [s+128], [%rd0], 64, [bar];\n"
    "W: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra W;",
}


def program(instruction: str, directives: str = "") -> str:
    body = f"""mov.u32 %r4, 7; mov.u32 %r2, s; mad.lo.u32 %r1, %r0, 4, %r2;
    st.shared.b32 [%r1], %r0; st.shared.b32 [%r1+128], %r4;
    setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [bar], 1; fence.mbarrier_init.release.cluster;
    fence.proxy.async; bar.sync 0;
    @!%p1 bra E;
    {instruction} // here
    E: bar.sync 0;
    ld.shared.b32 %r3, [%r1+128]; mad.wide.u32 %rd1, %r0, 4, %rd0; st.global.b32 [%rd1+128], %r3;
    mov.pred %p3, %is_explicit_cluster; selp.u32 %r3, 1, 0, %p3; st.global.b32 [%rd0+256], %r3;"""
    return kernel(
        body, declarations=".shared .align 128 .b8 s[256];\n.shared .align 8 .b64 bar;", directives=directives
    )


def send(name: str) -> str:
    arrive = f"mbarrier.arrive.expect_tx.shared.b64 _, [bar], {BYTES[name]};"
    return f"{arrive} {SENDS[name]} W: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra W;"


@pytest.mark.parametrize("name", SENDS)
def test_into_shared_memory(name: str) -> None:
    out = np.zeros(80, np.uint32)
    text = program(send(name))
    with pytest.raises(EmulatorFault, match=r"illegal instruction: .* in a launch without clusters") as caught:
        run_ptx(text, "k", 1, 32, [out])
    assert caught.value.line == line_of(text, "// here") and caught.value.lane == 0
    for directives, cluster in (("", 1), (".reqnctapercluster 1, 1, 1\n", None)):
        out[:] = 0
        run_ptx(program(send(name), directives), "k", 1, 32, [out], cluster=cluster)
        assert out[32:37].tolist() == AFTER[name] and out[64] == 1


@pytest.mark.parametrize("name", OTHERS)
def test_others(name: str) -> None:
    out = np.zeros(80, np.uint32)
    run_ptx(program(OTHERS[name]), "k", 1, 32, [out])
    assert out[32] == (0 if name in ("multicast", "copy from global memory") else 7) and out[64] == 0
