"""Events of one topic as columns, and how records become them.

Where a column of coordinates is not asked for, it is not made. Imported when a program first asks
for columns: pyarrow and compiled kernels are heavy.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from confluent_kafka import Message

from penstock.client.registry import Registry
from penstock.serde.batch_frames import WrongRow
from penstock.serde.batch_serializers import BatchDeserializer
from penstock.serde.contract import Contract
from penstock.serde.errors import ArgumentError
from penstock.serde.frame import Side
from penstock.serde.serializers import SerdeStats


class EventBatch:
    """Events of one topic, in the order they were read.

    `values` is an Arrow record batch with a row per event and a column per field. The other
    columns say where each event was: `partitions`, `offsets`, `timestamps`, `keys` (as bytes).
    An event without a value, which deletes its key, is a row of nulls; `deletes` tells them apart.
    """

    def __init__(self, topic: str, values: pa.RecordBatch, messages: Sequence[Message]) -> None:
        assert values.num_rows == len(messages), "a row per record"
        self.topic = topic
        self.values = values
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    def __repr__(self) -> str:
        return f"<{len(self)} events of {self.topic}: {', '.join(self.values.schema.names)}>"

    @cached_property
    def partitions(self) -> "pa.Array[Any]":
        """As int32."""
        return pa.array([one.partition() for one in self._messages], pa.int32())

    @cached_property
    def offsets(self) -> "pa.Array[Any]":
        """As int64."""
        return pa.array([one.offset() for one in self._messages], pa.int64())

    @cached_property
    def timestamps(self) -> "pa.Array[Any]":
        """In milliseconds, UTC."""
        told = [one.timestamp()[1] for one in self._messages]
        return pa.array(told, pa.timestamp("ms", tz="UTC"))

    @cached_property
    def keys(self) -> "pa.Array[Any]":
        """The bytes as they are in the records; null where there is none."""
        return pa.array([one.key() for one in self._messages], pa.large_binary())

    @cached_property
    def deletes(self) -> "pa.Array[Any]":
        """Which events have no value."""
        return pa.array([one.value() is None for one in self._messages], pa.bool_())

    def among(self, messages: Iterable[Message]) -> "EventBatch":
        """Only the rows of these records."""
        wanted = set(map(id, messages))
        rows = [row for row, one in enumerate(self._messages) if id(one) in wanted]
        if len(rows) == len(self):
            return self
        values = self.values.take(pa.array(rows, pa.int64()))
        return EventBatch(self.topic, values, [self._messages[row] for row in rows])


class ColumnReading:
    """How one program reads columns: its reader's schema, and the fields it wants."""

    def __init__(
        self,
        registry: Registry,
        reader: Contract | None,
        columns: Sequence[str] | None,
        *,
        plain_indexes: bool = False,
        validate: bool = True,
    ) -> None:
        self._registry = registry
        self._reader = reader
        self._columns = columns
        self._plain_indexes = plain_indexes
        self._validate = validate
        self._deserializers: dict[str, BatchDeserializer] = {}

    def stats(self) -> Iterator[tuple[str, SerdeStats]]:
        """By subject."""
        for topic, one in list(self._deserializers.items()):
            yield f"{topic}-{Side.VALUE}", one.stats

    def read(
        self, topic: str, messages: Sequence[Message]
    ) -> tuple[EventBatch, Sequence[WrongRow]]:
        """A row per record; raises RegistryUnavailableError for no fault of theirs."""
        one = self._deserializers.get(topic)
        if one is None:
            one = self._deserializers[topic] = BatchDeserializer(
                self._registry,
                topic,
                reader=self._reader,
                columns=self._columns,
                validate=self._validate,
                plain_indexes=self._plain_indexes,
            )
        headers: list[Any] = [message.headers() for message in messages]
        try:
            values, wrongs = one.deserialize_many(
                [message.value() for message in messages], headers if any(headers) else None
            )
        except ValueError as wrong:
            if type(wrong) is not ValueError:  # Arrow's are something else
                raise
            raise ArgumentError(f"the columns of {topic} cannot be read: {wrong}") from None
        return EventBatch(topic, values, messages), wrongs
