"""Keys and values as programs have them: under a contract, or plain text and bytes."""

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.extras import is_installed
from penstock.serde.contract import Contract
from penstock.serde.errors import ArgumentError, ClientError, EncodeError
from penstock.serde.frame import Side
from penstock.serde.schema_source import SchemaSource
from penstock.serde.serializers import Framed, Serializer

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.serde.batch_serializers import BatchSerializer

VECTOR_ROWS_MIN: Final = 16  # fewer are written one by one as fast, and kernels need not be loaded

Rows: TypeAlias = "list[Any] | pa.RecordBatch"


class PlainWriter:
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


SideWriter: TypeAlias = Serializer | PlainWriter


def writer_for(
    topic: str, side: Side, contract: Contract | None, registry: SchemaSource | None
) -> SideWriter:
    """What writes one side of a topic's records."""
    if contract is None:
        return PlainWriter(topic, side)
    if registry is None:
        raise ClientError(
            f"the {side} of {topic} has a contract, and there is no registry to keep it: pass "
            "registry=Registry('http://host:8081')"
        )
    return Serializer(registry, topic, contract, side=side)


class ManyWriter:
    """One side of many records: as vectors where the contract allows it, else one by one.

    All rows of a call are written, or none: EncodeError names the first that does not fit.
    """

    def __init__(self, one: SideWriter) -> None:
        self._one = one
        self._vector: BatchSerializer | None = None

    def serialize_many(self, rows: Rows, first_row: int = 0) -> list[Framed]:
        """The rows' bytes, in order; `first_row` is the number of the first one, for errors."""
        one = self._one
        if not isinstance(one, Serializer) or not _are_vector(rows):
            return self._one_by_one(rows, first_row)
        try:
            return self._as_vector(one, rows)
        except EncodeError:
            self._one_by_one(rows, first_row)  # it says more about what is wrong, and where
            raise

    def _as_vector(self, one: Serializer, rows: Rows) -> list[Framed]:
        from penstock.serde.batch_serializers import (
            BatchSerializer,  # heavy, and not everybody sends many
        )

        start_s = time.perf_counter()
        if self._vector is None:
            self._vector = BatchSerializer(one.registry, one.topic, one.contract, side=one.side)
        values = [row for row in rows if row is not None] if isinstance(rows, list) else rows
        try:
            encoded = self._vector.serialize_many(values)
        except ValueError as wrong:
            raise ClientError(f"these columns are not those of {one.subject}: {wrong}") from None
        framed = [Framed(content, encoded.headers) for content in encoded.contents()]
        if isinstance(rows, list) and len(values) < len(rows):
            left = iter(framed)
            framed = [_DELETE if row is None else next(left) for row in rows]
        one.stats.note(len(values), time.perf_counter() - start_s)
        return framed

    def _one_by_one(self, rows: Rows, first_row: int) -> list[Framed]:
        framed = []
        for number, row in enumerate(events_of(rows)):
            try:
                framed.append(self._one.serialize(row))
            except EncodeError as wrong:
                raise wrong.at_row(first_row + number) from None
        return framed


_DELETE: Final = Framed(None)


def _are_vector(rows: Rows) -> bool:
    """Whether they have fields, as columns do, and are enough of them to be worth it."""
    if not isinstance(rows, list):
        return True
    has_fields = set(map(type, rows)) <= {dict, NoneType}
    return len(rows) >= VECTOR_ROWS_MIN and has_fields and is_installed("arrow")


def events_of(rows: Rows) -> list[Any]:
    """The rows as Python has them."""
    return rows if isinstance(rows, list) else rows.to_pylist()


def parts_of(values: Any, rows_max: int) -> "Iterator[Rows]":
    """Values in parts of a bounded size: Arrow as it is, anything else as lists."""
    if hasattr(values, "to_batches"):  # a table
        for batch in values.to_batches():
            yield from parts_of(batch, rows_max)
    elif hasattr(values, "num_rows"):  # a record batch
        for start in range(0, values.num_rows, rows_max):
            yield values.slice(start, rows_max)
    else:
        left = iter(listed(values))
        while part := list(islice(left, rows_max)):
            yield part


def listed(values: Any) -> Iterable[Any]:
    """An Arrow array as Python has it; anything else as it is."""
    found: Iterable[Any] = values.to_pylist() if hasattr(values, "to_pylist") else values
    if not isinstance(found, Iterable):
        raise ArgumentError(f"a {type(values).__name__} is not many: give a list or an Arrow array")
    return found
