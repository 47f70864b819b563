"""Rows that could not be read: told apart from the good, and sent to their topic's quarantine.

    good, bad = split_quarantine(frame)
    write_quarantine(bad, "127.0.0.1:9092")          # in foreachBatch for a stream

In quarantine they wear the same envelope as a consumer's, so `penstock quarantine` lists, shows and
redrives them. A batch that is run again writes them again: quarantine is at-least-once.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.client.quarantine import Origin, Verdict
from penstock.client.quarantine_writer import QuarantineWriter
from penstock.errors import ErrorCode, Refused
from penstock.link.settings import connection_settings, librdkafka_settings
from penstock.model import Millis, Offset
from penstock.serde.errors import Reason
from penstock.serde.frame import Side
from penstock.spark import spark_columns as own
from penstock.spark.connections import BOOTSTRAP, CLIENT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NEEDED: Final = (own.ERROR, own.VALUE, own.TOPIC, own.PARTITION, own.OFFSET, own.TIMESTAMP)
_ALSO: Final = (own.KEY_BYTES, own.KEY, own.HEADERS, own.SCHEMA_ID)  # if they are there
_COUNT: Final = "written"


def split_quarantine(frame: "DataFrame") -> "tuple[DataFrame, DataFrame]":
    """The rows that could be read, without the columns that are only for the others; the others."""
    _check_columns(frame, (own.ERROR,))
    is_bad = frame[own.ERROR].isNotNull()
    good = frame.where(~is_bad).drop(own.ERROR, own.VALUE, own.KEY_BYTES)
    return good, frame.where(is_bad)


def write_quarantine(
    bad: "DataFrame",
    bootstrap: str,
    *,
    kafka: Mapping[str, str] | None = None,
    client: str = CLIENT,
) -> int:
    """Send rows with `_error` to the quarantine of the topics they are from; how many there were.

    The frame needs what says where a row was and what it held: `_error`, `_value`, `_topic`,
    `_partition`, `_offset`, `_timestamp`; and the key, as `_key` or, if keys are decoded, as
    `_key_bytes`. `_headers` go along if they were read (includeHeaders=true).
    """
    _check_columns(bad, _NEEDED)
    properties = {**(kafka or {}), BOOTSTRAP: bootstrap}
    present = [name for name in (*_NEEDED, *_ALSO) if name in bad.columns]
    if own.KEY_BYTES in present and own.KEY in present:
        present.remove(own.KEY)

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({_COUNT: [_put(batches, properties, client)]})

    rows = bad.where(bad[own.ERROR].isNotNull()).select(*present)
    written = rows.mapInArrow(write, f"{_COUNT} long").collect()
    return sum(row[_COUNT] for row in written)


def _check_columns(frame: "DataFrame", needed: Iterable[str]) -> None:
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        raise Refused(
            ErrorCode.invalid_config,
            f"the frame has no column {missing[0]}: read it with onError=quarantine, and if"
            f" `columns` is given, with {', '.join(needed)} among them",
        )


def _put(batches: Iterable[pa.RecordBatch], properties: Mapping[str, str], client: str) -> int:
    """In a worker: every row is in quarantine when this returns."""
    settings = connection_settings(librdkafka_settings(properties))
    writer = QuarantineWriter(properties[BOOTSTRAP], settings)
    try:
        count = 0
        for batch in batches:
            for row in batch.to_pylist():
                writer.put(_origin(row), _verdict(row, client))
                count += 1
        writer.settle()
        return count
    finally:
        writer.close()


def _origin(row: Mapping[str, Any]) -> Origin:
    key = row.get(own.KEY_BYTES, row.get(own.KEY))
    time_of = row[own.TIMESTAMP]
    headers = [(one["key"], one["value"]) for one in row.get(own.HEADERS) or ()]
    return Origin(
        row[own.TOPIC],
        row[own.PARTITION],
        Offset(row[own.OFFSET]),
        Millis(-1 if time_of is None else round(time_of.timestamp() * 1000)),
        key,
        row[own.VALUE],
        headers,
    )


def _verdict(row: Mapping[str, Any], client: str) -> Verdict:
    error = row[own.ERROR]
    schema = row.get(own.SCHEMA_ID)
    return Verdict(
        reason=Reason(error["reason"]),
        detail=error["detail"],
        side=Side(error["side"]),
        schema=None if schema is None else str(schema),
        subject=f"{row[own.TOPIC]}-{error['side']}",
        client=client,
        at=Millis(int(time.time() * 1000)),
    )
