"""The examples of docs/emulator.md that need a kernel language run as they stand, each in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import ROOT, blocks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler"),
]

MY_KERNELS = """
import cutlass.cute as cute

@cute.kernel
def add_kernel(a: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    out[thread] = a[thread] + 1.0

@cute.jit
def add(a: cute.Tensor, out: cute.Tensor):
    add_kernel(a, out).launch(grid=(1, 1, 1), block=(64, 1, 1))
"""


def printed(folder: Path, word: str) -> str:
    """What the example with this word in it prints last, run in the folder."""
    (code,) = (one for one in blocks(ROOT / "docs" / "emulator.md") if word in one)
    (folder / "example.py").write_text(code)  # kernel languages read the source of kernels
    (folder / "my_kernels.py").write_text(MY_KERNELS)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CUTE_DSL")}
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip().splitlines()[-1]


needs_cute = pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="CuTe-DSL is in the extra `build`")


@needs_cute
def test_an_exported_object(tmp_path: Path) -> None:
    assert printed(tmp_path, "load_object") == "True 256"


@needs_cute
def test_a_function_of_this_process(tmp_path: Path) -> None:
    assert printed(tmp_path, "import jit").endswith("256")


@needs_cute
@pytest.mark.skipif(importlib.util.find_spec("quack") is None, reason="quack-kernels is in the extra `public`")
def test_a_library_that_looks_for_a_gpu(tmp_path: Path) -> None:
    assert printed(tmp_path, "cpu_as_gpu").startswith("tensor([1.0000, 1.0000,")


@pytest.mark.skipif(importlib.util.find_spec("flydsl") is None, reason="FlyDSL is in the extra `build`")
def test_a_kernel_in_flydsl(tmp_path: Path) -> None:
    assert printed(tmp_path, "flydsl_adapter") == "True 1024"
