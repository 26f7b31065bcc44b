"""Programs around one tcgen05.mma: shared memory and tensor memory are filled, the product is made, D is read back."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from msa_ops.emulator import run_ptx

OPERANDS = 2048  # address of the operands; the first byte of shared memory is at 1024


@dataclass
class Program:
    """memory: bytes of shared memory a block, from address 2048 on, [blocks, bytes]. tensors: words of tensor memory
    from column 0 on, [blocks, columns, 128 lanes]; where `given` is False the program leaves the column alone.
    products: instructions of one thread, which know %r2 as the address of tensor memory. columns: of D, from `first`.
    """

    memory: NDArray[np.uint8]
    tensors: NDArray[np.uint32]
    products: str
    columns: int
    first: int = 0
    blocks: int = 1
    chip: str = "sm_100a"
    before_wait: str = ""
    before_products: str = ""  # of all threads
    given: list[bool] = field(default_factory=list)

    def text(self) -> str:
        size = self.memory.shape[1]
        columns = self.tensors.shape[1]
        group = f"cta_group::{self.blocks}"
        commit = f"tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster"
        commit += ".multicast::cluster.b64 [barrier], %h1;" if self.blocks == 2 else ".b64 [barrier];"
        registers = ", ".join(f"%v{i}" for i in range(32))
        fill = "".join(
            f"ld.global.v4.b32 {{%v0, %v1, %v2, %v3}}, [%rd4+{2048 * i}];\n"
            f"st.shared.v4.b32 [%r4+{2048 * i}], {{%v0, %v1, %v2, %v3}};\n"
            for i in range(size // 2048)
        )
        set_tensors = ""
        for first in range(0, columns, 32):
            if self.given and not self.given[first // 32]:
                continue
            set_tensors += "".join(f"ld.global.b32 %v{i}, [%rd5+{512 * (first + i)}];\n" for i in range(32))
            set_tensors += f"tcgen05.st.sync.aligned.32x32b.x32.b32 [%r1+{first}], {{{registers}}};\n"
        take = ""
        for first in range(0, self.columns, 32):
            count = min(32, self.columns - first)
            for start, some in _powers(count):
                part = ", ".join(f"%v{start + i}" for i in range(some))
                take += f"tcgen05.ld.sync.aligned.32x32b.x{some}.b32 {{{part}}}, [%r1+{self.first + first + start}];\n"
            take += "tcgen05.wait::ld.sync.aligned;\n"
            take += "".join(f"st.global.b32 [%rd6+{512 * (first + i)}], %v{i};\n" for i in range(count))
        sync = (
            "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n" if self.blocks == 2 else "bar.sync 0;\n"
        )
        return (
            f".version 9.4\n.target {self.chip}\n.address_size 64\n"
            ".shared .align 1024 .b8 header[1024]; .extern .shared .align 1024 .b8 operands[];\n"
            ".visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2)\n{\n"
            ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .b64 %rd<32>; .reg .b32 %v<32>;\n"
            ".reg .b32 place, barrier; mov.u32 place, header; add.s32 barrier, place, 16;\n"
            "mov.u32 %r0, %tid.x; mov.u32 %r3, %cluster_ctarank; setp.lt.u32 %p0, %r0, 32; setp.eq.u32 %p1, %r0, 0;\n"
            "ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u64 %rd3, [p2];\n"
            f"mul.wide.u32 %rd4, %r0, 16; mad.wide.u32 %rd4, %r3, {size}, %rd4; add.s64 %rd4, %rd4, %rd1;\n"
            f"mul.wide.u32 %rd5, %r0, 4; mad.wide.u32 %rd5, %r3, {columns * 512}, %rd5; add.s64 %rd5, %rd5, %rd2;\n"
            "mul.wide.u32 %rd6, %r0, 4;\n"
            f"mad.wide.u32 %rd6, %r3, {self.columns * 512}, %rd6; add.s64 %rd6, %rd6, %rd3;\n"
            "shl.b32 %r4, %r0, 4; mov.u32 %r5, operands; add.s32 %r4, %r4, %r5;\n"
            "@%p1 mbarrier.init.shared.b64 [barrier], 1; @%p1 fence.mbarrier_init.release.cluster;\n"
            f"@%p0 tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 [place], 512;\n"
            "bar.sync 0; ld.shared.b32 %r2, [place];\n"
            "shr.u32 %r1, %r0, 5; shl.b32 %r1, %r1, 21; add.s32 %r1, %r1, %r2;\n"
            f"{fill}{set_tensors}tcgen05.wait::st.sync.aligned; fence.proxy.async;\n"
            "tcgen05.fence::before_thread_sync;\n" + sync + "tcgen05.fence::after_thread_sync;\n"
            f"{self.before_products}"
            "mov.b16 %h1, 3; setp.ne.u32 %p2, %r3, 0; @%p2 bra ISSUED; @!%p1 bra ISSUED;\n"
            f"{self.products}\n{commit}\nISSUED:\n{self.before_wait}"
            "AGAIN: mbarrier.try_wait.parity.shared.b64 %p3, [barrier], 0; @!%p3 bra AGAIN;\n"
            f"tcgen05.fence::after_thread_sync;\n{take}"
            + sync
            + f"@%p0 tcgen05.dealloc.{group}.sync.aligned.b32 %r2, 512;\nret;\n}}\n"
        )

    def run(self, seed: int | None = None) -> NDArray[np.uint32]:
        """Words of D, [blocks, columns, 128 lanes]."""
        out = np.zeros((self.blocks, self.columns, 128), np.uint32)
        run_ptx(
            self.text(), "k", self.blocks, 128, [self.memory, self.tensors, out], self.memory.shape[1],
            max_instructions=1_000_000, cluster=self.blocks, chip=self.chip, seed=seed,
        )  # fmt: skip
        return out


def _powers(count: int) -> list[tuple[int, int]]:
    """(start, size): count as a sum of powers of two."""
    parts, start = [], 0
    for bit in reversed(range(6)):
        if count >> bit & 1:
            parts.append((start, 1 << bit))
            start += 1 << bit
    return parts
