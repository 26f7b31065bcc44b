from __future__ import annotations

import torch

from tests.contract.target import Target
from tests.silicon.cases import Case, call, outputs, same, written

REPEATS = 3000


def test_bits_repeat(target: Target, case: Case) -> None:
    """The same call thousands of times, among them many in flight at once, gives the same bits each time."""
    args = case.args(1)
    first = outputs(case, args)
    call(case, target.backend, args, first)
    expected = [value.clone() for value in written(case, args, first)]
    equal = torch.ones((), dtype=torch.bool, device="cuda")
    for _ in range(REPEATS):
        outs = outputs(case, args)
        call(case, target.backend, args, outs)
        equal &= same(written(case, args, outs), expected)
    assert bool(equal)
