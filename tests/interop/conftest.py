"""What interop tests share: Apache Kafka's own jars, or a skip that says why there are none."""

from pathlib import Path

import pytest

from tests.support.apache_kafka import PeerUnavailableError, fetch_libraries


@pytest.fixture(scope="session")
def kafka_libs() -> Path:
    """The folder with Apache Kafka's jars."""
    try:
        return fetch_libraries()
    except PeerUnavailableError as reason:
        pytest.skip(str(reason))
