from __future__ import annotations

import pytest

from tests.contract.target import targets


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        found = targets(metafunc.module.OP)
        metafunc.parametrize("target", found, ids=str)
