"""Matrix products of a warpgroup: 64 query rows in registers times the 128 keys of a block in shared memory."""

from cutlass import Int32, Int64
from msa_ops.cute.common import warpgroup_asm

STEPS = 8
"""Matrix products of 16 dims that make up a score."""

HALF_BYTES = 16384
"""Keys lie in two halves of 64 dims: rows of 128 bytes, their eight units of 16 bytes permuted by exclusive-or with
the row's number modulo 8 (the hardware's swizzle of 128 bytes)."""


def descriptor(address: Int32) -> Int64:
    """Of keys at a shared address that is a multiple of 1,024: rows of 128 bytes, swizzled, eight rows 1,024 apart."""
    return warpgroup_asm.descriptor(address, 16, 1024, warpgroup_asm.SWIZZLE_128)


def multiply(kind: str, rows, keys: Int64):
    """64 fp32 sums a thread of 64 rows x 128 keys; all four warps of a warpgroup together. Waits for them.

    rows: 32 registers, four a step as the instruction wants A. keys: their descriptor. Thread 4 g + t of warp w holds,
    at 4 j + i, row 16 w + g (i = 0, 1) or 16 w + g + 8 (i = 2, 3) and key 8 j + 2 t + i % 2.
    """
    sums = ", ".join(f"${i}" for i in range(64))
    lines = ["{ .reg .b64 keys; .reg .pred more; setp.ne.b32 more, 0, 0; wgmma.fence.sync.aligned;"]
    for step in range(STEPS):
        offset = (step // 4 * HALF_BYTES + step % 4 * 32) >> 4
        left = ", ".join(f"${64 + 4 * step + i}" for i in range(4))
        lines.append(f"add.s64 keys, $96, {offset};")
        lines.append(
            f"wgmma.mma_async.sync.aligned.m64n128k16.f32.{kind}.{kind} {{{sums}}}, {{{left}}}, keys, more, 1, 1, 0;"
        )
        if step == 0:
            lines.append("setp.eq.b32 more, 0, 0;")
    lines.append("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }")
    return warpgroup_asm.on_sums(" ".join(lines), 64, [*rows, keys])
