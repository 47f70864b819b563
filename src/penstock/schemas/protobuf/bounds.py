"""Schemas that would cost the compiler more than they are worth.

It explains every number and name that stands twice, and looks through all the others each time.
"""

from collections.abc import Sequence
from typing import Final

from penstock.schemas.model import InvalidSchema
from penstock.schemas.protobuf.tree import Enum, Message, ProtoFile

REPEATS_MAX: Final = 100
_RANGES_MAX: Final = 5000


def check_bounds(file: ProtoFile) -> None:
    """Refuse a file in which the same thing stands again and again."""
    for enum in file.enums:
        _check_enum(enum)
    waiting = list(file.messages)
    _check_repeats("the file", [message.name for message in waiting])
    while waiting:
        message = waiting.pop()
        _check_message(message)
        waiting += message.nested
        waiting += [group.body for group in message.groups]


def _check_message(message: Message) -> None:
    members = [field for oneof in message.oneofs for field in oneof.fields]
    fields = (*message.fields, *members)
    _check_repeats(message.name, [field.number for field in fields])
    _check_repeats(message.name, [field.name for field in fields])
    _check_repeats(message.name, [nested.name for nested in message.nested])
    values = [value for one in message.reserved for value in one.values]
    ranges = [one for extension in message.extensions for one in extension.ranges]
    _check_count(message.name, len(values) + len(ranges))
    for enum in message.enums:
        _check_enum(enum)


def _check_enum(enum: Enum) -> None:
    _check_repeats(enum.name, [value.name for value in enum.values])
    _check_count(enum.name, sum(len(one.values) for one in enum.reserved))


def _check_repeats(where: str, things: Sequence[object]) -> None:
    if len(things) - len(set(things)) > REPEATS_MAX:
        raise InvalidSchema(f"in {where} more than {REPEATS_MAX} numbers or names stand twice")


def _check_count(where: str, ranges: int) -> None:
    if ranges > _RANGES_MAX:
        raise InvalidSchema(f"in {where} more than {_RANGES_MAX} ranges are set aside")
