from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from msa_ops.model import ConfigError, ModelConfig
from tests.model.oracle import text_config

FREQ = [0] * 3 + [1] * 57


def published() -> dict[str, Any]:
    """The fields of MiniMax-M3's config.json, as serving projects read them."""
    return {
        "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
        "model_type": "minimax_m3_vl",
        "image_token_index": 200025,
        "video_token_index": 200026,
        "projector_hidden_size": 6144,
        "multimodal_projector_bias": True,
        "img_token_compression_config": {"spatial_merge_size": 2, "temporal_patch_size": 2},
        "torch_dtype": "bfloat16",
        "vision_config": {"hidden_size": 1280, "rope_theta": 1e4},
        "text_config": {
            "architectures": ["MiniMaxM3SparseForCausalLM"],
            "hidden_size": 6144,
            "intermediate_size": 3072,
            "dense_intermediate_size": 12288,
            "shared_intermediate_size": 3072,
            "num_hidden_layers": 60,
            "num_attention_heads": 64,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "vocab_size": 200064,
            "max_position_embeddings": 1048576,
            "rms_norm_eps": 1e-06,
            "use_gemma_norm": True,
            "rope_theta": 5000000,
            "rotary_dim": 64,
            "partial_rotary_factor": 0.5,
            "hidden_act": "swigluoai",
            "use_qk_norm": True,
            "qk_norm_type": "per_head",
            "attention_output_gate": False,
            "tie_word_embeddings": False,
            "num_local_experts": 128,
            "num_experts_per_tok": 4,
            "n_shared_experts": 1,
            "scoring_func": "sigmoid",
            "use_routing_bias": True,
            "swiglu_alpha": 1.702,
            "swiglu_limit": 7.0,
            "routed_scaling_factor": 2.0,
            "num_mtp_modules": 7,
            "bos_token_id": 200034,
            "eos_token_id": 200020,
            "moe_layer_freq": FREQ,
            "sparse_attention_config": {
                "use_sparse_attention": True,
                "sparse_index_dim": 128,
                "sparse_num_index_heads": 4,
                "sparse_topk_blocks": 16,
                "sparse_block_size": 128,
                "sparse_score_type": "max",
                "sparse_init_block": 0,
                "sparse_local_block": 1,
                "sparse_disable_index_value": FREQ,
                "sparse_attention_freq": FREQ,
            },
        },
    }


def changed(section: str | None = None, **values: Any) -> dict[str, Any]:
    data = published()
    target = data["text_config"] if section is None else data["text_config"][section]
    target.update(values)
    return data


def test_published_m3() -> None:
    config = ModelConfig.from_dict(published())
    assert config == ModelConfig(sparse_layers=(False,) * 3 + (True,) * 57, max_position=1048576)
    assert (config.num_layers, config.routed_scaling, config.rotary_dim) == (60, 2.0, 64)


def test_m31_attends_sparsely_in_all_layers() -> None:
    data = changed("sparse_attention_config", sparse_attention_freq=[1] * 60, sparse_disable_index_value=[1] * 60)
    data["quantization_config"] = {
        "quant_method": "mxfp8",
        "moe_quant_algo": "NVFP4",
        "moe_quant_format": "nvfp4-pack-quantized",
        "weight_block_size": [1, 32],
        "ignored_layers": ["lm_head"],
    }
    assert ModelConfig.from_dict(data) == ModelConfig(max_position=1048576)


@pytest.mark.parametrize("geometry", ["m3", "m31"])
def test_flat_names_of_transformers(geometry: str) -> None:
    theirs = text_config(geometry, index_topk_blocks=8, index_local_blocks=2, num_local_experts=6)
    config = ModelConfig.from_dict(theirs.to_dict())
    assert config.sparse_layers == tuple(kind != "full_attention" for kind in theirs.layer_types)
    assert config.moe_layers == tuple(kind == "sparse" for kind in theirs.mlp_layer_types)
    assert (config.topk_blocks, config.local_blocks, config.init_blocks, config.num_experts) == (8, 2, 0, 6)
    assert (config.hidden_size, config.expert_size, config.dense_size, config.shared_size) == (256, 96, 384, 128)
    assert (config.rope_theta, config.rotary_dim, config.eos_token_ids) == (5e6, 64, ())


