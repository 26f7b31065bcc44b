"""The model's geometry, read from a Hugging Face config.json.

Both spellings are understood: that of the checkpoints (`sparse_attention_config`, `moe_layer_freq`, nested in
`text_config`) and the flat one of transformers (`index_topk_blocks`, `layer_types`, `mlp_layer_types`). A field
that is neither read nor known to have no influence on the text model's forward pass is refused, because to drop
it silently would be to compute another model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msa_ops.cache.page import HEAD_DIM, PAGE_SIZE
from msa_ops.model.errors import ConfigError, listing
from msa_ops.strict_json import read_json

MODEL_TYPES = ("minimax_m3", "minimax_m3_text", "minimax_m3_vl", "minimax_m3_vl_text", "minimax_m31", "minimax_m31_vl")

WITHOUT_INFLUENCE = frozenset(
    # Training, output options and file bookkeeping.
    "architectures auto_map transformers_version _name_or_path use_cache initializer_range attention_dropout "
    "router_aux_loss_coef router_jitter_noise output_router_logits output_attentions output_hidden_states return_dict "
    "chunk_size_feed_forward is_encoder_decoder id2label label2id problem_type pad_token_id torch_dtype dtype "
    # Draft heads, whose tensors are not part of the text model.
    "num_mtp_modules num_nextn_predict_layers mtp_transformer_layers mtp_num_hidden_layers "
    # The vision tower and its projector.
    "vision_config image_token_index video_token_index image_token_id video_token_id projector_hidden_size "
    "projector_hidden_act merged_hidden_size multimodal_projector_bias img_token_compression_config image_seq_length "
    "vision_feature_layer vision_feature_select_strategy image_grid_pinpoints process_image_mode "
    "vision_start_token_id vision_end_token_id".split()
)
"""Fields that the text model's forward pass does not depend on."""

FIXED: Mapping[str, tuple[Any, ...]] = {
    "use_gemma_norm": (True,),
    "use_qk_norm": (True,),
    "qk_norm_type": ("per_head",),
    "attention_output_gate": (False,),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "hidden_act": ("swigluoai", "silu"),  # transformers writes "silu" and computes swigluoai
    "scoring_func": ("sigmoid",),
    "rope_scaling": (None,),
    "sliding_window": (None,),
    "sparse_score_type": ("max",),
    "head_dim": (HEAD_DIM,),
    "sparse_index_dim": (HEAD_DIM,),
    "index_head_dim": (HEAD_DIM,),
    "sparse_block_size": (PAGE_SIZE,),
    "index_block_size": (PAGE_SIZE,),
    "n_shared_experts": (1,),
}
"""Fields with the values that the model implements."""

GROUPS = {
    "sparse_attention_config": re.compile(r"(use_)?sparse_\w+"),
    "rope_parameters": re.compile(r"rope_theta|rope_type|partial_rotary_factor|rotary_dim"),
}
"""Objects inside the config whose fields count as fields of the config; names that do not match are refused."""

MAY_DIFFER = WITHOUT_INFLUENCE | {"model_type", "eos_token_id", "bos_token_id", "tie_word_embeddings"}
"""Fields that may have one value beside `text_config` and another inside, which is the one that counts. Whether
embeddings are tied shows in the tensors."""

LARGEST, LARGEST_NUMBER = 2**31 - 1, 1e30
MOST_LAYERS, MOST_EXPERTS = 1024, 4096

QUANTIZATION_FIELDS = frozenset(
    "quant_method moe_quant_algo moe_quant_format format activation_scheme weight_block_size scale_fmt fmt "
    "ignored_layers ignore modules_to_not_convert config_groups global_compression_ratio quantization_status "
    "version kv_cache_scheme sparsity_config transform_config producer".split()
)
QUANTIZATION_FIXED: Mapping[str, tuple[Any, ...]] = {
    "quant_method": ("mxfp8", "compressed-tensors"),
    "moe_quant_algo": ("NVFP4", None),
    "moe_quant_format": ("nvfp4-pack-quantized", None),
    "format": ("nvfp4-pack-quantized", "mixed-precision", None),
    "weight_block_size": ([1, 32], None),
    "scale_fmt": ("ue8m0", None),
    "fmt": ("e4m3", None),
}
"""How the tensors are stored is read from the tensors; the config must only not say otherwise."""


