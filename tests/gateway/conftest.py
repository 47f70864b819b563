"""A gateway on the platform of the run, and what tests of it need."""

from collections.abc import Iterator

import httpx
import pytest

from penstock.testing.platform import Platform


@pytest.fixture(scope="session")
def gateway_url(penstock: Platform) -> str:
    return penstock.registry_url


@pytest.fixture
def http(gateway_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway_url, timeout=30) as client:
        yield client
