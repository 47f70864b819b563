"""Binds NamedTuples to the schemas of the protocol, for every version of a message.

Fields are matched by name: each field of a schema must have one here, and one that a version lacks
keeps its default. Times and durations are integer milliseconds and end in `_ms`; a UUID of zeros is
None. Readers and writers are made from the schema when a version is first used, and never trust the
bytes: see `field_codecs`. The message of an older version may have another form: see `Older`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from struct import error as StructError
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from penstock.errors import Malformed, Refused
from penstock.protocol.api import Api, request_schema, response_schema
from penstock.protocol.field_codecs import (
    PYTHON_TYPES,
    TIME_TYPES,
    ItemBudget,
    ReadField,
    WriteField,
    WrittenOnce,
    field_reader,
    field_writer,
)
from penstock.protocol.fields import FLEXIBLE, NON_FLEXIBLE, TopicKey, tagged
from penstock.protocol.kio_schema import EntityType, FieldShape, is_flexible, shapes_of
from penstock.protocol.message import Message
from penstock.protocol.varint import read_unsigned_varint

REQUEST_ITEMS_MAX: Final = 1 << 18  # array items in one request, all together
RESPONSE_ITEMS_MAX: Final = 1 << 24  # a broker may have many partitions to describe
THROTTLE: Final = "throttle_time"

T = TypeVar("T")
FormT = TypeVar("FormT")
RequestT = TypeVar("RequestT", bound=tuple[Any, ...])
ResponseT = TypeVar("ResponseT", bound=tuple[Any, ...])
LoadSchema: TypeAlias = Callable[[int, int], EntityType]


class WireName:
    """Names of a field in the schemas, where they differ: `Annotated[int, WireName("index")]`."""

    __slots__ = ("names",)

    def __init__(self, *names: str) -> None:
        self.names: tuple[str, ...] = names


@dataclass(frozen=True, slots=True)
class Older(Generic[T, FormT]):
    """Another form of a message, up to a version. `downgrade` may assume that it can be said."""

    last_version: int
    form: type[FormT]
    upgrade: Callable[[FormT], T]
    downgrade: Callable[[T], FormT]


def bind(
    api: Api,
    request: type[RequestT],
    response: type[ResponseT],
    *,
    refuse: Callable[[RequestT, Refused], ResponseT] | None = None,
    older_request: Older[RequestT, Any] | None = None,
    older_response: Older[ResponseT, Any] | None = None,
) -> Message[RequestT, ResponseT]:
    """The message of an API whose codecs follow the schemas alone.

    Without `refuse`, a refusal is in the response's own error code.
    """
    requests = _Side(api, request_schema, request, older_request, REQUEST_ITEMS_MAX)
    responses = _Side(api, response_schema, response, older_response, RESPONSE_ITEMS_MAX)
    return Message(
        api,
        request,
        response,
        requests.read,
        requests.write,
        responses.read,
        responses.write_response,
        refuse or _refuse_at_top(response),
    )


def _refuse_at_top(response: type[ResponseT]) -> Callable[[Any, Refused], ResponseT]:
    make: Any = response
    assert "error_code" in make._fields, f"{response.__name__} has no error code of its own"
    has_message = "error_message" in make._fields

    def refuse(_request: object, refusal: Refused) -> ResponseT:
        fields = {"error_message": refusal.message} if has_message else {}
        refused: ResponseT = make(error_code=refusal.code, **fields)
        return refused

    return refuse


class _Side(Generic[T]):
    """The requests or the responses of one API, in all versions."""

    __slots__ = ("_api", "_codecs", "_form", "_items_max", "_load", "_older")

    def __init__(
        self,
        api: Api,
        load: LoadSchema,
        form: type[T],
        older: Older[T, Any] | None,
        items_max: int,
    ) -> None:
        self._api = api
        self._load = load
        self._form = form
        self._older = older
        self._items_max = items_max
        self._codecs: dict[int, tuple[StructureCodec, Older[T, Any] | None]] = {}

    def read(self, frame: memoryview, position: int, version: int) -> T:
        """The message whose body starts at `position`. Bytes after it are ignored.

        librdkafka sends three bytes too many with Metadata 13, and brokers accept that.
        """
        codec, older = self._codecs.get(version) or self._codec(version)
        try:
            value, _ = codec.read(frame, position, ItemBudget(self._items_max))
        except StructError as error:  # cheaper than a length check before every number
            raise Malformed(f"the {self._form.__name__} is truncated", len(frame)) from error
        message: T = value if older is None else older.upgrade(value)
        return message

    def write(self, message: T, version: int) -> tuple[bytes]:
        codec, older = self._codecs.get(version) or self._codec(version)
        return (codec.write(message if older is None else older.downgrade(message)),)

    def write_response(self, message: T, version: int, throttle_ms: int) -> bytes:
        codec, older = self._codecs.get(version) or self._codec(version)
        values: Any = message if older is None else older.downgrade(message)
        return codec.write((*values, throttle_ms))

    def _codec(self, version: int) -> "tuple[StructureCodec, Older[T, Any] | None]":
        older = self._older
        if older is not None and version > older.last_version:
            older = None
        form: Any = self._form if older is None else older.form
        codec: StructureCodec = structure_codec(form, self._load(self._api, version))
        self._codecs[version] = codec, older
        return codec, older


# Structures.


class StructureCodec(NamedTuple):
    """Reads and writes one NamedTuple in one version."""

    read: ReadField
    write: WriteField


class _Field(NamedTuple):
    """A field of a schema, and where its value is in a NamedTuple."""

    shape: FieldShape
    slot: int  # as read
    write_slot: int
    read: ReadField
    write: WriteField


@cache
def structure_codec(form: Any, schema: EntityType) -> StructureCodec:
    """The codec of `form` as this schema has it.

    The throttle time is not a part of responses: the writer takes it after the last field. A
    response that has a field for it gets it when it is read.
    """
    own = _own_fields(form)
    bound = [_bind_field(form, own, shape, schema) for shape in shapes_of(schema)]
    lacking = {*range(len(form._fields))} - {field.slot for field in bound}
    defaults = form._field_defaults
    for slot in lacking:
        name = form._fields[slot]
        assert name in defaults, f"{schema.__name__} has no {name}, which has no default"
    values = [defaults.get(name) for name in form._fields]
    return StructureCodec(
        _structure_reader(form, values, bound, is_flexible(schema)),
        _structure_writer(values, bound, is_flexible(schema)),
    )


def _bind_field(
    form: Any, own: dict[str, tuple[int, Any]], shape: FieldShape, schema: EntityType
) -> _Field:
    encoding = FLEXIBLE if is_flexible(schema) else NON_FLEXIBLE
    if shape.name == THROTTLE:
        write_slot, hint = len(form._fields), int
        slot, _ = own.get(f"{THROTTLE}_ms", (write_slot, hint))
    else:
        name = f"{shape.name}_ms" if shape.primitive in TIME_TYPES else shape.name
        assert name in own, f"{form.__name__} lacks {name} of {schema.__name__}"
        slot, hint = own[name]
        write_slot = slot
        check_hint(f"{form.__name__}.{name}", shape, hint)
    structure = None
    if shape.structure is not None:
        structure = structure_codec(_bare(_item_hint(shape, hint)), shape.structure)
    return _Field(
        shape,
        slot,
        write_slot,
        field_reader(
            shape, encoding, structure and structure.read, raw_uuid=_bare(hint) == TopicKey
        ),
        field_writer(shape, encoding, structure and structure.write),
    )


def _structure_reader(
    form: Any, values: list[Any], bound: list[_Field], has_tags: bool
) -> ReadField:
    fields = [(field.slot, field.read) for field in bound if field.shape.tag is None]
    known = {
        field.shape.tag: (field.slot, field.read) for field in bound if field.shape.tag is not None
    }
    template = [*values, None]  # the last for a throttle time, if there is one

    def read_structure(frame: memoryview, position: int, budget: ItemBudget) -> tuple[Any, int]:
        read = template.copy()
        for slot, read_field in fields:
            read[slot], position = read_field(frame, position, budget)
        if has_tags:
            if position < len(frame) and frame[position] == 0:
                position += 1
            else:
                position = _read_tagged(known, read, frame, position, budget)
        read.pop()
        return tuple.__new__(form, read), position

    return read_structure


def _read_tagged(
    known: dict[int, tuple[int, ReadField]],
    read: list[Any],
    frame: memoryview,
    position: int,
    budget: ItemBudget,
) -> int:
    """Tagged fields; those that newer peers add are skipped."""
    end = len(frame)
    count, position = read_unsigned_varint(frame, position, end)
    budget.take(count, (end - position) // 2, position)
    for _ in range(count):
        tag, position = read_unsigned_varint(frame, position, end)
        size, position = read_unsigned_varint(frame, position, end)
        following = position + size
        if following > end:
            raise Malformed(f"tagged field {tag} of {size} bytes runs past the frame", position)
        if tag in known:
            slot, read_field = known[tag]
            read[slot], position = read_field(frame[:following], position, budget)
            if position != following:
                raise Malformed(
                    f"{following - position} bytes left in tagged field {tag}", position
                )
        position = following
    return position


def _structure_writer(values: list[Any], bound: list[_Field], has_tags: bool) -> WriteField:
    fields = [(field.write_slot, field.write) for field in bound if field.shape.tag is None]
    optional = [
        (field.shape.tag, field.slot, values[field.slot], field.write)
        for field in sorted(bound, key=lambda field: field.shape.tag or 0)
        if field.shape.tag is not None
    ]

    def write_structure(message: Any) -> bytes:
        parts = [write(message[slot]) for slot, write in fields]
        if optional:
            present = [
                (tag, write(message[slot]))
                for tag, slot, default, write in optional
                if message[slot] != default
            ]
            parts.append(tagged(*present))
        elif has_tags:
            parts.append(b"\0")
        return b"".join(parts)

    return write_structure


# Types.


@cache
def _own_fields(form: Any) -> dict[str, tuple[int, Any]]:
    """Slot and type of each field, by its names in schemas."""
    hints = get_type_hints(form, include_extras=True)
    own: dict[str, tuple[int, Any]] = {}
    for slot, name in enumerate(form._fields):
        hint, names = hints[name], (name,)
        if get_origin(hint) is Annotated:
            hint, wire_name = get_args(hint)
            names = wire_name.names
        own |= dict.fromkeys(names, (slot, hint))
    return own


def _bare(hint: Any) -> Any:
    """A type without None; a union of others stays one."""
    if get_origin(hint) not in (UnionType, Union):
        return getattr(hint, "__supertype__", hint)
    choices = [
        choice
        for choice in get_args(hint)
        if choice is not NoneType and get_origin(choice) is not WrittenOnce
    ]
    return _bare(choices[0]) if len(choices) == 1 else Union[tuple(choices)]  # noqa: UP007 - made of a list of types


def _item_hint(shape: FieldShape, hint: Any) -> Any:
    return get_args(_bare(hint))[0] if shape.is_array else hint


def check_hint(name: str, shape: FieldShape, hint: Any) -> None:
    """Assert that a field's annotation is what its schema gives."""
    is_array = hasattr(get_origin(_bare(hint)), "__len__")
    assert is_array == shape.is_array, f"{name}: {hint} is not an array"
    if shape.nullable and shape.primitive != "datetime_i64":  # there -1 says it
        assert NoneType in get_args(hint) or _bare(hint) == TopicKey, f"{name} may be null"
    if shape.primitive is not None:
        expected, item = PYTHON_TYPES[shape.primitive], _bare(_item_hint(shape, hint))
        assert item in expected, f"{name}: {hint} does not fit {shape.primitive}"
