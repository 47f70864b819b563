"""Keys and values as programs have them: under a contract, or text and bytes without one.

RawSerializer      without a contract
Serializer         one key or value under a contract
ManySerializer     many of either, as columns where that is possible
"""

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.extras import is_installed, require
from penstock.serde.contract import Contract
from penstock.serde.errors import ArgumentError, ClientError, EncodeError
from penstock.serde.frame import Side
from penstock.serde.schema_source import SchemaSource
from penstock.serde.serializers import Framed, Serializer

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.serde.batch_serializers import BatchSerializer

COLUMN_ROWS_MIN: Final = 16  # fewer are as fast one by one, and no kernel has to be loaded

RowsGiven: TypeAlias = "list[Any] | pa.RecordBatch"


class RawSerializer:
    """No contract: bytes as they are, text as UTF-8."""

    def __init__(self, topic: str, side: Side) -> None:
        self._topic = topic
        self._side = side

    def serialize(self, value: Any) -> Framed:
        """The bytes."""
        match value:
            case None | bytes():
                return Framed(value)
            case str():
                return Framed(value.encode())
            case bytearray() | memoryview():
                return Framed(bytes(value))
            case other:
                raise ClientError(
                    f"a {type(other).__name__} cannot be the {self._side} of a record of "
                    f"{self._topic}: give bytes or text, or a contract to write it with"
                )


AnySerializer: TypeAlias = Serializer | RawSerializer


def serializer_for(
    topic: str, side: Side, contract: Contract | None, registry: SchemaSource | None
) -> AnySerializer:
    """What serializes the keys or values of a topic."""
    if contract is None:
        return RawSerializer(topic, side)
    if registry is None:
        raise ClientError(
            f"the {side} of {topic} has a contract, and there is no registry to store it: pass "
            "registry=Registry('http://host:8081')"
        )
    return Serializer(registry, topic, contract, side=side)


class ManySerializer:
    """Many keys or values: as columns where the contract allows it, else one by one.

    All rows of a call are serialized, or none: EncodeError has the first that is not allowed.
    """

    def __init__(self, single: AnySerializer) -> None:
        self._single = single
        self._batch: BatchSerializer | None = None

    def serialize_many(self, rows: RowsGiven, first_row: int = 0) -> list[Framed]:
        """The rows' bytes, in order; `first_row` is the number of the first one, for errors."""
        single = self._single
        if not isinstance(single, Serializer) or not _are_columns(rows):
            return self._one_by_one(rows, first_row)
        try:
            return self._as_columns(single, rows)
        except EncodeError:
            self._one_by_one(rows, first_row)  # raises an error that says more, and names the row
            raise

    def _as_columns(self, single: Serializer, rows: RowsGiven) -> list[Framed]:
        require("arrow")
        from penstock.serde.batch_serializers import BatchSerializer  # heavy, and rarely needed

        start_s = time.perf_counter()
        if self._batch is None:
            self._batch = BatchSerializer(
                single.registry, single.topic, single.contract, side=single.side
            )
        values = [row for row in rows if row is not None] if isinstance(rows, list) else rows
        try:
            encoded = self._batch.serialize_many(values)
        except ValueError as error:
            raise ClientError(f"these columns do not fit {single.subject}: {error}") from None
        framed = [Framed(content, encoded.headers) for content in encoded.contents()]
        if isinstance(rows, list) and len(values) < len(rows):
            left = iter(framed)
            framed = [_DELETE if row is None else next(left) for row in rows]
        single.stats.note(len(values), time.perf_counter() - start_s)
        return framed

    def _one_by_one(self, rows: RowsGiven, first_row: int) -> list[Framed]:
        framed = []
        for number, row in enumerate(rows_as_list(rows)):
            try:
                framed.append(self._single.serialize(row))
            except EncodeError as error:
                raise error.at_row(first_row + number) from None
        return framed


_DELETE: Final = Framed(None)


def _are_columns(rows: RowsGiven) -> bool:
    """Whether they have fields, as columns do, and are enough rows to be worth it."""
    if not isinstance(rows, list):
        return True
    has_fields = set(map(type, rows)) <= {dict, NoneType}
    return len(rows) >= COLUMN_ROWS_MIN and has_fields and is_installed("arrow")


def rows_as_list(rows: RowsGiven) -> list[Any]:
    """The rows as Python values."""
    return rows if isinstance(rows, list) else rows.to_pylist()


def row_chunks(values: Any, rows_max: int) -> "Iterator[RowsGiven]":
    """Values in chunks of a bounded size: Arrow as it is, anything else as lists."""
    if hasattr(values, "to_batches"):  # a table
        for batch in values.to_batches():
            yield from row_chunks(batch, rows_max)
    elif hasattr(values, "num_rows"):  # a record batch
        for start in range(0, values.num_rows, rows_max):
            yield values.slice(start, rows_max)
    else:
        left = iter(iterable_of(values))
        while chunk := list(islice(left, rows_max)):
            yield chunk


def iterable_of(values: Any) -> Iterable[Any]:
    """An Arrow array as Python values; anything else as it is."""
    given: Iterable[Any] = values.to_pylist() if hasattr(values, "to_pylist") else values
    if not isinstance(given, Iterable):
        raise ArgumentError(
            f"a {type(values).__name__} is not iterable: give a list or an Arrow array"
        )
    return given
