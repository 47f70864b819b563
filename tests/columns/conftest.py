"""Shared by the tests of columns: rows as Python sees them, to compare with the plain reader."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from penstock.columns.arrow_records import records_to_arrow
from penstock.columns.record_columns import RecordColumns
from penstock.protocol.records import Record

AsRecords: TypeAlias = Callable[[RecordColumns], list[Record]]


@pytest.fixture(scope="session")
def as_records() -> AsRecords:
    """Opened columns, through Arrow, as the records that `read_records` would give."""

    def convert(columns: RecordColumns) -> list[Record]:
        arrow = records_to_arrow(columns)
        arrow.validate(full=True)
        headers: list[Any] = arrow.column("headers").to_pylist()
        return [
            Record(
                offset,
                timestamp,
                key,
                value,
                tuple((header["key"], header["value"]) for header in headers[row]),
            )
            for row, (offset, timestamp, key, value) in enumerate(
                zip(
                    columns.offsets.tolist(),
                    columns.timestamps.tolist(),
                    arrow.column("key").to_pylist(),
                    arrow.column("value").to_pylist(),
                    strict=True,
                )
            )
        ]

    return convert
