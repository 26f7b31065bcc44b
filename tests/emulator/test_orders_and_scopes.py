"""What ptxas 13.5 refuses: words of memory order, scope and cache level beside each other, statements, constants."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import PtxError, run_ptx
from tests.emulator.programs import kernel

GLOBAL = ".global .align 16 .b32 place[4];\n.shared .align 8 .b64 bar;"
REFUSED = [
    "ld.acquire.global.u32 %r1, [place];",
    "ld.gpu.global.u32 %r1, [place];",
    "ld.relaxed.gpu.sys.global.u32 %r1, [place];",
    "ld.relaxed.acquire.gpu.global.u32 %r1, [place];",
    "ld.release.gpu.global.u32 %r1, [place];",
    "ld.weak.gpu.global.u32 %r1, [place];",
    "ld.volatile.gpu.global.u32 %r1, [place];",
    "ld.volatile.weak.global.u32 %r1, [place];",
    "ld.volatile.volatile.global.u32 %r1, [place];",
    "ld.volatile.global.nc.u32 %r1, [place];",
    "ld.relaxed.gpu.global.nc.u32 %r1, [place];",
    "ld.nc.u32 %r1, [place];",
    "ld.ca.cg.global.u32 %r1, [place];",
    "st.release.global.u32 [place], %r0;",
    "st.acquire.gpu.global.u32 [place], %r0;",
    "atom.acquire.release.gpu.global.add.u32 %r1, [place], 1;",
    "atom.gpu.cta.global.add.u32 %r1, [place], 1;",
    "mbarrier.arrive.release.shared.b64 _, [bar];",
    "mbarrier.arrive.cta.shared.b64 _, [bar];",
    "mbarrier.test_wait.parity.acquire.acquire.cta.shared.b64 %p1, [bar], 0;",
    "fence.acq_rel.gpu.gpu;",
    "ld.b64 %rd1, [p0];",
    ";",
    "mov.b32 %r1, 0;;",
    "{ ; }",
    "add.u32 %r1, %r0, %r0,;",
    "@!!%p0 add.u32 %r1, %r0, %r0;",
    "wgmma.wait_group.sync.aligned -1;",
    "wgmma.wait_group.sync.aligned %r0;",
    "mbarrier.test_wait.parity.shared.b64 %p1, [bar], 2;",
]
TAKEN = [
    "ld.acquire.gpu.global.u32 %r1, [place];",
    "ld.mmio.relaxed.sys.global.u32 %r1, [place];",
    "ld.weak.global.u32 %r1, [place];",
    "ld.global.nc.u32 %r1, [place];",
    "st.release.gpu.global.u32 [place], %r0;",
    "atom.acquire.global.add.u32 %r1, [place], 1;",
    "atom.gpu.global.add.u32 %r1, [place], 1;",
    "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.release.cta.shared.b64 _, [bar];",
    "fence.sc.gpu;",
]


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(PtxError):
        run_ptx(kernel(text, 1, GLOBAL), "k", 1, 1, [np.zeros(1)])


@pytest.mark.parametrize("text", TAKEN)
def test_taken(text: str) -> None:
    run_ptx(kernel(text, 0, GLOBAL), "k", 1, 1, [])


@pytest.mark.parametrize(
    "line",
    [
        ".loc 1 5 3 st.global.b32 [%rd0], 2;",
        ".loc 1 5 3, function_name info+4, inlined_at 1 2 3 st.global.b32 [%rd0], 2;",
        ".loc 1\n5 3\nst.global.b32 [%rd0], 2;",
    ],
)
def test_what_stands_behind_a_line_number(line: str) -> None:
    out = np.zeros(1, np.uint32)
    declarations = '.file 1 "a.cu", 12, 34 .global .b32 other;'
    run_ptx(kernel(f"st.global.b32 [%rd0], 1;\n{line}", 1, declarations), "k", 1, 1, [out])
    assert out[0] == 2


@pytest.mark.parametrize("line", [".loc 1 5", ".loc 1 5 3,", ".loc 1 b 3", ".loc 1 5 3, place 3"])
def test_broken_line_numbers(line: str) -> None:
    with pytest.raises(PtxError):
        run_ptx(kernel(f"{line}\nst.global.b32 [%rd0], 1;"), "k", 1, 1, [np.zeros(1, np.uint32)])


def test_a_kernel_without_instructions() -> None:
    """It ends at once; .pragma may have several strings."""
    text = kernel("").split(".visible")[0] + '.visible .entry k()\n.pragma "a", "b";\n{\n}\n'
    assert run_ptx(text, "k", 2, 32, []).launches == 1
