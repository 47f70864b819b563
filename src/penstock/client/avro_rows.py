"""What a program cannot express, row by row: columns of types that contain themselves, as JSON.

Arrow has no type for a tree, so such a column is the text of the value, in the reader's terms:
bytes as text with a character per byte, as in Avro's own JSON, numbers that JSON lacks as strings.
"""

import io
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import fastavro

from penstock.client.avro_walk import Unsound, Walk
from penstock.columns.avro.program import Wrong
from penstock.schemas.avro import AvroSchema

_LOGICAL: Final = "logicalType"
_ONE_BYTE_EACH: Final = "latin-1"


def plain_schema(schema: AvroSchema) -> Any:
    """The schema for fastavro, without logical types: values as they are written."""
    return fastavro.parse_schema(_without_logical(json.loads(schema.formatted("resolved"))))


def _without_logical(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_logical(one) for one in value]
    if isinstance(value, dict):
        # A default is a value, not a schema, and may well have a member of that name.
        return {
            key: one if key == "default" else _without_logical(one)
            for key, one in value.items()
            if key != _LOGICAL or not isinstance(one, str)
        }
    return value


class RowReader:
    """Reads single payloads, by the rules of one who reads a single event."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._walk = Walk(writer.root)
        self._writer = plain_schema(writer)
        self._reader = plain_schema(reader)

    def read(self, payload: bytes) -> tuple[Any, Wrong]:
        """The value, and what is wrong with it."""
        try:
            self._walk.check(payload)
            value = fastavro.schemaless_reader(io.BytesIO(payload), self._writer, self._reader)
        except Unsound as wrong:
            return None, Wrong[wrong.name]
        except UnicodeDecodeError:
            return None, Wrong.UTF8
        except (fastavro.schema.SchemaParseException, KeyError, IndexError):
            return None, Wrong.ENUM
        except Exception:  # noqa: BLE001 - fastavro raises whatever resolution ran into
            return None, Wrong.UNRESOLVABLE
        return value, Wrong.NOTHING


def as_json(value: Any) -> str:
    """The text of a value that fastavro read."""
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
