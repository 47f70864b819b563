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
    from penstock.serde.framed_column import FramedColumn

COLUMN_ROWS_MIN: Final = 16  # fewer are as fast one by one, and no kernel has to be loaded

RowsGiven: TypeAlias = "list[Any] | pa.RecordBatch | pa.Array[Any]"


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
        if isinstance(single, Serializer) and _are_columns(rows):
            return self._as_columns(single, rows, first_row).framed()
        return self._one_by_one(rows, first_row)

    def serialize_column(self, rows: RowsGiven, first_row: int = 0) -> "FramedColumn":
        """The same as an Arrow column. Needs the extra `arrow`."""
        from penstock.serde.framed_column import framed_column, is_text_or_bytes  # heavy

        single = self._single
        if isinstance(single, Serializer) and _are_columns(rows):
            return self._as_columns(single, rows, first_row)
        if isinstance(single, RawSerializer) and is_text_or_bytes(rows):
            return framed_column(rows)
        return framed_column(self._one_by_one(rows, first_row))

    def _as_columns(self, single: Serializer, rows: RowsGiven, first_row: int) -> "FramedColumn":
        require("arrow")
        from penstock.serde.batch_serializers import BatchSerializer  # heavy, and rarely needed
        from penstock.serde.framed_column import encoded_column

        start_s = time.perf_counter()
        if self._batch is None:
            self._batch = BatchSerializer(
                single.registry, single.topic, single.contract, side=single.side
            )
        values: Any = rows
        is_valid: list[bool] | None = None
        if isinstance(rows, list) and None in rows:
            values = [row for row in rows if row is not None]
            is_valid = [row is not None for row in rows]
        try:
            encoded = self._batch.serialize_many(values)
        except ValueError as error:
            raise ClientError(f"these columns do not fit {single.subject}: {error}") from None
        except EncodeError:
            self._one_by_one(rows, first_row)  # raises an error that says more, and names the row
            raise
        column = encoded_column(encoded, is_valid)
        single.stats.note(len(values), time.perf_counter() - start_s)
        return column

    def _one_by_one(self, rows: RowsGiven, first_row: int) -> list[Framed]:
        framed = []
        for number, row in enumerate(rows_as_list(rows)):
            try:
                framed.append(self._single.serialize(row))
            except EncodeError as error:
                raise error.at_row(first_row + number) from None
        return framed


def _are_columns(rows: RowsGiven) -> bool:
    """Whether they have fields, as columns do, and are enough rows to be worth it."""
    if not isinstance(rows, list):
        return hasattr(rows, "num_columns")
    has_fields = set(map(type, rows)) <= {dict, NoneType}
    return len(rows) >= COLUMN_ROWS_MIN and has_fields and is_installed("arrow")


def rows_as_list(rows: RowsGiven) -> list[Any]:
    """The rows as Python values."""
    return rows if isinstance(rows, list) else rows.to_pylist()


class KeyRows:
    """The keys of many events, taken as many at a time as there are events."""

    def __init__(self, keys: Any) -> None:
        is_arrow = hasattr(keys, "combine_chunks") or hasattr(keys, "slice")
        self._array: Any = keys if is_arrow else None
        self._left = iter(()) if is_arrow else iter(iterable_of(keys))
        self._taken = 0

    def take(self, count: int) -> RowsGiven:
        """The next ones; ClientError if there are fewer."""
        if self._array is None:
            part: Any = list(islice(self._left, count))
        else:
            part = self._array.slice(self._taken, count)
            part = part.combine_chunks() if hasattr(part, "combine_chunks") else part
        self._taken += len(part)
        if len(part) < count:
            raise ClientError(f"there are fewer keys than events: event {self._taken} has none")
        taken: RowsGiven = part
        return taken

    def check_end(self) -> None:
        """ClientError if there are more keys."""
        end = object()
        if self._array is not None:
            has_more = self._taken < len(self._array)
        else:
            has_more = next(self._left, end) is not end
        if has_more:
            raise ClientError(
                f"there are more keys than events; all {self._taken} events were sent"
            )


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
