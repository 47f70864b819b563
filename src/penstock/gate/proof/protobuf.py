"""Trials with Protobuf events: written and read with upb, each with its own descriptors.

Protobuf seldom refuses an event. An event counts as read if every written value that the reader has
a field for has the same value there, and required fields are set.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError, EncodeError

from penstock.gate.proof.protobuf_examples import as_json, events, lost_value, unset_oneof
from penstock.gate.proof.prove import Attempt, DifferenceLocation, UnprovableError, shortened
from penstock.schemas.model import Difference, InvalidSchemaError
from penstock.schemas.protobuf import ProtobufSchema
from penstock.schemas.protobuf.tree import Field, Message, OneOf
from penstock.serde.protobuf.required_fields import missing_fields


class _Position(NamedTuple):
    """The element of one schema at a path."""

    names: tuple[str, ...]  # of the messages in the path
    part: Message | OneOf | Field | None
    number: int | None = None


def trials(
    writer: ProtobufSchema, reader: ProtobufSchema, differences: Sequence[Difference], seed: int
) -> Iterator[Attempt]:
    """Events of the messages that differ, changed fields first; then of all messages."""
    writes, reads = _Types(writer), _Types(reader)
    changed = [_walk(writer, difference.path) for difference in differences]
    named = [".".join(position.names) for position in changed if position.names]
    checks_oneofs = any(difference.kind == "ONEOF_FIELD_REMOVED" for difference in differences)
    for name in dict.fromkeys([*named, *_top_names(writer)]):
        numbers = [
            position.number
            for position in changed
            if ".".join(position.names) == name and position.number
        ]
        written = writes.find(writer, name)
        if written is None:
            continue
        is_same_package = _package(writer) == _package(reader)
        read = reads.find(reader, name) if is_same_package else None
        for event in events(written, numbers, seed):
            attempt = _read(event, name, read)
            if checks_oneofs and attempt.failure is None:
                attempt = attempt._replace(failure=unset_oneof(event, attempt.seen))
            yield attempt


def _read(event: Any, name: str, reader: Any) -> Attempt:
    payload = event.SerializePartialToString()
    if reader is None:
        full_name = event.DESCRIPTOR.full_name
        return Attempt(event, payload, None, f"the reader's schema has no message {full_name}")
    seen = reader()
    try:
        seen.MergeFromString(payload)
    except (DecodeError, EncodeError) as error:
        return Attempt(event, payload, None, f"the reader cannot read it as {name}: {error}")
    missing = missing_fields(seen)
    if missing:
        failure = f"required fields are missing: {', '.join(missing)}"
        return Attempt(event, payload, seen, failure)
    return Attempt(event, payload, seen, lost_value(event, seen))


def shown(event: Any) -> str:
    """The name of a message type, and the set fields as JSON."""
    return f"{event.DESCRIPTOR.full_name} {as_json(event)}"


class _Types:
    """The message classes of a schema, in a separate pool."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        try:
            for file in schema.descriptors:
                self._pool.AddSerializedFile(file.SerializeToString())
        except (InvalidSchemaError, TypeError) as error:
            raise UnprovableError(f"the schema does not compile: {error}") from None

    def find(self, schema: ProtobufSchema, local_name: str) -> Any:
        """The class of a message; None if the schema does not define it."""
        package = _package(schema)
        try:
            descriptor = self._pool.FindMessageTypeByName(
                f"{package}.{local_name}" if package else local_name
            )
        except KeyError:
            return None
        return message_factory.GetMessageClass(descriptor)


def _package(schema: ProtobufSchema) -> str:
    return schema.file.package or ""


def _top_names(schema: ProtobufSchema) -> list[str]:
    return [message.name for message in schema.file.messages]


def locate(
    writer: ProtobufSchema, reader: ProtobufSchema, difference: Difference
) -> DifferenceLocation:
    """The elements of both schemas at the path."""
    if difference.kind == "PACKAGE_CHANGED":
        return DifferenceLocation(f"package {_package(writer)}", f"package {_package(reader)}", ())
    written, read = _walk(writer, difference.path), _walk(reader, difference.path)
    field = read.part if isinstance(read.part, Field) else written.part
    fields = (field.name,) if isinstance(field, Field) else ()
    return DifferenceLocation(_described(written.part), _described(read.part), fields)


def _walk(schema: ProtobufSchema, path: str) -> _Position:
    """Follow a path: messages by name, then a oneof by name, then a field by number."""
    messages = schema.file.messages
    message: Message | None = None
    names: tuple[str, ...] = ()
    steps = [step for step in path.removeprefix("#/").split("/") if step]
    for index, step in enumerate(steps):
        inner = next((nested for nested in messages if nested.name == step), None)
        if inner is None:
            return _inside(names, message, steps[index:])
        message, names, messages = inner, (*names, step), inner.nested
    return _Position(names, message)


def _inside(names: tuple[str, ...], message: Message | None, steps: list[str]) -> _Position:
    if message is None:
        return _Position(names, None)
    oneofs = {oneof.name: oneof for oneof in message.oneofs}
    if len(steps) == 1 and steps[0] in oneofs:
        return _Position(names, oneofs[steps[0]])
    number = int(steps[-1]) if steps[-1].isdecimal() else None
    field = next((field for field in message.all_fields if field.number == number), None)
    return _Position(names, field, number)


def _described(part: Message | OneOf | Field | None) -> str | None:
    match part:
        case None:
            return None
        case Field():
            label = f"{part.label} " if part.label else ""
            return f"{label}{part.type} {part.name} = {part.number}"
        case OneOf():
            return shortened(
                f"oneof {part.name} {{ {', '.join(field.name for field in part.fields)} }}"
            )
        case _:
            return f"message {part.name}"


def loses(before: ProtobufSchema, after: ProtobufSchema, steps: Sequence[str]) -> bool:
    """Whether a field of the first message, or of a message inside it, was removed."""
    old, new = _first(before), _first(after)
    for step in steps:
        field = None if old is None else old.fields_by_name.get(step)
        if field is None:
            return False  # it did not exist before
        other = None if new is None else new.fields_by_number.get(field.number)
        if other is None:
            return True
        old, new = field.message_type, other.message_type
    return False


def renamed(before: ProtobufSchema, after: ProtobufSchema, steps: Sequence[str]) -> str | None:
    """The new path of a field of the first message; None if it is the same, or was removed."""
    old, new = _first(before), _first(after)
    names: list[str] = []
    for step in steps:
        field = None if old is None else old.fields_by_name.get(step)
        other = None if field is None or new is None else new.fields_by_number.get(field.number)
        if field is None or other is None:
            return None
        names.append(other.name)
        old, new = field.message_type, other.message_type
    return None if names == list(steps) else ".".join(names)


def _first(schema: ProtobufSchema) -> Any:
    names = _top_names(schema)
    message_type = _Types(schema).find(schema, names[0]) if names else None
    return None if message_type is None else message_type.DESCRIPTOR
