"""Mistakes around tcgen05.mma are found with kind and place; beside each stands a correct twin that runs."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx
from tests.emulator.programs import line_of
from tests.emulator.shared_operands import descriptor
from tests.emulator.tensor_products import OPERANDS, Program

A = descriptor(OPERANDS, 0, 256, "32", "blackwell")
B = descriptor(OPERANDS + 4096, 0, 256, "32", "blackwell")
IDESC = 1 << 4 | 32 >> 3 << 17 | 128 >> 4 << 24
INTEGERS = 2 << 4 | 128 >> 4 << 24
SCALED = 1 << 7 | 1 << 10 | 32 >> 3 << 17 | 128 >> 4 << 24
SETUP = f"mov.b64 %rd10, {A:#x}; mov.b64 %rd11, {B:#x}; mov.b32 %r10, {IDESC:#x}; mov.pred %p4, 0; mov.pred %p5, 1;\n"
MMA = "tcgen05.mma.cta_group::1.kind::f16 [%r2], %rd10, %rd11, %r10, %p4;"
KEEP = "tcgen05.mma.cta_group::1.kind::f16 [%r2], %rd10, %rd11, %r10, %p5;"
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [barrier];"
SCALES = f"add.s32 %r11, %r2, 64; add.s32 %r12, %r2, 80; mov.b32 %r10, {SCALED:#x};\n"
NVFP4 = "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16 [%r2], %rd10, %rd11, %r10, [%r11], [%r12], %p4;"


def program(
    products: str,
    *,
    before_products: str = "",
    before_wait: str = "",
    given: list[bool] | None = None,
    differ: bool = False,
) -> Program:
    """Operands and three groups of 32 columns are given: sums, something, and scale factors from column 64 on."""
    memory = np.zeros((1, 8192), np.uint8)
    tensors = np.full((1, 96, 128), 0x38383838, np.uint32)
    if differ:
        tensors[0, 64, 45] = 0x30303030
    return Program(
        memory,
        tensors,
        SETUP + products,
        32,
        before_products=before_products,
        before_wait=before_wait,
        given=given or [True] * 3,
    )


# (kind, wrong, right); "// here" marks the line.
CASES: dict[str, tuple[str, Program, Program]] = {
    "sums_read_before_the_wait": (
        "race",
        program(MMA, before_wait="tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v0}, [%r1]; // here\n"),
        program(MMA, before_wait="tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v0}, [%r1+32];\n"),
    ),
    # Whoever hands columns on to a product must have waited for its own loads and stores; a barrier is not enough.
    "product_over_a_load": (
        "race",
        program(f"{MMA} // here", before_products="tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v0}, [%r1]; bar.sync 0;\n"),
        program(MMA, before_products="tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v0}, [%r1];\n"
                "tcgen05.wait::ld.sync.aligned; bar.sync 0;\n"),
    ),
    "product_over_a_store": (
        "race",
        program(f"{KEEP} // here", before_products="mov.b32 %v0, 0;\n"
                "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%v0}; bar.sync 0;\n"),
        program(KEEP, before_products="mov.b32 %v0, 0; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%v0};\n"
                "tcgen05.wait::st.sync.aligned; bar.sync 0;\n"),
    ),
    "load_after_a_product_and_a_barrier": (
        "race",
        program(MMA, before_wait="bar.sync 0;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {%v0}, [%r1]; // here\n"),
        program(MMA, before_wait="bar.sync 0;\n"),
    ),
    "sums_overwritten_before_the_wait": (
        "race",
        program(MMA, before_wait="mov.b32 %v0, 0; bar.sync 0;\n"
                "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%v0}; // here\n"),
        program(MMA, before_wait="mov.b32 %v0, 0; bar.sync 0;\n"
                "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1+32], {%v0}; tcgen05.wait::st.sync.aligned;\n"),
    ),
    "operand_overwritten_before_the_wait": (
        "race",
        program(MMA, before_wait="@%p1 st.shared.b32 [operands+4100], %r0; // here\n"),
        program(MMA, before_wait="@%p1 st.shared.b32 [operands+8000], %r0;\n"),
    ),
    "operand_without_proxy_fence": (
        "missing proxy fence",
        program(f"st.shared.b32 [operands+64], %r0;\n{MMA} // here"),
        program(f"st.shared.b32 [operands+64], %r0; fence.proxy.async;\n{MMA}"),
    ),
    "sums_without_value": (
        "uninitialized tensor memory",
        program(f"{KEEP} // here", given=[False, True, True]),
        program(f"{MMA} {KEEP}", given=[False, True, True]),
    ),
    "operand_without_value": (
        "uninitialized shared memory",
        program(f"mov.b64 %rd11, {descriptor(1024 + 512, 0, 256, '32', 'blackwell'):#x};\n{MMA} // here"),
        program(MMA),
    ),
    "operand_outside": (
        "out of bounds",
        program(f"mov.b64 %rd11, {descriptor(0x20000, 0, 256, '32', 'blackwell'):#x};\n{MMA} // here"),
        program(MMA),
    ),
    "sums_outside": (
        "out of bounds",
        program(f"{MMA.replace('[%r2]', '[%r2+496]')} // here"),
        program(f"{MMA.replace('[%r2]', '[%r2+480]')} {MMA}"),
    ),
    "rows": (
        "descriptor",
        program(f"mov.b32 %r10, {IDESC - (48 >> 4 << 24):#x};\n{MMA} // here"),
        program(MMA),
    ),
    "columns": (
        "descriptor",
        program(f"mov.b32 %r10, {IDESC & ~(0x3F << 17):#x};\n{MMA} // here"),
        program(f"mov.b32 %r10, {IDESC - (8 >> 3 << 17):#x};\n{MMA} {MMA}"),
    ),
    "columns_of_integers": (
        "descriptor",
        program(f"mov.b32 %r10, {INTEGERS | 40 >> 3 << 17:#x};\n{MMA.replace('f16', 'i8')} // here"),
        program(f"mov.b32 %r10, {INTEGERS | 24 >> 3 << 17:#x};\n{MMA.replace('f16', 'i8')}"),
    ),
    "format": (
        "descriptor",
        program(f"mov.b32 %r10, {IDESC | 2 << 7:#x};\n{MMA} // here"),
        program(f"mov.b32 %r10, {IDESC | 1 << 7 | 1 << 10:#x};\n{MMA}"),
    ),
    "sparse_bit": (
        "descriptor",
        program(f"mov.b32 %r10, {IDESC | 1 << 2:#x};\n{MMA} // here"),
        program(MMA),
    ),
    "descriptor_of_hopper": (
        "descriptor",
        program(f"mov.b64 %rd11, {descriptor(OPERANDS + 4096, 0, 256, '32', 'hopper'):#x};\n{MMA} // here"),
        program(MMA),
    ),
    "swizzle_mode": (
        "descriptor",
        program(f"mov.b64 %rd11, {B ^ 3 << 61:#x};\n{MMA} // here"),
        program(MMA),
    ),
    "scale_factors_without_value": (
        "uninitialized tensor memory",
        program(f"{SCALES}{NVFP4} // here", given=[True, True, False]),
        program(f"{SCALES}{NVFP4}"),
    ),
    "copies_of_scale_factors": (
        "tensor memory",
        program(f"{SCALES}{NVFP4} // here", differ=True),
        program(f"{SCALES}{NVFP4}"),
    ),
    "scale_factor_number": (
        "descriptor",
        program(f"{SCALES}or.b32 %r10, %r10, {1 << 29:#x};\n{NVFP4} // here"),
        program(f"{SCALES}{NVFP4}"),
    ),
    "type_of_scale_factors": (
        "descriptor",
        program(f"{SCALES}{NVFP4.replace('mxf4nvf4.block_scale.block16', 'mxf4.block_scale.block32')} // here"),
        program(f"{SCALES}or.b32 %r10, %r10, {1 << 23:#x};\n"
                f"{NVFP4.replace('mxf4nvf4.block_scale.block16', 'mxf4.block_scale.block32')}"),
    ),
    "shift_of_sums": (
        "descriptor",
        program(f"{KEEP.replace('%p5', '%p5, 16')} // here"),
        program(f"{KEEP.replace('%p5', '%p5, 15')}"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_found_and_twin_passes(name: str) -> None:
    kind, wrong, right = CASES[name]
    right.run()
    for seed in (1, 2):
        right.run(seed)
    with pytest.raises(EmulatorFault) as caught:
        wrong.run()
    assert caught.value.kind == kind, caught.value
    if "// here" in wrong.text():
        assert caught.value.line == line_of(wrong.text(), "// here")


def test_two_warps_that_do_not_know_of_each_other() -> None:
    """Work of one warp is a pipeline; that of two is not."""
    second = f"setp.eq.u32 %p6, %r0, 32; @!%p6 bra OTHER;\n{SETUP}{KEEP} // here\nOTHER:\n"
    wrong = program(MMA, before_wait=second)
    program(f"{MMA}\n{KEEP}").run()
    with pytest.raises(EmulatorFault) as caught:
        wrong.run()
    assert caught.value.kind == "race" and caught.value.warp == 1
    assert caught.value.line == line_of(wrong.text(), "// here")


@pytest.mark.parametrize(("commit", "kind"), [("", "deadlock"), (f"{COMMIT}\n{MMA}", "race")])
def test_product_that_no_commit_covers(commit: str, kind: str) -> None:
    text = program(MMA).text()
    assert f"{MMA}\n{COMMIT}" in text
    arrays = [np.zeros(8192, np.uint8), np.zeros(96 * 128, np.uint32), np.zeros(32 * 128, np.uint32)]
    run_ptx(text, "k", 1, 128, arrays, 8192, chip="sm_100a")
    with pytest.raises(EmulatorFault) as caught:
        run_ptx(text.replace(f"{MMA}\n{COMMIT}", commit or MMA), "k", 1, 128, arrays, 8192, chip="sm_100a")
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("chip", "opcode"),
    [
        ("sm_103a", "tcgen05.mma.cta_group::1.kind::i8 [%r2], %rd10, %rd11, %r10, %p4;"),
        ("sm_100f", NVFP4.replace("block16", "scale_vec::4X")),
        ("sm_100a", "tcgen05.ld.red.sync.aligned.32x32b.x2.max.f32 {%v0, %v1}, %v2, [%r1];"),
        ("sm_100a", "wgmma.fence.sync.aligned;"),
    ],
)
def test_instructions_of_other_chips(chip: str, opcode: str) -> None:
    made = program(opcode)
    made.chip = chip
    with pytest.raises(ValueError, match=rf"is not supported on \.target {chip}"):
        made.run()
