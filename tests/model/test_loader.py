from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers.models.minimax_m3_vl import modeling_minimax_m3_vl as modeling
from transformers.models.minimax_m3_vl.configuration_minimax_m3_vl import MiniMaxM3VLConfig

from msa_ops.model import CheckpointError, ConfigError, Model, load
from msa_ops.model.weights import WeightFormat
from msa_ops.model.writer import random_tensors
from tests.model import oracle
from tests.model.geometry import change_tensors, checkpoint, logits, tiny

TOKENS = list(range(90)) * 2
Q0 = "language_model.model.layers.0.self_attn.q_proj"
E1 = "language_model.model.layers.1.block_sparse_moe.experts.1.w1"


def stored(folder: Path) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for file in folder.glob("*.safetensors"):
        tensors |= load_file(file)
    return tensors


def test_a_checkpoint_that_transformers_wrote(tmp_path: Path) -> None:
    """Names, config and layout as transformers saves the multimodal model, vision tower included."""
    text = oracle.text_config("m3", num_hidden_layers=2, hidden_size=64, vocab_size=96)
    vision = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
    }
    config = MiniMaxM3VLConfig(text_config=text, vision_config=vision, projector_hidden_size=32)
    theirs = modeling.MiniMaxM3SparseForConditionalGeneration(config).float().eval()
    theirs.save_pretrained(tmp_path, max_shard_size="300KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor([TOKENS])).logits[0]
    model = load(tmp_path)
    assert model.dtype is torch.float32
    torch.testing.assert_close(
        logits(model, TOKENS, kv_format="fp32", index_format="fp32"), expected, rtol=1e-4, atol=1e-5
    )


def test_quantised_matrices_stay_as_they_are(tmp_path: Path) -> None:
    model = load(checkpoint(tmp_path))
    tensors = stored(tmp_path)
    attention, mlp = model.layers[0].attention, model.layers[1].mlp
    assert attention.qkv.format is WeightFormat.MXFP8 and mlp.experts.w13.format is WeightFormat.NVFP4
    rows = slice(0, 4 * 128)
    assert torch.equal(attention.qkv.values[0, rows].view(torch.uint8), tensors[f"{Q0}.weight"].view(torch.uint8))
    assert torch.equal(attention.qkv.scale[0, rows], tensors[f"{Q0}.weight_scale"])
    up = E1.replace("w1", "w3")
    assert torch.equal(mlp.experts.w13.values[1, :32], tensors[f"{E1}.weight_packed"])
    assert torch.equal(mlp.experts.w13.values[1, 32:], tensors[f"{up}.weight_packed"])
    divisors = torch.cat([tensors[f"{name}.weight_global_scale"] for name in (E1, up)])
    torch.testing.assert_close(mlp.experts.w13.global_scale[1], 1 / divisors)


def test_quantised_values_as_compressed_tensors_and_torchao_read_them(tmp_path: Path) -> None:
    """What the model computes with is what other libraries make of the same files."""
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import dequantize
    from torchao.prototype.mx_formats.mx_tensor import to_dtype

    model = load(checkpoint(tmp_path), dtype=torch.float32)
    tensors = stored(tmp_path)
    packed, scale = tensors[f"{E1}.weight_packed"], tensors[f"{E1}.weight_scale"]
    args = QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True)
    expected = dequantize(
        unpack_fp4_from_uint8(packed, packed.shape[0], packed.shape[1] * 2).float(),
        scale.float(),
        args=args,
        global_scale=tensors[f"{E1}.weight_global_scale"],
        dtype=torch.float32,
    )
    torch.testing.assert_close(model.layers[1].mlp.experts.w13.dequantize(1)[:32], expected, rtol=1e-6, atol=0)
    values = tensors[f"{Q0}.weight"]
    expected = to_dtype(
        values, tensors[f"{Q0}.weight_scale"].view(torch.float8_e8m0fnu), torch.float8_e4m3fn, 32, torch.float32
    )
    assert torch.equal(model.layers[0].attention.qkv.dequantize(0)[: values.shape[0]], expected)
    original = dict(random_tensors(tiny()))
    for name, ours, bound in (
        (Q0, model.layers[0].attention.qkv.dequantize(0)[: values.shape[0]], 0.05),
        (E1, model.layers[1].mlp.experts.w13.dequantize(1)[:32], 0.15),
    ):
        wanted = original[name.removeprefix("language_model.") + ".weight"]
        assert (ours - wanted).norm() / wanted.norm() < bound


