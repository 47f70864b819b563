"""A proposed schema tried on what is in a topic."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own exports, undeclared
    AdminClient,
    NewTopic,
)

from penstock.client.contract import Contract
from penstock.client.contracts.model import CannotCheck, Tally
from penstock.client.contracts.proposals import Question, read_proposal
from penstock.client.contracts.recorded import try_recorded
from penstock.client.contracts.registry_api import RegistryApi
from penstock.client.contracts.registry_shelf import RegistryShelf
from penstock.client.registry import Registry
from penstock.client.serializers import Serializer

MakeOrder = Callable[..., str]


@pytest.fixture
def topic(bootstrap: str, subject: str) -> str:
    name = subject.removesuffix("-value")
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([NewTopic(name, 2)])[name].result(20)
    return name


@pytest.fixture
def fill(bootstrap: str, registry_url: str, topic: str, order: MakeOrder) -> Callable[[], None]:
    """Ten events without `b`, ten with, one that is no event, and one without a value."""

    def write() -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        with Registry(registry_url) as registry:
            for text, event in ((order("a:int"), {"a": 1}), (order("a:int", "b:int=0"), {"b": 2})):
                serializer = Serializer(registry, topic, Contract(text))
                for number in range(10):
                    framed = serializer.serialize({"a": 1, **event})
                    producer.produce(topic, framed.content, partition=number % 2)
        producer.produce(topic, b"plain text", partition=0)
        producer.produce(topic, None, key=b"gone", partition=1)
        assert producer.flush(20) == 0

    return write


def tried(bootstrap: str, registry_url: str, topic: str, path: Path, most: int = 1000) -> Tally:
    with RegistryApi(registry_url) as api, Registry(registry_url) as registry:
        proposal = read_proposal(Question(path, f"{topic}-value", RegistryShelf(api)))
        return try_recorded(bootstrap, topic, most, registry, proposal)


def test_failures_are_told_by_the_version_that_wrote(
    bootstrap: str,
    registry_url: str,
    topic: str,
    fill: Callable[[], None],
    order: MakeOrder,
    tmp_path: Path,
) -> None:
    fill()
    path = tmp_path / "new.avsc"
    path.write_text(order("a:int", "b:int"))
    tally = tried(bootstrap, registry_url, topic, path)
    assert (tally.events, tally.failed, tally.empty) == (21, 11, 1)
    by_writer = {name.partition(" (id")[0]: one for name, one in tally.by_writer.items()}
    assert by_writer["version 1"].failed == 10
    assert by_writer["version 2"].failed == 0
    assert by_writer["(no frame)"].reasons == {"not_framed": 1}
    assert "offset" in by_writer["version 1"].first


def test_only_the_last_events_are_read(
    bootstrap: str,
    registry_url: str,
    topic: str,
    fill: Callable[[], None],
    order: MakeOrder,
    tmp_path: Path,
) -> None:
    fill()
    path = tmp_path / "new.avsc"
    path.write_text(order("a:int"))
    tally = tried(bootstrap, registry_url, topic, path, most=4)
    assert tally.events + tally.empty == 4


def test_an_empty_topic_has_nothing_to_object(
    bootstrap: str, registry_url: str, topic: str, order: MakeOrder, tmp_path: Path
) -> None:
    path = tmp_path / "new.avsc"
    path.write_text(order("a:int"))
    assert tried(bootstrap, registry_url, topic, path) == Tally(topic)


def test_a_topic_that_is_not_there_cannot_be_tried(
    bootstrap: str, registry_url: str, order: MakeOrder, tmp_path: Path
) -> None:
    path = tmp_path / "new.avsc"
    path.write_text(order("a:int"))
    with pytest.raises(CannotCheck, match="no topic nowhere"):
        tried(bootstrap, registry_url, "nowhere", path)
