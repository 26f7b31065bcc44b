from __future__ import annotations

import statistics
import time

import torch

from tests.contract.target import Target
from tests.silicon.cases import Case, call, outputs

LIMIT_US = 10.0  # from Python to the launch
LIMIT_OF_RESULTS_US = 20.0  # with results that torch's allocator makes and takes back; through Python it was up to 27
CALLS, ROUNDS = 50, 40


def host_time(target: Target, case: Case, *, makes_results: bool) -> float:
    """Median of us a call through the public function, the device far from saturated."""
    import msa_ops

    args = case.args(7)
    outs = outputs(case, args)
    call(case, target.backend, args, outs)
    op = getattr(msa_ops, case.op)
    names = [name for name in args.__dataclass_fields__ if name != "workspace"]
    values = {name: getattr(args, name) for name in names}
    if not makes_results:
        values["out"] = outs[0] if len(outs) == 1 else tuple(outs)
    if case.op in ("sparse_attention", "dense_attention"):
        values["return_lse"] = True
    op(**values, backend=target.backend)
    torch.cuda.synchronize()
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(CALLS):
            op(**values, backend=target.backend)
        times.append((time.perf_counter() - begin) / CALLS * 1e6)
        torch.cuda.synchronize()
    return statistics.median(times)


@torch.no_grad()
def test_host_time_of_a_call(target: Target, case: Case) -> None:
    found = host_time(target, case, makes_results=False)
    print(f"\n{case.op} {target.backend}: {found:.1f} us a call on the host")
    assert found <= LIMIT_US


@torch.no_grad()
def test_host_time_of_a_call_that_makes_its_results(target: Target, case: Case) -> None:
    found = host_time(target, case, makes_results=True)
    print(f"\n{case.op} {target.backend}: {found:.1f} us a call on the host, results made")
    assert found <= LIMIT_OF_RESULTS_US
