"""Protobuf events: written and read with upb, each side with its own descriptors.

Protobuf seldom refuses. An event counts as read if all that was written, and that the reader has a
field for, arrived with the value it had; a required field must be there.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError, EncodeError

from penstock.gate.proof.protobuf_examples import as_json, events, lost, unset_oneof
from penstock.gate.proof.prove import Attempt, DifferenceLocation, UnprovableError, shortened
from penstock.schemas.model import Difference, InvalidSchemaError
from penstock.schemas.protobuf import ProtobufSchema
from penstock.schemas.protobuf.tree import Field, Message, OneOf
from penstock.serde.protobuf.required_fields import missing_fields


class _Spot(NamedTuple):
    """Where a path leads in one schema."""

    names: tuple[str, ...]  # of the messages on the way
    part: Message | OneOf | Field | None
    number: int | None = None


def trials(
    writer: ProtobufSchema, reader: ProtobufSchema, differences: Sequence[Difference], seed: int
) -> Iterator[Attempt]:
    """Events of the messages that differ, their fields first; then of all messages."""
    writes, reads = _Types(writer), _Types(reader)
    aims = [_walk(writer, one.path) for one in differences]
    named = [".".join(aim.names) for aim in aims if aim.names]
    members = any(one.kind == "ONEOF_FIELD_REMOVED" for one in differences)
    for name in dict.fromkeys([*named, *_top_names(writer)]):
        numbers = [aim.number for aim in aims if ".".join(aim.names) == name and aim.number]
        kind = writes.find(writer, name)
        if kind is None:
            continue
        for event in events(kind, numbers, seed):
            kind_read = reads.find(reader, name) if _package(writer) == _package(reader) else None
            attempt = _read(event, name, kind_read)
            if members and attempt.failure is None:
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
    except (DecodeError, EncodeError) as wrong:
        return Attempt(event, payload, None, f"not a {name} to the reader: {wrong}")
    lacking = missing_fields(seen)
    if lacking:
        return Attempt(event, payload, seen, f"required and not there: {', '.join(lacking)}")
    return Attempt(event, payload, seen, lost(event, seen))


def shown(event: Any) -> str:
    """The name of a message's type, and what is set in it as JSON."""
    return f"{event.DESCRIPTOR.full_name} {as_json(event)}"


class _Types:
    """The message classes of a schema, in a pool of their own."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        try:
            for file in schema.descriptors:
                self._pool.AddSerializedFile(file.SerializeToString())
        except (InvalidSchemaError, TypeError) as wrong:
            raise UnprovableError(f"the schema does not compile: {wrong}") from None

    def find(self, schema: ProtobufSchema, local_name: str) -> Any:
        """The class of a message; None if there is none of that name."""
        package = _package(schema)
        try:
            found = self._pool.FindMessageTypeByName(
                f"{package}.{local_name}" if package else local_name
            )
        except KeyError:
            return None
        return message_factory.GetMessageClass(found)


def _package(schema: ProtobufSchema) -> str:
    return schema.file.package or ""


def _top_names(schema: ProtobufSchema) -> list[str]:
    return [message.name for message in schema.file.messages]


def locate(
    writer: ProtobufSchema, reader: ProtobufSchema, difference: Difference
) -> DifferenceLocation:
    """What both sides say at the path."""
    if difference.kind == "PACKAGE_CHANGED":
        return DifferenceLocation(f"package {_package(writer)}", f"package {_package(reader)}", ())
    written, read = _walk(writer, difference.path), _walk(reader, difference.path)
    field = read.part if isinstance(read.part, Field) else written.part
    fields = (field.name,) if isinstance(field, Field) else ()
    return DifferenceLocation(_described(written.part), _described(read.part), fields)


def _walk(schema: ProtobufSchema, path: str) -> _Spot:
    """Follow a path: messages by name, then a oneof by name, then a field by number."""
    messages = schema.file.messages
    found: Message | None = None
    names: tuple[str, ...] = ()
    steps = [step for step in path.removeprefix("#/").split("/") if step]
    for index, step in enumerate(steps):
        inner = next((one for one in messages if one.name == step), None)
        if inner is None:
            return _inside(names, found, steps[index:])
        found, names, messages = inner, (*names, step), inner.nested
    return _Spot(names, found)


def _inside(names: tuple[str, ...], message: Message | None, steps: list[str]) -> _Spot:
    if message is None:
        return _Spot(names, None)
    oneofs = {one.name: one for one in message.oneofs}
    if len(steps) == 1 and steps[0] in oneofs:
        return _Spot(names, oneofs[steps[0]])
    number = int(steps[-1]) if steps[-1].isdecimal() else None
    fields = [*message.fields, *(field for one in message.oneofs for field in one.fields)]
    return _Spot(names, next((one for one in fields if one.number == number), None), number)


def _described(part: Message | OneOf | Field | None) -> str | None:
    match part:
        case None:
            return None
        case Field():
            label = f"{part.label} " if part.label else ""
            return f"{label}{part.type} {part.name} = {part.number}"
        case OneOf():
            return shortened(
                f"oneof {part.name} {{ {', '.join(one.name for one in part.fields)} }}"
            )
        case _:
            return f"message {part.name}"


def loses(before: ProtobufSchema, after: ProtobufSchema, steps: Sequence[str]) -> bool:
    """Whether a field of the first message, or of one inside it, is not there any more."""
    old, new = _first(before), _first(after)
    for step in steps:
        field = None if old is None else old.fields_by_name.get(step)
        if field is None:
            return False  # it was never there
        other = None if new is None else new.fields_by_number.get(field.number)
        if other is None:
            return True
        old, new = field.message_type, other.message_type
    return False


def renamed(before: ProtobufSchema, after: ProtobufSchema, steps: Sequence[str]) -> str | None:
    """What a field of the first message is called now, dots inside; None if as before, or gone."""
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
    kind = _Types(schema).find(schema, names[0]) if names else None
    return None if kind is None else kind.DESCRIPTOR
