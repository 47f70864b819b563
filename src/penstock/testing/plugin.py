"""The pytest plugin: a broker and a schema registry for the tests of Penstock's users.

    def test_an_order_arrives(penstock_schema, penstock_producer, penstock_consumer):
        order = penstock_schema({"type": "record", "name": "Order", "fields": [...]})
        penstock_producer(value=order).send({"cents": 1250}).result()
        assert penstock_consumer().take(1, 30)[0].value == {"cents": 1250}

Both start with the first test that uses them and serve the whole session; under xdist each worker
has its own. Names begin with a prefix that no other worker or run has. Faults end with the test
that caused them. With PENSTOCK_TEST_KAFKA=host:port the tests run on an existing cluster, with
PENSTOCK_TEST_KAFKA=apache on an Apache Kafka that is started for them.

Pytest loads this module in every run, with or without a test that uses it, so it imports nothing
of Penstock before a fixture is used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.client.consumer import Consumer
    from penstock.client.producer import Producer
    from penstock.serde.contract import Contract
    from penstock.testing.embedded_cluster import EmbeddedCluster
    from penstock.testing.platform import Platform

    MakeProducer: TypeAlias = Callable[..., Producer]
    MakeConsumer: TypeAlias = Callable[..., Consumer]
    MakeSchema: TypeAlias = Callable[..., Contract]

_PLATFORM: pytest.StashKey[Platform] = pytest.StashKey()


@pytest.fixture(scope="session")
def penstock_settings() -> dict[str, str]:
    """Broker settings by Kafka's names. Override it in your conftest.py."""
    return {}


@pytest.fixture(scope="session")
def penstock(
    penstock_settings: dict[str, str], request: pytest.FixtureRequest
) -> Iterator[Platform]:
    """A broker (`.bootstrap`) and a schema registry (`.registry_url`), with faults on request."""
    from penstock.testing.platform import Platform

    # A letter first: names of topics become names of records, which begin with a letter.
    run = "t" + os.environ.get("PYTEST_XDIST_TESTRUNUID", uuid4().hex)[:6]
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    kafka = os.environ.get("PENSTOCK_TEST_KAFKA") or None
    platform = Platform(f"{run}-{worker}", kafka=kafka, settings=penstock_settings)
    request.config.stash[_PLATFORM] = platform.start()
    yield platform
    del request.config.stash[_PLATFORM]
    platform.stop()


@pytest.fixture(scope="session")
def _penstock_cluster(penstock_settings: dict[str, str]) -> Iterator[EmbeddedCluster]:
    from penstock.testing.embedded_cluster import EmbeddedCluster

    with EmbeddedCluster(settings=penstock_settings) as cluster:
        yield cluster


@pytest.fixture
def penstock_cluster(_penstock_cluster: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    """Three brokers (`.bootstrap`), with kills, pauses and restarts by number.

    They serve the whole session; faults end with the test.
    """
    yield _penstock_cluster
    _penstock_cluster.heal()


@pytest.hookimpl(tryfirst=True)  # before the test's producers wait for a broker with a fault
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """End the faults of the test."""
    platform = item.config.stash.get(_PLATFORM, None)
    if platform is not None:
        platform.heal()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Skip tests with fixtures that need faults where there are none."""
    with _skipping(item):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip tests that need faults where there are none."""
    with _skipping(item):
        yield


@contextmanager
def _skipping(item: pytest.Item) -> Iterator[None]:
    try:
        yield
    except Exception as failure:
        if _PLATFORM in item.config.stash and type(failure).__name__ == "ForeignBrokerError":
            pytest.skip(str(failure))
        raise


@pytest.fixture
def penstock_topic(penstock: Platform, request: pytest.FixtureRequest) -> str:
    """The name of a new topic with one partition; `penstock.make_topic` makes others."""
    return penstock.make_topic(request.node.name)


@pytest.fixture
def penstock_schema(penstock: Platform, penstock_topic: str) -> MakeSchema:
    """Registers a schema for the values of the test's topic, and makes a contract of it.

    The schema is a text, a dict, or the path of an .avsc, .proto or .json file. `subject` and
    `type` ("AVRO", "PROTOBUF", "JSON") may be given.
    """

    def make(
        schema: str | Mapping[str, Any] | Path,
        *,
        subject: str | None = None,
        type: str = "",  # noqa: A002 - as of Contract
    ) -> Contract:
        from penstock.schemas.model import SchemaType
        from penstock.serde.contract import Contract

        text = json.dumps(schema) if isinstance(schema, Mapping) else schema
        contract = Contract(text, type=SchemaType(type) if type else None)
        source = contract.source(penstock.registry.register_reference)
        assert source is not None
        penstock.registry.register(subject or f"{penstock_topic}-value", source)
        return contract

    return make


@pytest.fixture
def penstock_producer(penstock: Platform, penstock_topic: str) -> Iterator[MakeProducer]:
    """Makes a producer, by default of the test's topic; it is closed at the end."""
    with ExitStack() as stack:

        def make(topic: str = penstock_topic, **options: Any) -> Producer:
            from penstock.client.producer import Producer

            if "value" in options or "key" in options:
                options.setdefault("registry", penstock.registry)
            return stack.enter_context(Producer(penstock.bootstrap, topic, **options))

        yield make


@pytest.fixture
def penstock_consumer(
    penstock: Platform, penstock_topic: str, request: pytest.FixtureRequest
) -> Iterator[MakeConsumer]:
    """Makes a consumer, by default of the test's topic and in a new group.

    Values are read by their schemas in a test that uses `penstock_schema`, else they are bytes.
    """
    registry = penstock.registry if "penstock_schema" in request.fixturenames else None
    with ExitStack() as stack:

        def make(
            topics: str | list[str] = penstock_topic, group: str | None = None, **options: Any
        ) -> Consumer:
            from penstock.client.consumer import Consumer

            options.setdefault("registry", registry)
            consumer = Consumer(penstock.bootstrap, topics, group or penstock.name(), **options)
            return stack.enter_context(consumer)

        yield make
