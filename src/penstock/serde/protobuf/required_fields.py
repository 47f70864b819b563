"""Which required fields are missing in a message.

upb's own FindInitializationErrors, and the error of SerializeToString, end the process (7.36) if a
map of such a message has an entry. The names are those that upb would give.
"""

from collections.abc import Iterator
from typing import Any


def missing_fields(message: Any) -> list[str]:
    """The paths of required fields that are not set; empty if the message is complete."""
    return [] if message.IsInitialized() else list(_missing(message))


def has_required_fields(descriptor: Any) -> bool:
    """Whether the message type, or one within it, has a required field."""
    seen: set[str] = set()
    waiting = [descriptor]
    while waiting:
        message = waiting.pop()
        if message.full_name in seen:
            continue
        seen.add(message.full_name)
        if any(field.is_required for field in message.fields):
            return True
        waiting += [field.message_type for field in message.fields if field.message_type]
    return False


def _missing(message: Any) -> Iterator[str]:
    for field in message.DESCRIPTOR.fields:
        if field.is_required and not message.HasField(field.name):
            yield field.name
    for field, value in message.ListFields():
        for path, inner in _messages(field, value):
            yield from (f"{path}.{name}" for name in _missing(inner))


def _messages(field: Any, value: Any) -> Iterator[tuple[str, Any]]:
    message_type = field.message_type
    if message_type is None:
        return
    if not field.is_repeated:
        yield field.name, value
    elif not message_type.GetOptions().map_entry:
        for index, item in enumerate(value):
            yield f"{field.name}[{index}]", item
    elif message_type.fields_by_name["value"].message_type is not None:
        for key in value:
            yield f"{field.name}[{key!r}]", value[key]
