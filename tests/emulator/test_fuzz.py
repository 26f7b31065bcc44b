"""Bad input ends in an exception with a reason, never in the end of the process, and never in a hang (fuzz.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from msa_ops.emulator import PtxError, run_ptx
from tests.emulator.programs import HEAD, kernel

ROOT = Path(__file__).parents[2]


def fuzz(seed: int, count: int) -> tuple[int, int]:
    """How many of so many inputs were taken and refused."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.emulator.fuzz", str(seed), str(count)],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    taken, refused = map(int, done.stdout.split())
    return taken, refused


def test_some_bad_input() -> None:
    taken, refused = fuzz(1, 300)
    assert taken + refused == 300
    assert refused > 150


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_much_bad_input(seed: int) -> None:
    assert sum(fuzz(seed, 3000)) == 3000


@pytest.mark.parametrize("text, message", [
    (HEAD + ".global .b8 x[99999999999999999999];", "has more than 64 bits"),
    (HEAD + ".global .b64 x[2305843009213693952];", "more than 1073741824 bytes of variables"),
    (HEAD + ".global .b8 x[1073741824];\n.global .b8 y[1];", "more than 1073741824 bytes of variables at line 5"),
    (HEAD + ".shared .align 131072 .b8 x[4];", "an alignment of 131072; accepted: powers of two up to 65536"),
    (HEAD + ".shared .align 3 .b8 x[4];", "an alignment of 3"),
    (HEAD + ".entry k(.param .b8 p[32765]) { ret; }", "more than 32764 bytes of parameters"),
    (kernel(".local .b8 x[524289];"), "more than 524288 bytes of local memory a thread"),
    (kernel("{" * 100_000), "blocks nested too deeply"),
    (kernel("add.s32 %r1, " + "!" * 100_000), "operands nested too deeply"),
    (kernel("add.s32 " + "{" * 100_000), "operands nested too deeply"),
    (kernel(".reg .b32 %x<1000000>;"), "more registers than any kernel has"),
])  # fmt: skip
def test_limits_of_a_text(text: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        run_ptx(text, "k", 1, 32, [0])
