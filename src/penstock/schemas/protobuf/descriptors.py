"""A compiled file (FileDescriptorProto) as a tree: what clients send if they have no text.

Descriptors have full type names and entry messages for maps; the tree has them too, because
Confluent's canonical text does. Custom options are left out, because only their extension could
explain them; Confluent's own `confluent.*_meta` are included.
"""

import base64
import binascii
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import DecodeError

from penstock.schemas.model import InvalidSchemaError
from penstock.schemas.protobuf.compiler import compile_schema
from penstock.schemas.protobuf.tokens import BadEscapeError, unquoted
from penstock.schemas.protobuf.tree import (
    Enum,
    EnumValue,
    Extend,
    Extensions,
    Field,
    Group,
    ListValue,
    Message,
    MessageValue,
    NamePart,
    NumberValue,
    OneOf,
    Option,
    OptionValue,
    ProtoFile,
    Range,
    Reserved,
    Rpc,
    Service,
    StringValue,
    WordValue,
)
from penstock.schemas.protobuf.well_known import META, known_text

_LABELS: Final = {1: "optional", 2: "required", 3: "repeated"}
_VALUE_FIRST: Final = ("precision", "scale")  # Confluent writes their value before their key
# Confluent's order where it is not the order of numbers; other options come last.
_ORDER: Final = {
    "FileOptions": (
        "java_package", "java_outer_classname", "java_multiple_files",
        "java_generate_equals_and_hash", "java_string_check_utf8", "optimize_for", "go_package",
        "cc_generic_services", "java_generic_services", "py_generic_services", "deprecated",
        "cc_enable_arenas",
    ),
    "FieldOptions": (
        "ctype", "packed", "jstype", "deprecated", "debug_redact", "retention", "targets",
    ),
    "ExtensionRangeOptions": ("declaration", "features", "verification"),
}  # fmt: skip


def read_base64(text: str) -> ProtoFile | None:
    """The tree of a compiled file in base64; None if the text is something else."""
    try:
        raw = base64.b64decode(text.strip(), validate=True)
        file = _file_type().FromString(raw)
    except (binascii.Error, ValueError, DecodeError):
        return None
    has_content = (
        file.syntax or file.package or file.message_type or file.enum_type or file.dependency
    )
    return read_descriptor(file) if has_content else None


@lru_cache(maxsize=1)
def _file_type() -> Any:
    """A FileDescriptorProto class that knows Confluent's options."""
    pool = descriptor_pool.DescriptorPool()
    text = known_text(META)
    assert text is not None
    # A map is a list of entries on the wire; read as a list it keeps its order.
    text = text.replace("map<string, string> params", "repeated Pair params")
    text += "message Pair { string key = 1; string value = 2; }"
    for file in compile_schema(f'syntax = "proto3"; import "{META}";', {META: text}):
        pool.AddSerializedFile(file.SerializeToString())
    name = descriptor_pb2.FileDescriptorProto.DESCRIPTOR.full_name
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def read_descriptor(file: Any) -> ProtoFile:
    """The tree of a compiled file."""
    if file.syntax not in ("", "proto2", "proto3"):
        raise InvalidSchemaError("editions are not supported; use proto2 or proto3")
    public, weak = set(file.public_dependency), set(file.weak_dependency)
    names = list(enumerate(file.dependency))
    reader = _Reader(is_proto3=file.syntax == "proto3")
    return ProtoFile(
        syntax=file.syntax or None,
        package=file.package or None,
        imports=tuple(name for at, name in names if at not in public and at not in weak),
        public_imports=tuple(name for at, name in names if at in public),
        weak_imports=tuple(name for at, name in names if at in weak and at not in public),
        options=read_options(file.options),
        messages=tuple(map(reader.message, file.message_type)),
        enums=tuple(map(_enum, file.enum_type)),
        extends=reader.extends(file.extension, {}),
        services=tuple(map(_service, file.service)),
    )


