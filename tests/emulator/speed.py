"""How fast the emulator is: `python -m tests.emulator.speed [CASE ...]`, in a build with kernels.

Each case runs kernels of this package on an emulated chip, on one thread of the host, and prints warp instructions, the
processor's time, and their quotient. A warp instruction is whatever one warp issues once: an addition of 32 lanes, a
`wgmma` of one warp (a quarter of the product), or a `tcgen05.mma`, however large its product is. The operations of
matrix instructions are printed beside it. The first run of a case, which reads the kernel's text, does not count.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from typing import Any

import msa_ops
from msa_ops.ops import dense_attention, indexer, sparse_attention

E4M3 = {"q_dtype": "float8_e4m3fn", "rounding": "e4m3"}


@dataclass(frozen=True)
class Case:
    """One call of an op."""

    op: Any
    arch: str
    dims: dict[str, Any]
    multiprocessors: int = 8

    @property
    def name(self) -> str:
        return str(self.op.__name__.rsplit(".", 1)[-1])


CASES = {
    "decode": Case(sparse_attention, "sm_90a", {"batch": 2, "seq_len": 2048, "topk": 8, "q_len": 1}),
    "prefill": Case(sparse_attention, "sm_90a", {"batch": 1, "seq_len": 1024, "topk": 4, "q_len": 256}),
    "dense": Case(dense_attention, "sm_90a", {"batch": 1, "seq_len": 512, "q_len": 256}),
    "indexer": Case(indexer, "sm_90a", {"batch": 1, "seq_len": 8192, "q_len": 1, "num_heads": 4}),
    "indexer_sm100": Case(indexer, "sm_100a", {"batch": 1, "seq_len": 8192, "q_len": 1, "num_heads": 4, **E4M3}),
    "indexer_gfx950": Case(indexer, "gfx950", {"batch": 1, "seq_len": 131072, "q_len": 4, "num_heads": 4, **E4M3}),
}


def measure(case: Case, runs: int = 3) -> dict[str, Any]:
    """The fastest of some runs: warp instructions, processor seconds, matrix operations."""
    args = case.op.generate(1, **case.dims)
    values = {name: getattr(args, name) for name in args.__dataclass_fields__ if name != "workspace"}
    seconds = []
    for _ in range(runs + 1):
        with msa_ops.emulate(case.arch, multiprocessors=case.multiprocessors) as chip:
            start = time.process_time()
            getattr(msa_ops, case.name)(**values)
            seconds.append(time.process_time() - start)
    instructions = sum(launch.report.total_warp_instructions for launch in chip.launches)
    fastest = min(seconds[1:])
    return {
        "op": case.name,
        "arch": case.arch,
        "warp_instructions": instructions,
        "seconds": fastest,
        "instructions_a_second": instructions / fastest,
        "matrix_operations": sum(sum(launch.report.matrix_flops.values()) for launch in chip.launches),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = {name: measure(CASES[name]) for name in args.cases or CASES}
    if args.json:
        print(json.dumps(found, indent=2))
        return
    print(
        f"{'case':14} {'chip':8} {'warp instructions':>18} {'seconds':>8} {'million a second':>17} {'matrix GFLOP':>13}"
    )
    for name, one in found.items():
        print(
            f"{name:14} {one['arch']:8} {one['warp_instructions']:18,} {one['seconds']:8.3f} "
            f"{one['instructions_a_second'] / 1e6:17.2f} {one['matrix_operations'] / 1e9:13.3f}"
        )


if __name__ == "__main__":
    main()
