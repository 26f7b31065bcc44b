from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import msa_ops
from tests.contract.target import Target
from tests.silicon.cases import Case, call, outputs

LIMIT_US = 10.0  # from Python to the launch, and results with it where the call makes them
CALLS, ROUNDS = 50, 40


def loop_of(case: Case, values: dict[str, Any]) -> Callable[[int], None]:
    """A loop that names its arguments, as written loops do: `op(**values)` costs its caller a dictionary a call.

    Results are kept until the next ones are made, so that they are at two places in turn.
    """
    words = ", ".join(f"{name}={name}" for name in values)
    names = {"msa_ops": msa_ops, **values}
    exec(f"def loop(calls):\n    for _ in range(calls):\n        kept = msa_ops.{case.op}({words})", names)
    loop: Callable[[int], None] = names["loop"]
    return loop


def host_time(target: Target, case: Case, *, makes_results: bool) -> float:
    """Median of us a call through the public function, the device far from saturated."""
    args = case.args(7)
    outs = outputs(case, args)
    call(case, target.backend, args, outs)
    values = {name: getattr(args, name) for name in args.__dataclass_fields__ if name != "workspace"}
    values["backend"] = target.backend
    if not makes_results:
        values["out"] = outs[0] if len(outs) == 1 else tuple(outs)
    if case.op in ("sparse_attention", "dense_attention"):
        values["return_lse"] = True
    loop = loop_of(case, values)
    loop(20)  # graphs are made
    torch.cuda.synchronize()
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        loop(CALLS)
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
    assert found <= LIMIT_US
