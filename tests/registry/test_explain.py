from __future__ import annotations

import json

import pytest
import torch

import msa_ops
from msa_ops import _C
from msa_ops.registry import UnknownBackendError, UnknownOpError
from msa_ops.registry import platform as platforms
from msa_ops.registry.explain import explain_with
from msa_ops.registry.overrides import AUTOMATIC, Override
from msa_ops.registry.selection import Selector
from tests.registry import fixtures


def test_states_and_reasons_of_all_backends() -> None:
    selector = Selector(fixtures.store())
    chip = platforms.parse("sm_107a")
    explanation = explain_with(selector, "probe", chip, fixtures.Facts(), AUTOMATIC)
    states = {verdict.backend: verdict.state for verdict in explanation.verdicts}
    assert explanation.choice == "fast"
    assert states == {
        "qmul": "refused", "fast": "chosen", "amd": "refused", "portable": "outranked", "reference": "refused",
    }  # fmt: skip
    data = json.loads(json.dumps(explanation.to_json()))
    assert data["backends"][0]["refusals"][0]["code"] == "feature"
    assert data["facts"] == {"topk": 16, "heads": 4, "kv_format": "nvfp4"}
    assert "needs qmul4" in str(explanation)


def test_it_agrees_with_the_selection_everywhere() -> None:
    selector = Selector(fixtures.store())
    wishes = [AUTOMATIC, *(Override(name, "the call", False) for name in ("qmul", "fast", "amd", "reference"))]
    for chip in map(platforms.parse, platforms.SIMULATED):
        for topk in (16, 64):
            for heads in (3, 4):
                for wish in wishes:
                    facts = fixtures.Facts(topk=topk, heads=heads)
                    explained = explain_with(selector, "probe", chip, facts, wish).choice
                    try:
                        chosen = selector.choose("probe", chip, wish, lambda facts=facts: facts).name
                    except NotImplementedError:
                        chosen = None
                    assert explained == chosen


def test_override_is_shown() -> None:
    selector = Selector(fixtures.store())
    wish = Override("reference", "MSA_OPS_BACKEND", False)
    explanation = explain_with(selector, "probe", platforms.parse("sm_100a"), fixtures.Facts(), wish)
    assert explanation.choice == "reference"
    assert "asked for: reference (by MSA_OPS_BACKEND)" in str(explanation)


def test_real_call_and_facts() -> None:
    call = {"x": torch.ones(2, 64), "weight": torch.ones(64)}
    explanation = msa_ops.explain("rms_norm", "cpu", call=call)
    assert explanation.facts["dtype"] == "float32" and explanation.facts["hidden"] == 64
    assert msa_ops.explain("rms_norm", "cpu", {"hidden": 5}).facts["hidden"] == 5
    with pytest.raises(ValueError, match="weight"):
        msa_ops.explain("rms_norm", "cpu", call={**call, "weight": torch.ones(3)})


def test_bad_names() -> None:
    with pytest.raises(UnknownOpError, match=r"known:.*rms_norm"):
        msa_ops.explain("rms_nrom")
    with pytest.raises(ValueError, match=r"facts: rms_norm has no colour; known: dtype"):
        msa_ops.explain("rms_norm", "cpu", {"colour": "red"})
    with pytest.raises(ValueError, match="unknown chip 'sm_42'"):
        msa_ops.explain("rms_norm", "sm_42")


def test_a_wish_for_a_backend_that_does_not_exist_is_an_error() -> None:
    with msa_ops.use_backend({"rms_norm": "fastest"}), pytest.raises(UnknownBackendError, match="known: reference"):
        msa_ops.explain("rms_norm", "cpu")


def test_what_nobody_asked_for_is_not_outranked() -> None:
    selector = Selector(fixtures.store())
    wish = Override("reference", "the call", False)
    explanation = explain_with(selector, "probe", platforms.parse("sm_90a"), fixtures.Facts(), wish)
    assert {v.backend: v.state for v in explanation.verdicts}["portable"] == "not asked for"


def test_arguments_of_a_call_are_checked_by_name() -> None:
    with pytest.raises(ValueError, match=r"misses weight and does not know colour"):
        msa_ops.explain("rms_norm", "cpu", call={"x": torch.ones(2, 64), "colour": 1})


def test_on_an_emulated_chip_it_tells_what_runs_there() -> None:
    outside = msa_ops.explain("quantize_nvfp4")
    with msa_ops.emulate("H200") as chip:
        inside = msa_ops.explain("quantize_nvfp4")
        assert msa_ops.explain("quantize_nvfp4", "cpu").choice == "reference"
    built = any(name.startswith("quantize_nvfp4__") and name.endswith("sm_90a") for name, *_ in _C.compiled_kernels())
    assert inside.platform == str(chip.platform) and inside.choice == ("cute_sm90" if built else None)
    assert msa_ops.explain("quantize_nvfp4").platform == outside.platform
