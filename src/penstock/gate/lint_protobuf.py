"""Lints of Protobuf schemas: changes that the wire format allows and that can still cause trouble.

A number that is used again has two meanings in old and new events; JSON has names instead of
numbers; a required field can never be removed.
"""

from collections.abc import Iterable, Iterator, Sequence

from penstock.gate.lint import Lint
from penstock.schemas.protobuf.rewrite import default_json_name
from penstock.schemas.protobuf.schema import ProtobufSchema
from penstock.schemas.protobuf.tree import Enum, Field, Message, Reserved, StringValue


def lints(proposed: ProtobufSchema, earlier: ProtobufSchema | None) -> Iterator[Lint]:
    """The warnings about `proposed` as the successor of `earlier`."""
    new = proposed.file
    old = earlier.file if earlier is not None else None
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
            f'the first message was "{old[0].name}" and is "{new[0].name}": producers and tools '
            "without a message name use the first message",
            "add new messages below the first one, or name the message in every contract",
        )


def _required(path: str, message: Message, before: Message | None) -> Iterator[Lint]:
    known = _fields(before) if before is not None else {}
    for number, field in _fields(message).items():
        was_required = number in known and known[number].label == "required"
        if field.label == "required" and not was_required:
            yield Lint(
                "REQUIRED_FIELD",
                f"{path}/{number}",
                f'"{field.name}" is required: it can never be removed, and readers refuse events '
                "of producers that do not know it",
                "make it optional, and check for it where it is needed",
            )


def _message_lints(path: str, old: Message, new: Message) -> Iterator[Lint]:
    before, after = _fields(old), _fields(new)
    yield from _reused_numbers(
        path, old.reserved, {number: field.name for number, field in after.items()}
    )
    yield from _reused_names(path, old.reserved, [field.name for field in after.values()])
    yield from _dropped_reservations(path, old.reserved, new.reserved, after)
    for number, field in before.items():
        if number not in after:
            if not _covers(new.reserved, number):
                yield _not_reserved("FIELD_REMOVED_NOT_RESERVED", path, number, field.name)
        elif _json_name(field) != _json_name(after[number]):
            yield Lint(
                "JSON_NAME_CHANGED",
                f"{path}/{number}",
                f'the name in JSON was "{_json_name(field)}" and is '
                f'"{_json_name(after[number])}": readers of JSON lose the value',
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
                f'the default value was "{name}" and is now "{after[0]}"',
                'keep zero for "unspecified", and give the new meaning its own number',
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
                f'"{value.name}" was {value.number} and is {numbers[value.name]}: events with '
                f'"{value.name}" are read as "{read_as}"',
                "keep the numbers, and give new values their own numbers",
            )


def _reused_numbers(
    path: str, reserved: tuple[Reserved, ...], names: dict[int, str]
) -> Iterator[Lint]:
    for number, name in names.items():
        if _covers(reserved, number):
            yield Lint(
                "RESERVED_NUMBER_REUSED",
                f"{path}/{number}",
                f'the reserved number {number} is now "{name}": old events may contain another '
                "field under it",
                "use a number that was never used",
            )


def _reused_names(
    path: str, reserved: tuple[Reserved, ...], names: Iterable[str]
) -> Iterator[Lint]:
    taken = {
        value for statement in reserved for value in statement.values if isinstance(value, str)
    }
    for name in names:
        if name in taken:
            yield Lint(
                "RESERVED_NAME_REUSED",
                f"{path}/{name}",
                f'"{name}" was reserved: old events in JSON or text may contain another field '
                "under it",
                "use another name",
            )


def _dropped_reservations(
    path: str,
    old: tuple[Reserved, ...],
    new: tuple[Reserved, ...],
    used: dict[int, Field],
) -> Iterator[Lint]:
    ranges = (
        value for statement in old for value in statement.values if not isinstance(value, str)
    )
    for start, last, _ in ranges:
        if not _covers(new, start) and start not in used:
            numbers = str(start) if start == last else f"{start} to {last}"
            yield Lint(
                "RESERVATION_DROPPED",
                f"{path}/{start}",
                f"{numbers} was reserved and can be used again",
                f"add: reserved {numbers};",
            )


def _not_reserved(kind: str, path: str, number: int, name: str) -> Lint:
    return Lint(
        kind,
        f"{path}/{number}",
        f'"{name}" was removed and its number {number} is not reserved: a new field with that '
        "number would read old values",
        f'add: reserved {number}; reserved "{name}";',
    )


def _covers(reserved: tuple[Reserved, ...], number: int) -> bool:
    return any(
        value.start <= number <= value.last
        for statement in reserved
        for value in statement.values
        if not isinstance(value, str)
    )


def _fields(message: Message) -> dict[int, Field]:
    return {field.number: field for field in message.all_fields}


def _json_name(field: Field) -> str:
    for option in field.options:
        if option.is_builtin("json_name") and isinstance(option.value, StringValue):
            return option.value.value
    return default_json_name(field.name)
