"""Events of a Protobuf message type, and whether a reader sees the values that were written.

First an event with every field set, then each field alone with each value worth trying. Works on
upb's messages, whose types are made at run time: hence `Any`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from google.protobuf import message_factory

DEPTH_MAX: Final = 3  # messages within messages
_SCALARS: Final[Mapping[str, tuple[Any, ...]]] = {
    "TYPE_BOOL": (True,),
    "TYPE_INT32": (7, -(2**31), 2**31 - 1),
    "TYPE_SINT32": (7, -(2**31), 2**31 - 1),
    "TYPE_SFIXED32": (7, -(2**31), 2**31 - 1),
    "TYPE_UINT32": (7, 2**32 - 1),
    "TYPE_FIXED32": (7, 2**32 - 1),
    "TYPE_INT64": (7, -(2**63), 2**63 - 1),
    "TYPE_SINT64": (7, -(2**63), 2**63 - 1),
    "TYPE_SFIXED64": (7, -(2**63), 2**63 - 1),
    "TYPE_UINT64": (7, 2**64 - 1),
    "TYPE_FIXED64": (7, 2**64 - 1),
    "TYPE_FLOAT": (-1.5,),
    "TYPE_DOUBLE": (-1.5, 1e300),
    "TYPE_STRING": ("grün",),
    "TYPE_BYTES": (b"ab", b"\xff\x00"),
}
_WORDS: Final = ("amber", "birch", "cedar", "delta", "ember", "fjord")


def events(message_type: Any, numbers: Sequence[int], seed: int) -> Iterator[Any]:
    """Messages of a class; fields with these numbers come first."""
    random = Random(seed)
    fields = sorted(message_type.DESCRIPTOR.fields, key=lambda field: field.number not in numbers)
    if numbers:
        yield from _alone(
            message_type, [field for field in fields if field.number in numbers], random
        )
    yield _full(message_type, random, 0)
    yield from _alone(message_type, fields, random)
    yield _with_required(message_type, random, 0)


def _alone(message_type: Any, fields: Sequence[Any], random: Random) -> Iterator[Any]:
    for field in fields:
        for value in _values(field, random, 0):
            message = _with_required(message_type, random, 0)
            _put(message, field, value)
            yield message


def _full(message_type: Any, random: Random, depth: int) -> Any:
    """A message with every field set; of a oneof only the last."""
    message = message_type()
    for field in message_type.DESCRIPTOR.fields:
        value = next(iter(_values(field, random, depth)), None)
        if value is not None:
            _put(message, field, value)
    return message


def _with_required(message_type: Any, random: Random, depth: int) -> Any:
    message = message_type()
    for field in message_type.DESCRIPTOR.fields:
        if field.is_required:
            value = next(iter(_values(field, random, depth)), None)
            if value is not None:
                _put(message, field, value)
    return message


def is_map(field: Any) -> bool:
    """Whether a field is a map; descriptors have repeated entry messages for it."""
    entry = field.message_type
    return entry is not None and bool(entry.GetOptions().map_entry)


def _values(field: Any, random: Random, depth: int) -> Iterator[Any]:
    """Values for a field, the simplest first; none where recursive messages are too deep."""
    if is_map(field):
        keys = list(_values(field.message_type.fields_by_number[1], random, depth))
        values = list(_values(field.message_type.fields_by_number[2], random, depth))
        yield from ((keys[0], value) for value in values)
        yield from ((key, value) for key in keys[1:] for value in values[:1])
    elif field.message_type is not None:
        if depth < DEPTH_MAX:
            inner = message_factory.GetMessageClass(field.message_type)
            yield _full(inner, random, depth + 1)
            yield _with_required(inner, random, depth + 1)
    elif field.enum_type is not None:
        numbers = [value.number for value in field.enum_type.values]
        yield from sorted(numbers, key=lambda number: number == 0)
    else:
        name = next(name for name in _SCALARS if getattr(field, name) == field.type)
        if name == "TYPE_STRING":
            yield random.choice(_WORDS)
        yield from _SCALARS[name]


def _put(message: Any, field: Any, value: Any) -> None:
    if is_map(field):
        entries, (key, entry) = getattr(message, field.name), value
        if field.message_type.fields_by_number[2].message_type is not None:
            entries[key].CopyFrom(entry)
        else:
            entries[key] = entry
    elif field.is_repeated:
        getattr(message, field.name).extend([value, value])
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(value)
        getattr(message, field.name).SetInParent()
    else:
        setattr(message, field.name, value)


def lost_value(sent: Any, seen: Any) -> str | None:
    """The first written value that the reader has a field for and sees differently."""
    known = seen.DESCRIPTOR.fields_by_number
    for field, _ in sent.ListFields():
        other = known.get(field.number)
        if other is None:
            continue
        loss = _lost_item(_listed(sent, field), _listed(seen, other))
        if loss is not None:
            return f"field {field.number} ({field.name}): {loss}"
    return None


def unset_oneof(sent: Any, seen: Any) -> str | None:
    """The first oneof that was set and that the reader sees as unset: it lacks the member."""
    for oneof in sent.DESCRIPTOR.oneofs:
        member = sent.WhichOneof(oneof.name)
        other = seen.DESCRIPTOR.oneofs_by_name.get(oneof.name)
        if member is not None and other is not None and seen.WhichOneof(other.name) is None:
            return f"oneof {oneof.name}: written with {member}, but the reader sees it unset"
    return None


class _Symbol(NamedTuple):
    """A value of an enum: its number, the names of the number, and all names of the enum."""

    number: int
    names: frozenset[str]
    all_names: frozenset[str]

    def is_read_as(self, other: Any) -> bool:
        """Whether a reader sees the same value.

        Another name for the same number is a renamed value, unless one schema uses that name for
        another number.
        """
        if not isinstance(other, _Symbol):
            return bool(self.number == other)
        if self.number != other.number:
            return False
        if not self.names.isdisjoint(other.names):
            return True
        return self.names.isdisjoint(other.all_names) and other.names.isdisjoint(self.all_names)

    def __str__(self) -> str:
        return "/".join(sorted(self.names)) or str(self.number)


def _listed(message: Any, field: Any) -> list[Any]:
    """The values of a field as a list, which is empty for a message that is not set."""
    value = getattr(message, field.name)
    if is_map(field):
        parts = [field.message_type.fields_by_number[number] for number in (1, 2)]
        entries = ((key, value[key]) for key in sorted(value))
        return [
            _comparable(item, part)
            for entry in entries
            for item, part in zip(entry, parts, strict=True)
        ]
    if field.is_repeated:
        return [_comparable(item, field) for item in value]
    if field.message_type is not None and not message.HasField(field.name):
        return []
    return [_comparable(value, field)]


def _comparable(value: Any, field: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values
        names = frozenset(symbol.name for symbol in known if symbol.number == value)
        return _Symbol(value, names, frozenset(symbol.name for symbol in known))
    return value.encode() if isinstance(value, str) else value


def _lost_item(sent: list[Any], seen: list[Any]) -> str | None:
    if len(sent) != len(seen):
        return f"{len(sent)} values were written and {len(seen)} are read"
    for written, read in zip(sent, seen, strict=True):
        if hasattr(written, "ListFields") and hasattr(read, "ListFields"):
            loss = lost_value(written, read)
            if loss is not None:
                return loss
        elif not _is_same(written, read):
            return f"written as {_text(written)}, read as {_text(read)}"
    return None


def _is_same(sent: Any, seen: Any) -> bool:
    if isinstance(sent, _Symbol):
        return sent.is_read_as(seen)
    if isinstance(seen, _Symbol):
        return seen.is_read_as(sent)
    if hasattr(sent, "ListFields") or hasattr(seen, "ListFields"):
        return False
    return bool(sent == seen)


def _text(value: Any) -> str:
    if isinstance(value, _Symbol):
        return str(value)
    return as_json(value) if hasattr(value, "ListFields") else repr(value)


def as_json(message: Any) -> str:
    """A message as JSON: set fields only, enums by name, bytes as a string."""
    return json.dumps(_fields(message), ensure_ascii=False)


def _fields(message: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field, value in message.ListFields():
        if is_map(field):
            of_value = field.message_type.fields_by_number[2]
            values[field.name] = {str(key): _json_value(of_value, value[key]) for key in value}
        elif field.is_repeated:
            values[field.name] = [_json_value(field, item) for item in value]
        else:
            values[field.name] = _json_value(field, value)
    return values


def _json_value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _fields(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value.decode("latin-1") if isinstance(value, bytes) else value
