from __future__ import annotations

import pytest

from tests.contract.target import targets


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        found = targets(metafunc.module.OP)
        slow = pytest.mark.slow  # the emulated ones
        metafunc.parametrize(
            "target", [pytest.param(target, id=str(target), marks=[slow] if target.chip else []) for target in found]
        )
