"""Compilation with FlyDSL: what must fail does, and the arch is the one that was asked for."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from msa_ops.build import code_object, flydsl_kernels, isa, toolchain
from msa_ops.build.toolchain import ToolchainError

ROOT = Path(__file__).parents[2]


def installed() -> bool:
    try:
        return bool(toolchain.flydsl_version() and toolchain.zig())
    except ToolchainError:
        return False


needs_flydsl = [
    pytest.mark.slow,
    pytest.mark.skipif(not installed(), reason="FlyDSL is in the extra `build`; `make kernels` installs it"),
]

KERNEL = """
from msa_ops.build.flydsl_adapter import compiler, fx
from msa_ops.flydsl.common import memory

def trace(times, change):
    @compiler.kernel(known_block_size=[64, 1, 1])
    def sums(x: fx.Int64, y: fx.Int64):
        at = fx.Int64(fx.thread_idx.x) * fx.Int64(4)
        value = memory.load(x + at, fx.Float32)
        for i in fx.range_constexpr(times):
            value = change(value, fx) + value * fx.Float32(i + 0.5)
        memory.store(y + at, value)

    @compiler.jit
    def launcher(x: fx.Int64, y: fx.Int64, stream: fx.Stream):
        sums(x, y).launch(grid=(1, 1, 1), block=(64, 1, 1), smem=0, stream=stream)

    return launcher, (fx.Int64(0), fx.Int64(0), fx.Stream(None))
"""


def plain(value: Any, fx: Any) -> Any:
    return value


def library_call(value: Any, fx: Any) -> Any:
    return fx.math.tanh(value)


def raises(value: Any, fx: Any) -> Any:
    raise TypeError("a mistake in the kernel")


@pytest.fixture
def trace(tmp_path: Path) -> Any:
    """The kernel above, as a module of its own: FlyDSL reads the source."""
    import importlib.util

    file = tmp_path / "kernel_of_a_test.py"
    file.write_text(KERNEL)
    spec = importlib.util.spec_from_file_location("kernel_of_a_test", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.trace


class TestCompile:
    pytestmark = needs_flydsl

    @pytest.mark.parametrize("arch", ["gfx950", "gfx942"])
    def test_the_arch_is_the_one_that_was_asked_for(self, trace: Any, tmp_path: Path, arch: str) -> None:
        from msa_ops.build import flydsl_adapter

        code, text = flydsl_adapter.compile_kernel(lambda: trace(20, plain), arch, tmp_path)
        assert f"amdhsa-unknown-{arch}" in text
        (kernel,) = code_object.kernels(code)
        assert code_object.arguments(kernel) == [(0, 8), (8, 8)] and kernel["wavefront_size"] == 64
        assert isa.violations(text) == []

    def test_two_threads(self, trace: Any, tmp_path: Path) -> None:
        from msa_ops.build import flydsl_adapter

        def compiled(i: int) -> bytes:
            folder = tmp_path / str(i)
            folder.mkdir()
            return flydsl_adapter.compile_kernel(lambda: trace(20 + i % 2, plain), "gfx950", folder)[0]

        with ThreadPoolExecutor(4) as pool:
            codes = list(pool.map(compiled, range(4)))
        assert codes[0] == codes[2] != codes[1] == codes[3]

    def test_a_mistake_is_told_as_it_is(self, trace: Any, tmp_path: Path) -> None:
        from msa_ops.build import flydsl_adapter

        with pytest.raises(flydsl_adapter.FlyDslError, match="a mistake in the kernel"):
            flydsl_adapter.compile_kernel(lambda: trace(20, raises), "gfx950", tmp_path)

    def test_a_kernel_that_calls_the_device_library_is_refused(self, tmp_path: Path) -> None:
        """FlyDSL compiles it to nothing: only its diagnostic and the length of the kernel tell."""
        (tmp_path / "kernel_of_a_test.py").write_text(KERNEL)
        code = textwrap.dedent(
            f"""
            import sys
            from pathlib import Path
            sys.path.insert(0, {str(tmp_path)!r})
            import kernel_of_a_test
            from msa_ops.build import flydsl_adapter, isa
            folder = Path({str(tmp_path)!r}) / "work"
            folder.mkdir()
            trace = lambda: kernel_of_a_test.trace(20, lambda value, fx: fx.math.tanh(value))
            text = flydsl_adapter.compile_kernel(trace, "gfx950", folder)[1]
            print("[flydsl.compile] end:", "; ".join(isa.violations(text)))
            """
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
        output = done.stdout + done.stderr
        assert done.returncode or flydsl_kernels.problem_of_output(output), output
        assert done.returncode or "nothing is left of the kernel" in output

    def test_the_folder_of_kernels_does_not_hide_the_language(self) -> None:
        code = "import flydsl; print(flydsl.__file__)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
        assert str(ROOT / "flydsl") not in done.stdout


def test_the_root_of_the_kernels_is_no_package() -> None:
    assert not (ROOT / "flydsl" / "__init__.py").exists() and not (ROOT / "cute" / "__init__.py").exists()


def test_output_of_a_compiler() -> None:
    dump = "[flydsl.compile] dump 22_final_isa -> /x/22_final_isa.s\n\n"
    assert flydsl_kernels.problem_of_output(dump) is None
    assert "no libcall available" in str(flydsl_kernels.problem_of_output(dump + "no libcall available\n" + dump))


def test_beside_cute_dsl(monkeypatch: pytest.MonkeyPatch) -> None:
    from msa_ops.build import flydsl_adapter

    monkeypatch.setattr(toolchain, "flydsl_version", lambda: "0.5.0")
    monkeypatch.setitem(sys.modules, "cutlass._mlir", sys)
    monkeypatch.delitem(vars(flydsl_adapter), "rocdl", raising=False)
    with pytest.raises(ToolchainError, match="FlyDSL cannot be loaded: this process has loaded CuTe-DSL"):
        _ = flydsl_adapter.rocdl


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain.flydsl_version.cache_clear()
    monkeypatch.setattr(toolchain.importlib.metadata, "version", lambda name: "0.4.2")
    with pytest.raises(ToolchainError, match=r"flydsl is 0\.4\.2; accepted: 0\.5\.0"):
        toolchain.flydsl_version()
    toolchain.flydsl_version.cache_clear()


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "waves"),
    [
        (64, 0, 256, 8),
        (65, 0, 256, 7),
        (128, 0, 256, 4),
        (129, 0, 256, 3),
        (512, 0, 256, 1),
        (512, 0, 512, 0),
        (32, 163_840, 256, 1),
        (32, 81_920, 256, 2),
        (32, 81_921, 1024, 4),
        (128, 0, 512, 4),
        (168, 0, 512, 2),
    ],
)
def test_occupancy(registers: int, shared: int, threads: int, waves: int) -> None:
    assert flydsl_kernels.waves_per_simd(registers, shared, threads, 163_840) == waves
