"""Events of one topic as columns, and how records become them.

Where a column of coordinates is not asked for, it is not made.
"""

import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from penstock.client.batches import BatchDeserializer, ReadBatch
from penstock.client.contract import Contract
from penstock.client.frame import Side
from penstock.client.registry import Registry
from penstock.client.serializers import SerdeStats


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

    def kept(self, rows: Sequence[int]) -> "EventBatch":
        """Only these rows, which are in order."""
        if len(rows) == len(self):
            return self
        values = self.values.take(pa.array(rows, pa.int64()))
        return EventBatch(self.topic, values, [self._messages[row] for row in rows])

    def among(self, messages: Sequence[Message]) -> "EventBatch":
        """Only the rows of these records."""
        known = set(map(id, messages))
        return self.kept([row for row, one in enumerate(self._messages) if id(one) in known])


class ColumnReading:
    """How one program reads columns: its reader's schema, and the fields it wants."""

    def __init__(
        self, registry: Registry, reader: Contract | None, columns: Sequence[str] | None
    ) -> None:
        self._registry = registry
        self._reader = reader
        self._columns = columns
        self._deserializers: dict[str, BatchDeserializer] = {}

    def stats(self) -> Iterator[tuple[str, SerdeStats]]:
        """By subject."""
        for topic, one in list(self._deserializers.items()):
            yield f"{topic}-{Side.VALUE}", one.stats

    def read(self, topic: str, messages: Sequence[Message]) -> ReadBatch:
        """A row per record; raises RegistryUnavailable for no fault of theirs."""
        start_s = time.perf_counter()
        one = self._deserializers.get(topic)
        if one is None:
            one = self._deserializers[topic] = BatchDeserializer(
                self._registry, topic, reader=self._reader, columns=self._columns
            )
        headers: list[Any] = [message.headers() for message in messages]
        found = one.deserialize_many(
            [message.value() for message in messages], headers if any(headers) else None
        )
        one.stats.seconds += time.perf_counter() - start_s
        return found


def rows_but(count: int, left_out: Sequence[int]) -> list[int]:
    """All rows but some."""
    kept = np.ones(count, dtype=np.bool_)
    kept[np.asarray(left_out, dtype=np.int64)] = False
    return list(np.flatnonzero(kept).tolist())
