from __future__ import annotations

import json
from pathlib import Path

import pytest

from msa_ops.cli.main import main
from tests.model.geometry import change_tensors, checkpoint, tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("checkpoint"), tiny(eos_token_ids=(90,)))


def outcome(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["generate", *argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_tokens_of_several_prompts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = ("--prompt-ids", "1,2,3", "--prompt-ids", "4 5", "--prompt-tokens", "200")
    code, out, _ = outcome(capsys, "--model", str(folder), *prompts, "--max-new-tokens", "5", "--json")
    assert code == 0
    records = json.loads(out)
    assert [record["prompt_tokens"] for record in records] == [3, 2, 200]
    assert all(len(record["tokens"]) == 5 or record["tokens"][-1] == 90 for record in records)
    _, alone, _ = outcome(
        capsys, "--model", str(folder), "--prompt-ids", "4,5", "--max-new-tokens", "5", "--json", "--chunk", "1"
    )
    assert json.loads(alone)[0]["tokens"] == records[1]["tokens"]


def test_options_reach_the_engine(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ("--model", str(folder), "--prompt-ids", "7,8,9", "--max-new-tokens", "8", "--json", "--dtype", "float32")
    greedy = outcome(capsys, *base, "--kv-format", "fp32")[1]
    drawn = [outcome(capsys, *base, "--temperature", "3", "--seed", seed)[1] for seed in ("1", "1", "2")]
    assert drawn[0] == drawn[1] != drawn[2]
    first = json.loads(greedy)[0]["tokens"][0]
    stopped = json.loads(outcome(capsys, *base, "--kv-format", "fp32", "--stop-ids", str(first))[1])[0]
    assert (stopped["tokens"], stopped["reason"]) == ([first], "stop")


def test_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = outcome(capsys, "--model", str(folder), "--prompt-tokens", "700", "--report", "--kv-format", "fp8")
    assert code == 0
    for text in ("0 (700 prompt tokens", "tokens/s", "cache, fp8 with fp8 index", "visible blocks a query", "indexer "):
        assert text in out
    assert "loading" in err and "serving" in err  # the progress bars


def test_json_stays_json_beside_a_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("--model", str(folder), "--prompt-ids", "1", "--max-new-tokens", "2", "--json", "--report")
    code, out, err = outcome(capsys, *argv)
    assert code == 0 and len(json.loads(out)) == 1
    assert "bytes a token" in err


def test_text_prompts(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({f"w{number}": number for number in range(96)}, unk_token="w0")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    code, out, _ = outcome(capsys, "--model", str(tmp_path), "--prompt", "w5 w6", "--max-new-tokens", "2", "--json")
    assert code == 0
    (record,) = json.loads(out)
    assert record["prompt_tokens"] == 2
    assert record["text"].split() == [f"w{token}" for token in record["tokens"]]
    (tmp_path / "tokenizer.json").write_text("{}")
    code, _, err = outcome(capsys, "--model", str(tmp_path), "--prompt", "w5")
    assert code == 2 and "tokenizer.json: not a tokenizer" in err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "prompt: none"),
        (("--prompt-ids", "1,x"), "--prompt-ids: '1,x'"),
        (("--prompt-ids", "96"), "token ids 96 to 96; accepted: 0 to 95"),
        (("--prompt-tokens", "0"), "--prompt-tokens: 0"),
        (("--prompt-ids", "1", "--max-new-tokens", "0"), "max-new-tokens: 0"),
        (("--prompt-ids", "1", "--temperature", "-1"), "temperature: -1.0"),
        (("--prompt-ids", "1", "--chunk", "0"), "--chunk: 0"),
        (("--prompt-tokens", "600", "--pages", "2"), "accepted: 256 together"),
        (
            (
                "--prompt-tokens",
                "9000",
            ),
            "--prompt-tokens: 9000; accepted: 1 to max_position_embeddings, 8192",
        ),
        (("--prompt", "text"), "has no tokenizer.json"),
        (("--prompt-ids", "1", "--pages", "0"), "--pages: 0"),
        (("--prompt-ids", "1", "--pages", "9" * 30), "--pages: 999"),
        (("--prompt-ids", "1", "--pages", "2000000000"), "out of memory: "),
        (("--prompt-tokens", "1000000000000"), "--prompt-tokens: 1000000000000"),
        (("--prompt-ids", ","), "prompt: one without tokens"),
        (("--prompt-ids", "1_0"), "--prompt-ids: '1_0'"),
        (("--prompt-ids", "1", "--max-new-tokens", "9000"), "max_seq_len: 9001"),
        (("--prompt-ids", "1", "--temperature", "inf"), "temperature: inf"),
        (("--prompt-ids", "1", "--device", "cpu:3"), "--device: 'cpu:3'"),
        (("--prompt-ids", "1", "--prompt-ids", "2", "--seed", str(2**63 - 1)), "seed: 9223372036854775808"),
        (("--prompt-ids", "1", "--max-seq-len", "0"), "max_seq_len: 0"),
        (("--prompt-ids", "1", "--seed", "-1"), "seed: -1"),
        (("--prompt-ids", "1", "--device", "abacus"), "--device: 'abacus'"),
        (("--prompt-ids", "1", "--device", "cuda:99"), "--device: 'cuda:99'"),
    ],
)
def test_bad_arguments_end_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], message: str
) -> None:
    code, out, err = outcome(capsys, "--model", str(folder), "--json", *argv)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1 and err.startswith("msa-ops: error: ")


def test_bad_checkpoints_end_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def error() -> str:
        code, out, err = outcome(capsys, "--model", str(tmp_path), "--prompt-ids", "1", "--json")
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        return err

    checkpoint(tmp_path)
    change_tensors(tmp_path, lambda tensors: tensors.pop("language_model.model.norm.weight", None))
    assert "1 missing: model.norm.weight" in error()
    shard = sorted(tmp_path.glob("*.safetensors"))[0]
    shard.write_bytes(shard.read_bytes()[:-5])
    assert "cut or damaged" in error()
    config = json.loads((tmp_path / "config.json").read_text())
    config["text_config"]["attention_sinks"] = 4
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "fields of unknown meaning: attention_sinks" in error()
    (tmp_path / "config.json").unlink()
    assert "config.json: No such file" in error()
    assert main(["generate", "--model", str(tmp_path / "nowhere"), "--prompt-ids", "1"]) == 2
    assert "not a folder" in capsys.readouterr().err


def test_demo_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text("precious")
        assert main(["demo", "--dir", str(folder), "--no-bench"]) == 2
        assert f"holds {name}; accepted: a folder without a checkpoint" in capsys.readouterr().err
        assert [(file.name, file.read_text()) for file in folder.iterdir()] == [(name, "precious")]


@pytest.mark.parametrize("argv", [("--max-new-tokens", "0"), ("--chunk", "3")])
def test_demo_refuses_bad_numbers(argv: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--dir", str(tmp_path), *argv]) == 2
    assert f"{argv[0]}: {argv[1]}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_demo_refuses_a_bad_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--dir", str(tmp_path), "--seed", "-1"]) == 2
    assert "seed: -1" in capsys.readouterr().err


@pytest.mark.slow
def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--dir", str(tmp_path), "--max-new-tokens", "3"]) == 0
    captured = capsys.readouterr()
    for text in ("tokens/s", "bytes a token", "16.0 of ", "reference", "% of roof", "prompt of 2700: 3 new tokens"):
        assert text in captured.out
    assert "writing" in captured.err and "serving" in captured.err
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["quantization_config"]["moe_quant_format"] == "nvfp4-pack-quantized"
