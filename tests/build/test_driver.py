from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

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


def test_cache_key_follows_everything_that_matters(unit: Unit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = {driver.cache_key(unit), driver.cache_key(replace(unit, arch="sm_100a"))}
    keys.add(driver.cache_key(next(u for u in units(["sm_90a"]) if u.name != unit.name)))
    monkeypatch.setattr(toolchain, "dsl_version", lambda: "4.9.0")
    keys.add(driver.cache_key(unit))
    source = tmp_path / "kernel.py"
    source.write_text("changed")
    monkeypatch.setattr(driver, "sources", lambda _: [source])
    keys.add(driver.cache_key(unit))
    assert len(keys) == 5
    assert driver.cache_key(unit) == driver.cache_key(unit)


def test_sources_hold_the_kernel_its_configurations_and_the_shared_atoms(unit: Unit) -> None:
    names = {f"{source.parent.name}/{source.name}" for source in driver.sources(unit)}
    kernel = unit.family.module.rpartition(".")[2]
    assert {f"{unit.family.op}/{kernel}.py", f"{unit.family.op}/{kernel}_configs.py", "common/scalar.py"} <= names


def test_sources_hold_what_is_imported_of_other_ops(unit: Unit) -> None:
    """A change there must not find an object of before in the cache."""
    names = {f"{source.parent.name}/{source.name}" for source in driver.sources(unit)}
    assert not any(name.startswith("sparse_attention/") for name in names)
    chosen = next(u for u in units(["sm_90a"]) if u.name == "sparse_attention__chosen_nvfp4__sm_90a")
    names = {f"{source.parent.name}/{source.name}" for source in driver.sources(chosen)}
    assert "tiled_attention/sm90_chosen.py" in names and "sparse_attention/combine.py" in names
    assert "sparse_attention/sm90.py" not in names


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
    monkeypatch.setattr(driver, "_build", lambda unit, work: "printed an error")
    both = units(["sm_90a"])[:2]
    with pytest.raises(driver.CompileError) as error:
        driver.compile_all(both, tmp_path / "out", tmp_path / "cache", 1)
    assert all(f"{u.name}: printed an error" in str(error.value) for u in both)
    assert not list((tmp_path / "cache").glob("*")), "a failure must not enter the cache"


def test_a_compiler_that_prints_an_error_has_failed(
    unit: Unit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = subprocess.run

    def worker(command: list[str], **options: object) -> object:
        return real([sys.executable, "-c", "print('loc(1): Error: bad operand')"], **options)

    monkeypatch.setattr(driver.subprocess, "run", worker)
    assert "the compiler failed" in str(driver._build(unit, tmp_path))


def test_table_declares_and_lists_every_kernel() -> None:
    text = cute_kernels.table(
        [{"name": "op__c__sm_90a", "arch": "sm_90a", "arguments": ["x", "n"], "entry": "_mlir_entry"}]
    )
    assert "void _mlir_entry(void**, std::int32_t);" in text
    assert '{"op__c__sm_90a", "sm_90a", 2, _mlir_op__c__sm_90a_cuda_init' in text
