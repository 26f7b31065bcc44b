"""Every case once on every compiled backend, for compute-sanitizer, which looks at our kernels alone:

  compute-sanitizer --tool memcheck --error-exitcode 1 --kernel-name kernel_substring=msa_ops \\
    python -m tests.silicon.sanitize

The same with racecheck and synccheck. initcheck must see who writes, so it takes no --kernel-name, and what it says of
kernels without msa_ops in their names is torch's.

`--larger` runs calls that take ways which small ones do not: more requests than a warp looks at, several runs of pages
a block, tiles with all their rows, parts that are merged, tokens that chose nothing alike.
"""

from __future__ import annotations

import argparse

import torch

from tests.contract.target import targets
from tests.silicon.cases import CASES, Case, call, outputs

SMALLER = {"rows": 33, "tokens": 16, "seq_len": 3000, "batch": 3}
TP4 = {"num_heads": 16, "num_kv_heads": 1}
LARGER = {
    "quantize": Case("quantize_nvfp4", {"rows": 1024, "columns": 6144}),
    "insert": Case("qk_norm_rope_insert", {"batch": 2, "q_len": 300, "seq_len": 4000, "num_heads": 64}),
    "select": Case("select_blocks", {"tokens": 64, "num_heads": 1, "max_blocks": 16_384, "topk": 64}),
    "indexer-many": Case("indexer", {"batch": 40, "seq_len": 2500, "q_len": 1}),
    "indexer-long": Case("indexer", {"batch": 1, "seq_len": 100_000, "q_len": 1}),
    "indexer-verify": Case("indexer", {"batch": 12, "seq_len": 8192, "q_len": 4, "num_heads": 4}),
    "indexer-topk": Case("indexer", {"batch": 2, "seq_len": 20_000, "q_len": 1, "topk": 64}),
    "indexer-prefill": Case("indexer", {"batch": 2, "seq_len": 8192, "q_len": 600, "num_heads": 1}),
    "sparse-many": Case("sparse_attention", {"batch": 40, "seq_len": 8192, "q_len": 1, "topk": 16}),
    "sparse-verify": Case(
        "sparse_attention", {"batch": 16, "seq_len": 8192, "q_len": 8, "topk": 16, "overlap": 0.9} | TP4
    ),
    "sparse-prefill": Case(
        "sparse_attention", {"batch": 2, "seq_len": 8192, "q_len": 600, "topk": 16, "neighbours": 64} | TP4
    ),
    "sparse-verify-apart": Case(
        "sparse_attention", {"batch": 80, "seq_len": 3000, "q_len": 8, "topk": 4, "overlap": 0.0} | TP4
    ),
    "sparse-prefill-apart": Case("sparse_attention", {"batch": 2, "seq_len": 8192, "q_len": 600, "topk": 16} | TP4),
    "dense-long": Case("dense_attention", {"batch": 1, "seq_len": 32_768, "q_len": 1} | TP4),
    "dense-prefill": Case("dense_attention", {"batch": 2, "seq_len": 4096, "q_len": 600} | TP4),
}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="", help="only cases with this text in their name")
    parser.add_argument("--larger", action="store_true", help="the larger calls in place of the small ones")
    options = parser.parse_args(argv)
    wanted, smaller = options.case, {} if options.larger else SMALLER
    count = 0
    for name, case in (LARGER if options.larger else CASES).items():
        for target in targets(case.op) if wanted in name else ():
            if target.device != "cuda" or target.backend == "reference" or not case.accepted(target.backend):
                continue
            dims = dict(case.dims)
            for dim, value in smaller.items():
                if dim in dims:
                    dims[dim] = min(dims[dim], value)
            args = case.spec.generate(0, device="cuda", **dims)
            call(case, target.backend, args, outputs(case, args))
            torch.cuda.synchronize()
            count += 1
            print(f"{name} {target.backend}", flush=True)
    print(f"{count} calls")


if __name__ == "__main__":
    main()
