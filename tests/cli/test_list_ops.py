from __future__ import annotations

import json

import pytest

from msa_ops.cli.main import main
from msa_ops.registry import STORE


def test_every_backend_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = [(op, backend.name) for op in STORE.ops() for backend in STORE.backends(op)]
    assert [(entry["op"], entry["backend"]) for entry in found] == expected


def test_support_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--support", "--json"]) == 0
    matrix = json.loads(capsys.readouterr().out)
    assert set(matrix) == set(STORE.ops())
    assert all(row["cpu"] == "reference" for row in matrix.values())
    assert main(["list", "rms_norm", "--support"]) == 0
    assert "reference" in capsys.readouterr().out
