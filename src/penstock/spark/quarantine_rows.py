"""Rows that could not be decoded: split from the others, and sent to their topic's quarantine.

    good, bad = split_quarantine(frame)
    write_quarantine(bad, "127.0.0.1:9092")          # in foreachBatch for a stream

In quarantine they have the same envelope as a consumer's, so `penstock quarantine` lists, shows and
redrives them. A batch that is run again writes them again: quarantine is at-least-once.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.client.quarantine import DecodeFailure, OriginalRecord
from penstock.client.quarantine_writer import QuarantineWriter
from penstock.clock import wall_ms
from penstock.link.settings import connection_settings, librdkafka_settings
from penstock.model import Millis, Offset
from penstock.serde.errors import Reason
from penstock.serde.frame import Side
from penstock.spark import source_columns as columns
from penstock.spark.connections import BOOTSTRAP, CLIENT
from penstock.spark.given_options import config_error
from penstock.spark.reader_schemas import topic_subject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REQUIRED: Final = (
    columns.ERROR,
    columns.VALUE,
    columns.TOPIC,
    columns.PARTITION,
    columns.OFFSET,
    columns.TIMESTAMP,
)
_OPTIONAL: Final = (columns.KEY_BYTES, columns.KEY, columns.HEADERS, columns.SCHEMA_ID)
_COUNT: Final = "written"


def split_quarantine(frame: "DataFrame") -> "tuple[DataFrame, DataFrame]":
    """The rows that could be decoded, without the columns about errors; and the other rows."""
    _check_columns(frame, (columns.ERROR,))
    is_bad = frame[columns.ERROR].isNotNull()
    good = frame.where(~is_bad).drop(columns.ERROR, columns.VALUE, columns.KEY_BYTES)
    return good, frame.where(is_bad)


def write_quarantine(
    bad: "DataFrame",
    bootstrap: str,
    *,
    kafka: Mapping[str, str] | None = None,
    client: str = CLIENT,
) -> int:
    """Send rows with `_error` to the quarantine of their topics; the number of rows.

    The frame needs `_error`, `_value`, `_topic`, `_partition`, `_offset`, `_timestamp`; and the
    key, as `_key` or, if keys are decoded, as `_key_bytes`. `_headers` are sent if they were read
    (includeHeaders=true).
    """
    _check_columns(bad, _REQUIRED)
    properties = {**(kafka or {}), BOOTSTRAP: bootstrap}
    present = [name for name in (*_REQUIRED, *_OPTIONAL) if name in bad.columns]
    if columns.KEY_BYTES in present and columns.KEY in present:
        present.remove(columns.KEY)

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({_COUNT: [_put(batches, properties, client)]})

    rows = bad.where(bad[columns.ERROR].isNotNull()).select(*present)
    written = rows.mapInArrow(write, f"{_COUNT} long").collect()
    return sum(row[_COUNT] for row in written)


def _check_columns(frame: "DataFrame", required: Iterable[str]) -> None:
    missing = [name for name in required if name not in frame.columns]
    if missing:
        raise config_error(
            f"the frame has no column {missing[0]}: read it with onError=quarantine, and if"
            f" `columns` is given, with {', '.join(required)} among them"
        )


def _put(batches: Iterable[pa.RecordBatch], properties: Mapping[str, str], client: str) -> int:
    """In a worker: every row is in quarantine when this returns."""
    settings = connection_settings(librdkafka_settings(properties))
    writer = QuarantineWriter(properties[BOOTSTRAP], settings)
    try:
        count = 0
        for batch in batches:
            for row in batch.to_pylist():
                writer.write(_origin(row), _failure(row, client))
                count += 1
        writer.wait()
        return count
    finally:
        writer.close()


def _origin(row: Mapping[str, Any]) -> OriginalRecord:
    timestamp = row[columns.TIMESTAMP]
    return OriginalRecord(
        row[columns.TOPIC],
        row[columns.PARTITION],
        Offset(row[columns.OFFSET]),
        Millis(-1 if timestamp is None else round(timestamp.timestamp() * 1000)),
        row.get(columns.KEY_BYTES, row.get(columns.KEY)),
        row[columns.VALUE],
        [(header["key"], header["value"]) for header in row.get(columns.HEADERS) or ()],
    )


def _failure(row: Mapping[str, Any], client: str) -> DecodeFailure:
    error = row[columns.ERROR]
    schema_id = row.get(columns.SCHEMA_ID)
    side = Side(error["side"])
    return DecodeFailure(
        reason=Reason(error["reason"]),
        detail=error["detail"],
        side=side,
        schema=None if schema_id is None else str(schema_id),
        subject=topic_subject(row[columns.TOPIC], side),
        client=client,
        at=wall_ms(),
    )
