"""What upb decodes and no column can hold: times out of range, and proto2's strings without UTF-8.

Such an event is refused, one by one as in batches. Messages without such fields cost nothing: which
fields lead to one is determined once per message type.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor

TIMESTAMP: Final = "google.protobuf.Timestamp"
DURATION: Final = "google.protobuf.Duration"
_FIRST_SECOND: Final = -62_135_596_800  # 0001-01-01
_LAST_SECOND: Final = 253_402_300_799  # 9999-12-31
_DURATION_MAX_S: Final = 315_576_000_000
_NANOS: Final = 1_000_000_000
_VALIDATING: Final = "proto3"


class _Step(NamedTuple):
    """A field that leads to something to check."""

    field: Any
    is_map: bool
    values: Any  # the field whose values are checked: itself, or that of a map's entries
    keys: Any  # the field of a map's keys, if those are to be checked


class MessageCheck:
    """The check for messages of one type."""

    def __init__(self) -> None:
        self._leading: dict[str, bool] = {}
        self._steps: dict[str, list[_Step]] = {}

    def invalid(self, message: Any) -> str | None:
        """What no column can hold; None if there is nothing."""
        return next(self._invalid_values(message), None)

    def _invalid_values(self, message: Any) -> Iterator[str]:
        name = message.DESCRIPTOR.full_name
        if name in _TIMES:
            if not _TIMES[name](message.seconds, message.nanos):
                yield f"{message.seconds} s and {message.nanos} ns are not a {name}"
            return
        for step in self._steps_of(message.DESCRIPTOR):
            field = step.field
            if not field.is_repeated and field.has_presence and not message.HasField(field.name):
                continue
            value = getattr(message, field.name)
            if step.is_map:
                for key in value:
                    yield from self._in(step.keys, key)
                    yield from self._in(step.values, value[key])
            else:
                for item in value if field.is_repeated else (value,):
                    yield from self._in(field, item)

    def _in(self, field: Any, value: Any) -> Iterator[str]:
        if field is None:
            return
        if field.message_type is not None:
            yield from self._invalid_values(value)
        elif type(value) is bytes and field.type == FieldDescriptor.TYPE_STRING:
            yield f"the string {field.name} is not UTF-8"

    def _steps_of(self, descriptor: Any) -> list[_Step]:
        known = self._steps.get(descriptor.full_name)
        if known is None:
            known = [step for field in descriptor.fields if (step := self._step(field)) is not None]
            self._steps[descriptor.full_name] = known
        return known

    def _step(self, field: Any) -> _Step | None:
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
            keys = key if _is_unchecked_text(key) else None
            values = value if self._is_checked(value) else None
            return _Step(field, True, values, keys) if keys or values else None
        return _Step(field, False, field, None) if self._is_checked(field) else None

    def _is_checked(self, field: Any) -> bool:
        if field.message_type is None:
            return _is_unchecked_text(field)
        return self._leads(field.message_type)

    def _leads(self, descriptor: Any) -> bool:
        """Whether there is anything to check inside, however deep."""
        known = self._leading.get(descriptor.full_name)
        if known is not None:
            return known
        seen: set[str] = set()
        waiting = [descriptor]
        leads = False
        while waiting and not leads:
            inner = waiting.pop()
            if inner.full_name in seen:
                continue
            seen.add(inner.full_name)
            leads = inner.full_name in _TIMES or any(map(_is_unchecked_text, inner.fields))
            waiting += [field.message_type for field in inner.fields if field.message_type]
        self._leading[descriptor.full_name] = leads
        return leads


@lru_cache(maxsize=256)
def nests_freely(descriptor: Any) -> bool:
    """Whether there is a message inside that may contain itself."""
    parts: dict[str, set[str]] = {}
    waiting = [descriptor]
    while waiting:
        message = waiting.pop()
        if message.full_name not in parts:
            inner = [field.message_type for field in message.fields if field.message_type]
            parts[message.full_name] = {each.full_name for each in inner}
            waiting += inner
    while ends := {name for name, inner in parts.items() if not inner & parts.keys()}:
        for name in ends:
            del parts[name]
    return bool(parts)


def _is_unchecked_text(field: Any) -> bool:
    """Whether upb accepts any bytes for the string."""
    if field.type != FieldDescriptor.TYPE_STRING:
        return False
    file = descriptor_pb2.FileDescriptorProto()
    field.containing_type.file.CopyToProto(file)
    return bool(file.syntax != _VALIDATING)


def _is_instant(seconds: int, nanos: int) -> bool:
    return _FIRST_SECOND <= seconds <= _LAST_SECOND and 0 <= nanos < _NANOS


def _is_span(seconds: int, nanos: int) -> bool:
    is_small = abs(seconds) <= _DURATION_MAX_S and abs(nanos) < _NANOS
    return is_small and seconds * nanos >= 0


_TIMES: Final[dict[str, Callable[[int, int], bool]]] = {
    TIMESTAMP: _is_instant,
    DURATION: _is_span,
}
