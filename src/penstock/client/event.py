"""Records to events: a deserializer for each topic's keys and values, or bytes as they are."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

from penstock.client.kafka_messages import offset_of, partition_of
from penstock.client.quarantine import OriginalRecord
from penstock.client.registry import Registry
from penstock.model import Millis, Offset, TopicPartition
from penstock.serde.contract import Contract
from penstock.serde.errors import DecodeError
from penstock.serde.frame import Side
from penstock.serde.serializers import Deserializer


@dataclass(frozen=True, slots=True)
class Event:
    """A record that was read: where it was, and its key and value under their contracts."""

    topic: str
    partition: int
    offset: Offset
    timestamp: Millis
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition it was in."""
        return TopicPartition(self.topic, self.partition)


class SideDecodeError(Exception):
    """The key or the value of a record cannot be read."""

    def __init__(self, side: Side, error: DecodeError) -> None:
        super().__init__(str(error))
        self.side = side
        self.error = error


class RecordReader:
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
        self._contracts = {Side.VALUE: value, Side.KEY: key}
        self._is_framed = {Side.VALUE: registry is not None, Side.KEY: framed_keys}
        self._as_dicts = as_dicts
        self._plain_indexes = plain_indexes
        self._validate = validate
        self._deserializers: dict[tuple[str, Side], Deserializer] = {}

    def __iter__(self) -> Iterator[Deserializer]:
        return iter(list(self._deserializers.values()))

    def read(self, record: OriginalRecord) -> Event:
        """The event. Raises SideDecodeError, or RegistryUnavailableError: retry later."""
        return Event(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            self._read_side(record, Side.KEY, record.key),
            self._read_side(record, Side.VALUE, record.value),
            tuple(record.headers),
        )

    def _read_side(self, record: OriginalRecord, side: Side, content: bytes | None) -> Any:
        if content is None or not self._is_framed[side]:
            return content
        try:
            return self.deserializer(record.topic, side).deserialize(content, record.headers)
        except DecodeError as error:
            raise SideDecodeError(side, error) from None

    def deserializer(self, topic: str, side: Side) -> Deserializer:
        """The deserializer of a topic's keys or values."""
        deserializer = self._deserializers.get((topic, side))
        if deserializer is None:
            assert self._registry is not None, "only framed keys and values are deserialized"
            deserializer = self._deserializers[topic, side] = Deserializer(
                self._registry,
                topic,
                reader=self._contracts[side],
                side=side,
                as_dicts=self._as_dicts,
                validate=self._validate,
                plain_indexes=self._plain_indexes,
            )
        return deserializer


def original_record(message: Message) -> OriginalRecord:
    """A record that was read, as it is in its topic."""
    topic, partition = partition_of(message)
    headers: Any = message.headers() or ()
    timestamp = Millis(message.timestamp()[1])
    offset = offset_of(message)
    return OriginalRecord(
        topic, partition, offset, timestamp, message.key(), message.value(), headers
    )
