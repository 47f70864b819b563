"""Brokers in their own processes, for real admin clients."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from penstock.testing.embedded import EmbeddedBroker


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedBroker]:
    """One broker for all tests of a module; each uses its own topic names."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def client(embedded: EmbeddedBroker) -> AdminClient:
    """confluent-kafka's admin client."""
    return AdminClient({"bootstrap.servers": embedded.bootstrap})


@pytest.fixture
def fresh() -> Iterator[EmbeddedBroker]:
    """A broker for one test, to be stopped and killed."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def code_of() -> Callable[[Callable[[], Any]], int]:
    """The error code of a refusal; 0 if there is none."""
    from confluent_kafka import KafkaException

    def code_of(work: Callable[[], Any]) -> int:
        try:
            work()
        except KafkaException as refusal:
            return int(refusal.args[0].code())
        return 0

    return code_of