@dataclass(frozen=True)
class ModelConfig:
    """A MiniMax-M3 or M3.1 text model. The defaults are M3.1-Flash's.

    sparse_layers, moe_layers: one flag a layer. M3.1 attends sparsely in all layers; M3 densely in the first three.
    """

    hidden_size: int = 6144
    vocab_size: int = 200064
    num_heads: int = 64
    num_kv_heads: int = 4
    num_index_heads: int = 4
    sparse_layers: tuple[bool, ...] = (True,) * 60
    moe_layers: tuple[bool, ...] = (False,) * 3 + (True,) * 57
    topk_blocks: int = 16
    init_blocks: int = 0
    local_blocks: int = 1
    num_experts: int = 128
    experts_per_token: int = 4
    expert_size: int = 3072
    shared_size: int = 3072
    dense_size: int = 12288
    routing_bias: bool = True
    renormalize: bool = True
    routed_scaling: float = 2.0
    swiglu_alpha: float = 1.702
    swiglu_limit: float = 7.0
    swiglu_beta: float = 1.0
    rms_norm_eps: float = 1e-6
    rope_theta: float = 5e6
    rotary_dim: int = 64
    max_position: int = 524288
    tied_embeddings: bool = False
    eos_token_ids: tuple[int, ...] = (200020,)
    dtype: str = "bfloat16"

    @property
    def num_layers(self) -> int:
        return len(self.sparse_layers)

    @classmethod
    def from_file(cls, path: str | Path) -> ModelConfig:
        """Reads config.json, or the one in a folder. Raises ConfigError with all that is wrong in one line."""
        file = Path(path) / "config.json" if Path(path).is_dir() else Path(path)
        try:
            data = read_json(file)
        except OSError as error:
            raise ConfigError(f"{file}: {error.strerror or error}") from error
        except ValueError as error:
            raise ConfigError(f"{file}: {error}") from error
        try:
            return cls.from_dict(data)
        except ConfigError as error:
            raise ConfigError(f"{file}: {error}") from None

    @classmethod
    def from_dict(cls, data: Any) -> ModelConfig:
        """The config of the parsed JSON. Raises ConfigError."""
        if not isinstance(data, dict):
            raise ConfigError(f"a {type(data).__name__}; accepted: an object")
        fields = _Fields(data)
        config = cls(**_geometry(fields))
        fields.refuse()
        return config

    def to_dict(self) -> dict[str, Any]:
        """The same geometry in the checkpoints' spelling."""
        freq = [int(flag) for flag in self.sparse_layers]
        eos = self.eos_token_ids
        text = {
            "architectures": ["MiniMaxM3SparseForCausalLM"],
            "model_type": "minimax_m3_vl_text",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.expert_size,
            "dense_intermediate_size": self.dense_size,
            "shared_intermediate_size": self.shared_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": HEAD_DIM,
            "vocab_size": self.vocab_size,
            "max_position_embeddings": self.max_position,
            "rms_norm_eps": self.rms_norm_eps,
            "use_gemma_norm": True,
            "use_qk_norm": True,
            "qk_norm_type": "per_head",
            "attention_output_gate": False,
            "rope_theta": self.rope_theta,
            "rotary_dim": self.rotary_dim,
            "partial_rotary_factor": self.rotary_dim / HEAD_DIM,
            "hidden_act": "swigluoai",
            "swiglu_alpha": self.swiglu_alpha,
            "swiglu_limit": self.swiglu_limit,
            "swiglu_beta": self.swiglu_beta,
            "tie_word_embeddings": self.tied_embeddings,
            "num_local_experts": self.num_experts,
            "num_experts_per_tok": self.experts_per_token,
            "n_shared_experts": 1,
            "scoring_func": "sigmoid",
            "use_routing_bias": self.routing_bias,
            "norm_topk_prob": self.renormalize,
            "routed_scaling_factor": self.routed_scaling,
            "moe_layer_freq": [int(flag) for flag in self.moe_layers],
            "sparse_attention_config": {
                "use_sparse_attention": True,
                "sparse_index_dim": HEAD_DIM,
                "sparse_num_index_heads": self.num_index_heads,
                "sparse_topk_blocks": self.topk_blocks,
                "sparse_block_size": PAGE_SIZE,
                "sparse_score_type": "max",
                "sparse_init_block": self.init_blocks,
                "sparse_local_block": self.local_blocks,
                "sparse_attention_freq": freq,
                "sparse_disable_index_value": freq,
            },
            "eos_token_id": list(eos) if len(eos) != 1 else eos[0],
            "torch_dtype": self.dtype,
        }
        return {
            "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
            "model_type": "minimax_m3_vl",
            "text_config": text,
        }


