"""The columns of a read: those a record has by itself, and those that its value is decoded into.

Names with an underscore are the record's own, so that they do not meet a schema's. Where values are
left raw the names of Spark's own Kafka source mean the same, and are the columns unless told
otherwise: a job moves from format("kafka") by changing the word.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

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
