"""Faults name lines of the source where the PTX has line information, for every line of PTX that they name."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from msa_ops.emulator import EmulatorFault, run_ptx, run_ptx_on_devices
from tests.emulator import (
    tensor_products,
    test_faults,
    test_faults_async,
    test_faults_exit,
    test_faults_global,
    test_faults_tensor_map,
    test_tcgen05_faults,
    test_wgmma,
)
from tests.emulator.programs import kernel, line_of

STORE = "st.global.b32 [%rd0+64], %r1; // here"
FILES = '.file 1 "/home/me/kernel.py"\n.file 2 "helper.py"\n'


def fault_of(body: str, files: str = FILES, text: str = "") -> EmulatorFault:
    with pytest.raises(EmulatorFault) as caught:
        run_ptx(text or kernel(body) + files, "k", 1, 1, [np.zeros(16, np.uint32)])
    return caught.value


def test_a_fault_knows_its_source() -> None:
    body = (
        ".loc 1 10 3\nmov.b32 %r1, 1;\n.loc 2 20 5, function_name $L__info, inlined_at 1 12 1\n"
        f"{STORE}\n.loc 1 30 1\nmov.b32 %r2, 2;"
    )
    fault = fault_of(body)
    assert fault.source == "helper.py:20" and fault.__notes__ == ["source: helper.py:20"]
    assert f"line {fault.line} (helper.py:20) `st.global.b32 [%rd0+64], %r1`" in str(fault)
    with pytest.raises(EmulatorFault) as caught:
        run_ptx_on_devices(kernel(body) + FILES, "k", 1, 1, [[np.zeros(16, np.uint32)]])
    assert caught.value.source == "helper.py:20"


@pytest.mark.parametrize("before, source", [
    ("", None),
    (".loc 1 10 3", "/home/me/kernel.py:10"),
    (".loc 1 10 3\nmov.b32 %r1, 1;\n.loc 1 0 0", None),
    (".loc 3 10 3", None),
])  # fmt: skip
def test_lines(before: str, source: str | None) -> None:
    assert fault_of(f"{before}\nmov.b32 %r1, 1;\n{STORE}\n.loc 1 30 1").source == source


def test_a_kernel_does_not_begin_with_the_line_of_another() -> None:
    other = kernel(".loc 1 5 0\nmov.b32 %r1, 1;").replace(" k(", " other(")
    own = kernel(f"mov.b32 %r1, 1;\n{STORE}")
    assert fault_of("", text=other + own[own.index(".visible") :] + FILES).source is None


# Lines of assembly are counted from that of the statement on, as NVVM 23 does.
ASSEMBLY = (
    ".loc 1 25 4\n// begin inline asm\n{\n.reg .pred P1;\n.loc 1 27 4\nLAB_WAIT:\n.loc 1 28 4\n{inside}\n"
    ".loc 1 29 4\nbra.uni DONE;\n.loc 1 31 4\nDONE:\n}\n\n// end inline asm\n{same}\n.loc 1 28 4\n{next}"
)


def assembly(text: str = ASSEMBLY, **parts: str) -> str:
    for name in ("inside", "same", "next"):
        text = text.replace("{" + name + "}", parts.get(name, ""))
    return text


@pytest.mark.parametrize("part, line", [("inside", 25), ("same", 25), ("next", 28)])
def test_inline_assembly_is_the_line_of_its_statement(part: str, line: int) -> None:
    for text in (ASSEMBLY, re.sub(r"// \w+ inline asm\n", "", ASSEMBLY)):
        fault = fault_of("mov.b32 %r1, 1;\n" + assembly(text, **{part: STORE}))
        assert fault.source == f"/home/me/kernel.py:{line}", text


def test_inline_assembly_without_braces() -> None:
    body = (
        "mov.b32 %r1, 1;\n.loc 1 33 8\n// begin inline asm\n.loc 1 33 8\nadd.s32 %r1, %r1, 1;\n"
        f".loc 1 34 8\n{STORE}\n\n// end inline asm\nadd.s32 %r1, %r1, 2;"
    )
    assert fault_of(body).source == "/home/me/kernel.py:33"


def test_blocks_of_calls_have_lines_of_their_own() -> None:
    """A call stands in braces too."""
    call = f".loc 1 9 1\n{{\n.param .b32 a;\nst.param.b32 [a], 1;\n.loc 1 11 1\n{STORE}\n}}"
    assert fault_of("mov.b32 %r1, 1;\n" + call).source == "/home/me/kernel.py:11"


def test_files_of_one_name() -> None:
    body = f"mov.b32 %r1, 1;\n.loc 1 9 1\n{STORE}"
    assert "(kernel.py:9)" in str(fault_of(body))
    assert "(/home/me/kernel.py:9)" in str(fault_of(body, FILES + '.file 3 "/home/you/kernel.py"\n'))


def test_the_fault_holds_the_text() -> None:
    body = "mov.b32 %r1, 1;\n@%p1 mov.b32\t%r2,\n  1;\nst.global.relaxed.gpu.b32\t[%rd0+64],  %r1 ; // here"
    text = kernel("setp.eq.u32 %p1, %r0, 0;\n" + body)
    fault = fault_of("", text=text)
    assert fault.ptx == text and fault.line == line_of(text, "// here")
    assert fault.instruction == "st.global.relaxed.gpu.b32 [%rd0+64], %r1"
    assert f"`{fault.instruction}`" in str(fault)


def test_a_long_instruction_is_shortened() -> None:
    name = "%" + "x" * 200
    fault = fault_of(f".reg .b32 {name};\nmov.b32 {name}, 1;\nst.global.b32 [%rd0+64], {name};")
    assert len(fault.instruction) < 130 and fault.instruction.endswith("xxx...")


@pytest.mark.parametrize("body, noted", [
    (STORE, True),
    (f".loc 1 0 0\n{STORE}", False),
])  # fmt: skip
def test_a_text_of_cute_dsl_without_line_information(body: str, noted: bool) -> None:
    name = "kernel_cutlass_add_0"
    text = kernel("mov.b32 %r1, 1;\n" + body).replace(" k(", f" {name}(") + FILES
    with pytest.raises(EmulatorFault) as caught:
        run_ptx(text, name, 1, 1, [np.zeros(16, np.uint32)])
    notes = getattr(caught.value, "__notes__", [])
    assert len(notes) == noted and all("--generate-line-info" in note for note in notes)


def test_a_text_of_one_s_own_without_line_information() -> None:
    fault = fault_of(f"mov.b32 %r1, 1;\n{STORE}")
    assert fault.source is None and not hasattr(fault, "__notes__")


def with_lines(text: str) -> str:
    """The text with a `.loc` before every statement that begins a line within the kernel: its own line."""
    made, begins, inside = [], False, False
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition("//")[0].strip()
        if inside and begins and code and not code.startswith((".branchtargets", "}")):
            made.append(f".loc 1 {number} 0\n")
        made.append(line + "\n")
        if code:
            begins = code.endswith((";", "{", "}", ":"))
        inside = inside or code.endswith("{")
    assembly = "// begin inline asm\n// end inline asm\n"  # so braces are none
    return "".join(made) + assembly + '.file 1 "k.py"\n'


@pytest.mark.parametrize("module, case", [
    (module, name)
    for module in (test_faults, test_faults_async, test_faults_exit, test_faults_global)
    for name in module.CASES
], ids=lambda one: one if isinstance(one, str) else one.__name__.rpartition("test_")[2])  # fmt: skip
def test_every_line_in_a_message_has_its_source(monkeypatch: pytest.MonkeyPatch, module: ModuleType, case: str) -> None:
    texts = given_lines(monkeypatch, module)
    with pytest.raises(EmulatorFault) as caught:
        if module is test_faults:
            test_faults.launch(test_faults.CASES[case].wrong, test_faults.CASES[case], np.zeros(64, np.uint32))
        elif module is test_faults_async:
            test_faults_async.launch(test_faults_async.CASES[case].wrong, test_faults_async.CASES[case], None)
        else:
            module.launch(module.CASES[case].wrong, None)
    check(caught.value, texts[-1])


def test_faults_of_other_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = given_lines(monkeypatch, test_faults_tensor_map)
    body = test_faults_tensor_map.WRITES["replace"] + test_faults_tensor_map.COPY
    with pytest.raises(EmulatorFault, match="tensor map that was written at line") as caught:
        test_faults_tensor_map.launch(body, None)
    check(caught.value, texts[-1])


@pytest.mark.parametrize("case", test_tcgen05_faults.CASES)
def test_faults_of_tensor_memory(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    texts = given_lines(monkeypatch, tensor_products)
    with pytest.raises(EmulatorFault) as caught:
        test_tcgen05_faults.CASES[case][1].run()
    check(caught.value, texts[-1])


@pytest.mark.parametrize("case", test_wgmma.RULES)
def test_faults_of_warpgroups(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    texts = given_lines(monkeypatch, test_wgmma)
    launch, body = test_wgmma.rule(test_wgmma.RULES[case][1])
    with pytest.raises(EmulatorFault) as caught:
        launch.run(body, np.zeros((4, 128), np.uint32))
    check(caught.value, texts[-1])
    assert ("has the product at line" in str(caught.value)) == (case == "another_product")


def given_lines(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> list[str]:
    """The module's launches have texts with lines; they come into the list."""
    texts: list[str] = []

    def launch(text: str, *arguments: Any, **options: Any) -> Any:
        texts.append(with_lines(text))
        return run_ptx(texts[-1], *arguments, **options)

    monkeypatch.setattr(module, "run_ptx", launch)
    return texts


def check(fault: EmulatorFault, text: str) -> None:
    named = re.findall(r"\bline (\d+)( \(k\.py:(\d+)\))?", str(fault))
    assert named
    lines = text.splitlines()
    for line, _, source in named:
        before = next(one for one in reversed(lines[: int(line)]) if one.startswith((".loc", ".visible")))
        assert source == (before.split()[2] if before.startswith(".loc") else ""), str(fault)
