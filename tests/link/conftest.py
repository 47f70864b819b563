"""Brokers to link to: ours for every test of a session, Apache Kafka for those marked interop."""

from collections.abc import Iterator

import pytest

from penstock.testing.embedded import EmbeddedBroker


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running
