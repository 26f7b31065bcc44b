"""The number that the registry names is the number that a call wants."""

from __future__ import annotations

import pytest
import torch

import msa_ops
from msa_ops.ops.indexer import SPEC
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


def test_one_byte_less_is_refused_with_the_number() -> None:
    if msa_ops.explain("indexer", "sm_90a").choice is None:
        pytest.skip("this build holds no kernels of sm_90a")
    args = SPEC.generate(1)
    values = {name: getattr(args, name) for name in args.__dataclass_fields__}
    with msa_ops.emulate("sm_90a") as chip:
        needed = msa_ops.workspace_bytes("indexer", chip.platform, call=values)
        assert needed > 0
        values["workspace"] = torch.empty(needed - 1, dtype=torch.uint8)
        with pytest.raises(ValueError, match=f"at least {needed} bytes"):
            msa_ops.indexer(**values)