def test_both_spellings_say_the_same() -> None:
    config = ModelConfig.from_dict(published())
    assert ModelConfig.from_dict(config.to_dict()) == config


def test_without_sparse_attention_every_layer_is_dense() -> None:
    off = ModelConfig.from_dict(changed("sparse_attention_config", use_sparse_attention=False))
    assert off.sparse_layers == (False,) * 60
    without = published()
    del without["text_config"]["sparse_attention_config"]
    assert ModelConfig.from_dict(without) == off


def test_init_block_and_several_stop_tokens_are_read() -> None:
    data = changed("sparse_attention_config", sparse_init_block=1)
    data["text_config"]["eos_token_id"] = [7, 9]
    config = ModelConfig.from_dict(data)
    assert (config.init_blocks, config.eos_token_ids) == (1, (7, 9))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed(attention_output_gate=True), "attention_output_gate: True; accepted: False"),
        (changed(sliding_window=4096), "sliding_window: 4096; accepted: null"),
        (changed(rope_scaling={"type": "yarn"}), "rope_scaling"),
        (changed(rope_parameters={"rope_type": "yarn"}), "rope_type: 'yarn'; accepted: 'default'"),
        (changed(use_gemma_norm=False), "use_gemma_norm: False; accepted: True"),
        (changed(hidden_act="gelu"), "hidden_act: 'gelu'; accepted: 'swigluoai'"),
        (changed(head_dim=64), "head_dim: 64; accepted: 128"),
        (changed(scoring_func="softmax"), "scoring_func"),
        (changed(rotary_dim=128), "rotary_dim: 128; accepted: 64, as partial_rotary_factor says"),
        (changed(hidden_size="big"), "hidden_size: 'big'; accepted: an integer"),
        (changed(hidden_size=True), "hidden_size: True"),
        (changed(rms_norm_eps=0), "rms_norm_eps: 0; accepted: a positive number"),
        (changed(num_attention_heads=63), "num_attention_heads: 63; accepted: multiples of"),
        (changed(num_experts_per_tok=129), "num_experts_per_tok: 129"),
        (changed(moe_layer_freq=[1] * 59), "moe_layer_freq: 59 layers; accepted: num_hidden_layers = 60"),
        (changed(mlp_layer_types=["dense", "moe"] * 30), "mlp_layer_types"),
        (changed(model_type="minimax_m2"), "model_type: 'minimax_m2'"),
        (changed(attention_sinks=4), "fields of unknown meaning: attention_sinks"),
        (changed("sparse_attention_config", sparse_block_size=64), "sparse_block_size: 64; accepted: 128"),
        (changed("sparse_attention_config", sparse_score_type="mean"), "sparse_score_type"),
        (changed("sparse_attention_config", sparse_topk_blocks=65), "sparse_topk_blocks: 65; accepted: 1 to 64"),
        (changed("sparse_attention_config", sparse_num_index_heads=2), "sparse_num_index_heads: 2"),
        (changed("sparse_attention_config", sparse_disable_index_value=[0] * 60), "sparse_disable_index_value"),
        (changed("sparse_attention_config", sparse_sink=1), "fields of unknown meaning: sparse_sink"),
        (published() | {"quantization_config": {"quant_method": "awq"}}, "quant_method: 'awq'"),
        (published() | {"quantization_config": {"quant_method": "mxfp8", "rotate": 1}}, "quantization_config: rotate"),
        (published() | {"quantization_config": "mxfp8"}, "quantization_config: accepted: an object"),
        (published() | {"text_config": [1]}, "text_config: a list"),
        ([1], "a list; accepted: an object"),
        (changed(rope_theta=float("inf")), "rope_theta: inf; accepted: a positive number, at most 1e+30"),
        (changed(swiglu_limit=float("nan")), "swiglu_limit: nan; accepted: a positive number"),
        (changed(hidden_size=2**70), "hidden_size: 1180591620717411303424; accepted: an integer of at least 1 and at"),
        (changed(num_hidden_layers=10**12), "num_hidden_layers: 1000000000000"),
        (changed(partial_rotary_factor=True), "partial_rotary_factor: True"),
        (changed("sparse_attention_config", sparse_disable_index_value=False), "sparse_disable_index_value"),
        (changed("sparse_attention_config", sparse_disable_index_value=[1] * 9), "0 or 1 for each of 60 layers"),
        (changed("sparse_attention_config", sparse_attention_freq=[0, 2] * 30), "sparse_attention_freq"),
        (changed("sparse_attention_config", rope_theta=1e4), "unknown meaning: sparse_attention_config.rope_theta"),
        (changed(rope_parameters={"hidden_size": 6144}), "fields of unknown meaning: rope_parameters.hidden_size"),
        (changed(rope_parameters=1e4), "rope_parameters: a float; accepted: an object"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_refused(data: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ModelConfig.from_dict(data)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "first", "second"),
    [
        (published() | {"hidden_size": 4096}, "hidden_size: 4096", "hidden_size: 6144"),
        (changed(rope_parameters={"rope_theta": 1e4}), "rope_theta: 5000000", "rope_theta: 10000.0"),
        (changed(num_experts=64), "num_local_experts: 128", "num_experts: 64"),
        (changed(index_topk_blocks=8), "sparse_topk_blocks: 16", "index_topk_blocks: 8"),
        (changed(dtype="float32"), "dtype: 'float32'", "torch_dtype: 'bfloat16'"),
        (
            changed(layer_types=["full_attention"] * 60),
            "layer_types: ['full_attention'",
            "sparse_attention_freq: [0, 0",
        ),
        (published() | {"sparse_attention_config": {"sparse_topk_blocks": 8}}, "topk_blocks: 8", "topk_blocks: 16"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_contradictions_are_refused(data: Any, first: str, second: str) -> None:
    with pytest.raises(ConfigError, match="accepted: the same in both places") as caught:
        ModelConfig.from_dict(data)
    assert first in str(caught.value) and second in str(caught.value)


def test_what_may_differ_between_the_model_and_its_text_part() -> None:
    data = published() | {"eos_token_id": [1, 2], "initializer_range": 0.3, "hidden_size": None, "rope_theta": 5e6}
    data["text_config"] |= {"model_type": "minimax_m3_vl_text", "initializer_range": 0.2}
    assert ModelConfig.from_dict(data) == ModelConfig.from_dict(published())


def test_everything_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        ModelConfig.from_dict(changed(hidden_size=0, head_dim=96, attention_sinks=4, router_noise_std=0.1))
    for text in ("hidden_size: 0", "head_dim: 96", "attention_sinks, router_noise_std"):
        assert text in str(caught.value)


def test_null_fields_and_those_without_influence_are_passed_over() -> None:
    data = changed(attention_sinks=None, initializer_range=0.5, rope_scaling=None, attention_dropout=0.1)
    assert ModelConfig.from_dict(data) == ModelConfig.from_dict(published())


def test_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(published()))
    assert ModelConfig.from_file(tmp_path) == ModelConfig.from_dict(published())
    (tmp_path / "config.json").write_text('{"hidden_size": ')
    with pytest.raises(ConfigError, match=r"config\.json: not JSON"):
        ModelConfig.from_file(tmp_path)
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"config\.json: not JSON"):
        ModelConfig.from_file(tmp_path)
    for text, message in (
        ('{"a":' * 100_000, "not JSON: nested too deeply"),
        ("[" * 100_000, "not JSON: nested too deeply"),
        ('{"vocab_size": 96, "vocab_size": 97}', "'vocab_size' comes twice, with different values"),
    ):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ConfigError, match=message):
            ModelConfig.from_file(tmp_path)
    with pytest.raises(ConfigError, match=r"nowhere\.json: No such file"):
        ModelConfig.from_file(tmp_path / "nowhere.json")
