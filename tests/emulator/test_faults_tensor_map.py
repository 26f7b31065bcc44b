"""Tensor maps that a kernel writes in global memory: copies read them through a proxy of their own, which wants two fences."""

# ruff: noqa: E501 (programs, a line a step)
from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx, tensor_map
from tests.emulator.programs import kernel, line_of

SEEDS = (None, 1, 2)
SHARED = ".shared .align 128 .b8 buffer[1024];\n.shared .align 8 .b64 bar;"
START = """
mov.b32 %r1, bar; mov.b32 %r2, buffer; setp.eq.u32 %p1, %r0, 0; mov.b32 %r3, 0; mov.u32 %r4, %ctaid.x;
@%p1 mbarrier.init.shared::cta.b64 [%r1], 1; bar.sync 0;
"""
WRITES = {
    "replace": "@%p1 tensormap.replace.tile.global_address.global.b1024.b64 [%rd0], %rd1;\n",
    "store": "@%p1 st.global.b64 [%rd0], %rd1;\n",
}
RELEASE = "fence.proxy.tensormap::generic.release.gpu;\n"
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%rd0], 128;\n"
COPY = """@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;
@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd0, {%r3, %r3}], [%r1]; // here
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra WAIT;
shl.b32 %r5, %r0, 2; add.s32 %r6, %r2, %r5; ld.shared.b32 %r7, [%r6]; cvt.u64.u32 %rd6, %r5; add.s64 %rd6, %rd6, %rd2;
st.global.b32 [%rd6], %r7;
"""


def launch(body: str, seed: int | None, blocks: int = 1) -> None:
    tensor, out, flag = np.arange(64, dtype=np.uint32).reshape(8, 8), np.zeros(64, np.uint32), np.zeros(1, np.uint32)
    space = np.zeros(256, np.uint8)
    place = space[-space.ctypes.data % 128 :][:128]
    place[:] = np.frombuffer(tensor_map(tensor, "u32", [8, 8], [32], [8, 8]), np.uint8)
    run_ptx(kernel(START + body, 4, SHARED), "k", blocks, 64, [place, tensor, out, flag], seed=seed)
    assert out.tolist() == list(range(64))


@pytest.mark.parametrize("write", WRITES)
def test_fences_of_one_block(write: str) -> None:
    mine = WRITES[write]
    for seed in SEEDS:
        launch(mine + RELEASE + ACQUIRE + COPY, seed)
        launch(COPY, seed)  # as the host left it
        for body, missing in (
            (mine + COPY, "release"),
            (mine + "fence.acq_rel.gpu;\n" + COPY, "release"),
            (mine + "fence.proxy.async;\n" + COPY, "release"),
            (mine + ACQUIRE + COPY, "release"),
            (RELEASE + mine + ACQUIRE + COPY, "release"),
            (mine + RELEASE + COPY, "acquire"),
            (ACQUIRE + mine + RELEASE + COPY, "acquire"),
            (mine + RELEASE + ACQUIRE.replace("[%rd0]", "[%rd1]") + COPY, "acquire"),
        ):
            with pytest.raises(EmulatorFault, match=f"generic.{missing}") as caught:
                launch(body, seed)
            assert caught.value.kind == "missing proxy fence"
            assert caught.value.line == line_of(kernel(START + body, 4, SHARED), "// here")


def test_fences_of_two_blocks() -> None:
    """One writes the map and tells the other, which copies."""
    give = "setp.eq.u32 %p3, %r4, 0; @!%p3 bra TAKE;\n" + WRITES["replace"]
    tell = "@%p1 st.release.gpu.global.b32 [%rd3], 1;\nbra DONE;\nTAKE:\n"
    look = "SPIN: ld.{how}.gpu.global.b32 %r8, [%rd3]; setp.eq.b32 %p4, %r8, 0; @%p4 bra SPIN;\n"
    acquire, relaxed = look.replace("{how}", "acquire"), look.replace("{how}", "relaxed")
    for seed in SEEDS:
        launch(give + RELEASE + tell + acquire + ACQUIRE + COPY + "DONE:\n", seed, 2)
        for body, kind in (
            (give + tell + acquire + ACQUIRE + COPY + "DONE:\n", "missing proxy fence"),
            (give + RELEASE + tell + acquire + COPY + "DONE:\n", "missing proxy fence"),
            (give + RELEASE + tell + ACQUIRE + relaxed + COPY + "DONE:\n", "race"),
        ):
            with pytest.raises(EmulatorFault) as caught:
                launch(body, seed, 2)
            assert caught.value.kind == kind
