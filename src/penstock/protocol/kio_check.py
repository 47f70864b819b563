"""Walks over a message before anything is made of it, and vouches for its shape.

kio's native reader trusts counts: it reserves memory for as many items as a frame claims, and an
absurd claim in seven bytes ends the process. It also takes null where the schema has none, and
stumbles over tagged fields that a newer client adds. So each body is walked first: every length
and count must fit the bytes that are there, nulls must be allowed, the end must be the frame's
end. Walking makes no objects and copies nothing, unless unknown tagged fields must be cut out.

A walker is built once per message type; neighbours of fixed size are one step.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from penstock.errors import Malformed
from penstock.protocol.kio_schema import EntityType, FieldShape, is_flexible, shapes_of
from penstock.protocol.varint import Buffer, read_unsigned_varint, unsigned_varint

REQUEST_ITEMS_MAX: Final = 1 << 18  # array items in one request, all together; more is refused
RESPONSE_ITEMS_MAX: Final = 1 << 24  # a broker may have many partitions to tell of

_FIXED_BYTES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
    "error_code": 2,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
}
_NULLABLE_FIXED: Final = ("uuid", "datetime_i64")  # null is a value of its own, not a length
_LENGTH_16: Final = Struct(">h")
_LENGTH_32: Final = Struct(">i")
_STRUCTURE_THERE: Final = 1
_STRUCTURE_NULL: Final = 0xFF


class _Cut(NamedTuple):
    """Bytes of a frame to be replaced when unknown tagged fields are taken out."""

    start: int
    end: int
    replacement: bytes


class _Walk:
    """One pass over one frame."""

    __slots__ = ("buffer", "cuts", "end", "items_left")

    def __init__(self, buffer: Buffer, end: int, items_max: int) -> None:
        self.buffer = buffer
        self.end = end
        self.items_left = items_max
        self.cuts: list[_Cut] = []


_Step: TypeAlias = Callable[[_Walk, int], int]  # from a position to the next


def vouched(
    entity_type: EntityType, buffer: Buffer, position: int, *, items_max: int
) -> tuple[Buffer, int]:
    """The buffer and position to read the body from, now known to be sound up to the end.

    They are the ones given, without bytes that follow the message, or a copy without the tagged
    fields that this version does not know.
    """
    walk = _Walk(buffer, len(buffer), items_max)
    reached = _walker(entity_type)(walk, position)
    if reached != walk.end:
        # librdkafka leaves three bytes after its Metadata 13, and brokers never minded
        buffer = memoryview(buffer)[:reached]
    if walk.cuts:
        return _without(walk.cuts, buffer, position), 0
    return buffer, position


def _without(cuts: list[_Cut], buffer: Buffer, position: int) -> bytes:
    kept = bytearray()
    for cut in sorted(cuts):
        kept += memoryview(buffer)[position : cut.start]
        kept += cut.replacement
        position = cut.end
    kept += memoryview(buffer)[position:]
    return bytes(kept)


@cache
def _walker(entity_type: EntityType) -> _Step:
    flexible = is_flexible(entity_type)
    steps: list[_Step] = []
    fixed_bytes = 0
    for shape in shapes_of(entity_type):
        if shape.tag is not None:
            continue
        if size := _fixed_size(shape):
            fixed_bytes += size
            continue
        if fixed_bytes:
            steps.append(_fixed_step(fixed_bytes))
            fixed_bytes = 0
        steps.append(_step(shape, flexible))
    if fixed_bytes:
        steps.append(_fixed_step(fixed_bytes))
    if flexible:
        steps.append(_tags_step(entity_type))
    return steps[0] if len(steps) == 1 else _sequence_step(tuple(steps))


def _fixed_size(shape: FieldShape) -> int:
    """In bytes; 0 when it varies."""
    if shape.is_array or shape.primitive is None:
        return 0
    assert not shape.nullable or shape.primitive in (*_NULLABLE_FIXED, "string", "bytes", "records")
    return _FIXED_BYTES.get(shape.primitive, 0)


def _step(shape: FieldShape, flexible: bool) -> _Step:
    if shape.is_array:
        return _array_step(shape, flexible)
    if shape.structure is not None:
        inner = _walker(shape.structure)
        return _nullable_structure_step(inner) if shape.nullable else inner
    assert shape.primitive is not None
    if size := _FIXED_BYTES.get(shape.primitive):
        return _fixed_step(size)
    if flexible:
        return _compact_step(shape.name, shape.nullable)
    return _legacy_step(shape.name, shape.nullable, shape.primitive == "string")


def _sequence_step(steps: tuple[_Step, ...]) -> _Step:
    def walk_sequence(walk: _Walk, position: int) -> int:
        for step in steps:
            position = step(walk, position)
        return position

    return walk_sequence


def _fixed_step(size: int) -> _Step:
    def walk_fixed(walk: _Walk, position: int) -> int:
        position += size
        if position > walk.end:
            raise Malformed("the message is cut short", walk.end)
        return position

    return walk_fixed


def _compact_step(name: str, nullable: bool) -> _Step:
    """A string or bytes whose length is one more than it is; 0 is null."""

    def walk_compact(walk: _Walk, position: int) -> int:
        claimed, start = read_unsigned_varint(walk.buffer, position, walk.end)
        if claimed == 0:
            if not nullable:
                raise Malformed(f"{name} is null", position)
            return start
        position = start + claimed - 1
        if position > walk.end:
            raise Malformed(f"{name} says {claimed - 1} bytes", start)
        return position

    return walk_compact


def _legacy_step(name: str, nullable: bool, is_string: bool) -> _Step:
    """A string or bytes with a length in front; -1 is null."""
    length = _LENGTH_16 if is_string else _LENGTH_32
    unpack_from, length_bytes = length.unpack_from, length.size

    def walk_legacy(walk: _Walk, position: int) -> int:
        start = position + length_bytes
        if start > walk.end:
            raise Malformed("the message is cut short", walk.end)
        (claimed,) = unpack_from(walk.buffer, position)
        if claimed < 0:
            if claimed != -1 or not nullable:
                raise Malformed(f"{name} says {claimed} bytes", position)
            return start
        position = start + claimed
        if position > walk.end:
            raise Malformed(f"{name} says {claimed} bytes", start)
        return position

    return walk_legacy


def _array_step(shape: FieldShape, flexible: bool) -> _Step:
    name = shape.name
    read_count = _read_compact_count if flexible else _read_legacy_count
    item_bytes = 0
    if shape.structure is not None:
        item_step = _walker(shape.structure)
    else:
        assert shape.primitive is not None
        item_bytes = _FIXED_BYTES.get(shape.primitive, 0)
        item_step = _step(replace(shape, is_array=False, nullable=False), flexible)

    def walk_array(walk: _Walk, position: int) -> int:
        count, start = read_count(walk, position)
        if count <= 0:
            if count < 0 and not shape.nullable:
                raise Malformed(f"{name} is null", position)
            return start
        walk.items_left -= count
        # An item is at least a byte, so no count may pass the bytes that are left.
        if count * (item_bytes or 1) > walk.end - start or walk.items_left < 0:
            raise Malformed(f"{name} says {count} items", position)
        if item_bytes:
            return start + count * item_bytes
        for _ in range(count):
            start = item_step(walk, start)
        return start

    return walk_array


def _read_compact_count(walk: _Walk, position: int) -> tuple[int, int]:
    claimed, position = read_unsigned_varint(walk.buffer, position, walk.end)
    return claimed - 1, position


def _read_legacy_count(walk: _Walk, position: int) -> tuple[int, int]:
    start = position + _LENGTH_32.size
    if start > walk.end:
        raise Malformed("the message is cut short", walk.end)
    (count,) = _LENGTH_32.unpack_from(walk.buffer, position)
    if count < -1:
        raise Malformed(f"an array says {count} items", position)
    return count, start


def _nullable_structure_step(inner: _Step) -> _Step:
    def walk_nullable(walk: _Walk, position: int) -> int:
        if position >= walk.end:
            raise Malformed("the message is cut short", walk.end)
        marker = walk.buffer[position]
        if marker == _STRUCTURE_NULL:
            return position + 1
        if marker != _STRUCTURE_THERE:
            raise Malformed(f"a structure is marked {marker}", position)
        return inner(walk, position + 1)

    return walk_nullable


def _tags_step(entity_type: EntityType) -> _Step:
    """The tagged fields at the end of a structure: those known are walked, others are cut."""
    flexible = is_flexible(entity_type)
    known = {
        shape.tag: _step(shape, flexible)
        for shape in shapes_of(entity_type)
        if shape.tag is not None
    }

    def walk_tags(walk: _Walk, position: int) -> int:
        buffer = walk.buffer
        if position < walk.end and buffer[position] == 0:
            return position + 1
        count, start = read_unsigned_varint(buffer, position, walk.end)
        return _walk_tags(walk, position, start, count, known)

    return walk_tags


def _walk_tags(
    walk: _Walk, count_position: int, position: int, count: int, known: dict[int, _Step]
) -> int:
    walk.items_left -= count
    if 2 * count > walk.end - position or walk.items_left < 0:
        raise Malformed(f"{count} tagged fields", position)
    count_end = position
    kept = 0
    for _ in range(count):
        field_position = position
        tag, size_position = read_unsigned_varint(walk.buffer, position, walk.end)
        size, start = read_unsigned_varint(walk.buffer, size_position, walk.end)
        position = start + size
        if position > walk.end:
            raise Malformed(f"tagged field {tag} says {size} bytes", field_position)
        step = known.get(tag)
        if step is None:
            walk.cuts.append(_Cut(field_position, position, b""))
        else:
            kept += 1
            _walk_tagged(walk, step, size_position, start, position)
    if kept < count:
        walk.cuts.append(_Cut(count_position, count_end, unsigned_varint(kept)))
    return position


def _walk_tagged(walk: _Walk, step: _Step, size_position: int, start: int, end: int) -> None:
    """A known tagged field must fill its bytes; what is cut inside it lowers its stated size."""
    outer_end, walk.end = walk.end, end
    cuts_before = len(walk.cuts)
    reached = step(walk, start)
    walk.end = outer_end
    if reached != end:
        raise Malformed(f"{end - reached} bytes are left in a tagged field", reached)
    inside = walk.cuts[cuts_before:]
    if inside:
        removed = sum(cut.end - cut.start - len(cut.replacement) for cut in inside)
        walk.cuts.append(_Cut(size_position, start, unsigned_varint(end - start - removed)))