class _Fields:
    """The fields of a config, which remembers those that were read, and what is wrong with them."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.problems: list[str] = []
        self.values: dict[str, Any] = {}
        self.read: set[str] = set()
        text = data.get("text_config")
        self._add({name: value for name, value in data.items() if name != "text_config"})
        if isinstance(text, dict):
            self._add(text)
        elif text is not None:
            self.problems.append(f"text_config: a {type(text).__name__}; accepted: an object")

    def _add(self, data: Mapping[str, Any]) -> None:
        """Takes the fields of one object; null counts as absent."""
        for name, value in data.items():
            if value is None:
                continue
            if name not in GROUPS:
                self._put(name, value)
            elif isinstance(value, dict):
                for inner, entry in value.items():
                    if entry is not None:
                        self._put(inner if GROUPS[name].fullmatch(inner) else f"{name}.{inner}", entry)
            else:
                self.problems.append(f"{name}: a {type(value).__name__}; accepted: an object")

    def _put(self, name: str, value: Any) -> None:
        if name == "model_type" and value not in MODEL_TYPES:
            self.problems.append(f"model_type: {value!r}; accepted: {', '.join(MODEL_TYPES)}")
        earlier = self.values.setdefault(name, value)
        if name in MAY_DIFFER:
            self.values[name] = value
        elif earlier != value:
            self._contradiction(name, earlier, name, value)

    def _contradiction(self, name: str, value: Any, other: str, different: Any) -> None:
        self.problems.append(
            f"{name}: {value!r:.60}, but {other}: {different!r:.60}; accepted: the same in both places"
        )

    def get(self, default: Any, *names: str) -> Any:
        """The value of the field, under the first of its names that is there and not null. All must agree."""
        self.read.update(names)
        found = [name for name in names if name in self.values]
        if not found:
            return default
        value = self.values[found[0]]
        for name in found[1:]:
            if self.values[name] != value:
                self._contradiction(found[0], value, name, self.values[name])
        return value

    def integer(self, default: int, *names: str, low: int = 1, high: int = LARGEST) -> int:
        value = self.get(default, *names)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            limit = f" and at most {high}" if isinstance(value, int) and value > high else ""
            self.problems.append(f"{names[0]}: {value!r:.60}; accepted: an integer of at least {low}{limit}")
            return default
        return value

    def number(self, default: float, *names: str) -> float:
        value = self.get(default, *names)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LARGEST_NUMBER:
            limit = f", at most {LARGEST_NUMBER:g}" if isinstance(value, int | float) and value > 0 else ""
            self.problems.append(f"{names[0]}: {value!r:.60}; accepted: a positive number{limit}")
            return default
        return float(value)

    def flag(self, default: bool, *names: str) -> bool:
        value = self.get(default, *names)
        if not isinstance(value, bool | int) or value not in (0, 1):
            self.problems.append(f"{names[0]}: {value!r}; accepted: true, false")
            return default
        return bool(value)

    def layers(self, count: int, default: bool, freq: str, types: str, kinds: tuple[str, str]) -> tuple[bool, ...]:
        """One flag a layer: from `types`, a list of the two kinds' names (no, yes), or `freq`, a list of 0 and 1."""
        named, numbered = self.get(None, types), self.get(None, freq)
        found: dict[str, tuple[bool, ...]] = {}
        if named is not None:
            if isinstance(named, list) and all(kind in kinds for kind in named):
                found[types] = tuple(kind == kinds[1] for kind in named)
            else:
                self.problems.append(f"{types}: {named!r:.60}; accepted: a list of {' and '.join(kinds)}")
        if numbered is not None:
            if isinstance(numbered, list) and all(entry in (0, 1) for entry in numbered):
                found[freq] = tuple(bool(entry) for entry in numbered)
            else:
                self.problems.append(f"{freq}: {numbered!r:.60}; accepted: a list of 0 and 1")
        for source, flags in found.items():
            if len(flags) != count:
                self.problems.append(f"{source}: {len(flags)} layers; accepted: num_hidden_layers = {count}")
        if len(set(found.values())) > 1:
            self._contradiction(types, named, freq, numbered)
        return next((flags for flags in found.values() if len(flags) == count), (default,) * count)

    def refuse(self) -> None:
        """Raises ConfigError with everything that is wrong."""
        for name, accepted in FIXED.items():
            self._fixed(self.values, name, accepted)
        quantization = self.get(None, "quantization_config", "compression_config")
        if quantization is not None:
            self._quantization(quantization)
        known = self.read | set(FIXED) | MAY_DIFFER
        unknown = sorted(name for name in self.values if name not in known)
        if unknown:
            self.problems.append(f"fields of unknown meaning: {listing(unknown)}")
        if self.problems:
            raise ConfigError("; ".join(self.problems))

    def _fixed(self, values: Mapping[str, Any], name: str, accepted: tuple[Any, ...]) -> None:
        if name in values and values[name] is not None and values[name] not in accepted:
            shown = ", ".join(repr(value) for value in accepted if value is not None) or "null"
            self.problems.append(f"{name}: {values[name]!r}; accepted: {shown}")

    def _quantization(self, values: Any) -> None:
        if not isinstance(values, dict) or "quant_method" not in values:
            self.problems.append("quantization_config: accepted: an object with quant_method")
            return
        for name, accepted in QUANTIZATION_FIXED.items():
            self._fixed(values, name, accepted)
        unknown = sorted(name for name in values if name not in QUANTIZATION_FIELDS and values[name] is not None)
        if unknown:
            self.problems.append(f"fields of unknown meaning in quantization_config: {listing(unknown)}")


