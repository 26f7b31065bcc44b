"""The table of executed opcodes for docs/emulator.md: `python -m msa_ops.emulator.coverage`."""

from __future__ import annotations

from collections.abc import Sequence

from msa_ops.emulator.run import opcodes

TYPES = frozenset(
    "pred b1 s4 u4 s8 u8 b8 s16x2 u16x2 s16 u16 b16 s32 u32 b32 s64 u64 b64 f16 bf16 f16x2 bf16x2 tf32 f32 f64 "
    "e4m3 e5m2 e4m3x2 e5m2x2 e2m3x2 e3m2x2 e2m1x2 ue8m0x2 ue5m3x2 f32x2 "
    "e4m3x4 e5m2x4 e2m3x4 e3m2x4 e2m1x4 e2m1p4x4 ue8m0x4".split()
)


def rows(names: Sequence[str]) -> list[tuple[str, str, str]]:
    """(instruction, modifiers, types): every combination of a row's modifiers with its types is an opcode."""
    types: dict[tuple[str, str], list[str]] = {}
    for name in names:
        parts = name.split(" ")[0].split(".")
        split = len(parts)
        while split > 1 and parts[split - 1] in TYPES:
            split -= 1
        form = "".join(f" {word}" for word in name.split(" ")[1:])
        modifiers = "".join(f".{part}" for part in parts[1:split])
        types.setdefault((parts[0], modifiers), []).append("".join(f".{part}" for part in parts[split:]) + form)
    merged: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (instruction, modifiers), found in types.items():
        merged.setdefault((instruction, tuple(found)), []).append(modifiers or "none")
    return [
        (instruction, ", ".join(modifiers), ", ".join(name or "none" for name in found))
        for (instruction, found), modifiers in merged.items()
    ]


def table() -> str:
    """The rows as Markdown."""
    lines = ["| instruction | modifiers | types |", "|---|---|---|"]
    lines += [f"| `{instruction}` | {modifiers} | {types} |" for instruction, modifiers, types in rows(opcodes())]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