class _Reader:
    def __init__(self, *, is_proto3: bool) -> None:
        self._is_proto3 = is_proto3

    def message(self, descriptor: Any) -> Message:
        bodies = {nested.name: nested for nested in descriptor.nested_type}
        fields: list[Any] = []
        members: dict[int, list[Any]] = {at: [] for at in range(len(descriptor.oneof_decl))}
        for field in descriptor.field:
            if field.HasField("oneof_index") and not field.proto3_optional:
                members.get(field.oneof_index, fields).append(field)
            else:
                fields.append(field)
        all_fields = (*descriptor.field, *descriptor.extension)
        groups = {_last_word(field.type_name) for field in all_fields if _is_group(field)}
        return Message(
            name=descriptor.name,
            fields=tuple(self._field(field) for field in fields if not _is_group(field)),
            oneofs=tuple(
                self._oneof(oneof, members[at], bodies)
                for at, oneof in enumerate(descriptor.oneof_decl)
                if members[at]
            ),
            groups=self._groups(fields, bodies),
            nested=tuple(
                self.message(nested)
                for nested in descriptor.nested_type
                if nested.name not in groups
            ),
            enums=tuple(map(_enum, descriptor.enum_type)),
            reserved=_reserved(descriptor, end_is_exclusive=True),
            extensions=tuple(
                Extensions((_range(numbers.start, numbers.end - 1),), read_options(numbers.options))
                for numbers in descriptor.extension_range
            ),
            extends=self.extends(descriptor.extension, bodies),
            options=read_options(descriptor.options),
        )

    def extends(self, fields: Iterable[Any], bodies: dict[str, Any]) -> tuple[Extend, ...]:
        by_name: dict[str, list[Any]] = {}
        for field in fields:
            by_name.setdefault(field.extendee, []).append(field)
        return tuple(
            Extend(
                name,
                tuple(self._field(field) for field in members if not _is_group(field)),
                self._groups(members, bodies),
            )
            for name, members in by_name.items()
        )

    def _oneof(self, oneof: Any, fields: list[Any], bodies: dict[str, Any]) -> OneOf:
        return OneOf(
            oneof.name,
            tuple(self._field(field, in_oneof=True) for field in fields if not _is_group(field)),
            self._groups(fields, bodies, in_oneof=True),
            read_options(oneof.options),
        )

    def _groups(
        self, fields: list[Any], bodies: dict[str, Any], *, in_oneof: bool = False
    ) -> tuple[Group, ...]:
        return tuple(
            Group(
                None if in_oneof else self._label(field),
                field.number,
                read_options(field.options),
                self.message(bodies[_last_word(field.type_name)]),
            )
            for field in fields
            if _is_group(field) and _last_word(field.type_name) in bodies
        )

    def _field(self, field: Any, *, in_oneof: bool = False) -> Field:
        options = list(read_options(field.options))
        if field.HasField("default_value") and not self._is_proto3:
            options.append(_builtin("default", _default(field)))
        if field.HasField("json_name"):
            options.append(_builtin("json_name", StringValue(field.json_name)))
        return Field(
            None if in_oneof else self._label(field),
            field.type_name or FieldDescriptorProto.Type.Name(field.type)[5:].lower(),
            field.name,
            field.number,
            tuple(options),
        )

    def _label(self, field: Any) -> str | None:
        label = _LABELS[field.label]
        if self._is_proto3 and label != "repeated" and not field.proto3_optional:
            return None
        return label


def _is_group(field: Any) -> bool:
    return bool(field.type == FieldDescriptorProto.TYPE_GROUP)


def _last_word(name: str) -> str:
    return name.rpartition(".")[2]


def _enum(descriptor: Any) -> Enum:
    return Enum(
        descriptor.name,
        tuple(
            EnumValue(value.name, value.number, read_options(value.options))
            for value in descriptor.value
        ),
        _reserved(descriptor, end_is_exclusive=False),
        read_options(descriptor.options),
    )


def _service(descriptor: Any) -> Service:
    return Service(
        descriptor.name,
        tuple(
            Rpc(
                method.name,
                method.input_type,
                method.output_type,
                method.client_streaming,
                method.server_streaming,
                read_options(method.options),
            )
            for method in descriptor.method
        ),
        read_options(descriptor.options),
    )