def _geometry(fields: _Fields) -> dict[str, Any]:
    """The arguments of ModelConfig; problems are noted in `fields`."""
    base = ModelConfig()
    layers = fields.integer(base.num_layers, "num_hidden_layers", high=MOST_LAYERS)
    sparse = fields.layers(
        layers, False, "sparse_attention_freq", "layer_types", ("full_attention", "minimax_m3_sparse")
    )
    if not fields.flag(True, "use_sparse_attention"):
        sparse = (False,) * layers
    moe = fields.layers(layers, True, "moe_layer_freq", "mlp_layer_types", ("dense", "sparse"))
    _check_index_values(fields, sparse)
    kv_heads = fields.integer(base.num_kv_heads, "num_key_value_heads")
    heads = fields.integer(base.num_heads, "num_attention_heads")
    index_heads = fields.integer(kv_heads, "sparse_num_index_heads", "index_n_heads")
    if heads % kv_heads:
        fields.problems.append(f"num_attention_heads: {heads}; accepted: multiples of num_key_value_heads = {kv_heads}")
    if any(sparse) and index_heads != kv_heads:
        fields.problems.append(f"sparse_num_index_heads: {index_heads}; accepted: num_key_value_heads = {kv_heads}")
    topk = fields.integer(base.topk_blocks, "sparse_topk_blocks", "index_topk_blocks")
    if topk > 64:
        fields.problems.append(f"sparse_topk_blocks: {topk}; accepted: 1 to 64")
    experts = fields.integer(base.num_experts, "num_local_experts", "num_experts", high=MOST_EXPERTS)
    per_token = fields.integer(base.experts_per_token, "num_experts_per_tok")
    if per_token > experts:
        fields.problems.append(f"num_experts_per_tok: {per_token}; accepted: 1 to num_local_experts = {experts}")
    vocabulary = fields.integer(base.vocab_size, "vocab_size")
    return {
        "hidden_size": fields.integer(base.hidden_size, "hidden_size"),
        "vocab_size": vocabulary,
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "num_index_heads": index_heads,
        "sparse_layers": sparse,
        "moe_layers": moe,
        "topk_blocks": topk,
        "init_blocks": fields.integer(base.init_blocks, "sparse_init_block", low=0),
        "local_blocks": fields.integer(base.local_blocks, "sparse_local_block", "index_local_blocks", low=0),
        "num_experts": experts,
        "experts_per_token": per_token,
        "expert_size": fields.integer(base.expert_size, "intermediate_size"),
        "shared_size": fields.integer(base.shared_size, "shared_intermediate_size"),
        "dense_size": fields.integer(base.dense_size, "dense_intermediate_size"),
        "routing_bias": fields.flag(True, "use_routing_bias"),
        "renormalize": fields.flag(True, "norm_topk_prob"),
        "routed_scaling": fields.number(base.routed_scaling, "routed_scaling_factor"),
        "swiglu_alpha": fields.number(base.swiglu_alpha, "swiglu_alpha"),
        "swiglu_limit": fields.number(base.swiglu_limit, "swiglu_limit"),
        "swiglu_beta": fields.number(base.swiglu_beta, "swiglu_beta"),
        "rms_norm_eps": fields.number(base.rms_norm_eps, "rms_norm_eps"),
        "rope_theta": fields.number(base.rope_theta, "rope_theta"),
        "rotary_dim": _rotary_dim(fields, base.rotary_dim),
        "max_position": fields.integer(base.max_position, "max_position_embeddings"),
        "tied_embeddings": fields.flag(base.tied_embeddings, "tie_word_embeddings"),
        "eos_token_ids": _eos(fields),
        "dtype": _dtype(fields, base.dtype),
    }