def test_mixed_formats_of_one_kernel_are_expanded(tmp_path: Path) -> None:
    """A bf16 index_k_proj beside MXFP8 projections: E4M3 x 2^k is exact in bf16, so the logits are the same."""
    checkpoint(tmp_path)
    before = logits(load(tmp_path), TOKENS)
    name = "language_model.model.layers.0.self_attn.index_k_proj"

    def expand(tensors: dict[str, torch.Tensor]) -> None:
        if f"{name}.weight" in tensors:
            scale = tensors.pop(f"{name}.weight_scale")
            factor = torch.exp2(scale.float() - 127).repeat_interleave(32, -1)
            tensors[f"{name}.weight"] = (tensors[f"{name}.weight"].float() * factor).bfloat16()

    change_tensors(tmp_path, expand)
    model = load(tmp_path)
    assert model.layers[0].attention.qkv.format is WeightFormat.NONE
    assert model.layers[1].attention.qkv.format is WeightFormat.MXFP8
    torch.testing.assert_close(logits(model, TOKENS), before, rtol=0, atol=0.05)


@pytest.mark.parametrize("formats", [("none", "none"), ("mxfp8", "mxfp8"), ("nvfp4", "nvfp4"), ("none", "mxfp8")])
def test_every_format_gives_about_the_same_logits(tmp_path: Path, formats: tuple[str, str]) -> None:
    experts, others = formats
    plain = load(checkpoint(tmp_path / "plain", expert_format="none", other_format="none", dtype=torch.float32))
    model = load(checkpoint(tmp_path / "other", expert_format=experts, other_format=others), dtype=torch.float32)
    expected, result = (logits(each, TOKENS[:100], kv_format="fp32", index_format="fp32") for each in (plain, model))
    error = ((result - expected).norm() / expected.norm()).item()
    assert error < (0.35 if "nvfp4" in formats else 0.1)


