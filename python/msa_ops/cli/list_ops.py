"""`msa-ops list`: ops, backends, and the support matrix."""

from __future__ import annotations

import argparse
import json
from typing import Any

from msa_ops.cli.table import format_table
from msa_ops.registry import SIMULATED, STORE, explain, plugins
from msa_ops.registry.backend import Backend, built_kernels


def add_parser(verbs: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser("list", help="ops, backends and the support matrix")
    parser.add_argument("op", nargs="?", help="only this op")
    parser.add_argument("--support", action="store_true", help="which backend serves each op on each chip")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    plugins.load_once()
    ops = [STORE.op(args.op).name] if args.op else STORE.ops()
    if args.support:
        matrix = support_matrix(ops)
        if args.json:
            print(json.dumps(matrix, indent=2))
        else:
            rows = [[op, *(choice or "-" for choice in row.values())] for op, row in matrix.items()]
            print(format_table(["op", *SIMULATED], rows))
            print("\n'-': no backend serves the op there by itself; `msa-ops explain OP --chip CHIP` tells why.")
            if not built_kernels():
                print("This build holds no compiled kernels; `make wheel` makes one that does.")
        return 0
    records = [_record(op, backend) for op in ops for backend in STORE.backends(op)]
    if args.json:
        print(json.dumps(records, indent=2))
        return 0
    columns = ["op", "version", "backend", "band", "archs", "provider"]
    print(format_table(columns, [[str(record[column]) for column in columns] for record in records]))
    return 0


def support_matrix(ops: list[str]) -> dict[str, dict[str, str | None]]:
    """op -> chip -> the backend that serves its default call, or None."""
    return {op: {chip: explain(op, chip).choice for chip in SIMULATED} for op in ops}


def _record(op: str, backend: Backend) -> dict[str, Any]:
    return {
        "op": op,
        "version": STORE.op(op).version,
        "backend": backend.name,
        "band": backend.band.name.lower(),
        "archs": ", ".join(sorted(backend.archs)),
        "provider": backend.provider,
        "graph_safe": backend.graph_safe,
        "deterministic": backend.deterministic,
        "rounding": list(backend.numerics.rounding),
        "source_hash": backend.source_hash(),
    }
