"""Events of one topic as Arrow columns, and how records become them.

Columns of positions are made when they are first used. Imported when a program first uses columns,
because pyarrow and the kernels are heavy.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from confluent_kafka import Message

from penstock.client.registry import Registry
from penstock.serde.batch_serializers import BatchDeserializer
from penstock.serde.contract import Contract
from penstock.serde.errors import ArgumentError, DecodeError
from penstock.serde.serde_stats import SerdeStats


class EventBatch:
    """Events of one topic, in the order they were read.

    `values` is an Arrow record batch with a row per event and a column per field. The other
    columns say where each event was: `partitions`, `offsets`, `timestamps`, `keys` (as bytes).
    An event without a value, which deletes its key, is a row of nulls; `deletes` marks these rows.
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
        return pa.array([message.partition() for message in self._messages], pa.int32())

    @cached_property
    def offsets(self) -> "pa.Array[Any]":
        """As int64."""
        return pa.array([message.offset() for message in self._messages], pa.int64())

    @cached_property
    def timestamps(self) -> "pa.Array[Any]":
        """In milliseconds, UTC."""
        millis = [message.timestamp()[1] for message in self._messages]
        return pa.array(millis, pa.timestamp("ms", tz="UTC"))

    @cached_property
    def keys(self) -> "pa.Array[Any]":
        """The bytes in the records; null where there is no key."""
        return pa.array([message.key() for message in self._messages], pa.large_binary())

    @cached_property
    def deletes(self) -> "pa.Array[Any]":
        """Which events have no value."""
        return pa.array([message.value() is None for message in self._messages], pa.bool_())

    def only(self, messages: Iterable[Message]) -> "EventBatch":
        """The rows of these records."""
        included = set(map(id, messages))
        rows = [row for row, message in enumerate(self._messages) if id(message) in included]
        if len(rows) == len(self):
            return self
        values = self.values.take(pa.array(rows, pa.int64()))
        return EventBatch(self.topic, values, [self._messages[row] for row in rows])


class ColumnReader:
    """How one program reads columns: its reader schema, and the fields it uses."""

    def __init__(
        self,
        registry: Registry,
        contract: Contract | None,
        columns: Sequence[str] | None,
        *,
        plain_indexes: bool = False,
        validate: bool = True,
    ) -> None:
        self._registry = registry
        self._contract = contract
        self._columns = columns
        self._plain_indexes = plain_indexes
        self._validate = validate
        self._deserializers: dict[str, BatchDeserializer] = {}

    def stats(self) -> Iterator[tuple[str, SerdeStats]]:
        """By subject."""
        for deserializer in list(self._deserializers.values()):
            yield deserializer.subject, deserializer.stats

    def read(
        self, topic: str, messages: Sequence[Message]
    ) -> tuple[EventBatch, Sequence[tuple[int, DecodeError]]]:
        """A row per record, and the rows that cannot be read; RegistryUnavailableError: retry."""
        deserializer = self._deserializer(topic)
        headers: list[Any] = [message.headers() for message in messages]
        try:
            values, rows = deserializer.deserialize_many(
                [message.value() for message in messages], headers if any(headers) else None
            )
        except ValueError as invalid:
            if type(invalid) is not ValueError:  # Arrow's are subclasses
                raise
            raise ArgumentError(f"cannot read the columns of {topic}: {invalid}") from None
        subject = deserializer.subject
        errors = [
            (row, DecodeError(reason, detail, schema=schema, subject=subject))
            for row, reason, detail, schema in rows
        ]
        return EventBatch(topic, values, messages), errors

    def _deserializer(self, topic: str) -> BatchDeserializer:
        deserializer = self._deserializers.get(topic)
        if deserializer is None:
            deserializer = self._deserializers[topic] = BatchDeserializer(
                self._registry,
                topic,
                reader=self._contract,
                columns=self._columns,
                validate=self._validate,
                plain_indexes=self._plain_indexes,
            )
        return deserializer
