"""How often each failure happens: `pytest tests/faults --rounds 50`."""

import pytest


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--rounds"))
