"""What needs no kernels; tests/emulator/test_workspace_bytes.py compares the number with what a call wants."""

from __future__ import annotations

import pytest

import msa_ops
from msa_ops.registry import UnknownOpError


def test_the_reference_works_in_none() -> None:
    assert msa_ops.workspace_bytes("indexer", "cpu") == 0


def test_what_explain_refuses_is_refused() -> None:
    with pytest.raises(UnknownOpError):
        msa_ops.workspace_bytes("no_such_op", "cpu")
    with pytest.raises(ValueError, match="has no colour"):
        msa_ops.workspace_bytes("indexer", "cpu", {"colour": 3})


def test_a_backend_that_cannot_serve_has_no_number() -> None:
    with pytest.raises(NotImplementedError):
        msa_ops.workspace_bytes("moe", "sm_90a")
