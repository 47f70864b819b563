"""Readers and writers of single fields, made from what a schema says of them.

A reader takes a frame, a position and a budget of array items, and returns the value and the next
position. Lengths, counts and nulls are checked before anything is made of them: the bytes come from
a peer. What a version cannot express is a bug of the caller, and asserted.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, Generic, TypeAlias, TypeVar
from uuid import UUID

from penstock.errors import ErrorCode, Malformed
from penstock.protocol.fields import NO_TOPIC_ID, TOPIC_ID_BYTES, Encoding, TopicKey
from penstock.protocol.kio_schema import FieldShape
from penstock.protocol.varint import Buffer


class ItemBudget:
    """How many array items a message may still have: an item takes far more memory than bytes."""

    __slots__ = ("items_left",)

    def __init__(self, items_max: int) -> None:
        self.items_left: int = items_max

    def take(self, count: int, left_bytes: int, position: int) -> None:
        """Count items, of which each takes a byte at least."""
        self.items_left -= count
        if count > left_bytes or self.items_left < 0:
            raise Malformed(f"{count} entries in {left_bytes} bytes", position)


ItemT = TypeVar("ItemT")


class WrittenOnce(Generic[ItemT]):
    """An array item that many messages share: its bytes are kept, for each version."""

    __slots__ = ("_written", "item")

    def __init__(self, item: ItemT) -> None:
        self.item: ItemT = item
        self._written: dict[WriteField, bytes] = {}

    def written(self, write: "WriteField") -> bytes:
        """The item as this writer writes it."""
        body = self._written.get(write)
        if body is None:
            body = self._written[write] = write(self.item)
        return body


ReadField: TypeAlias = Callable[[memoryview, int, ItemBudget], tuple[Any, int]]
WriteField: TypeAlias = Callable[[Any], bytes]

_FIXED: Final = {
    "bool": Struct(">?"),
    "int8": Struct(">b"),
    "int16": Struct(">h"),
    "uint16": Struct(">H"),
    "int32": Struct(">i"),
    "int64": Struct(">q"),
    "float64": Struct(">d"),
    "timedelta_i32": Struct(">i"),
    "timedelta_i64": Struct(">q"),
    "datetime_i64": Struct(">q"),
}
_CODE: Final = Struct(">h")
_CODES: Final = {int(code): code for code in ErrorCode}
_STRUCTURE_FOLLOWS: Final = 1
_STRUCTURE_IS_NULL: Final = 0xFF

# What a field of each type may be annotated as.
PYTHON_TYPES: Final[dict[str, tuple[object, ...]]] = {
    "bool": (bool,),
    "int8": (int,),
    "int16": (int,),
    "uint16": (int,),
    "int32": (int,),
    "int64": (int,),
    "float64": (float,),
    "string": (str, TopicKey),
    "bytes": (bytes,),
    "records": (memoryview, Buffer),
    "uuid": (UUID, TopicKey),
    "error_code": (ErrorCode,),
    "timedelta_i32": (int,),
    "timedelta_i64": (int,),
    "datetime_i64": (int,),
}
TIME_TYPES: Final = ("timedelta_i32", "timedelta_i64", "datetime_i64")  # in milliseconds here


# Reading.


def field_reader(
    shape: FieldShape, encoding: Encoding, read_structure: ReadField | None, *, raw_uuid: bool
) -> ReadField:
    """A reader of this field. `raw_uuid`: as 16 bytes."""
    if shape.is_array:
        if shape.primitive in _FIXED:
            return _fixed_array_reader(shape, encoding)
        return _array_reader(shape, encoding, _item_reader(shape, encoding, read_structure))
    if shape.structure is not None:
        assert read_structure is not None
        return _nullable_structure_reader(read_structure) if shape.nullable else read_structure
    return _primitive_reader(shape, encoding, raw_uuid=raw_uuid)


def _item_reader(
    shape: FieldShape, encoding: Encoding, read_structure: ReadField | None
) -> ReadField:
    if read_structure is not None:
        return read_structure
    item = FieldShape(shape.name, shape.primitive, None, False, False, None, False, None)
    return _primitive_reader(item, encoding, raw_uuid=False)


def _primitive_reader(shape: FieldShape, encoding: Encoding, *, raw_uuid: bool) -> ReadField:
    primitive = shape.primitive
    assert primitive is not None
    if primitive in _FIXED:
        return _fixed_reader(_FIXED[primitive])
    if primitive == "error_code":
        return _read_code
    if primitive == "uuid":
        return _read_raw_uuid if raw_uuid else _read_uuid
    if primitive == "string":
        return _string_reader(shape, encoding)
    return _bytes_reader(shape, encoding, is_view=primitive == "records")


def _fixed_reader(layout: Struct) -> ReadField:
    unpack_from, size = layout.unpack_from, layout.size

    def read_fixed(frame: memoryview, position: int, _budget: ItemBudget) -> tuple[Any, int]:
        return unpack_from(frame, position)[0], position + size

    return read_fixed


def _read_code(frame: memoryview, position: int, _budget: ItemBudget) -> tuple[ErrorCode, int]:
    """A code that this version of the protocol does not define counts as an unknown error."""
    (code,) = _CODE.unpack_from(frame, position)
    return _CODES.get(code, ErrorCode.unknown_server_error), position + _CODE.size


def _read_raw_uuid(frame: memoryview, position: int, _budget: ItemBudget) -> tuple[bytes, int]:
    following = position + TOPIC_ID_BYTES
    if following > len(frame):
        raise Malformed("a UUID is truncated", position)
    return bytes(frame[position:following]), following


def _read_uuid(frame: memoryview, position: int, budget: ItemBudget) -> tuple[UUID | None, int]:
    """Sixteen zeros stand for none."""
    raw, following = _read_raw_uuid(frame, position, budget)
    return None if raw == NO_TOPIC_ID else UUID(bytes=raw), following


def _string_reader(shape: FieldShape, encoding: Encoding) -> ReadField:
    read, name, nullable = encoding.read_nullable_string, shape.name, shape.nullable

    def read_string(
        frame: memoryview, position: int, _budget: ItemBudget
    ) -> tuple[str | None, int]:
        text, following = read(frame, position)
        if text is None and not nullable:
            raise Malformed(f"{name} is null", position)
        return text, following

    return read_string


def _bytes_reader(shape: FieldShape, encoding: Encoding, *, is_view: bool) -> ReadField:
    read, name, nullable = encoding.read_nullable_bytes, shape.name, shape.nullable

    def read_bytes(
        frame: memoryview, position: int, _budget: ItemBudget
    ) -> tuple[memoryview | bytes | None, int]:
        view, following = read(frame, position)
        if view is None:
            if not nullable:
                raise Malformed(f"{name} is null", position)
            return None, following
        return (view if is_view else bytes(view)), following

    return read_bytes


def _fixed_array_reader(shape: FieldShape, encoding: Encoding) -> ReadField:
    assert shape.primitive is not None
    layout, name, nullable = _FIXED[shape.primitive], shape.name, shape.nullable
    letter, item_bytes = layout.format[1:], layout.size

    def read_array(
        frame: memoryview, position: int, budget: ItemBudget
    ) -> tuple[tuple[Any, ...] | None, int]:
        count, start = encoding.read_nullable_count(frame, position)
        if count < 0:
            if not nullable:
                raise Malformed(f"{name} is null", position)
            return None, start
        budget.take(count, (len(frame) - start) // item_bytes, position)
        return Struct(f">{count}{letter}").unpack_from(frame, start), start + count * item_bytes

    return read_array


def _array_reader(shape: FieldShape, encoding: Encoding, read_item: ReadField) -> ReadField:
    name, nullable = shape.name, shape.nullable

    def read_array(
        frame: memoryview, position: int, budget: ItemBudget
    ) -> tuple[tuple[Any, ...] | None, int]:
        count, start = encoding.read_nullable_count(frame, position)
        if count < 0:
            if not nullable:
                raise Malformed(f"{name} is null", position)
            return None, start
        budget.take(count, len(frame) - start, position)
        items = []
        for _ in range(count):
            item, start = read_item(frame, start, budget)
            items.append(item)
        return tuple(items), start

    return read_array


def _nullable_structure_reader(read_structure: ReadField) -> ReadField:
    def read_nullable(frame: memoryview, position: int, budget: ItemBudget) -> tuple[Any, int]:
        if position >= len(frame):
            raise Malformed("the message is truncated", position)
        marker = frame[position]
        if marker == _STRUCTURE_IS_NULL:
            return None, position + 1
        if marker != _STRUCTURE_FOLLOWS:
            raise Malformed(f"a structure is marked {marker}", position)
        return read_structure(frame, position + 1, budget)

    return read_nullable


# Writing.


def field_writer(
    shape: FieldShape, encoding: Encoding, write_structure: WriteField | None
) -> WriteField:
    """A writer of this field; it takes any sequence for an array."""
    if shape.is_array:
        if shape.primitive in _FIXED:
            return _fixed_array_writer(shape, encoding)
        item = FieldShape(shape.name, shape.primitive, None, False, False, None, False, None)
        write_item = write_structure or _primitive_writer(item, encoding)
        return _array_writer(shape, encoding, write_item)
    if shape.structure is not None:
        assert write_structure is not None
        return _nullable_structure_writer(write_structure) if shape.nullable else write_structure
    return _primitive_writer(shape, encoding)


def _primitive_writer(shape: FieldShape, encoding: Encoding) -> WriteField:
    primitive = shape.primitive
    assert primitive is not None
    if primitive in _FIXED:
        return _FIXED[primitive].pack
    if primitive == "error_code":
        return _CODE.pack
    if primitive == "uuid":
        return _write_uuid
    if primitive == "string":
        return encoding.string if shape.nullable else _not_null(shape, encoding.string)
    write = _bytes_writer(encoding)
    return write if shape.nullable else _not_null(shape, write)


def _not_null(shape: FieldShape, write: WriteField) -> WriteField:
    name = shape.name

    def write_value(value: Any) -> bytes:
        assert value is not None, f"this version has no null {name}"
        return write(value)

    return write_value


def _write_uuid(value: UUID | bytes | None) -> bytes:
    if value is None:
        return NO_TOPIC_ID
    return value if isinstance(value, bytes) else value.bytes


def _bytes_writer(encoding: Encoding) -> WriteField:
    size = encoding.size

    def write_bytes(value: bytes | memoryview | None) -> bytes:
        return size(-1) if value is None else size(len(value)) + value

    return write_bytes


def _fixed_array_writer(shape: FieldShape, encoding: Encoding) -> WriteField:
    assert shape.primitive is not None
    letter, name, nullable = _FIXED[shape.primitive].format[1:], shape.name, shape.nullable

    def write_array(values: Any) -> bytes:
        if values is None:
            assert nullable, f"this version has no null {name}"
            return encoding.null_array
        count = len(values)
        return encoding.count(count) + Struct(f">{count}{letter}").pack(*values)

    return write_array


def _array_writer(shape: FieldShape, encoding: Encoding, write_item: WriteField) -> WriteField:
    name, nullable = shape.name, shape.nullable

    def write_array(values: Any) -> bytes:
        if values is None:
            assert nullable, f"this version has no null {name}"
            return encoding.null_array
        parts = [encoding.count(len(values))]
        for value in values:
            is_shared = isinstance(value, WrittenOnce)
            parts.append(value.written(write_item) if is_shared else write_item(value))
        return b"".join(parts)

    return write_array


def _nullable_structure_writer(write_structure: WriteField) -> WriteField:
    def write_nullable(value: Any) -> bytes:
        return b"\xff" if value is None else b"\x01" + write_structure(value)

    return write_nullable
