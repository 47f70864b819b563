"""Framed values in any column, to and from Spark's types: for values that come from elsewhere.

    orders = files.select(from_registry("payload", registry_url, "orders").alias("order"))
    framed = orders.select(to_registry("order", registry_url, "orders"))

Arrow functions over the same kernels as the source and the sink. Schemas are found when a function
is called, on the driver: `latest` is one version for the whole query.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, DataType, StructField, StructType

from penstock.errors import ErrorCode, Refused
from penstock.serde.contract import Contract
from penstock.serde.errors import ClientError
from penstock.serde.frame import Side
from penstock.spark import connections
from penstock.spark.query_plan import key_type
from penstock.spark.read_options import Coding
from penstock.spark.reader_schemas import choose_messages, find_readers, reader_columns
from penstock.spark.spark_columns import arrow_schema, spark_type
from penstock.spark.write_options import SidePlan, WriteRequest, contract_of, prepared

OnBad: TypeAlias = Literal["fail", "null"]
REGISTRY_WAIT_MS: Final = 30_000  # for a registry that does not answer, as the source's default
_CODECS_MAX: Final = 64
_COLUMN: Final = "value"


def from_registry(
    column: str | Column,
    registry: str,
    topic: str,
    *,
    schema: str = "latest",
    coding: str = "auto",
    message: str | None = None,
    columns: Sequence[str] | None = None,
    key: bool = False,
    on_error: OnBad = "fail",
) -> Column:
    """A binary column of framed values, decoded: a struct of the fields, or the value itself.

    The subject is that of the topic's values, or of its keys with `key`. `schema` is that of the
    reader: `latest`, a version's number, or a text, whose `coding` is avro, protobuf or json.
    `message` is Protobuf's, the first of the file unless given. `columns` are the fields wanted.
    A value that cannot be read fails the query, or is null. Null stays null.
    """
    if on_error not in ("fail", "null"):
        raise _refused(f"on_error is {on_error!r}, not fail or null")
    side = Side.KEY if key else Side.VALUE
    client = connections.registry(registry)
    found = find_readers(client, [topic], side, Coding(coding), schema)
    readers = choose_messages(client, found, message, lambda topic: ())
    decoded = reader_columns(client, readers, side, columns)
    kind = spark_type(key_type(decoded))
    (contract,) = readers.values()
    wanted = None if columns is None else tuple(columns)
    reading = _Reading(registry, topic, side, contract, wanted, _arrow_type(kind), on_error)
    return _applied(reading.decode, kind, column)


def to_registry(
    column: str | Column,
    registry: str,
    topic: str,
    *,
    schema: Contract | str | Path = "latest",
    key: bool = False,
) -> Column:
    """A column as framed values, in binary: a struct is a record of its fields. Null stays null.

    `schema` is a text, an .avsc, .proto or .json file, a `Contract`, or `latest`. It is registered
    now, under the topic's subject for values (or keys with `key`); what the registry refuses fails
    here. A row that does not fit its schema fails the query.
    """
    side = Side.KEY if key else Side.VALUE
    contract = contract_of(schema)
    request = prepared(
        WriteRequest(
            properties={},
            topic=topic,
            schema=None if key else contract,
            key_schema=contract if key else None,
            registry_url=registry,
        )
    )
    bound = request.key_schema if key else request.schema
    assert bound is not None, "a contract was given"
    writing = _Writing(registry, topic, side, bound)
    return _applied(writing.encode, BinaryType(), column)


def _applied(work: Callable[[Any], Any], kind: DataType, column: str | Column) -> Column:
    """An Arrow function of one column: Spark tells that by the annotations."""

    def function(values: Any) -> Any:
        return work(values)

    function.__annotations__ = {"values": pa.Array, "return": pa.Array}
    udf: Any = arrow_udf
    result: Column = udf(function, kind)(column)
    return result


@dataclass(frozen=True)
class _Reading:
    """What tasks need to decode."""

    registry: str
    topic: str
    side: Side
    contract: Contract
    columns: tuple[str, ...] | None
    kind: pa.DataType
    on_error: OnBad

    def decode(self, values: Any) -> Any:
        from penstock.columns.vm.slots import OutputTooLarge  # kernels: workers only
        from penstock.spark.decode_rows import UnreadableRecord, key_column, patiently
        from penstock.spark.fit_arrow import fit_rows, kept_where

        if not (pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)):
            raise _refused(f"from_registry reads a binary column, not {values.type}")
        reader = _deserializer(self.registry, self.topic, self.contract, self.columns, self.side)
        try:
            read = patiently(lambda: reader.deserialize_many(values), REGISTRY_WAIT_MS)
        except OutputTooLarge:
            if len(values) == 1:
                raise
            middle = len(values) // 2
            halves = (values.slice(0, middle), values.slice(middle))
            return pa.concat_arrays([self.decode(pa.concat_arrays([one])) for one in halves])
        if read.wrongs and self.on_error == "fail":
            wrong = read.wrongs[0]
            raise UnreadableRecord(
                f"from_registry, topic {self.topic}: a {self.side} cannot be read"
                f" ({wrong.reason}: {wrong.detail}); with on_error='null' it would be null"
            )
        is_null = values.is_null().to_numpy(zero_copy_only=False).copy()
        is_null[[wrong.row for wrong in read.wrongs]] = True
        column, unfit = fit_rows(key_column(read.batch, is_null), self.kind)
        if unfit.any() and self.on_error == "fail":
            raise UnreadableRecord(
                f"from_registry, topic {self.topic}: a {self.side} is beyond what Spark's type for"
                " it can hold; with on_error='null' it would be null"
            )
        return kept_where(column, ~is_null) if is_null.any() else column


@dataclass(frozen=True)
class _Writing:
    """What tasks need to encode."""

    registry: str
    topic: str
    side: Side
    contract: Contract

    def encode(self, values: Any) -> Any:
        writer = _writer(self.registry, self.topic, self.side, self.contract)
        try:
            return writer.write(pa.RecordBatch.from_arrays([values], [_COLUMN])).cast(pa.binary())
        except ClientError as wrong:
            raise ClientError(f"to_registry: {wrong}") from None


@lru_cache(maxsize=_CODECS_MAX)
def _deserializer(
    url: str, topic: str, reader: Contract, columns: tuple[str, ...] | None, side: Side
) -> Any:
    """Kept by the process: its programs are compiled once for each pair of schemas."""
    from penstock.serde.batch_serializers import BatchDeserializer

    client = connections.registry(url)
    return BatchDeserializer(client, topic, reader=reader, columns=columns, side=side)


@lru_cache(maxsize=_CODECS_MAX)
def _writer(url: str, topic: str, side: Side, contract: Contract) -> Any:
    from penstock.spark.pack_rows import SideWriter

    return SideWriter(url, topic, side, SidePlan((_COLUMN,), contract, is_row=False))


def _arrow_type(kind: DataType) -> pa.DataType:
    wanted: pa.DataType = arrow_schema(StructType([StructField(_COLUMN, kind)])).field(0).type
    return wanted


def _refused(why: str) -> Refused:
    return Refused(ErrorCode.invalid_config, why)
