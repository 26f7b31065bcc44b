"""`msa-ops explain`: the backend an op would run on, and every reason against the others."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from msa_ops.registry import SIMULATED, STORE, Explanation, explain


def add_parser(verbs: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser("explain", help="which backend serves an op, and why")
    parser.add_argument("op", nargs="?", default="all", help="name of an op, or 'all', which is the default")
    parser.add_argument(
        "--chip",
        action="append",
        metavar="CHIP",
        help=f"simulated chip ({', '.join(SIMULATED)}), or a chip's name such as H200, with versions if wanted "
        "('sm_100a, cuda=12.9'), or 'all'; "
        "may be repeated; default: this machine",
    )
    parser.add_argument("--platform", action="append", dest="chip", help=argparse.SUPPRESS)  # its former name
    parser.add_argument(
        "--set", action="append", default=[], metavar="FACT=VALUE", help="a property of the call; may be repeated"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    ops = STORE.ops() if args.op == "all" else [args.op]
    chips: list[str | None] = []
    for chip in args.chip or [None]:
        chips += SIMULATED if chip == "all" else [chip]
    explanations: list[Explanation] = [
        explain(op, chip, _facts(op, args.set)) for op in ops for chip in dict.fromkeys(chips)
    ]
    if args.json:
        print(json.dumps([explanation.to_json() for explanation in explanations], indent=2))
    else:
        print("\n\n".join(map(str, explanations)))
    return 0


def _facts(op: str, settings: list[str]) -> dict[str, Any]:
    """Values with the type that the fact has by default. Raises ValueError."""
    defaults = STORE.op(op).facts_type()
    known = {field.name: getattr(defaults, field.name) for field in dataclasses.fields(defaults)}
    facts: dict[str, Any] = {}
    for setting in settings:
        name, sign, text = setting.partition("=")
        if not sign or name not in known:
            raise ValueError(f"--set {setting!r}: accepted: FACT=VALUE with a fact of {op}: {', '.join(known)}")
        facts[name] = _parse(name, text, known[name])
    return facts


def _parse(name: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise ValueError(f"--set {name}={text}: accepted: true, false")
        return text.lower() == "true"
    if isinstance(default, (int, float)):
        try:
            number = type(default)(text)
        except ValueError:
            raise ValueError(f"--set {name}={text}: accepted: a number like {default}") from None
        if not number >= 0:
            raise ValueError(f"--set {name}={text}: accepted: numbers from 0")
        return number
    if name.endswith("dtype") and (text not in _dtypes() or text.endswith("fnuz")):
        raise ValueError(f"--set {name}={text}: accepted: a dtype of torch like {default}; no op takes FNUZ")
    return text


def _dtypes() -> set[str]:
    import torch

    return {name for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
