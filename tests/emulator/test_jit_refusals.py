"""What `jit` refuses before it imports CuTe-DSL."""

from __future__ import annotations

import subprocess
import sys

import pytest

from msa_ops.build.toolchain import ToolchainError
from msa_ops.emulator import jit


def test_without_cute_dsl() -> None:
    """In a process in which its package cannot be found."""
    code = """
import sys
sys.modules["cutlass"] = None
from msa_ops.emulator import jit
try:
    with jit("sm_90a"):
        print("ran")
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("jit needs CuTe-DSL: pip install 'msa-ops[build]'")


def test_beside_flydsl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flydsl._mlir", sys)
    with (
        pytest.raises(ToolchainError, match="CuTe-DSL cannot be loaded: this process has loaded FlyDSL"),
        jit("sm_90a"),
    ):
        pytest.fail("the block ran")
