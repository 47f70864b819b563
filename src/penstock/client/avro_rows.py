"""What a program cannot express, row by row: columns of types that contain themselves, as JSON.

Arrow has no type for a tree, so such a column is the text of the value, in the reader's terms:
bytes as text with a character per byte, as in Avro's own JSON, numbers that JSON lacks as strings.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.columns.avro.program import Wrong
from penstock.schemas.avro import AvroSchema
from penstock.schemas.avro.events import EventReader
from penstock.schemas.avro.varints import Unreadable

_ONE_BYTE_EACH: Final = "latin-1"


class RowReader:
    """Reads single payloads, by the rules of one who reads a single event."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._reader = EventReader(writer.root, reader.root, plain=True)

    def read(self, payload: bytes) -> tuple[Any, Wrong]:
        """The value, and what is wrong with it."""
        try:
            return self._reader.read(payload), Wrong.NOTHING
        except Unreadable as wrong:
            return None, Wrong[wrong.code]


def as_json(value: Any) -> str | None:
    """The text of a value; None for null, which is none in a column as well."""
    if value is None:
        return None
    return json.dumps(_jsonable(value), ensure_ascii=False)


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(_ONE_BYTE_EACH)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, list):
        return [_jsonable(one) for one in value]
    if isinstance(value, Mapping):
        return {key: _jsonable(one) for key, one in value.items()}
    return value


def payloads_of(source: memoryview, starts: Any, ends: Any) -> Iterator[bytes]:
    """Each payload by itself."""
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield bytes(source[start:end])
