"""Requests and responses as kio's dataclasses: which type, how to read, how to fill, how to write.

Types are imported when first asked for: a process that serves thirty versions does not load a
thousand. Reading gives an entity or Malformed, and nothing else ever comes out of it.
"""

import io
from collections.abc import Callable, Mapping
from functools import cache
from struct import Struct
from typing import Any, Final, TypeAlias

from kio import index
from kio._kio_native import read_timedelta_i32, read_timedelta_i64, tz_aware_from_i64
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i64
from kio.static.protocol import Entity

from penstock.errors import Malformed
from penstock.protocol.kio_check import REQUEST_ITEMS_MAX, RESPONSE_ITEMS_MAX, vouched
from penstock.protocol.kio_schema import EntityType, FieldShape, shapes_of
from penstock.protocol.varint import Buffer

BodyReader: TypeAlias = Callable[[Buffer, int], tuple[Any, int]]

_MILLIS_32: Final = Struct(">i")
_MILLIS_64: Final = Struct(">q")


def api_name(api_key: int) -> str | None:
    """kio's name of an API ("create_topics"), or None for a key it does not know."""
    return api_key_map.get(api_key)


def known_versions(api_key: int) -> range:
    """The versions there are schemas for; none for an unknown key."""
    name = api_key_map.get(api_key)
    if name is None:
        return range(0)
    return range(min(schema_name_map[name]), max(schema_name_map[name]) + 1)


@cache
def request_type(api_key: int, version: int) -> EntityType:
    return index.load_request_schema(api_key, version)


@cache
def response_type(api_key: int, version: int) -> EntityType:
    return index.load_response_schema(api_key, version)


@cache
def request_reader(api_key: int, version: int) -> BodyReader:
    """Reads the body that fills a buffer from a position to its end."""
    return _reader(request_type(api_key, version), REQUEST_ITEMS_MAX)


@cache
def response_reader(api_key: int, version: int) -> BodyReader:
    """As `request_reader`, for a client that reads what a broker answers."""
    return _reader(response_type(api_key, version), RESPONSE_ITEMS_MAX)


def _reader(entity_type: EntityType, items_max: int) -> BodyReader:
    read_entity = entity_reader(entity_type)

    def read(buffer: Buffer, position: int) -> tuple[Any, int]:
        sound, start = vouched(entity_type, buffer, position, items_max=items_max)
        try:
            entity, reached = read_entity(memoryview(sound).toreadonly(), start)
        except (SerialError, ValueError, LookupError, OverflowError, TypeError) as error:
            raise Malformed(f"{entity_type.__name__}: {error}", position) from error
        if start + reached != len(sound):
            raise Malformed(f"{entity_type.__name__} ends early", start + reached)
        return entity, len(buffer)

    return read


def encode(entity: Entity) -> bytes:
    """A body without its header."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def fill(entity_type: EntityType, /, **given: Any) -> Any:
    """An entity of this version from the fields of all versions.

    Structures are dicts, arrays are lists of dicts; spans and times may be integer milliseconds.
    What this version lacks is dropped, what is not given has the protocol's default, and a name
    that no version knows is a bug.
    """
    return _fill(entity_type, given, ())


def _fill(entity_type: EntityType, given: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    shapes = shapes_of(entity_type)
    values = {}
    used = 0
    for shape in shapes:
        if shape.name in given:
            used += 1
            values[shape.name] = _filled(shape, given[shape.name], path)
        else:
            values[shape.name] = _default(shape)
    if used < len(given):
        here = {shape.name for shape in shapes}
        for name in given.keys() - here:
            assert _exists_in_some_version(entity_type, (*path, name)), (
                f"no version of {entity_type.__name__} knows {'.'.join((*path, name))}"
            )
    return entity_type(**values)


def _filled(shape: FieldShape, value: Any, path: tuple[str, ...]) -> Any:
    if value is None:
        return None
    if shape.structure is not None:
        inner = (*path, shape.name)
        if shape.is_array:
            return tuple(_structure(shape.structure, item, inner) for item in value)
        return _structure(shape.structure, value, inner)
    if shape.is_array:
        return tuple(value)
    if type(value) is int and shape.primitive in _FROM_MILLIS:
        return _FROM_MILLIS[shape.primitive](value)
    return value


def _structure(entity_type: EntityType, value: Any, path: tuple[str, ...]) -> Any:
    return _fill(entity_type, value, path) if isinstance(value, Mapping) else value


def _span_32(span_ms: int) -> Any:
    return read_timedelta_i32(_MILLIS_32.pack(span_ms), 0)[0]


def _span_64(span_ms: int) -> Any:
    return read_timedelta_i64(_MILLIS_64.pack(span_ms), 0)[0]


def _moment(timestamp: int) -> Any:
    return tz_aware_from_i64(i64(timestamp))


# kio's own readers make kio's own time types; this room knows no other clock types.
_FROM_MILLIS: Final[dict[str | None, Callable[[int], Any]]] = {
    "timedelta_i32": _span_32,
    "timedelta_i64": _span_64,
    "datetime_i64": _moment,
}

_PRIMITIVE_DEFAULTS: Final[dict[str, object]] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "int64": 0,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": None,
    "error_code": ErrorCode.none,
    "timedelta_i32": _span_32(0),
    "timedelta_i64": _span_64(0),
    "datetime_i64": _moment(0),
}


@cache
def _default(shape: FieldShape) -> Any:
    if shape.has_default:
        return shape.default
    if shape.is_array:
        return ()
    if shape.structure is not None:
        return None if shape.nullable else _fill(shape.structure, {}, ())
    assert shape.primitive is not None
    return _PRIMITIVE_DEFAULTS[shape.primitive]


@cache
def _exists_in_some_version(entity_type: EntityType, path: tuple[str, ...]) -> bool:
    """Whether the message that a type belongs to has this field in another version."""
    api_key: int = entity_type.__api_key__  # type: ignore[attr-defined]  # payloads have a key
    for version in reversed(known_versions(api_key)):
        for load in (response_type, request_type):
            if _has_path(load(api_key, version), path):
                return True
    return False


def _has_path(entity_type: EntityType, path: tuple[str, ...]) -> bool:
    for shape in shapes_of(entity_type):
        if shape.name == path[0]:
            if len(path) == 1:
                return True
            return shape.structure is not None and _has_path(shape.structure, path[1:])
    return False
