"""One event as a program sees it.

Records into events: a deserializer per topic and side, or plain bytes where there is none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

from penstock.client.quarantine import Origin
from penstock.client.registry import Registry
from penstock.model import Millis, Offset, TopicPartition
from penstock.serde.contract import Contract
from penstock.serde.errors import DecodeError
from penstock.serde.frame import Side
from penstock.serde.serializers import Deserializer


@dataclass(frozen=True, slots=True)
class Event:
    """A record that was read: where it is, and its key and value under their contracts."""

    topic: str
    partition: int
    offset: Offset
    timestamp: Millis
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition it is in."""
        return TopicPartition(self.topic, self.partition)


class UndecodableSide(Exception):
    """Which half of a record could not be read, and why."""

    def __init__(self, side: Side, wrong: DecodeError) -> None:
        super().__init__(str(wrong))
        self.side = side
        self.wrong = wrong


class Reading:
    """How one program reads: its reader schemas, and whether keys are under a contract too."""

    def __init__(
        self,
        registry: Registry | None,
        *,
        value: Contract | None,
        key: Contract | None,
        framed_keys: bool,
        as_dicts: bool,
        plain_indexes: bool,
        validate: bool = True,
    ) -> None:
        self._registry = registry
        self._readers = {Side.VALUE: value, Side.KEY: key}
        self._is_framed = {Side.VALUE: registry is not None, Side.KEY: framed_keys}
        self._as_dicts = as_dicts
        self._plain_indexes = plain_indexes
        self._validate = validate
        self._deserializers: dict[tuple[str, Side], Deserializer] = {}

    def __iter__(self) -> Iterator[Deserializer]:
        return iter(list(self._deserializers.values()))

    def event(self, origin: Origin) -> Event:
        """The event. Raises UndecodableSide, or RegistryUnavailableError: retry later."""
        return Event(
            origin.topic,
            origin.partition,
            origin.offset,
            origin.timestamp,
            self._side(origin, Side.KEY, origin.key),
            self._side(origin, Side.VALUE, origin.value),
            tuple(origin.headers),
        )

    def _side(self, origin: Origin, side: Side, content: bytes | None) -> Any:
        if content is None or not self._is_framed[side]:
            return content
        try:
            return self.deserializer(origin.topic, side).deserialize(content, origin.headers)
        except DecodeError as wrong:
            raise UndecodableSide(side, wrong) from None

    def deserializer(self, topic: str, side: Side) -> Deserializer:
        """The one for a topic's keys or values."""
        found = self._deserializers.get((topic, side))
        if found is None:
            assert self._registry is not None, "only what is framed is deserialized"
            found = self._deserializers[topic, side] = Deserializer(
                self._registry,
                topic,
                reader=self._readers[side],
                side=side,
                as_dicts=self._as_dicts,
                validate=self._validate,
                plain_indexes=self._plain_indexes,
            )
        return found


def origin_of(message: Message) -> Origin:
    """A record as it is in its topic."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None, "what was read has a topic"
    assert partition is not None, "and a partition"
    assert offset is not None, "and an offset"
    headers: Any = message.headers() or ()
    timestamp = Millis(message.timestamp()[1])
    return Origin(
        topic, partition, Offset(offset), timestamp, message.key(), message.value(), headers
    )
