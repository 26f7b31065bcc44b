"""How many sequences fit: weights and caches against the usable memory of each GPU.

Per GPU, in bytes:
  weights    non-expert weights (whole, or divided by attention_tp) + routed experts (divided by gpus, or whole)
             + the drafter's
  free       usable - reserved - weights
  sequence   blocks of 128 tokens x (main K and V + index keys) of one rank + the drafter's blocks
A sequence lives in one attention group of `attention_tp` GPUs, so the answer is
floor(free / sequence) x (gpus / attention_tp).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

from msa_ops.cache.page import HEAD_DIM, PAGE_SIZE, CacheFormat
from msa_ops.cache.spec import M3, M31, CacheGeometry, CacheSpec, MemberKind

GB = 10**9
GIB = 2**30

_FORMATS = tuple(CacheFormat)
_NUMBERS: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float)}


def _option(default: Any, unit: str, text: str, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"unit": unit, "help": text, "choices": choices})


@dataclass(frozen=True)
class Assumptions:
    """Everything that the answer depends on; each field is an option of `msa-ops capacity`.

    The defaults are the preset "m31-b300". GB are 10^9 bytes, GiB are 2^30. Raises ValueError naming the field.
    """

    gpus: int = _option(4, "GPUs", "GPUs of the deployment")
    usable_gib: float = _option(250.0, "GiB/GPU", "memory of a GPU for weights and caches")
    reserved_gib: float = _option(0.0, "GiB/GPU", "part of it kept for activations, workspaces and graphs")
    attention_tp: int = _option(1, "GPUs", "GPUs that share the heads of a sequence; 1 is attention data-parallel")
    experts: str = _option(
        "sharded", "", "routed experts: divided over all GPUs, or whole on each", ("sharded", "whole")
    )
    non_experts: str = _option(
        "whole", "", "other weights: whole on each GPU, or divided by attention_tp", ("whole", "attention_tp")
    )
    checkpoint_gb: float = _option(250.1, "GB", "size of the checkpoint")
    non_expert_gb: float = _option(15.8, "GB", "part of the checkpoint that is not routed experts")
    layers: int = _option(60, "layers", "decoder layers, each with main K and V")
    index_layers: int = _option(60, "layers", "layers with index keys, the last ones; 0 leaves index keys uncounted")
    kv_heads: int = _option(4, "heads", "KV heads of a layer")
    kv_format: str = _option("nvfp4", "", "format of main K and V", _FORMATS)
    index_format: str = _option("nvfp4", "", "format of index keys", _FORMATS)
    context: int = _option(262_144, "tokens", "tokens of a sequence, prompt and answer")
    drafter: str = _option(
        "none",
        "",
        "drafter K and V: none, its window, or every block (as in a block-outer pool)",
        ("none", "window", "all"),
    )
    draft_layers: int = _option(5, "layers", "drafter layers")
    draft_kv_heads: int = _option(4, "heads", "KV heads of a drafter layer")
    draft_format: str = _option("fp8", "", "format of drafter K and V", _FORMATS)
    draft_window: int = _option(4096, "tokens", "attention window of the drafter")
    draft_tokens: int = _option(7, "tokens", "tokens drafted at once; they extend the window")
    draft_weights_gb: float = _option(0.0, "GB", "drafter weights, whole on each GPU, counted if there is a drafter")

    def __post_init__(self) -> None:
        for item in fields(self):
            value, choices = getattr(self, item.name), item.metadata["choices"]
            if not choices and (isinstance(value, bool) or not isinstance(value, _NUMBERS[str(item.type)])):
                raise ValueError(f"{item.name}: {value!r}; accepted: {'a whole' if item.type == 'int' else 'a'} number")
            if choices and value not in choices:
                raise ValueError(f"{item.name}: {value!r}; accepted: {', '.join(choices)}")
            if not choices and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{item.name}: {value}; accepted: 0 or more")
        for name in ("gpus", "attention_tp", "layers", "kv_heads", "context"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)}; accepted: 1 or more")
        if self.gpus % self.attention_tp:
            raise ValueError(f"attention_tp: {self.attention_tp}; accepted: divisors of the {self.gpus} GPUs")
        if self.index_layers > self.layers:
            raise ValueError(f"index_layers: {self.index_layers}; accepted: 0 to {self.layers}, the decoder layers")
        if self.non_expert_gb > self.checkpoint_gb:
            raise ValueError(
                f"non_expert_gb: {self.non_expert_gb}; accepted: 0 to {self.checkpoint_gb}, the checkpoint"
            )
        if self.drafter != "none" and not (self.draft_layers and self.draft_kv_heads):
            raise ValueError(f"drafter: {self.drafter!r}; accepted with no drafter layers or heads: none")

    def cache_spec(self) -> CacheSpec:
        """The cache of one rank."""
        drafter = self.drafter != "none"
        geometry = CacheGeometry(
            self.layers,
            self.kv_heads,
            tuple(range(self.layers - self.index_layers, self.layers)),
            self.draft_layers if drafter else 0,
            self.draft_kv_heads if drafter else 0,
        )
        return CacheSpec(
            geometry,
            kv_format=self.kv_format,
            index_format=self.index_format,
            draft_format=self.draft_format,
            tp=self.attention_tp,
            drafter=drafter,
        )


@dataclass(frozen=True)
class Capacity:
    """The answer and what it is made of; bytes are those of one GPU."""

    usable: int
    reserved: int
    non_expert_weights: int
    expert_weights: int
    draft_weights: int
    free: int  # negative if the weights do not fit
    kv_bytes_per_token: int
    index_bytes_per_token: int
    draft_bytes_per_token: int
    blocks_per_sequence: int
    draft_blocks_per_sequence: int
    bytes_per_sequence: int
    sequences_per_group: int
    groups: int

    @property
    def sequences(self) -> int:
        return self.sequences_per_group * self.groups


def capacity(a: Assumptions) -> Capacity:
    """How many sequences of `a.context` tokens fit. 0 if not even the weights do."""
    spec = a.cache_spec()
    usable, reserved = _bytes(a.usable_gib, GIB), _bytes(a.reserved_gib, GIB)
    non_expert = _bytes(a.non_expert_gb / (a.attention_tp if a.non_experts == "attention_tp" else 1), GB)
    expert = _bytes((a.checkpoint_gb - a.non_expert_gb) / (a.gpus if a.experts == "sharded" else 1), GB)
    draft = _bytes(a.draft_weights_gb, GB) if spec.drafter else 0
    free = usable - reserved - non_expert - expert - draft
    blocks = -(-a.context // PAGE_SIZE)
    draft_blocks = {"none": 0, "window": min(blocks, _window_blocks(a)), "all": blocks}[a.drafter]
    kv, index = spec.block_bytes(MemberKind.KV), spec.block_bytes(MemberKind.INDEX)
    sequence = blocks * (kv + index) + draft_blocks * spec.block_bytes(MemberKind.DRAFT)
    return Capacity(
        usable=usable,
        reserved=reserved,
        non_expert_weights=non_expert,
        expert_weights=expert,
        draft_weights=draft,
        free=free,
        kv_bytes_per_token=kv // PAGE_SIZE,
        index_bytes_per_token=index // PAGE_SIZE,
        draft_bytes_per_token=spec.bytes_per_token(MemberKind.DRAFT),
        blocks_per_sequence=blocks,
        draft_blocks_per_sequence=draft_blocks,
        bytes_per_sequence=sequence,
        sequences_per_group=max(0, free) // sequence,
        groups=a.gpus // a.attention_tp,
    )


def _window_blocks(a: Assumptions) -> int:
    """Most blocks that the window and the drafted tokens touch, wherever they begin in a block."""
    return -(-(a.draft_window + a.draft_tokens - 1) // PAGE_SIZE) + 1


def _bytes(amount: float, unit: int) -> int:
    return round(amount * unit)


@dataclass(frozen=True)
class Preset:
    """A named set of assumptions.

    `published`: sequences that were published for this deployment. `origins`: of each field, "published" (its value
    was published with that number), "model" (a fact of the model) or "chosen" (one of a consistent set of values that
    gives the number).
    """

    name: str
    assumptions: Assumptions
    published: int
    origins: dict[str, str]


def _model(geometry: CacheGeometry, cache_format: str, checkpoint_gb: float) -> dict[str, Any]:
    return {
        "checkpoint_gb": checkpoint_gb,
        "non_expert_gb": 15.8,
        "layers": geometry.num_layers,
        "index_layers": len(geometry.index_layers),
        "kv_heads": geometry.num_kv_heads,
        "kv_format": cache_format,
        "index_format": cache_format,
        "draft_layers": geometry.draft_layers,
        "draft_kv_heads": geometry.draft_kv_heads,
    }


MODELS = {"m31": _model(M31, "nvfp4", 250.1), "m3": _model(M3, "fp8", 451.5)}
"""What a model's name sets."""

