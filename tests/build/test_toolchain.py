"""The tools that compile: `python -m msa_ops.build.toolchain` says what to install."""

from __future__ import annotations

import subprocess
import sys

from msa_ops.build.toolchain import DSL_VERSION


def test_requirements_alone_are_printed() -> None:
    """No warning of Python beside them."""
    command = [sys.executable, "-W", "error", "-m", "msa_ops.build.toolchain"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"nvidia-cutlass-dsl[cu13]=={DSL_VERSION}" in done.stdout.split() and not done.stderr
