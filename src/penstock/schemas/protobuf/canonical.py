"""Prints a tree as the registry stores it: in one layout, without comments, in a fixed order.

The layout is that of Confluent's registry, including blank lines that consist of indentation,
because a schema's identity is the MD5 of this text. Where Confluent's printer changes a meaning
(bytes in defaults, weak imports, the inside of groups, control characters), this one does not.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.schemas.protobuf.tree import (
    FIELD_NUMBER_MAX,
    Enum,
    EnumValue,
    Extend,
    Extensions,
    Field,
    Group,
    ListValue,
    Message,
    MessageValue,
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

_ESCAPES: Final = {
    ord(character): f"\\{letter}"
    for character, letter in zip("\a\b\f\n\r\t\v\\'\"", "abfnrtv\\'\"", strict=True)
}
_OCTAL: Final = {
    **{number: f"\\{number:03o}" for number in (*range(0x20), 0x7F)},
    **{0xDC00 + number: f"\\{number:03o}" for number in range(0x80, 0x100)},
}
_QUOTED: Final = {**_OCTAL, **_ESCAPES}


def print_proto(file: ProtoFile) -> str:
    """The text of a file."""
    head = f'syntax = "{file.syntax}";\n' if file.syntax is not None else ""
    if file.package is not None:
        head += f"package {file.package};\n"
    imports = [f"import {quoted(name)};\n" for name in file.imports]
    imports += [f"import public {quoted(name)};\n" for name in file.public_imports]
    imports += [f"import weak {quoted(name)};\n" for name in file.weak_imports]
    sections: tuple[Iterable[str], ...] = (
        imports,
        map(_statement, file.options),
        (*map(_message, file.messages), *map(_enum, file.enums)),
        map(_extend, file.extends),
        map(_service, file.services),
    )
    return head + "".join("\n" + text for text in map("".join, sections) if text)


def _block(head: str, *sections: Iterable[str]) -> str:
    """Sections in braces, with a blank line between them."""
    texts = [text for text in map("".join, sections) if text]
    if not texts:
        return f"{head} {{}}\n"
    return f"{head} {{\n{chr(10).join(map(_indented, texts))}}}\n"


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.rstrip("\n").split("\n"))


def _message(message: Message) -> str:
    return _block(f"message {message.name}", *_message_sections(message))


def _message_sections(message: Message) -> tuple[Iterable[str], ...]:
    return (
        map(_reserved, message.reserved),
        map(_statement, message.options),
        map(_field, message.fields),
        map(_oneof, message.oneofs),
        map(_group, message.groups),
        map(_extensions, message.extensions),
        map(_extend, message.extends),
        (*map(_message, message.nested), *map(_enum, message.enums)),
    )


def _enum(enum: Enum) -> str:
    lines = (
        *map(_reserved, enum.reserved),
        *map(_statement, enum.options),
        *map(_enum_value, enum.values),
    )
    return _block(f"enum {enum.name}", lines)


def _enum_value(value: EnumValue) -> str:
    return f"{value.name} = {value.number}{_bracketed(value.options)};\n"


def _field(field: Field) -> str:
    label = f"{field.label} " if field.label else ""
    options = _bracketed(field.options)
    return f"{label}{field.type} {field.name} = {field.number}{options};\n"


def _group(group: Group) -> str:
    label = f"{group.label} " if group.label else ""
    head = f"{label}group {group.body.name} = {group.number}{_bracketed(group.options)}"
    return _block(head, *_message_sections(group.body))


def _oneof(oneof: OneOf) -> str:
    return _block(
        f"oneof {oneof.name}",
        map(_statement, oneof.options),
        map(_field, oneof.fields),
        map(_group, oneof.groups),
    )


def _extend(extend: Extend) -> str:
    return _block(f"extend {extend.name}", map(_field, extend.fields), map(_group, extend.groups))


def _reserved(reserved: Reserved) -> str:
    values = (
        quoted(value) if isinstance(value, str) else _range(value) for value in reserved.values
    )
    return f"reserved {', '.join(values)};\n"


def _extensions(extensions: Extensions) -> str:
    ranges = ", ".join(map(_range, extensions.ranges))
    return f"extensions {ranges}{_bracketed(extensions.options)};\n"


def _range(numbers: Range) -> str:
    if numbers.is_single:
        return str(numbers.start)
    last = str(numbers.last) if numbers.last < FIELD_NUMBER_MAX else "max"
    return f"{numbers.start} to {last}"


def _service(service: Service) -> str:
    return _block(
        f"service {service.name}", map(_statement, service.options), map(_rpc, service.rpcs)
    )


def _rpc(rpc: Rpc) -> str:
    request = f"stream {rpc.request}" if rpc.request_streams else rpc.request
    response = f"stream {rpc.response}" if rpc.response_streams else rpc.response
    head = f"rpc {rpc.name} ({request}) returns ({response})"
    if not rpc.options:
        return f"{head};\n"
    return f"{head} {{\n{_indented(''.join(map(_statement, rpc.options)))}}};\n"


def _statement(option: Option) -> str:
    return f"option {_option(option)};\n"


def _bracketed(options: Sequence[Option]) -> str:
    return f" {_listed([_option(option) for option in options])}" if options else ""


def _listed(texts: Sequence[str]) -> str:
    """One value stays on the line; several get a line each."""
    return f"[{texts[0]}]" if len(texts) == 1 else _lines(texts)


def _lines(texts: Sequence[str]) -> str:
    return f"[\n{_comma_separated(texts)}]"


def _comma_separated(texts: Sequence[str]) -> str:
    last = len(texts) - 1
    return "".join(
        _indented(text + ("," if index < last else "")) for index, text in enumerate(texts)
    )


def _option(option: Option) -> str:
    name = ".".join(f"({part.name})" if part.is_extension else part.name for part in option.parts)
    if isinstance(option.value, ListValue):
        return f"{name} = {_listed([_value(item) for item in option.value.items])}"
    return f"{name} = {_value(option.value)}"


def _value(value: OptionValue) -> str:
    match value:
        case StringValue(text):
            return quoted(text)
        case NumberValue(text) | WordValue(text):
            return text
        case ListValue(items):
            return _lines([_value(item) for item in items])
        case MessageValue(entries):
            texts = [f"{key}: {_value(inner)}" for key, inner in entries]
            return f"{{\n{_comma_separated(texts)}}}"


def quoted(text: str) -> str:
    """The string literal of a text."""
    return f'"{text.translate(_QUOTED)}"'
