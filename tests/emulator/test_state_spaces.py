"""State spaces that copies must name in full, as ptxas 13.5 wants them."""

# ruff: noqa: E501 (a case a line)
from __future__ import annotations

import pytest

from msa_ops import _C
from msa_ops.emulator import PtxError
from tests.emulator.programs import kernel, line_of

LANDED = "mbarrier::complete_tx::bytes"
COPIES = {
    f"cp.async.bulk.SPACE.global.{LANDED} [%r1], [%rd1], %r2, [%r3]": ("shared::cta", "shared::cluster"),
    "cp.async.bulk.global.SPACE.bulk_group [%rd1], [%r1], %r2": ("shared::cta",),
    f"cp.async.bulk.shared::cluster.SPACE.{LANDED} [%r1], [%r2], %r3, [%r4]": ("shared::cta",),
    "cp.reduce.async.bulk.global.SPACE.bulk_group.add.f32 [%rd1], [%r1], %r2": ("shared::cta",),
    f"cp.reduce.async.bulk.shared::cluster.SPACE.{LANDED}.add.s32 [%r1], [%r2], %r3, [%r4]": ("shared::cta",),
    f"cp.async.bulk.tensor.2d.SPACE.global.{LANDED} [%r1], [%rd1, {{%r2, %r3}}], [%r4]": ("shared::cta", "shared::cluster"),
    "cp.async.bulk.tensor.2d.global.SPACE.bulk_group [%rd1, {%r2, %r3}], [%r4]": ("shared::cta",),
    "cp.reduce.async.bulk.tensor.2d.global.SPACE.add.bulk_group [%rd1, {%r2, %r3}], [%r4]": ("shared::cta",),
    f"clusterlaunchcontrol.try_cancel.async.SPACE.{LANDED}.b128 [%r1], [%r2]": ("shared::cta",),
    "tcgen05.alloc.cta_group::1.sync.aligned.SPACE.b32 [%r1], 32": ("shared::cta",),
    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.SPACE.b64 [%r1]": ("shared::cluster",),
}  # fmt: skip


@pytest.mark.parametrize("copy", COPIES)
def test_spaces(copy: str) -> None:
    for space in COPIES[copy]:
        text = kernel(copy.replace("SPACE", space) + ";").replace("sm_90a", "sm_100a")
        _C.ptx_parameters(text, "k")
    text = kernel(copy.replace("SPACE", "shared") + "; // here").replace("sm_90a", "sm_100a")
    with pytest.raises(PtxError, match="state space") as caught:
        _C.ptx_parameters(text, "k")
    assert caught.value.line == line_of(text, "// here")


def test_stores_to_the_cluster_say_so_or_not() -> None:
    for space in (".shared::cluster", ".shared", ""):
        _C.ptx_parameters(kernel(f"st.async{space}.{LANDED}.b32 [%r1], %r2, [%r3];"), "k")