USABLE_SHARE = 250 * GIB / (288 * GB)
"""Share of a GPU's nominal memory that is usable: the preset's 250 GiB of the 288 GB of a B300."""

GPU_MEMORY_GB = {"h100": 80, "h200": 141, "b200": 180, "b300": 288, "mi350x": 288, "mi355x": 288}
"""Nominal memory by data sheet."""


def usable_gib(gpu: str) -> float:
    """Usable GiB assumed for a GPU, to one decimal: the same share of its nominal memory as for a B300."""
    if gpu not in GPU_MEMORY_GB:
        raise ValueError(f"gpu: {gpu!r}; accepted: {', '.join(GPU_MEMORY_GB)}; or give usable_gib")
    return round(GPU_MEMORY_GB[gpu] * GB * USABLE_SHARE / GIB, 1)


def of_model(base: Assumptions, model: str) -> Assumptions:
    """`base` with the geometry, checkpoint and cache formats of a model."""
    if model not in MODELS:
        raise ValueError(f"model: {model!r}; accepted: {', '.join(MODELS)}; or give its fields")
    return replace(base, **MODELS[model])


_PUBLISHED = {"gpus", "context", "attention_tp", "experts", "kv_format", "checkpoint_gb"}
_MODEL_FACTS = {"layers", "index_layers", "kv_heads", "draft_layers", "draft_kv_heads"}


