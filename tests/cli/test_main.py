"""The process around the verbs: pipes, full disks, memory, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from msa_ops.cli import list_ops
from msa_ops.cli.main import BROKEN_PIPE, main
from msa_ops.registry.errors import BackendLoadError, NoBackendError

COMMAND = f"{sys.executable} -m msa_ops.cli.main"


def shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", ["list", "capacity --help"])
def test_a_reader_that_goes_away_ends_the_command_quietly(words: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*COMMAND.split(), *words.split()], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(writing)
    codes = (0, BROKEN_PIPE) if "--help" in words else (BROKEN_PIPE,)  # argparse drops such errors
    assert done.returncode in codes and done.stderr == ""


def test_a_verdict_that_nobody_reads_is_not_a_clean_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(args: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(list_ops, "run", run)
    monkeypatch.setattr("msa_ops.cli.main._discard_stdout", lambda: None)
    assert main(["list"]) == BROKEN_PIPE == 141


def test_output_that_cannot_be_written() -> None:
    done = shell(f"{COMMAND} list >&-")
    assert (done.returncode, done.stderr) == (0, "")
    if os.path.exists("/dev/full"):
        done = shell(f"{COMMAND} list > /dev/full")
        assert done.returncode == 2 and done.stderr == "msa-ops: error: [Errno 28] No space left on device\n"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (NoBackendError("op: no backend can serve this call:\n  a: [x] y"), "op: no backend can serve this call:\n  a"),
        (BackendLoadError("kernels: No module named 'x'"), "kernels: No module named 'x'"),
        (MemoryError(), "out of memory: the request is too large"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 bytes\nframe #0"),
            "can't allocate memory: 8 bytes",
        ),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory: CUDA out of memory"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_are_readable(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(args: Any) -> int:
        raise error

    monkeypatch.setattr(list_ops, "run", run)
    assert main(["list"]) == 2
    text = capsys.readouterr().err
    assert text.startswith("msa-ops: error: ") and message in text and "Traceback" not in text and "frame" not in text


def test_defects_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(args: Any) -> int:
        raise RuntimeError("a defect")

    monkeypatch.setattr(list_ops, "run", run)
    with pytest.raises(RuntimeError, match="a defect"):
        main(["list"])
