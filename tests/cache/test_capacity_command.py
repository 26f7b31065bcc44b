from __future__ import annotations

import argparse
import json
from dataclasses import fields
from typing import Any

import pytest

from msa_ops.cache.capacity import Assumptions
from msa_ops.cli import capacity as command


def call(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    return command.run(parser.parse_args(["capacity", *words]))


@pytest.mark.parametrize(("preset", "published"), [("m31-b300", 76), ("m3-b300", 28)])
def test_presets_print_the_published_result_and_every_assumption(
    preset: str, published: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--preset", preset) == 0
    text = capsys.readouterr().out
    assert f"Sequences of 262,144 tokens: {published} " in text
    assert f"reproduces the published {published}" in text
    rows = [line.split()[0] for line in text.splitlines() if line.startswith("--")]
    options = ["--" + item.name.replace("_", "-") for item in fields(Assumptions)]
    assert [row for row in rows if row in options] == options


def test_every_printed_option_is_accepted_and_changes_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    given = {
        "gpus": "8", "usable_gib": "122.5", "reserved_gib": "2", "attention_tp": "2", "experts": "whole",
        "non_experts": "attention_tp", "checkpoint_gb": "90", "non_expert_gb": "9", "layers": "12",
        "index_layers": "10", "kv_heads": "8",
        "kv_format": "fp8", "index_format": "bf16", "context": "1000", "drafter": "window",
        "draft_layers": "2", "draft_kv_heads": "2", "draft_format": "bf16", "draft_window": "512", "draft_tokens": "3",
        "draft_weights_gb": "1.5",
    }  # fmt: skip
    assert set(given) == {item.name for item in fields(Assumptions)}
    words = [word for name, value in given.items() for word in ("--" + name.replace("_", "-"), value)]
    assert call("--json", *words) == 0
    record = json.loads(capsys.readouterr().out)
    for name, value in given.items():
        found = record["assumptions"][name]
        assert found["value"] == (type(found["value"]))(value)
        assert found["origin"] == "given"
    assert record["uses_published_numbers"] is False
    assert record["published_sequences"] is None
    assert call(*words) == 0
    assert "Changed from preset m31-b300, so its published number (76) does not apply." in capsys.readouterr().out


def test_json_of_a_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--preset", "m3-b300", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["uses_published_numbers"] is True
    assert record["published_sequences"] == record["result"]["sequences"] == 28
    assert record["result"]["index_bytes_per_token"] == 57 * 128
    assert record["assumptions"]["context"] == {
        "value": 262144,
        "unit": "tokens",
        "option": "--context",
        "origin": "published",
    }


def test_model_and_gpu_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--model", "m3", "--gpu", "b300") == 0
    text = capsys.readouterr().out
    assert "Sequences of 262,144 tokens: 28 " in text
    assert "Assumptions of --preset m31-b300 --model m3 --gpu b300" in text


def test_weights_that_do_not_fit_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--gpu", "h100", "--gpus", "1") == 0
    text = capsys.readouterr().out
    assert "Weights and reserved memory exceed what is usable by" in text
    assert "Sequences of 262,144 tokens: 0 " in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--preset", "m5"], "preset: 'm5'; accepted: m31-b300, m3-b300"),
        (["--model", "m5"], "model: 'm5'"),
        (["--gpu", "tpu"], "gpu: 'tpu'"),
        (["--gpus", "2.5"], "gpus: '2.5'; accepted: a whole number"),
        (["--usable-gib", "much"], "usable_gib: 'much'; accepted: a number"),
        (["--kv-format", "fp4"], "kv_format: 'fp4'"),
    ],
)
def test_errors_are_one_line(words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call(*words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("item", [item for item in fields(Assumptions) if not item.metadata["choices"]])
@pytest.mark.parametrize("value", ["1e308", "9" * 30, "9" * 400, "9" * 5000, "nan", "-1"])
def test_absurd_numbers_end_in_one_short_line(item: Any, value: str) -> None:
    with pytest.raises(ValueError, match="accepted: ") as caught:
        call("--" + item.name.replace("_", "-"), value)
    assert item.name in str(caught.value) and len(str(caught.value)) < 200


def test_more_ranks_than_heads_store_one_head_each(capsys: pytest.CaptureFixture[str]) -> None:
    for ranks in (4, 8):
        assert call("--gpus", "8", "--attention-tp", str(ranks), "--json") == 0
        result = json.loads(capsys.readouterr().out)["result"]
        assert result["kv_bytes_per_token"] == 34560 / 4
