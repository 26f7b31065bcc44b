from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from msa_ops.build import cute_kernels, driver, toolchain
from msa_ops.build.resources import Resources, histogram
from msa_ops.build.unit import Unit, units

FITS = Resources(registers=40, stack=0, local=0, static_shared_memory=0, max_threads=256, instructions={"IMAD": 3})


@pytest.fixture
def unit(monkeypatch: pytest.MonkeyPatch) -> Unit:
    monkeypatch.setattr(toolchain, "dsl_version", lambda: "4.8.1")
    monkeypatch.setattr(toolchain, "tool_version", lambda name: "13.5.37")
    return units(["sm_90a"])[0]


def test_tensor_memory_is_counted_and_bounded(tmp_path: Path) -> None:
    metadata: dict[str, object] = {"name": "kernel"}
    for columns in (512, 1024):
        (tmp_path / "kernel.ptx").write_text(f"tcgen05.alloc.cta_group::1.sync.aligned.b32 [%r1], {columns};")
        problem = cute_kernels.complete(metadata, tmp_path)
        assert metadata["tensor_memory_columns"] == columns
        assert problem == (None if columns == 512 else "1024 columns of tensor memory; a multiprocessor has 512")
    (tmp_path / "kernel.ptx").write_text("tcgen05.alloc.cta_group::1.sync.aligned.b32 [%r1], %r2;")
    assert "no constant" in str(cute_kernels.complete(metadata, tmp_path))


@pytest.mark.parametrize(
    ("used", "dynamic", "said"),
    [
        (replace(FITS, static_shared_memory=232_449), 0, "232449 bytes of shared memory; sm_90a has 232448"),
        (FITS, 232_449, "232449 bytes of shared memory"),
        (replace(FITS, local=16), 0, "spills: 16 bytes"),
        (replace(FITS, instructions={"LDL.64": 2}), 0, "'LDL.64': 2"),
        (replace(FITS, registers=255, max_threads=512), 0, "exceed the register file"),
    ],
)
def test_what_does_not_fit_is_a_failure(used: Resources, dynamic: int, said: str) -> None:
    assert said in str(cute_kernels.over_budget(used, dynamic, "sm_90a"))


def test_what_fits_is_none() -> None:
    assert cute_kernels.over_budget(FITS, 232_448, "sm_90a") is None


def test_histogram_reads_predicates_and_modifiers() -> None:
    sass = textwrap.dedent(
        """
        .text.kernel:
                /*0000*/                   LDC R1, c[0x0][0x28] ;
                /*0010*/              @!P0 BRA `(.L_x_1) ;
                /*0020*/               @P1 LDG.E.128 R4, desc[UR4][R2.64] ;
                /*0030*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
                /*0040*/             @!UP0 UIADD3 UR4, UR4, 0x1, URZ ;
                /*0050*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
        """
    )
    expected = {"BRA": 1, "HMMA.16816.F32": 2, "LDC": 1, "LDG.E.128": 1, "UIADD3": 1}
    assert histogram(sass) == expected
    assert histogram("") == {}


def test_failures_of_all_units_are_reported_together(
    unit: Unit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(driver, "_build", lambda unit, work, line_info: "printed an error")
    both = units(["sm_90a"])[:2]
    with pytest.raises(driver.CompileError) as error:
        driver.compile_all(both, tmp_path / "out", tmp_path / "cache", 1)
    assert all(f"{u.name}: printed an error" in str(error.value) for u in both)
    assert not list((tmp_path / "cache").glob("*")), "a failure must not enter the cache"


@pytest.mark.parametrize("line_info", [False, True])
def test_a_compiler_that_prints_an_error_has_failed(
    unit: Unit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line_info: bool
) -> None:
    monkeypatch.setenv("CUTE_DSL_LINEINFO", "yes")  # no part of the cache's key
    real = subprocess.run

    def worker(command: list[str], **options: Any) -> object:
        assert "PATH" in options["env"]
        assert options["env"].get("CUTE_DSL_LINEINFO") == ("1" if line_info else None)
        return real([sys.executable, "-c", "print('loc(1): Error: bad operand')"], **options)

    monkeypatch.setattr(driver.subprocess, "run", worker)
    assert "the compiler failed" in str(driver._build(unit, tmp_path, line_info))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, unit: Unit) -> list[str]:
    """Builds that write small files, and a list of what was built."""
    built: list[str] = []

    def build(unit: Unit, work: Path, line_info: bool) -> None:
        built.append(unit.name)
        for kind in cute_kernels.KINDS:
            (work / f"{unit.name}.{kind}").write_text(kind)
        (work / f"{unit.name}.json").write_text(json.dumps({"name": unit.name, "arch": unit.arch}))

    monkeypatch.setattr(driver, "_build", build)
    monkeypatch.setattr(cute_kernels, "complete", lambda metadata, target: None)
    monkeypatch.setattr(cute_kernels, "table", lambda metadata: "")
    return built


def test_a_build_removes_only_files_of_builds(fake: list[str], tmp_path: Path) -> None:
    first, second = units(["sm_90a"])[:2]
    foreign = ["papers/thesis.txt", "sm_90a/notes.json", "sm_90a/x__y.o", f"docs/{first.name}.o", "sm_90a/deep/a"]
    for name in foreign:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
    for _ in range(2):
        driver.compile_all([first], tmp_path, tmp_path / "cache", 1)
    driver.compile_all([second], tmp_path, tmp_path / "cache", 1)
    assert fake == [first.name, second.name]
    assert all((tmp_path / name).read_text() == "mine" for name in foreign)
    assert not list(tmp_path.glob(f"sm_90a/{first.name}.*"))
    assert len(list(tmp_path.glob(f"sm_90a/{second.name}.*"))) == len(cute_kernels.KINDS)


def test_table_declares_and_lists_every_kernel() -> None:
    text = cute_kernels.table(
        [{"name": "op__c__sm_90a", "arch": "sm_90a", "arguments": ["x", "n"], "entry": "_mlir_entry"}]
    )
    assert "void _mlir_entry(void**, std::int32_t);" in text
    assert '{"op__c__sm_90a", "sm_90a", 2, _mlir_op__c__sm_90a_cuda_init' in text
