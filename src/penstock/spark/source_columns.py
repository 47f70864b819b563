"""The columns of a read: those that every record has, and those that its value is decoded into.

Record columns start with an underscore, so that they do not collide with a schema's fields. If
values are raw, the names of Spark's own Kafka source mean the same and are the default: a job moves
from format("kafka") by changing one word. Imports no pyspark.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from penstock.errors import ErrorCode, Refused
from penstock.spark.read_options import OnError, PayloadFormat, ReadOptions

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
SINGLE_FIELD: Final = "value"  # the one column of a schema that is not a record, as in serde

# As in `columns.record_columns`, whose kernels are not for the driver.
HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ERROR_TYPE: Final = pa.struct(
    [("reason", pa.string()), ("detail", pa.string()), ("side", pa.string())]
)
RECORD_COLUMNS: Final[Mapping[str, pa.DataType]] = {
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
_SPARK_NAMES: Final[Mapping[str, str]] = {  # in the order of Spark's own source
    "key": KEY,
    "value": VALUE,
    "topic": TOPIC,
    "partition": PARTITION,
    "offset": OFFSET,
    "timestamp": TIMESTAMP,
    "timestampType": TIMESTAMP_TYPE,
    "headers": HEADERS,
}


def record_column(name: str, value: PayloadFormat) -> str | None:
    """The record column that a name means; None for one of the value's fields."""
    if name in RECORD_COLUMNS:
        return name
    return _SPARK_NAMES.get(name) if value is PayloadFormat.RAW else None


def requested_fields(options: ReadOptions) -> tuple[str, ...] | None:
    """The fields of the value that must be decoded; None for all of them."""
    if options.value is PayloadFormat.RAW:
        return ()
    if options.columns is None:
        return None
    return tuple(name for name in options.columns if record_column(name, options.value) is None)


def column_names(options: ReadOptions, fields: Sequence[str]) -> tuple[str, ...]:
    """The columns of a read, in order, where the value has these fields."""
    if options.columns is not None:
        for name in options.columns:
            if record_column(name, options.value) is None and name not in fields:
                raise Refused(
                    ErrorCode.invalid_config,
                    f"option columns has {name}, which is neither a field of the value nor one of"
                    f" {', '.join(RECORD_COLUMNS)}",
                )
        return options.columns
    if options.value is options.key is PayloadFormat.RAW:
        return tuple(name for name in _SPARK_NAMES if name != "headers" or options.include_headers)
    clash = [name for name in fields if name in RECORD_COLUMNS]
    if clash:
        raise Refused(
            ErrorCode.invalid_config,
            f"the value has a field {clash[0]}, which is also the name of a record column: choose"
            " the columns with `columns`",
        )
    return (*fields, *_default_record_columns(options))


def _default_record_columns(options: ReadOptions) -> list[str]:
    names = [KEY, TOPIC, PARTITION, OFFSET, TIMESTAMP, SCHEMA_ID]
    if options.include_headers:
        names.append(HEADERS)
    if options.value is PayloadFormat.RAW:
        names.append(VALUE)
    if options.on_error is OnError.QUARANTINE:
        names.append(ERROR)
        if options.value is not PayloadFormat.RAW:
            names.append(VALUE)
        if options.key is not PayloadFormat.RAW:
            names.append(KEY_BYTES)
    return names


def single_column_type(decoded: pa.Schema) -> pa.DataType:
    """A decoded payload as one column: a record is a struct, anything else is itself."""
    if decoded.names == [SINGLE_FIELD]:
        only: pa.DataType = decoded.field(0).type
        return only
    return pa.struct(list(decoded))
