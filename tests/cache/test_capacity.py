from __future__ import annotations

from dataclasses import fields, replace

import pytest

from msa_ops.cache.capacity import GB, GIB, PRESETS, Assumptions, capacity, resolve, usable_gib

M31_B300 = PRESETS["m31-b300"].assumptions
M3_B300 = PRESETS["m3-b300"].assumptions


def test_presets_give_the_published_numbers() -> None:
    assert capacity(M31_B300).sequences == PRESETS["m31-b300"].published == 76
    assert capacity(M3_B300).sequences == PRESETS["m3-b300"].published == 28


def test_the_published_numbers_by_hand() -> None:
    for assumptions, checkpoint, per_token, sequences in ((M31_B300, 250.1, 38_880, 19), (M3_B300, 451.5, 68_736, 7)):
        free = 250 * GIB - 15.8 * GB - (checkpoint - 15.8) * GB / 4
        result = capacity(assumptions)
        assert abs(result.free - free) <= 2
        assert result.bytes_per_sequence == per_token * 262_144
        assert result.sequences_per_group == sequences == int(free // (per_token * 262_144))
        assert result.groups == 4


def test_presets_are_the_published_deployment() -> None:
    shared = {"gpus": 4, "usable_gib": 250.0, "context": 262_144, "attention_tp": 1, "experts": "sharded"}
    for assumptions in (M31_B300, M3_B300):
        assert {name: getattr(assumptions, name) for name in shared} == shared
        assert (assumptions.non_experts, assumptions.non_expert_gb) == ("whole", 15.8)
    assert (M31_B300.index_layers, M3_B300.index_layers) == (60, 57)
    assert (M31_B300.kv_format, M3_B300.kv_format) == ("nvfp4", "fp8")


CHANGES = {
    "gpus": 8,
    "usable_gib": 200.0,
    "reserved_gib": 30.0,
    "attention_tp": 2,
    "experts": "whole",
    "checkpoint_gb": 400.0,
    "non_expert_gb": 60.0,
    "layers": 80,
    "index_layers": 30,
    "kv_heads": 8,
    "kv_format": "bf16",
    "index_format": "bf16",
    "context": 8192,
    "drafter": "all",
}
DRAFTER_CHANGES = {
    "draft_layers": 12,
    "draft_kv_heads": 8,
    "draft_format": "bf16",
    "draft_window": 65_536,
    "draft_tokens": 30_000,
    "draft_weights_gb": 20.0,
}


@pytest.mark.parametrize("name", [item.name for item in fields(Assumptions)])
def test_every_assumption_matters(name: str) -> None:
    base = M31_B300
    if name in DRAFTER_CHANGES:
        base = replace(base, drafter="window")
    if name == "non_experts":
        base, changed = replace(base, attention_tp=2), "attention_tp"
    else:
        changed = (CHANGES | DRAFTER_CHANGES)[name]
    before, after = capacity(base), capacity(replace(base, **{name: changed}))
    assert (before.free, before.bytes_per_sequence, before.groups) != (
        after.free,
        after.bytes_per_sequence,
        after.groups,
    )


def test_contexts_are_rounded_up_to_blocks() -> None:
    sizes = [capacity(replace(M31_B300, context=n)).bytes_per_sequence for n in (1, 128, 129)]
    assert sizes == [38_880 * 128, 38_880 * 128, 38_880 * 256]


def test_attention_tensor_parallel_divides_main_caches_and_copies_index_keys() -> None:
    result = capacity(replace(M31_B300, attention_tp=4))
    assert (result.kv_bytes_per_token, result.index_bytes_per_token, result.groups) == (8_640, 4_320, 1)
    wide = capacity(replace(M31_B300, gpus=8, attention_tp=8))
    assert wide.kv_bytes_per_token == 8_640  # a head a rank, stored twice


def test_drafter_blocks() -> None:
    window = capacity(replace(M31_B300, drafter="window"))
    # 4,096 + 7 tokens that begin at the last token of a block touch 34 blocks.
    assert window.draft_blocks_per_sequence == 34
    assert window.bytes_per_sequence == 2048 * 38_880 * 128 + 34 * 5 * 4 * 32_768
    assert capacity(replace(M31_B300, drafter="window", context=300)).draft_blocks_per_sequence == 3
    everything = capacity(replace(M31_B300, drafter="all"))
    assert everything.bytes_per_sequence == 2048 * (38_880 + 5_120) * 128


def test_the_block_outer_row_of_tp4_is_a_block_of_the_arithmetic() -> None:
    result = capacity(replace(M31_B300, attention_tp=4, drafter="all", context=128))
    assert result.bytes_per_sequence == 1_822_720


def test_weights_that_do_not_fit_leave_no_sequences() -> None:
    result = capacity(replace(M31_B300, usable_gib=60.0))
    assert result.free < 0
    assert result.sequences == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpus": 0}, "gpus: 0; accepted: 1 or more"),
        ({"context": 0}, "context: 0"),
        ({"context": -5}, "context: -5"),
        ({"usable_gib": float("nan")}, "usable_gib: nan"),
        ({"reserved_gib": -1.0}, "reserved_gib: -1.0; accepted: 0 or more"),
        ({"attention_tp": 3}, "attention_tp: 3; accepted: divisors of the 4 GPUs"),
        ({"kv_format": "fp4"}, "kv_format: 'fp4'; accepted: fp32, bf16, fp8, nvfp4"),
        ({"experts": "split"}, "experts: 'split'; accepted: sharded, whole"),
        ({"index_layers": 61}, "index_layers: 61; accepted: 0 to 60"),
        ({"non_expert_gb": 300.0}, "non_expert_gb: 300.0; accepted: 0 to 250.1"),
        ({"drafter": "all", "draft_layers": 0}, "accepted with no drafter layers or heads: none"),
    ],
)
def test_errors_name_the_field(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(M31_B300, **changes)


def test_names_and_fields_override_in_order_and_tell_their_origin() -> None:
    assumptions, origins = resolve("m31-b300")
    assert assumptions == M31_B300
    assert set(origins.values()) == {"published", "model", "chosen"}
    assumptions, origins = resolve("m31-b300", "m3", "h200", index_format="bf16", gpus=4)
    assert assumptions == replace(M3_B300, usable_gib=usable_gib("h200"), index_format="bf16")
    changed = {name: origin for name, origin in origins.items() if origin not in ("published", "model", "chosen")}
    assert changed == {
        "checkpoint_gb": "--model",
        "index_layers": "--model",
        "draft_layers": "--model",
        "draft_kv_heads": "--model",
        "kv_format": "--model",
        "usable_gib": "--gpu",
        "index_format": "given",
    }


def test_usable_memory_by_name() -> None:
    assert usable_gib("b300") == 250.0
    assert 120 < usable_gib("h200") < 125
    for call in (lambda: usable_gib("tpu"), lambda: resolve("m4"), lambda: resolve("m31-b300", "m2")):
        with pytest.raises(ValueError, match="accepted: "):
            call()
    with pytest.raises(ValueError, match="colour: unknown"):
        resolve("m31-b300", colour=1)


@pytest.mark.parametrize(
    ("field", "value"), [("context", 100.5), ("gpus", "4"), ("layers", True), ("usable_gib", None), ("gpus", 4.0)]
)
def test_numbers_are_numbers_and_counts_are_whole(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: {value!r}; accepted: a (whole )?number"):
        replace(M31_B300, **{field: value})
