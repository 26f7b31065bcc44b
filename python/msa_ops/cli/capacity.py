"""`msa-ops capacity`: how many sequences fit, with every assumption and the option that changes it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, fields
from typing import Any

from msa_ops.cache.capacity import (
    FIXED,
    GB,
    GIB,
    GPU_MEMORY_GB,
    MODELS,
    PRESETS,
    Assumptions,
    Capacity,
    capacity,
    resolve,
)
from msa_ops.cli.table import format_table

LARGEST, MOST_LAYERS = 10**9, 10**4

_ORIGINS = {
    "published": "preset, published",
    "model": "preset, fact of the model",
    "chosen": "preset, chosen to fit",
}


def add_parser(verbs: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "capacity",
        help="how many sequences fit into a deployment's memory",
        description="How many sequences fit: weights and caches against the usable memory of each GPU.",
    )
    parser.add_argument(
        "--preset", default="m31-b300", metavar="NAME", help=f"{', '.join(PRESETS)} (default: %(default)s)"
    )
    parser.add_argument("--model", metavar="NAME", help=f"geometry, checkpoint and formats of {', '.join(MODELS)}")
    parser.add_argument("--gpu", metavar="NAME", help=f"usable memory of {', '.join(GPU_MEMORY_GB)}")
    group = parser.add_argument_group("assumptions, over preset, model and GPU")
    for item in fields(Assumptions):
        choices = item.metadata["choices"]
        text = f"{item.metadata['help']} ({', '.join(choices) or item.metadata['unit']})"
        group.add_argument(_option(item.name), dest=item.name, metavar="NAME" if choices else "NUMBER", help=text)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    given = {
        item.name: _parse(item.name, text, type(item.default))
        for item in fields(Assumptions)
        if (text := getattr(args, item.name)) is not None
    }
    assumptions, origins = resolve(args.preset, args.model, args.gpu, **given)
    result = capacity(assumptions)
    preset = PRESETS[args.preset]
    unchanged = assumptions == preset.assumptions
    if args.json:
        print(json.dumps(_record(args.preset, assumptions, origins, result, unchanged), indent=2))
        return 0
    rows = [
        [
            _option(item.name),
            _show(getattr(assumptions, item.name)),
            item.metadata["unit"],
            _ORIGINS.get(origins[item.name], origins[item.name]),
        ]
        for item in fields(Assumptions)
    ]
    names = [("--preset", args.preset), ("--model", args.model), ("--gpu", args.gpu)]
    print("Assumptions of " + " ".join(f"{option} {name}" for option, name in names if name) + "\n")
    print(format_table(["option", "value", "unit", "origin"], rows))
    print("\nFixed rules: " + "; ".join(FIXED) + ".\n")
    print(format_table(["per GPU", "bytes", "", ""], _breakdown(result)))
    print()
    if result.free < 0:
        print(f"Weights and reserved memory exceed what is usable by {-result.free / GIB:.2f} GiB a GPU.")
    print(
        f"Sequences of {assumptions.context:,} tokens: {result.sequences} "
        f"({result.sequences_per_group} in each of {result.groups} attention groups)."
    )
    print(_published(args.preset, result, unchanged))
    return 0


def _parse(name: str, text: str, kind: type) -> Any:
    if kind is str:
        return text
    wanted = "a whole number" if kind is int else "a number"
    largest = MOST_LAYERS if name.endswith("layers") else LARGEST
    try:
        value = kind(text)
    except ValueError:
        raise ValueError(f"{name}: {text!r:.60}; accepted: {wanted}") from None
    if value > largest:
        raise ValueError(f"{name}: {text!r:.60}; accepted: {wanted} up to {largest:,}")
    return value


def _breakdown(r: Capacity) -> list[list[str]]:
    sizes = [
        ("usable", r.usable),
        ("- reserved", r.reserved),
        ("- weights, not experts", r.non_expert_weights),
        ("- weights, routed experts", r.expert_weights),
        ("- weights, drafter", r.draft_weights),
        ("= free for caches", r.free),
        ("a token, main K and V", r.kv_bytes_per_token),
        ("a token, index keys", r.index_bytes_per_token),
        ("a token, drafter", r.draft_bytes_per_token),
        ("a sequence", r.bytes_per_sequence),
    ]
    rows = [
        [name, f"{size:,}", *([f"{size / GB:.3f} GB", f"{size / GIB:.3f} GiB"] if abs(size) >= 10**7 else ["", ""])]
        for name, size in sizes
    ]
    rows[-1][0] += f": {r.blocks_per_sequence:,} blocks" + (
        f", {r.draft_blocks_per_sequence:,} of the drafter" if r.draft_blocks_per_sequence else ""
    )
    return rows


def _published(preset: str, result: Capacity, unchanged: bool) -> str:
    expected = PRESETS[preset].published
    if not unchanged:
        return f"Changed from preset {preset}, so its published number ({expected}) does not apply."
    verdict = "reproduces" if result.sequences == expected else "DOES NOT reproduce"
    return (
        f"Preset {preset}: this {verdict} the published {expected}. Values marked 'published' came with that number; "
        "those 'chosen to fit' are one consistent set that gives it."
    )


def _record(
    preset: str, assumptions: Assumptions, origins: dict[str, str], result: Capacity, unchanged: bool
) -> dict[str, Any]:
    return {
        "preset": preset,
        "uses_published_numbers": unchanged,
        "published_sequences": PRESETS[preset].published if unchanged else None,
        "assumptions": {
            item.name: {
                "value": getattr(assumptions, item.name),
                "unit": item.metadata["unit"],
                "option": _option(item.name),
                "origin": origins[item.name],
            }
            for item in fields(Assumptions)
        },
        "fixed": list(FIXED),
        "result": {"sequences": result.sequences, **asdict(result)},
    }


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _show(value: Any) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)
