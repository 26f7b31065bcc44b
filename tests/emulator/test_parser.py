"""Text that is not PTX, instructions that are not executed, launches that do not fit: refused before anything runs."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import PtxError, UnsupportedPtx, opcodes, run_ptx
from tests.emulator.programs import HEAD, kernel, line_of

OUT = np.zeros(1, np.uint32)


def launch(text: str, **options: object) -> None:
    run_ptx(text, **{"entry": "k", "grid": 1, "block": 32, "arguments": [OUT]} | options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "instruction",
    [
        "tex.1d.v4.s32.s32 {%r1, %r2, %r3, %r4}, [%rd1, {%r1}]",
        "add.rna.f32 %r1, %r1, %r1",
        "mma.sync.aligned.m8n8k4.row.col %r1, %r1",
        "prmt.f4e.b64 %rd1, %rd1, %r1, %r1",
        "tld4.a.2d.v4.f32.f32 {%r1, %r2, %r3, %r4}, [%rd1, {%r1, %r2}]",
        "txq.num_mipmap_levels.b32 %r1, [%rd1]",
        "txq.force_unnormalized_coords.b32 %r1, [%rd1]",
        "tex.grad.a2dms.v4.f32.f32 {%r1, %r2, %r3, %r4}, [%rd1, {%r5}], {%r6}, {%r7}",
        "tex.level.acube.v4.f32.f32 {%r1, %r2, %r3, %r4}, [%rd1, {%r5}], %r6",
        "sust.p.1d.v4.b32.trap [%rd1, {%r1}], {%r1, %r2, %r3, %r4}",
        "suld.b.1d.v2.b32.zero {%r1, %r2}, [%rd1, {%r3}]",
        "suq.memory_layout.b32 %r1, [%rd1]",
        "istypep.samplerref %p1, %rd1",
        "cp.async.bulk.tensor.3d.shared::cta.global.im2col::w.mbarrier::complete_tx::bytes [%r1], [%rd1], [%r2]",
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0 %r1, %r1",
        "mov.b32 {%h1, %h2, %h3}, %r1",
    ],
)
def test_unsupported_before_anything_runs(instruction: str) -> None:
    OUT[0] = 0
    text = kernel(f"st.global.b32 [%rd0], 1;\nret;\n{instruction}; // here")
    with pytest.raises(UnsupportedPtx, match=f"unsupported: `.*` at line {line_of(text, '// here')}$") as caught:
        launch(text)
    assert isinstance(caught.value, NotImplementedError)
    assert OUT[0] == 0


@pytest.mark.parametrize("instruction, message", [
    ("add.s32 %r1, %r2", "too few operands"),
    ("add.s32 %r1, %r2, 1, 2", "too many operands"),
    ("add.s32 %r1, %rd2, 1", "register `%rd2` is of 8 bytes; the instruction takes 4 bytes"),
    ("add.s32 %r1, %p2, 1", "register `%p2` is a predicate"),
    ("add.s32 1, %r1, 1", "an operand of another kind"),
    ("add.s32 %r1, %r99, 1", "register `%r99` is not declared"),
    ("add.s32 %r99, %r1, 1", "register `%r99` is not declared"),
    ("ld.global.b32 %r1, [%rd99]", "register `%rd99` is not declared"),
    ("mov.b32 %r1, %pm8", "register `%pm8` is not declared"),
    ("mov.b32 %r1, %envreg32", "register `%envreg32` is not declared"),
    ("addd.f32 %r1, %r1, %r1", "`addd.f32`: PTX has no such instruction"),
    ("bar.synk 0", "`bar.synk`: PTX has no modifier `.synk`"),
    ("ld.shared::grid.b32 %r1, [%r1]", "`ld.shared::grid.b32`: PTX has no modifier `.shared::grid`"),
    ("mma.sync.aligned.m16n8kk16.row %r1, %r1", "PTX has no modifier `.m16n8kk16`"),
    ("add.s33 %r1, %r1, %r1", "PTX has no modifier `.s33`"),
    ("tex.1d.v4.f32.s32 %r1, %r1", "unsupported: `tex.1d.v4.f32.s32`"),
    ("add.s32 %r1, name, 1", "`name` is not known here"),
    ("add.s64 %rd1, %rd1, 0f3F800000", "a float as a literal; `add.s64` takes integers"),
    ("bra NOWHERE", "label `NOWHERE` is not known here"),
    ("ld.param.b64 %rd1, [p7]", "not a parameter of the kernel"),
    ("ld.param.b64 %rd1, [p0+4]", "a read past the end of the parameter"),
    ("ld.global.v2.b32 %r1, [%rd0]", "not a vector of 2 registers"),
    ("ld.global.b32 %r1, %rd0", "not an address"),
    ("ld.global.b32 %r1, [%r1]", "register `%r1` is of 4 bytes"),
    ("ld.global.b64 %r1, [%rd0]", "register `%r1` is of 4 bytes; the instruction takes 8 bytes"),
    ("add.s32 %r1, !%r2, 1", "`!`"),
    ("add.s32 %r1|%p1, %r2, 1", "an operand of two parts"),
    ("add.s32 %r1, 0f3F8, 1", "8 or 16 hexadecimal digits"),
    ("add.s32 %r1, 12q, 1", "is not an integer"),
    (".reg .b32 %q<3>; .reg .b32 %q1", "register `%q1` twice"),
    ("L: mov.b32 %r1, 1; L: mov.b32 %r1, 1", "label `L` twice"),
    ("add.s32 %r1 %r2, 1", "expected `,`, found `%r2`"),
    ("mov.b32 %r1, # 1", "unexpected character '#'"),
    ("mov.b32 %r1, é", r"unexpected character '\xc3'"),
])  # fmt: skip
def test_errors_name_the_line(instruction: str, message: str) -> None:
    text = kernel(f"\n{instruction}; // here")
    with pytest.raises((PtxError, UnsupportedPtx), match=f"at line {line_of(text, '// here')}$") as caught:
        launch(text)
    assert message in str(caught.value)
    assert caught.value.line == line_of(text, "// here")
    assert isinstance(caught.value, UnsupportedPtx) == message.startswith("unsupported")


@pytest.mark.parametrize("text, message", [
    (HEAD, "entry: 'k'; the PTX has: $"),
    (kernel("").replace(" k(", " other("), "entry: 'k'; the PTX has: other"),
    (HEAD.replace("64", "32"), "address_size"),
    (HEAD.replace("sm_90a", "sm_120a"), "unsupported: `.target sm_120a` at line 2"),
    (HEAD + ".alias f, g;", "unsupported: `.alias` at line 4"),
    (HEAD + ".func f() .unknown { ret; }", "unsupported: `.unknown` at line 4"),
    (HEAD + ".global .b32 x[2] = {1, 2, 3};", "more initial values than `x` has elements at line 4"),
    (HEAD + ".global .u64 x = other;", "the address of `other` as an initial value; .* at line 4"),
    (HEAD + "nonsense", "expected a directive, found `nonsense` at line 4"),
    (HEAD + ".entry k(.param .u64 p) { ret;", "expected `}`, found `end of text` at line 4"),
    (HEAD + "/* no end", "comment without end at line 4"),
])  # fmt: skip
def test_modules(text: str, message: str) -> None:
    with pytest.raises((ValueError, NotImplementedError), match=message):
        launch(text)


def test_scopes_debug_information_and_hints() -> None:
    text = kernel(
        '.loc 1 2 3\n.pragma "nounroll";\n{ .reg .b32 %r1; mov.b32 %r1, 5; { .reg .b32 x; bra L; L: mov.b32 x, %r1;\n'
        "add.s32 %r2, x, 0x10; } }\n{ .reg .b32 x; L: mov.b32 x, -1; add.s32 %r2, %r2, x; }\n"
        "st.shared::cta.b32 [x], %r2; ld.volatile.shared.b32 %r3, [x]; st.global.cg.L2::128B.b32 [%rd0], %r3;",
        declarations=".shared .b32 x;",
        directives=".maxntid 64\n.minnctapersm 1\n",
    ) + '.section .debug_info { .b8 1, 2 }\n.file 1 "x.py"\n'  # fmt: skip
    launch(text)
    assert OUT[0] == 20
    launch(text, entry="")
    with pytest.raises(ValueError, match="takes 64 threads at most"):
        launch(text, block=65)


def test_launches_that_do_not_fit() -> None:
    text = kernel("", directives=".reqntid 32, 2, 1\n")
    launch(text, block=(32, 2))
    for options, message in (
        ({"block": 64}, "block: 64 x 1 x 1; the kernel demands 32 x 2 x 1"),
        ({"block": 0}, "block: 0; accepted: one to three positive numbers"),
        ({"grid": (1, 1, 1, 1)}, "grid: .*; accepted: one to three positive numbers"),
        ({"block": (32, 2), "grid": (1, 65536)}, "grid y: 65536; accepted: 1 to 65535"),
        ({"block": (32, 2), "shared_memory": 232449}, "dynamic shared memory: 232449; accepted: 0 to 232448"),
        ({"arguments": []}, "arguments: 0; the kernel takes 1"),
    ):
        with pytest.raises(ValueError, match=message):
            launch(text, **options)
    with pytest.raises(ValueError, match="threads a block: 2048; accepted: 1 to 1024"):
        launch(kernel(""), block=(1024, 2))


def test_every_instruction_that_is_executed_is_one_of_ptx() -> None:
    """An opcode that is not in the table is told apart by its first word: those of the table must be known."""
    for word in sorted({name.split(".")[0] for name in opcodes()}):
        with pytest.raises(PtxError, match=r"PTX has no modifier `\.no_such_modifier`"):
            launch(kernel(f"{word}.no_such_modifier %r1;"))


def test_opcodes_are_sorted_and_unique() -> None:
    names = opcodes()
    assert names == sorted(set(names)) and "fma.rn.f32" in names


def test_vectors_of_registers() -> None:
    data = np.arange(4, dtype=np.uint32)
    body = (
        ".reg .v4 .b32 four; .reg .v2 .b32 two;\nld.global.v4.b32 four, [%rd0];\n"
        "mov.b32 two.x, four.w; mov.b32 two.g, four.r;\nst.global.v2.b32 [%rd0], two;"
    )
    launch(kernel(body), block=1, arguments=[data])
    assert data.tolist() == [3, 0, 2, 3]


def test_moves_of_vectors() -> None:
    data = np.arange(4, dtype=np.uint32)
    body = "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd0]; mov.v4.b32 {%r2, %r1, %r4, %r3}, {%r1, %r2, %r3, %r4};\n"
    launch(kernel(body + "st.global.v4.b32 [%rd0], {%r1, %r2, %r3, %r4};"), block=1, arguments=[data])
    assert data.tolist() == [1, 0, 3, 2]
    part = kernel("mov.b32 %r1, 4; mov.v2.b32 {%r2, %r3}, {%r1, %r9}; st.global.b32 [%rd0], %r2;")
    launch(part, block=1, arguments=[data])
    assert data[0] == 4


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        (".reg .v4 .b64 a", "16 bytes at most"),
        (".reg .v2 .pred a", "16 bytes"),
        (".reg .v2 .b32 a; .reg .v2 .b32 a", "twice"),
    ],
)
def test_vectors_of_registers_that_do_not_exist(declaration: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        launch(kernel(declaration + ";"))


TWICE = {
    "kernel `k` twice": kernel("ret;") + ".visible .entry k() { ret; } // here\n",
    "`g` twice": kernel("ret;").replace(".visible", ".global .b32 g;\n.global .b64 g; // here\n.visible", 1),
    "`x` twice": kernel(".shared .b32 x;\n.shared .b32 x; // here\nret;"),
    "register `x` twice": kernel(".shared .b32 x;\n.reg .b32 x; // here\nret;"),
    "`y` twice": kernel(".reg .b32 y;\n.local .b32 y; // here\nret;"),
    "parameter `p` twice": HEAD + ".visible .entry k(.param .u64 p, .param .u64 p) { ret; } // here\n",
    "function `f` twice": kernel("ret;").replace(
        ".visible", ".func f() { ret; }\n.func f() { ret; } // here\n.visible", 1
    ),
    "an alignment of 0": kernel(".shared .align 0 .b8 x[8]; // here\nret;"),
    ".maxnreg 0": HEAD + ".visible .entry k() .maxnreg 0 // here\n{ ret; }\n",
}


@pytest.mark.parametrize("message", TWICE)
def test_what_ptxas_refuses_in_declarations(message: str) -> None:
    text = TWICE[message]
    with pytest.raises(PtxError, match=message) as caught:
        launch(text)
    assert caught.value.line == line_of(text, "// here")


def test_what_may_be_declared_several_times() -> None:
    declared = ".extern .global .b32 g;\n.extern .global .b32 g;\n.visible .global .b32 g;\n"
    declared += ".func f();\n.func f() { ret; }\n"
    launch(
        kernel("{\n.shared .b32 x;\n.reg .b32 y;\n}\n{\n.shared .b32 x;\n.reg .b32 y;\n}\nret;").replace(
            ".visible", declared + ".visible", 1
        )
    )


TYPED = ".reg .f32 %f<4>; .reg .f64 %fd<4>; .reg .u32 %u<4>; .reg .s32 %s<4>; .reg .f16x2 %x<4>;\n"


@pytest.mark.parametrize("instruction", [
    "mov.u32 %r1, 1.5", "mov.u32 %r1, 0f3F800000", "add.u32 %r1, %r2, 0f3F800000", "mov.f32 %f1, 1",
    "add.f32 %f1, %f2, 1",
    "fma.rn.f32 %f1, %f2, %f2, 0", "max.f32 %f1, %f2, -1", "mul.f64 %fd1, %fd2, 2", "mov.f32 %f1, %u1",
    "mov.u32 %u1, %f1", "mov.s32 %r1, %f1", "mul.wide.u32 %rd1, %f1, %r1", "mad.lo.s32 %r1, %r1, %r1, %f1",
    "neg.f32 %u1, %f1", "add.s32 %f1, %r1, %r2", "mov.u32 %f1, %tid.x",
])  # fmt: skip
def test_operands_of_another_type(instruction: str) -> None:
    text = kernel(f"{TYPED}\n{instruction}; // here\nret;")
    with pytest.raises(PtxError, match=f"takes (floats|integers) at line {line_of(text, '// here')}$"):
        launch(text)


@pytest.mark.parametrize("instruction", [
    "mov.b32 %r1, 0f3F800000", "mov.f32 %f1, %r1", "mov.b32 %u1, %f1", "mov.u32 %s1, %u1", "add.s32 %u1, %s1, %u1",
    "add.f32 %f1, %f2, 1.0", "add.f64 %fd1, %fd2, 1.0", "and.b32 %f1, %f1, %r1", "mov.b32 %f1, %tid.x",
    "mov.u32 %r1, %x1", "mov.f64 %rd1, %fd1", "mov.u32 %r1, -5",
])  # fmt: skip
def test_operands_that_fit(instruction: str) -> None:
    launch(kernel(f"{TYPED}\n{instruction};\nret;"))