def _reserved(descriptor: Any, *, end_is_exclusive: bool) -> tuple[Reserved, ...]:
    ranges = (
        _range(numbers.start, numbers.end - end_is_exclusive)
        for numbers in descriptor.reserved_range
    )
    return tuple(Reserved((value,)) for value in (*ranges, *descriptor.reserved_name))


def _range(start: int, last: int) -> Range:
    return Range(start, last, is_single=start == last)


def _default(field: Any) -> OptionValue:
    text = field.default_value
    if field.type == FieldDescriptorProto.TYPE_STRING:
        return StringValue(text)
    if field.type == FieldDescriptorProto.TYPE_BYTES:
        return StringValue(_bytes_default(text))
    is_word = text.removeprefix("-")[:1].isalpha() or text.startswith("_")
    return WordValue(text) if is_word else NumberValue(text)


def _bytes_default(text: str) -> str:
    try:
        return unquoted(f'"{text}"')
    except BadEscapeError as error:
        raise InvalidSchemaError(f"invalid default of a bytes field: {error}") from None


def _builtin(name: str, value: OptionValue) -> Option:
    return Option((NamePart(name, is_extension=False),), value)


def read_options(options: Any) -> tuple[Option, ...]:
    """All options that are set and known, in Confluent's order."""
    known: list[Option] = []
    order = _ORDER.get(options.DESCRIPTOR.name, ())
    for descriptor, value in sorted(options.ListFields(), key=lambda entry: _rank(entry[0], order)):
        if descriptor.is_extension:
            meta = _meta(value)
            if meta.entries:
                known.append(Option((NamePart(descriptor.full_name, is_extension=True),), meta))
            continue
        values = value if descriptor.is_repeated else [value]
        if descriptor.name == "uninterpreted_option":
            continue
        known += [_builtin(descriptor.name, _value(descriptor, item)) for item in values]
    return tuple(known)


def _rank(descriptor: Any, order: tuple[str, ...]) -> tuple[bool, int, int]:
    rank = order.index(descriptor.name) if descriptor.name in order else len(order)
    return (descriptor.is_extension, rank, descriptor.number)


def _value(descriptor: Any, value: Any) -> OptionValue:
    match descriptor.type:
        case descriptor.TYPE_ENUM:
            known = descriptor.enum_type.values_by_number.get(value)
            return WordValue(known.name) if known is not None else NumberValue(str(value))
        case descriptor.TYPE_BOOL:
            return WordValue("true" if value else "false")
        case descriptor.TYPE_STRING:
            return StringValue(value)
        case descriptor.TYPE_MESSAGE:
            return MessageValue(
                tuple(
                    (inner.name, _value_or_list(inner, member))
                    for inner, member in value.ListFields()
                    if not inner.is_extension
                )
            )
        case _:
            return NumberValue(str(value))


def _value_or_list(descriptor: Any, value: Any) -> OptionValue:
    if not descriptor.is_repeated:
        return _value(descriptor, value)
    return ListValue(tuple(_value(descriptor, item) for item in value))


def _meta(meta: Any) -> MessageValue:
    """Confluent's metadata of a file, message, field or enum."""
    entries: list[tuple[str, OptionValue]] = []
    if meta.doc:
        entries.append(("doc", StringValue(meta.doc)))
    if meta.params:
        pairs = tuple(_pair(param.key, param.value) for param in meta.params)
        entries.append(("params", ListValue(pairs)))
    if meta.tags:
        entries.append(("tags", ListValue(tuple(map(StringValue, meta.tags)))))
    rules = [
        MessageValue(tuple((inner.name, StringValue(text)) for inner, text in rule.ListFields()))
        for rule in meta.rules
    ]
    rules = [rule for rule in rules if rule.entries]
    if rules:
        entries.append(("rules", ListValue(tuple(rules))))
    return MessageValue(tuple(entries))


def _pair(key: str, value: str) -> MessageValue:
    pair: tuple[tuple[str, OptionValue], ...] = (
        ("key", StringValue(key)),
        ("value", StringValue(value)),
    )
    return MessageValue(pair[::-1] if key in _VALUE_FIRST else pair)