def test_names_with_and_without_the_wrapper_and_scale_inv(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    before = logits(load(tmp_path), TOKENS)

    def rename(tensors: dict[str, torch.Tensor]) -> None:
        for name in list(tensors):
            new = name.removeprefix("language_model.")
            if name.endswith("q_proj.weight_scale"):
                new += "_inv"
            tensors[new] = tensors.pop(name)

    change_tensors(tmp_path, rename)
    assert torch.equal(logits(load(tmp_path), TOKENS), before)


def test_tied_embeddings(tmp_path: Path) -> None:
    model = load(checkpoint(tmp_path, tiny(tied_embeddings=True)))
    assert model.lm_head is None
    hidden = torch.ones(1, 64, dtype=torch.bfloat16)
    assert torch.equal(model.logits(hidden), (hidden @ model.embedding.T).float())


def test_one_file_without_an_index(tmp_path: Path) -> None:
    checkpoint(tmp_path, shard_bytes=1 << 30)
    before = logits(load(tmp_path), TOKENS)
    next(tmp_path.glob("*.safetensors")).rename(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors.index.json").unlink()
    assert torch.equal(logits(load(tmp_path), TOKENS), before)


def test_tensors_of_other_parts_are_passed_over(tmp_path: Path) -> None:
    checkpoint(tmp_path)

    def add(tensors: dict[str, torch.Tensor]) -> None:
        if f"{Q0}.weight" in tensors:
            for name in ("vision_tower.x.weight", "language_model.model.mtp.layers.0.a", f"{E1}.input_global_scale"):
                tensors[name] = torch.zeros(3)

    change_tensors(tmp_path, add)
    load(tmp_path)


def failure(folder: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    return caught.value


def test_missing_unexpected_and_misshapen_tensors_in_one_list(tmp_path: Path) -> None:
    checkpoint(tmp_path)

    def damage(tensors: dict[str, torch.Tensor]) -> None:
        tensors.pop(f"{Q0}.weight_scale", None)
        for name in list(tensors):
            if name.endswith("layers.1.input_layernorm.weight"):
                tensors[name] = tensors[name][:-1]
            if name.endswith("lm_head.weight"):
                tensors[name] = tensors[name].to(torch.float64)
            if name.endswith("experts.0.w2.weight_packed"):
                tensors[name.replace("experts.0", "experts.3")] = tensors[name].clone()
                tensors[name] = tensors[name].reshape(32, -1)

    change_tensors(tmp_path, damage)
    error = failure(tmp_path)
    assert error.missing == ["model.layers.0.self_attn.q_proj.weight_scale"]
    assert error.unexpected == ["language_model.model.layers.1.block_sparse_moe.experts.3.w2.weight_packed"]
    assert len(error.misshapen) == 3
    assert "language_model.model.layers.1.input_layernorm.weight is BF16 [63], not F32 or BF16 or F16 [64]" in str(
        error
    )
    assert "1 missing: model.layers.0.self_attn.q_proj.weight_scale; " in str(error)
    assert "1 unexpected: " in str(error) and "misshapen: " in str(error)


def test_many_missing_tensors_are_counted(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(tiny(num_experts=40).to_dict()))
    error = failure(tmp_path)
    assert len(error.missing) == 37 * 3
    assert "111 missing: " in str(error) and "and 105 more" in str(error)


def test_a_tensor_twice(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    change_tensors(tmp_path, lambda tensors: tensors.update({"lm_head.weight": torch.zeros(96, 64)}))
    assert "lm_head.weight (in " in str(failure(tmp_path))


@pytest.mark.parametrize("divisor", [0.0, -1.0, 1e-42, float("inf"), float("nan")])
def test_impossible_global_scale(tmp_path: Path, divisor: float) -> None:
    checkpoint(tmp_path)

    def damage(tensors: dict[str, torch.Tensor]) -> None:
        if f"{E1}.weight_global_scale" in tensors:
            tensors[f"{E1}.weight_global_scale"] = torch.tensor([divisor])

    change_tensors(tmp_path, damage)
    assert "accepted: a positive finite number" in str(failure(tmp_path))


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_cut_file(tmp_path: Path, keep: int) -> None:
    checkpoint(tmp_path)
    file = sorted(tmp_path.glob("*.safetensors"))[1]
    file.write_bytes(file.read_bytes()[:keep])
    assert f"{file.name}: cut or damaged" in str(failure(tmp_path))


def test_damaged_header(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    file = sorted(tmp_path.glob("*.safetensors"))[0]
    data = bytearray(file.read_bytes())
    data[8:20] = b"\xff" * 12
    file.write_bytes(data)
    assert "cut or damaged" in str(failure(tmp_path))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"weight_map": 3}', "[" * 100_000, '{"weight_map": {"a": "1", "a": "2"}}'],
    ids=lambda text: text[:12],
)
def test_damaged_index(tmp_path: Path, text: str) -> None:
    checkpoint(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(text)
    assert "index.json: not an index" in str(failure(tmp_path))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    sorted(tmp_path.glob("*.safetensors"))[0].unlink()
    assert "files are missing: model-00001" in str(failure(tmp_path))
    (tmp_path / "model.safetensors.index.json").unlink()
    assert "holds neither" in str(failure(tmp_path))
    assert "not a folder" in str(failure(tmp_path / "nowhere"))
    (tmp_path / "config.json").unlink()
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path)


def test_index_entries_outside_the_folder(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": "../other.safetensors"}}))
    assert "outside the folder" in str(failure(tmp_path))


def test_a_tensor_that_only_the_index_has(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    text = index.read_text()
    change_tensors(tmp_path, lambda tensors: tensors.pop("language_model.lm_head.weight", None))
    index.write_text(text)
    assert "lm_head.weight (in the index, not in its file)" in str(failure(tmp_path))


def test_an_index_that_names_other_files(tmp_path: Path) -> None:
    """Every shard is there and every tensor is in one of them, but not where the index says."""
    checkpoint(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    files = sorted(set(weight_map.values()))
    moved = {name: files[files.index(file) - 1] for name, file in weight_map.items()}
    index.write_text(json.dumps({"weight_map": moved}))
    error = failure(tmp_path)
    assert len(error.unexpected) == len(weight_map) and not error.missing
    assert f"(in {files[0]}, in the index {files[-1]})" in error.unexpected[0]


@pytest.mark.parametrize("name", ["a\nb", "a" * 5000, "a\0b", ""])
def test_index_entries_that_no_file_has(tmp_path: Path, name: str) -> None:
    checkpoint(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": name}}))
    assert "1 of 1 files are missing" in str(failure(tmp_path))


def test_an_index_beside_a_single_file(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(next(tmp_path.glob("*.safetensors")).read_bytes())
    assert "holds both model.safetensors.index.json and model.safetensors" in str(failure(tmp_path))


def test_a_tensor_without_elements(tmp_path: Path) -> None:
    """Two experts: a bias of no elements must not pass for one of two."""
    checkpoint(tmp_path, tiny(num_experts=2))

    def empty(tensors: dict[str, torch.Tensor]) -> None:
        for name in tensors:
            if name.endswith("e_score_correction_bias"):
                tensors[name] = tensors[name][:0]

    change_tensors(tmp_path, empty)
    assert "e_score_correction_bias is F32 [0], not F32 or BF16 or F16 [2]" in str(failure(tmp_path))


def test_names_that_do_not_print(tmp_path: Path) -> None:
    checkpoint(tmp_path, shard_bytes=1 << 30)
    change_tensors(tmp_path, lambda tensors: tensors.update({"a\nb\x1b": torch.zeros(1)}))
    assert "1 unexpected: 'a\\nb\\x1b'" in str(failure(tmp_path))


def test_columns_that_groups_of_a_scale_do_not_divide(tmp_path: Path) -> None:
    checkpoint(tmp_path, tiny(shared_size=48), expert_format="none", other_format="none")

    def quantise(tensors: dict[str, torch.Tensor]) -> None:
        for name in [name for name in tensors if name.endswith("shared_experts.down_proj.weight")]:
            tensors[name] = tensors[name].to(torch.float8_e4m3fn)
            tensors[name + "_scale"] = torch.full((64, 1), 127, dtype=torch.uint8)

    change_tensors(tmp_path, quantise)
    assert "down_proj: 48 columns; accepted: multiples of 32 in mxfp8" in str(failure(tmp_path))


def test_without_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint(tmp_path)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ValueError, match=r"safetensors is not installed.*pip install 'msa-ops\[model\]'"):
        load(tmp_path)


PEAK = """
import gc, sys
import torch, safetensors.torch
import msa_ops
from msa_ops.model import load

def status(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field))

load(sys.argv[2])                            # everything is imported and warm
gc.collect()
before = status("VmRSS")
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")                          # resets the peak
model = load(sys.argv[1])
peak = status("VmHWM") - before
size = sum(tensor.nbytes for tensor in model.state_dict().values()) + model.cos_sin.nbytes
print(peak, size)
"""


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux's peak counter")
def test_peak_memory(tmp_path: Path) -> None:
    """At most the model and 1.3 x the largest shard: 64 MiB in shards of 16."""
    big = tiny(hidden_size=1024, vocab_size=4096, num_experts=24, expert_size=512, max_position=1024)
    folder = checkpoint(tmp_path / "big", big, shard_bytes=16 << 20, expert_format="none")
    small = checkpoint(tmp_path / "small")
    shard = max(file.stat().st_size for file in folder.glob("*.safetensors"))
    total = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    assert total > 5 * shard
    result = subprocess.run(
        [sys.executable, "-c", PEAK, str(folder), str(small)], capture_output=True, text=True, check=True
    )
    peak, size = map(int, result.stdout.split())
    assert size > 0.9 * total
    assert peak < size + 1.3 * shard


def test_model_without_a_checkpoint_has_the_config_s_shapes() -> None:
    model = Model(tiny(), device="meta")
    shapes: dict[str, Any] = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert shapes["layers.0.attention.qkv.values"] == (1, (4 + 2 + 2 + 2 + 1) * 128, 64)
    assert shapes["layers.1.mlp.experts.w13.values"] == (3, 64, 64)
