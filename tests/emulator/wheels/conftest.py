from __future__ import annotations

from collections.abc import Iterator

import pytest

from msa_ops.emulator import JitSession
from tests.emulator.wheels.session import gpu


@pytest.fixture(params=["sm_90a", "sm_100a"])
def session(request: pytest.FixtureRequest) -> Iterator[JitSession]:
    with gpu(request.param) as session:
        yield session