def _check_index_values(fields: _Fields, sparse: tuple[bool, ...]) -> None:
    """Index values (`index_v_proj`) exist in no released model; a 0 or false says that a layer has them."""
    name = "sparse_disable_index_value"
    disabled = fields.get(None, name)
    if disabled is None:
        return
    flags = disabled if isinstance(disabled, list) else [disabled] * len(sparse)
    if any(flag not in (0, 1) for flag in flags) or len(flags) != len(sparse):
        fields.problems.append(f"{name}: {disabled!r:.60}; accepted: 0 or 1 for each of {len(sparse)} layers")
    elif any(flag and not off for flag, off in zip(sparse, flags, strict=True)):
        fields.problems.append(f"{name}: has a 0 at a sparse layer; accepted: 1 at all of them")


def _rotary_dim(fields: _Fields, default: int) -> int:
    """rotary_dim and partial_rotary_factor say the same thing twice and must agree."""
    if (kind := fields.get("default", "rope_type")) != "default":
        fields.problems.append(f"rope_type: {kind!r}; accepted: 'default'")
    factor = fields.get(None, "partial_rotary_factor")
    if factor is not None and (isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= 1):
        fields.problems.append(f"partial_rotary_factor: {factor!r}; accepted: above 0, to 1")
        factor = None
    from_factor = default if factor is None else int(HEAD_DIM * factor)
    rotary = fields.integer(from_factor, "rotary_dim", low=2)
    if factor is not None and rotary != from_factor:
        fields.problems.append(f"rotary_dim: {rotary}; accepted: {from_factor}, as partial_rotary_factor says")
    if rotary > HEAD_DIM or rotary % 2:
        fields.problems.append(f"rotary_dim: {rotary}; accepted: even, 2 to {HEAD_DIM}")
    return rotary


def _eos(fields: _Fields) -> tuple[int, ...]:
    value = fields.get([], "eos_token_id")
    ids = value if isinstance(value, list) else [value]
    if any(isinstance(entry, bool) or not isinstance(entry, int) for entry in ids):
        fields.problems.append(f"eos_token_id: {value!r}; accepted: a token id or a list of them")
        return ()
    return tuple(ids)


def _dtype(fields: _Fields, default: str) -> str:
    value = fields.get(default, "dtype", "torch_dtype")
    if value not in ("float32", "bfloat16", "float16"):
        fields.problems.append(f"torch_dtype: {value!r}; accepted: float32, bfloat16, float16")
        return default
    return str(value)
