from __future__ import annotations

import threading

import pytest
import torch

import msa_ops
from msa_ops.registry import UnknownBackendError, UnknownOpError, overrides
from msa_ops.registry.overrides import AUTOMATIC, Override, parse_environment


def test_call_beats_context_beats_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert overrides.current("rms_norm") == AUTOMATIC
    monkeypatch.setenv("MSA_OPS_BACKEND", "rms_norm=from_env")
    assert overrides.current("rms_norm") == Override("from_env", "MSA_OPS_BACKEND", False)
    assert overrides.current("moe") == AUTOMATIC
    with msa_ops.use_backend("from_context"):
        assert overrides.current("rms_norm").backend == "from_context"
        with msa_ops.use_backend({"rms_norm": "inner"}):
            assert overrides.current("rms_norm").backend == "inner"
            assert overrides.current("moe").backend == "from_context"
        assert overrides.current("rms_norm", "from_call") == Override("from_call", "the call", False)
    assert overrides.current("rms_norm").backend == "from_env"


def test_environment_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSA_OPS_BACKEND", "first")
    assert overrides.current("moe").backend == "first"
    monkeypatch.setenv("MSA_OPS_BACKEND", "*=second, moe=third")
    assert [overrides.current(op).backend for op in ("moe", "rms_norm")] == ["third", "second"]
    monkeypatch.setenv("MSA_OPS_UNSAFE", "1")
    assert overrides.current("moe").unsafe


@pytest.mark.parametrize("text", ["=x", "moe=", "moe=a,=b"])
def test_malformed_environment_is_an_error(text: str) -> None:
    with pytest.raises(UnknownBackendError, match="op=backend"):
        parse_environment(text, False)


def test_other_threads_do_not_see_the_context() -> None:
    seen = []
    with msa_ops.use_backend("here"):
        thread = threading.Thread(target=lambda: seen.append(overrides.current("moe")))
        thread.start()
        thread.join()
    assert seen == [AUTOMATIC]


def test_unknown_names_fail_at_the_call_and_say_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = torch.ones(2, 8), torch.zeros(8)
    with pytest.raises(UnknownBackendError, match=r"'fastest' of rms_norm \(asked for by the call\).*reference"):
        msa_ops.rms_norm(x, weight, backend="fastest")
    with msa_ops.use_backend("fastest"), pytest.raises(UnknownBackendError, match="asked for by use_backend"):
        msa_ops.rms_norm(x, weight)
    monkeypatch.setenv("MSA_OPS_BACKEND", "rms_nrom=reference")
    with pytest.raises(UnknownOpError, match="rms_nrom"):
        msa_ops.rms_norm(x, weight)


def test_a_mistyped_op_is_not_ignored() -> None:
    with (
        pytest.raises(UnknownOpError, match="use_backend: unknown op rms_nrom"),
        msa_ops.use_backend({"rms_nrom": "x"}),
    ):
        pass
