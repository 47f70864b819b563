"""Framed values in any column, to and from Spark's types: for values that come from other sources.

    orders = files.select(from_registry("payload", registry_url, "orders").alias("order"))
    framed = orders.select(to_registry("order", registry_url, "orders"))

Arrow functions over the same kernels as the source and the sink. Schemas are resolved when a
function is called, on the driver: `latest` is one version for the whole query.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, DataType, StructField, StructType

from penstock.serde.contract import Contract
from penstock.serde.errors import ClientError
from penstock.serde.frame import Side
from penstock.spark.connections import registry_client
from penstock.spark.given_options import config_error
from penstock.spark.read_options import REGISTRY_WAIT_MS, PayloadFormat
from penstock.spark.reader_schemas import choose_messages, find_readers, reader_columns
from penstock.spark.source_columns import SINGLE_FIELD, single_column_type
from penstock.spark.spark_types import arrow_schema, spark_type
from penstock.spark.write_options import PayloadPlan, WriteRequest, contract_of

if TYPE_CHECKING:
    from penstock.spark.encode_rows import PayloadEncoder

FailOrNull: TypeAlias = Literal["fail", "null"]
_ENCODERS_MAX: Final = 64


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
    on_error: FailOrNull = "fail",
) -> Column:
    """A binary column of framed values, decoded: a struct of the fields, or the value itself.

    The subject is that of the topic's values, or of its keys with `key`. `schema` is the reader's:
    `latest`, a version number, or a text, whose `coding` is avro, protobuf or json. `message` is
    Protobuf's, the first of the file by default. `columns` are the fields to decode. A value that
    cannot be decoded fails the query, or is null. Null stays null.
    """
    if on_error not in ("fail", "null"):
        raise config_error(f"on_error is {on_error!r}, not fail or null")
    side = Side.KEY if key else Side.VALUE
    client = registry_client(registry)
    readers = find_readers(client, [topic], side, PayloadFormat(coding), schema)
    readers = choose_messages(client, readers, message, lambda _: ())
    result_type = spark_type(single_column_type(reader_columns(client, readers, side, columns)))
    (contract,) = readers.values()
    fields = None if columns is None else tuple(columns)
    decode = _Decode(registry, topic, side, contract, fields, _arrow_type(result_type), on_error)
    return _applied(decode.run, result_type, column)


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
    request = WriteRequest(
        topic,
        registry=registry,
        schema=None if key else schema,
        key_schema=schema if key else None,
    ).prepared()
    contract = contract_of(request.key_schema if key else request.schema)
    assert contract is not None, "a schema was given"
    encode = _Encode(registry, topic, side, contract)
    return _applied(encode.run, BinaryType(), column)


def _applied(function: Callable[[Any], Any], result_type: DataType, column: str | Column) -> Column:
    """An Arrow function of one column: Spark recognises it by the annotations."""

    def apply(values: Any) -> Any:
        return function(values)

    apply.__annotations__ = {"values": pa.Array, "return": pa.Array}
    udf: Any = arrow_udf
    result: Column = udf(apply, result_type)(column)
    return result


@dataclass(frozen=True)
class _Decode:
    """What tasks need to decode."""

    registry: str
    topic: str
    side: Side
    contract: Contract
    fields: tuple[str, ...] | None
    arrow_type: pa.DataType
    on_error: FailOrNull

    def run(self, values: Any) -> Any:
        from penstock.columns.vm.payloads import OutputTooLargeError  # kernels: workers only
        from penstock.spark.decode_rows import (
            cached_deserializer,
            single_column,
            with_registry_retries,
        )
        from penstock.spark.fit_arrow import fit_rows, null_unless

        if not (pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)):
            raise config_error(f"from_registry reads a binary column, not {values.type}")
        deserializer = cached_deserializer(
            self.registry, self.topic, self.contract, self.fields, self.side
        )
        try:
            read = with_registry_retries(
                lambda: deserializer.deserialize_many(values), REGISTRY_WAIT_MS
            )
        except OutputTooLargeError:
            if len(values) == 1:
                raise
            middle = len(values) // 2
            halves = (values.slice(0, middle), values.slice(middle))
            return pa.concat_arrays([self.run(pa.concat_arrays([half])) for half in halves])
        if read.errors:
            self._fail_or_null(f"({read.errors[0].reason}: {read.errors[0].detail})")
        is_null = values.is_null().to_numpy(zero_copy_only=False).copy()
        is_null[[error.row for error in read.errors]] = True
        column, unfit = fit_rows(single_column(read.batch, is_null), self.arrow_type)
        if unfit.any():
            self._fail_or_null("(out of the range of Spark's type for it)")
        return null_unless(column, ~is_null) if is_null.any() else column

    def _fail_or_null(self, reason: str) -> None:
        from penstock.spark.decode_rows import UnreadableRecordError

        if self.on_error == "fail":
            raise UnreadableRecordError(
                f"from_registry, topic {self.topic}: cannot decode a {self.side} {reason}; with"
                " on_error='null' it would be null"
            )


@dataclass(frozen=True)
class _Encode:
    """What tasks need to encode."""

    registry: str
    topic: str
    side: Side
    contract: Contract

    def run(self, values: Any) -> Any:
        encoder = _cached_encoder(self.registry, self.topic, self.side, self.contract)
        rows = pa.RecordBatch.from_arrays([values], [SINGLE_FIELD])
        try:
            return encoder.encode(rows).cast(pa.binary())
        except ClientError as error:
            raise ClientError(f"to_registry: {error}") from None


@lru_cache(maxsize=_ENCODERS_MAX)
def _cached_encoder(url: str, topic: str, side: Side, contract: Contract) -> "PayloadEncoder":
    from penstock.spark.encode_rows import PayloadEncoder  # kernels: workers only

    return PayloadEncoder(url, topic, side, PayloadPlan((SINGLE_FIELD,), contract, is_row=False))


def _arrow_type(spark_data_type: DataType) -> pa.DataType:
    schema = arrow_schema(StructType([StructField(SINGLE_FIELD, spark_data_type)]))
    arrow_type: pa.DataType = schema.field(0).type
    return arrow_type
