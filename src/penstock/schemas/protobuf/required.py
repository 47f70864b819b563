"""Which required fields a message lacks, by the names that upb gives them.

upb's own FindInitializationErrors, and SerializeToString to say the same, end the process (7.36) if
there is an entry in any map of such a message.
"""

from collections.abc import Iterator
from typing import Any


def missing_fields(message: Any) -> list[str]:
    """Paths from the message to the fields that are not set; none if it is whole."""
    return [] if message.IsInitialized() else list(_missing(message))


def _missing(message: Any) -> Iterator[str]:
    for field in message.DESCRIPTOR.fields:
        if field.is_required and not message.HasField(field.name):
            yield field.name
    for field, value in message.ListFields():
        for path, inner in _messages(field, value):
            yield from (f"{path}.{name}" for name in _missing(inner))


def _messages(field: Any, value: Any) -> Iterator[tuple[str, Any]]:
    kind = field.message_type
    if kind is None:
        return
    if not field.is_repeated:
        yield field.name, value
    elif not kind.GetOptions().map_entry:
        for index, item in enumerate(value):
            yield f"{field.name}[{index}]", item
    elif kind.fields_by_name["value"].message_type is not None:
        for key in value:
            yield f"{field.name}[{key!r}]", value[key]