def _preset(name: str, model: str, published: int) -> Preset:
    origins = {
        item.name: "published" if item.name in _PUBLISHED else "model" if item.name in _MODEL_FACTS else "chosen"
        for item in fields(Assumptions)
    }
    return Preset(name, of_model(Assumptions(), model), published, origins)


PRESETS = {"m31-b300": _preset("m31-b300", "m31", 76), "m3-b300": _preset("m3-b300", "m3", 28)}
"""4 x B300, 262,144 tokens a sequence, attention data-parallel, experts divided over the GPUs."""


def resolve(
    preset: str, model: str | None = None, gpu: str | None = None, **given: Any
) -> tuple[Assumptions, dict[str, str]]:
    """Assumptions of a preset, changed by a model's and a GPU's name, then by single fields; and each one's origin.

    Origins are the preset's ("published", "model", "chosen") where a value is the preset's, whether or not it was
    given again, else "--model", "--gpu" or "given". Raises ValueError for an unknown name.
    """
    if preset not in PRESETS:
        raise ValueError(f"preset: {preset!r}; accepted: {', '.join(PRESETS)}")
    base, origins = PRESETS[preset].assumptions, dict(PRESETS[preset].origins)
    changes: list[tuple[str, dict[str, Any]]] = []
    if model is not None:
        of_model(base, model)  # raises for an unknown name
        changes.append(("--model", MODELS[model]))
    if gpu is not None:
        changes.append(("--gpu", {"usable_gib": usable_gib(gpu)}))
    changes.append(("given", given))
    values: dict[str, Any] = {}
    for origin, named in changes:
        for name, value in named.items():
            if name not in origins:
                raise ValueError(f"{name}: unknown; accepted: {', '.join(origins)}")
            values[name] = value
            origins[name] = PRESETS[preset].origins[name] if value == getattr(base, name) else origin
    return replace(base, **values), origins


FIXED = (
    f"a page of {PAGE_SIZE} tokens and head dimension {HEAD_DIM} (the cache format)",
    "one index key head a layer, stored by every rank",
    "KV heads divided over attention_tp; with more ranks than heads each rank stores one",
    "a sequence lives in one attention group, so whole sequences are counted in each group",
)
"""Rules of the arithmetic that are no assumptions about a deployment."""
