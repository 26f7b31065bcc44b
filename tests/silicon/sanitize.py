"""Every case once on every compiled backend, for compute-sanitizer, which looks at our kernels alone:

  compute-sanitizer --tool memcheck --error-exitcode 1 --kernel-name kernel_substring=msa_ops \\
    python -m tests.silicon.sanitize

The same with racecheck and synccheck. initcheck must see who writes, so it takes no --kernel-name, and what it says of
kernels without msa_ops in their names is torch's.
"""

from __future__ import annotations

import argparse

import torch

from tests.contract.target import targets
from tests.silicon.cases import CASES, call, outputs

SMALLER = {"rows": 33, "tokens": 16, "seq_len": 3000, "batch": 3}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="", help="only cases with this text in their name")
    wanted = parser.parse_args(argv).case
    count = 0
    for name, case in CASES.items():
        for target in targets(case.op) if wanted in name else ():
            if target.device != "cuda" or target.backend == "reference" or not case.accepted(target.backend):
                continue
            dims = dict(case.dims)
            for dim, value in SMALLER.items():
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
