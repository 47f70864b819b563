"""What a Protobuf change breaks although the wire format does not mind.

Numbers that come back mean two things to readers of old events; JSON has names and no numbers; a
required field can never be taken back.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from penstock.gate.lint import Lint
from penstock.schemas.model import ParsedSchema
from penstock.schemas.protobuf.rewrite import default_json_name
from penstock.schemas.protobuf.schema import ProtobufSchema
from penstock.schemas.protobuf.tree import Enum, Field, Message, Reserved, Text


def lints(proposed: ParsedSchema, earlier: ParsedSchema | None) -> Iterator[Lint]:
    """What to think twice about before `proposed` follows `earlier`."""
    new = cast(ProtobufSchema, proposed).file
    old = cast(ProtobufSchema, earlier).file if earlier is not None else None
    before = _Types(old.messages, old.enums) if old is not None else _Types((), ())
    after = _Types(new.messages, new.enums)
    if old is not None:
        yield from _first_message(old.messages, new.messages)
    for path, message in after.messages.items():
        yield from _required(path, message, before.messages.get(path))
        if path in before.messages:
            yield from _message_lints(path, before.messages[path], message)
    for path, enum in after.enums.items():
        if path in before.enums:
            yield from _enum_lints(path, before.enums[path], enum)


class _Types:
    """All messages and enums of a file by their paths."""

    def __init__(self, messages: Iterable[Message], enums: Iterable[Enum]) -> None:
        self.messages: dict[str, Message] = {}
        self.enums: dict[str, Enum] = {}
        self._collect("#", messages, enums)

    def _collect(self, path: str, messages: Iterable[Message], enums: Iterable[Enum]) -> None:
        for enum in enums:
            self.enums[f"{path}/{enum.name}"] = enum
        for message in messages:
            self.messages[f"{path}/{message.name}"] = message
            self._collect(f"{path}/{message.name}", message.nested, message.enums)


def _first_message(old: Sequence[Message], new: Sequence[Message]) -> Iterator[Lint]:
    if old and new and old[0].name != new[0].name:
        yield Lint(
            "FIRST_MESSAGE_CHANGED",
            f"#/{new[0].name}",
            f'the first message was "{old[0].name}" and is "{new[0].name}": producers that name no '
            "message write the first one, and tools that name none read it",
            "put new messages below the first one, or name the message in every contract",
        )


def _required(path: str, message: Message, before: Message | None) -> Iterator[Lint]:
    known = _fields(before) if before is not None else {}
    for number, field in _fields(message).items():
        was_required = number in known and known[number].label == "required"
        if field.label == "required" and not was_required:
            yield Lint(
                "REQUIRED_FIELD",
                f"{path}/{number}",
                f'"{field.name}" is required: it can never be removed, and whoever does not know '
                "it can write nothing that is read",
                "make it optional and check for it where it is needed",
            )


def _message_lints(path: str, old: Message, new: Message) -> Iterator[Lint]:
    before, after = _fields(old), _fields(new)
    yield from _reused_numbers(path, old.reserved, {one: f.name for one, f in after.items()})
    yield from _reused_names(path, old.reserved, (field.name for field in after.values()))
    yield from _dropped(path, old.reserved, new.reserved, after)
    for number, field in before.items():
        if number not in after:
            if not _covers(new.reserved, number):
                yield _not_reserved("FIELD_REMOVED_NOT_RESERVED", path, number, field.name)
        elif _json_name(field) != _json_name(after[number]):
            yield Lint(
                "JSON_NAME_CHANGED",
                f"{path}/{number}",
                f'in JSON the field was "{_json_name(field)}" and is '
                f'"{_json_name(after[number])}": events that travel as JSON lose it',
                f'add [json_name = "{_json_name(field)}"] to keep the name',
            )


def _enum_lints(path: str, old: Enum, new: Enum) -> Iterator[Lint]:
    before = {value.number: value.name for value in reversed(old.values)}
    after = {value.number: value.name for value in reversed(new.values)}
    yield from _reused_numbers(path, old.reserved, after)
    yield from _reused_names(path, old.reserved, after.values())
    yield from _renumbered(path, old, new)
    for number, name in before.items():
        if number not in after:
            if not _covers(new.reserved, number):
                yield _not_reserved("ENUM_VALUE_REMOVED_NOT_RESERVED", path, number, name)
        elif number == 0 and after[0] != name:
            yield Lint(
                "ENUM_ZERO_RENAMED",
                f"{path}/0",
                f'the value of whoever sets nothing was "{name}" and is now "{after[0]}"',
                'keep the zero for "unspecified" and give the new meaning a number of its own',
            )


def _renumbered(path: str, old: Enum, new: Enum) -> Iterator[Lint]:
    numbers = {value.name: value.number for value in new.values}
    names: dict[int, set[str]] = {}
    for value in new.values:
        names.setdefault(value.number, set()).add(value.name)
    for value in old.values:
        if value.name in numbers and value.name not in names.get(value.number, {value.name}):
            read_as = ", ".join(sorted(names[value.number]))
            yield Lint(
                "ENUM_VALUE_RENUMBERED",
                f"{path}/{value.number}",
                f'"{value.name}" was {value.number} and is {numbers[value.name]}: events written '
                f'as "{value.name}" are read as "{read_as}"',
                "keep the numbers, and give new values numbers of their own",
            )


def _reused_numbers(
    path: str, reserved: tuple[Reserved, ...], names: dict[int, str]
) -> Iterator[Lint]:
    for number, name in names.items():
        if _covers(reserved, number):
            yield Lint(
                "RESERVED_NUMBER_REUSED",
                f"{path}/{number}",
                f'number {number}, reserved before, is now "{name}": old events hold something '
                "else under it",
                "take a number that was never used",
            )


def _reused_names(
    path: str, reserved: tuple[Reserved, ...], names: Iterable[str]
) -> Iterator[Lint]:
    taken = {value for one in reserved for value in one.values if isinstance(value, str)}
    for name in names:
        if name in taken:
            yield Lint(
                "RESERVED_NAME_REUSED",
                f"{path}/{name}",
                f'"{name}" was reserved before: JSON and text of old events hold something else '
                "under it",
                "take another name",
            )


def _dropped(
    path: str,
    old: tuple[Reserved, ...],
    new: tuple[Reserved, ...],
    used: dict[int, Field],
) -> Iterator[Lint]:
    ranges = (value for one in old for value in one.values if not isinstance(value, str))
    for start, last, _ in ranges:
        if not _covers(new, start) and start not in used:
            numbers = str(start) if start == last else f"{start} to {last}"
            yield Lint(
                "RESERVATION_DROPPED",
                f"{path}/{start}",
                f"{numbers} was reserved before and is free again",
                f"put back: reserved {numbers};",
            )


def _not_reserved(kind: str, path: str, number: int, name: str) -> Lint:
    return Lint(
        kind,
        f"{path}/{number}",
        f'"{name}" was removed and its number {number} is free: whoever takes it will be handed '
        "old values",
        f'add: reserved {number}; reserved "{name}";',
    )


def _covers(reserved: tuple[Reserved, ...], number: int) -> bool:
    return any(
        value.start <= number <= value.last
        for one in reserved
        for value in one.values
        if not isinstance(value, str)
    )


def _fields(message: Message) -> dict[int, Field]:
    members = (field for oneof in message.oneofs for field in oneof.fields)
    return {field.number: field for field in (*message.fields, *members)}


def _json_name(field: Field) -> str:
    for option in field.options:
        if option.is_builtin("json_name") and isinstance(option.value, Text):
            return option.value.value
    return default_json_name(field.name)
