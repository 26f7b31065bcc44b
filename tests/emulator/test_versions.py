"""`.version` and `.target`: what a driver refuses is refused, with the reason."""

from __future__ import annotations

import numpy as np
import pytest

from msa_ops.emulator import PtxError, UnsupportedPtx, run_ptx

BODY = ".address_size 64\n.visible .entry k(.param .u64 p)\n{\n.reg .b64 %rd<2>;\nld.param.u64 %rd0, [p];\nret;\n}\n"


def run(head: str, chip: str = "sm_90a") -> None:
    run_ptx(head + BODY, "k", 1, 32, [np.zeros(1, np.uint32)], chip=chip)


@pytest.mark.parametrize(
    ("version", "target", "chip"),
    [
        ("7.8", "sm_90", "sm_90a"),
        ("8.0", "sm_90a", "sm_90a"),
        ("9.5", "sm_90a", "sm_90a"),
        ("7.0", "sm_80", "sm_90a"),
        ("8.6", "sm_100a", "sm_100a"),
        ("8.8", "sm_100f", "sm_103a"),
        ("8.8", "sm_103a", "sm_103a"),
        ("9.4", "sm_107a", "sm_107a"),
    ],
)
def test_first_versions(version: str, target: str, chip: str) -> None:
    run(f".version {version}\n.target {target}\n", chip)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("", "does not begin with `.version` at line 1"),
        (".target sm_90a\n", "does not begin with `.version`"),
        ("\n// nothing\n.target sm_90a\n.version 9.0\n", "does not begin with `.version` at line 3"),
        (".version 9.0\n", "no `.target` after `.version` at line 2"),
        (".version x\n.target sm_90a\n", "is not a version"),
        (".version 9\n.target sm_90a\n", "is not a version"),
        (".version 9.0.1\n.target sm_90a\n", "is not a version"),
        (".version 9.9\n.target sm_90a\n", "there is no `.version 9.9`; the newest one is"),
        (".version 8.9\n.target sm_90a\n", "there is no `.version 8.9`"),
        (".version 7.8\n.target sm_90a\n", "does not have `.target sm_90a`, which is there from 8.0 on at line 2"),
        (".version 7.7\n.target sm_90\n", "from 7.8 on"),
        (".version 8.5\n.target sm_100a\n", "from 8.6 on"),
        (".version 8.7\n.target sm_100f\n", "from 8.8 on"),
        (".version 8.7\n.target sm_103a\n", "from 8.8 on"),
        (".version 9.3\n.target sm_107a\n", "from 9.4 on"),
        (".version 9.0\n.target sm_77\n", "there is no `.target sm_77`"),
        (".version 9.0\n.target sm_90a\n.version 9.0\n", "expected a directive, found `.version`"),
    ],
)
def test_refused(head: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        run(head)


def test_newer_than_the_chips() -> None:
    with pytest.raises(UnsupportedPtx, match="sm_120a"):
        run(".version 9.0\n.target sm_120a\n")
