"""The columns of a read: those a record has by itself, and those that its value is decoded into.

Names with an underscore are the record's own, so that they do not meet a schema's. Where values are
left raw the names of Spark's own Kafka source mean the same, and are the columns unless told
otherwise: a job moves from format("kafka") by changing the word.

The types that Spark has for decoded columns, chosen so that no value is changed.

As Spark's own `from_avro` where both have the type: times of day are numbers. Nanoseconds are
numbers too, because Spark's timestamps would cut them; a decimal beyond 38 digits is text. Nested
fields are nullable, as those of Spark's file sources are: `toArrow()` fails on a required field
within a struct that is null.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.errors import ErrorCode, Refused
from penstock.spark.read_options import Coding, OnError, ReadOptions

KEY: Final = "_key"
KEY_BYTES: Final = "_key_bytes"  # of a decoded key, where `_error` is set
VALUE: Final = "_value"  # of a decoded value, where `_error` is set
TOPIC: Final = "_topic"
PARTITION: Final = "_partition"
OFFSET: Final = "_offset"
TIMESTAMP: Final = "_timestamp"
TIMESTAMP_TYPE: Final = "_timestamp_type"
HEADERS: Final = "_headers"
SCHEMA_ID: Final = "_schema_id"
ERROR: Final = "_error"

# As `columns.shape` has it; that room's kernels are not for the driver.
HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ERROR_TYPE: Final = pa.struct(
    [("reason", pa.string()), ("detail", pa.string()), ("side", pa.string())]
)
OWN_TYPES: Final[Mapping[str, pa.DataType]] = {
    KEY: pa.binary(),
    KEY_BYTES: pa.binary(),
    VALUE: pa.binary(),
    TOPIC: pa.string(),
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    TIMESTAMP_TYPE: pa.int32(),
    HEADERS: HEADERS_TYPE,
    SCHEMA_ID: pa.int32(),
    ERROR: ERROR_TYPE,
}
_AS_SPARK: Final[Mapping[str, str]] = {  # in the order of Spark's own source
    "key": KEY,
    "value": VALUE,
    "topic": TOPIC,
    "partition": PARTITION,
    "offset": OFFSET,
    "timestamp": TIMESTAMP,
    "timestampType": TIMESTAMP_TYPE,
    "headers": HEADERS,
}


def own_column(name: str, value: Coding) -> str | None:
    """Which of a record's own columns a name means; None for one of the value's fields."""
    if name in OWN_TYPES:
        return name
    return _AS_SPARK.get(name) if value is Coding.RAW else None


def asked_fields(options: ReadOptions) -> tuple[str, ...] | None:
    """The fields of the value that must be decoded; None for all there are."""
    if options.value is Coding.RAW:
        return ()
    if options.columns is None:
        return None
    return tuple(name for name in options.columns if own_column(name, options.value) is None)


def column_names(options: ReadOptions, fields: Sequence[str]) -> tuple[str, ...]:
    """The columns of a read, in order, where the value has these fields."""
    if options.columns is not None:
        for name in options.columns:
            if own_column(name, options.value) is None and name not in fields:
                raise Refused(
                    ErrorCode.invalid_config,
                    f"option columns has {name}, which is no field of the value and none of"
                    f" {', '.join(OWN_TYPES)}",
                )
        return options.columns
    if options.value is options.key is Coding.RAW:
        return tuple(name for name in _AS_SPARK if name != "headers" or options.include_headers)
    clash = [name for name in fields if name in OWN_TYPES]
    if clash:
        raise Refused(
            ErrorCode.invalid_config,
            f"the value has a field {clash[0]}, as a record's own column is named: say with"
            " `columns` which columns there shall be",
        )
    return (*fields, *_usual(options))


def _usual(options: ReadOptions) -> list[str]:
    """The record's own columns that a decoded read has unless told otherwise."""
    names = [KEY, TOPIC, PARTITION, OFFSET, TIMESTAMP, SCHEMA_ID]
    if options.include_headers:
        names.append(HEADERS)
    if options.value is Coding.RAW:
        names.append(VALUE)
    if options.on_error is OnError.QUARANTINE:
        names.append(ERROR)
        if options.value is not Coding.RAW:
            names.append(VALUE)
        if options.key is not Coding.RAW:
            names.append(KEY_BYTES)
    return names


_DECIMAL_DIGITS_MAX: Final = 38
_UNSIGNED_LONG: Final = spark.DecimalType(20, 0)
_PLAIN: Final[dict[pa.DataType, spark.DataType]] = {
    pa.null(): spark.NullType(),
    pa.bool_(): spark.BooleanType(),
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.uint8(): spark.ShortType(),
    pa.uint16(): spark.IntegerType(),
    pa.uint32(): spark.LongType(),
    pa.uint64(): _UNSIGNED_LONG,
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.string(): spark.StringType(),
    pa.large_string(): spark.StringType(),
    pa.binary(): spark.BinaryType(),
    pa.large_binary(): spark.BinaryType(),
    pa.date32(): spark.DateType(),
    pa.time32("ms"): spark.IntegerType(),
    pa.time64("us"): spark.LongType(),
    pa.time64("ns"): spark.LongType(),
}


def spark_type(kind: pa.DataType) -> spark.DataType:
    """Spark's type for one of Arrow's; Refused where there is none."""
    known = _PLAIN.get(kind)
    if known is not None:
        return known
    if pa.types.is_nested(kind):
        return _nested(kind)
    if pa.types.is_timestamp(kind):
        return _timestamp(kind)
    if pa.types.is_decimal(kind):
        if kind.precision > _DECIMAL_DIGITS_MAX:
            return spark.StringType()
        return spark.DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return spark.BinaryType()
    raise Refused(ErrorCode.invalid_config, f"Spark has no type for {kind}")


def _timestamp(kind: Any) -> spark.DataType:
    if kind.unit == "ns":
        return spark.LongType()
    return spark.TimestampNTZType() if kind.tz is None else spark.TimestampType()


def _nested(kind: Any) -> spark.DataType:
    if pa.types.is_struct(kind):
        return spark.StructType(
            [
                spark.StructField(one.name, spark_type(one.type))
                for one in (kind.field(index) for index in range(kind.num_fields))
            ]
        )
    if pa.types.is_map(kind):
        return spark.MapType(spark_type(kind.key_type), spark_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return spark.ArrayType(spark_type(kind.value_type))
    raise Refused(ErrorCode.invalid_config, f"Spark has no type for {kind}")


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of a source with these columns."""
    wanted: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return wanted
