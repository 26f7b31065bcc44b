"""What only a real GPU shows: graphs, streams, thousands of repeats, gigabytes of pages, the host's time a call.

Every test runs once for each case and each compiled backend that takes it on this GPU; without a GPU there is nothing
to collect.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.contract.target import Target, targets
from tests.silicon.cases import CASES

collect_ignore_glob = [] if torch.cuda.is_available() else ["test_*.py"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        found = [
            pytest.param(target, case, id=f"{name}-{target.backend}")
            for name, case in CASES.items()
            for target in targets(case.op)
            if target.device == "cuda" and target.backend != "reference" and case.accepted(target.backend)
        ]
        metafunc.parametrize(("target", "case"), found)


@pytest.fixture(autouse=True)
def _finished(target: Target) -> Iterator[None]:
    """An error of a kernel belongs to the test that launched it."""
    yield
    torch.cuda.synchronize()
