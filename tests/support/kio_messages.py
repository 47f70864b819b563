"""kio's own messages: the oracle of our codecs, and any request that a test wants to send."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kio.serial import entity_reader, entity_writer

from penstock.errors import ErrorCode
from penstock.protocol.api import known_versions, request_schema, response_schema
from penstock.protocol.kio_schema import EntityType, FieldShape, shapes_of

if TYPE_CHECKING:
    import random

    from kio.static.protocol import Entity

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
TIMES_MS_MAX: Final = 1 << 42


def encode(entity: Entity) -> bytes:
    """The body of a message, as kio writes it."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def decode(schema: EntityType, body: bytes) -> Any:
    """The message that fills `body`, as kio reads it."""
    entity, end = entity_reader(schema)(memoryview(body), 0)
    assert end == len(body), f"{len(body) - end} bytes are left after {schema.__name__}"
    return entity


def read_response(api_key: int, version: int, body: bytes) -> Any:
    """A response that fills `body`, as kio reads it."""
    return decode(response_schema(api_key, version), body)


# Filling.


def fill_request(api_key: int, version: int, **fields: Any) -> Any:
    """A request of this version from the fields of all versions: see `fill`."""
    return fill(request_schema(api_key, version), **fields)


def fill_response(api_key: int, version: int, **fields: Any) -> Any:
    """A response of this version from the fields of all versions: see `fill`."""
    return fill(response_schema(api_key, version), **fields)


def fill(schema: EntityType, /, **fields: Any) -> Any:
    """A message from the fields of all its versions.

    Structures are dicts, arrays are lists of dicts; durations and times may be milliseconds. Fields
    that the version lacks are dropped, others have the protocol's default.
    """
    return _fill(schema, fields, ())


def _fill(schema: EntityType, fields: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    shapes = {shape.name: shape for shape in shapes_of(schema)}
    for name in fields.keys() - shapes.keys():
        assert _is_in_some_version(schema, (*path, name)), f"no {name} in any {schema.__name__}"
    return schema(
        **{
            name: _filled(shape, fields[name], path) if name in fields else _default(shape)
            for name, shape in shapes.items()
        }
    )


def _filled(shape: FieldShape, value: Any, path: tuple[str, ...]) -> Any:
    if value is None:
        return None
    if shape.is_array:
        return tuple(_filled_item(shape, item, path) for item in value)
    return _filled_item(shape, value, path)


def _filled_item(shape: FieldShape, value: Any, path: tuple[str, ...]) -> Any:
    if shape.structure is not None and isinstance(value, Mapping):
        return _fill(shape.structure, value, (*path, shape.name))
    if type(value) is int and shape.primitive in ("timedelta_i32", "timedelta_i64"):
        return timedelta(milliseconds=value)
    if type(value) is int and shape.primitive == "datetime_i64":
        return EPOCH + timedelta(milliseconds=value)
    return value


_DEFAULTS: Final[dict[str, object]] = {
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": None,
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
    "datetime_i64": EPOCH,
}


def _default(shape: FieldShape) -> Any:
    if shape.has_default:
        return shape.default
    if shape.is_array:
        return ()
    if shape.structure is not None:
        return None if shape.nullable else fill(shape.structure)
    assert shape.primitive is not None
    return _DEFAULTS.get(shape.primitive, 0)


def _is_in_some_version(schema: EntityType, path: tuple[str, ...]) -> bool:
    api_key: int = schema.__api_key__  # type: ignore[attr-defined]  # messages have a key
    return any(
        _has_path(load(api_key, version), path)
        for version in known_versions(api_key)
        for load in (request_schema, response_schema)
    )


def _has_path(schema: EntityType, path: tuple[str, ...]) -> bool:
    for shape in shapes_of(schema):
        if shape.name == path[0]:
            if len(path) == 1:
                return True
            return shape.structure is not None and _has_path(shape.structure, path[1:])
    return False


# Any message.

ROUGH_SIZES: Final = (0, 3, 130)  # 130 takes two bytes as a varint


def any_message(schema: EntityType, rng: random.Random) -> Any:
    """A message with a random value in every field."""
    return schema(**{shape.name: _any_value(shape, rng) for shape in shapes_of(schema)})


def _any_value(shape: FieldShape, rng: random.Random) -> Any:
    if shape.nullable and rng.random() < 0.2:
        return None
    if not shape.is_array:
        return _any_item(shape, rng)
    count = rng.randrange(3)
    if shape.structure is None and rng.random() < 0.1:
        count = ROUGH_SIZES[-1]
    return tuple(_any_item(shape, rng) for _ in range(count))


def _any_item(shape: FieldShape, rng: random.Random) -> Any:
    if shape.structure is not None:
        return any_message(shape.structure, rng)
    assert shape.primitive is not None
    return _ANY_PRIMITIVE[shape.primitive](rng)


def _any_signed(bits: int) -> Callable[[random.Random], int]:
    edges = (-(1 << bits - 1), -1, 0, (1 << bits - 1) - 1)
    return lambda rng: (
        rng.choice(edges) if rng.random() < 0.3 else rng.randrange(edges[0], edges[-1])
    )


def _any_text(rng: random.Random) -> str:
    return "".join(rng.choices("ab\u00e9\u4e2d", k=rng.choice(ROUGH_SIZES)))


def _any_bytes(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice(ROUGH_SIZES))


def _any_span(rng: random.Random) -> timedelta:
    return timedelta(milliseconds=rng.randrange(1 << 31))


_ANY_PRIMITIVE: Final[dict[str, Callable[[random.Random], Any]]] = {
    "bool": lambda rng: rng.random() < 0.5,
    "int8": _any_signed(8),
    "int16": _any_signed(16),
    "uint16": lambda rng: rng.randrange(1 << 16),
    "int32": _any_signed(32),
    "int64": _any_signed(64),
    "float64": lambda rng: rng.random(),
    "string": _any_text,
    "bytes": _any_bytes,
    "records": _any_bytes,
    "uuid": lambda rng: UUID(int=rng.randrange(1, 1 << 128)),
    "error_code": lambda rng: rng.choice(list(ErrorCode)),
    "timedelta_i32": _any_span,
    "timedelta_i64": _any_span,
    "datetime_i64": lambda rng: EPOCH + timedelta(milliseconds=rng.randrange(TIMES_MS_MAX)),
}
