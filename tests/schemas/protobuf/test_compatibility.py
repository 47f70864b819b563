"""Compatibility by the registry's rules, each case compared with what upb reads."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from penstock.schemas.model import Reference
from penstock.schemas.protobuf import ProtobufSchema, parse
from penstock.schemas.protobuf.tree import SCALARS

RunCases: TypeAlias = Callable[[Path, Callable[[str], str]], None]
# A message as its reader sees it: values by field number, nested messages and map entries alike.
Seen: TypeAlias = dict[int, list[Any]]

_WIDE_VALUES: Final = {
    "bool": (True,),
    "int32": (-(2**31), 2**31 - 1, 2),
    "sint32": (-(2**31), 2**31 - 1, 2),
    "sfixed32": (-(2**31), 2**31 - 1, 2),
    "uint32": (2**32 - 1, 2),
    "fixed32": (2**32 - 1, 2),
    "int64": (-(2**63), 2**63 - 1, 2),
    "sint64": (-(2**63), 2**63 - 1, 2),
    "sfixed64": (-(2**63), 2**63 - 1, 2),
    "uint64": (2**64 - 1, 2),
    "fixed64": (2**64 - 1, 2),
    "float": (-1.5,),
    "double": (-1.5, 1e300),
    "string": ("grüße",),
    "bytes": (b"\xff\x00",),
}
_DEPTH_MAX: Final = 2


def schema(text: str, syntax: str = "proto3") -> ProtobufSchema:
    body = text if "message " in text else f"message M {{ {text} }}"
    return parse(f'syntax = "{syntax}"; {body}')


def message_type(parsed: ProtobufSchema) -> Any | None:
    """The class of message M; None if the schema does not define it."""
    pool = descriptor_pool.DescriptorPool()
    for file in parsed.descriptors:
        pool.AddSerializedFile(file.SerializeToString())
    package = parsed.file.package
    try:
        descriptor = pool.FindMessageTypeByName(f"{package}.M" if package else "M")
    except KeyError:
        return None
    return message_factory.GetMessageClass(descriptor)


def scalar_name(field: Any) -> str:
    return next(name for name in SCALARS if getattr(field, f"TYPE_{name.upper()}") == field.type)


def values(field: Any, *, wide: bool, depth: int) -> list[Any]:
    """Values for a field: one that every type can hold, or all edge cases."""
    if is_map(field):
        key_field, value_field = field.message_type.fields
        keys = values(key_field, wide=wide, depth=depth)
        inner = values(value_field, wide=wide, depth=depth)
        return [(key, value) for key in keys for value in inner]
    if field.message_type is not None:
        kind = message_factory.GetMessageClass(field.message_type)
        return list(samples(kind, wide=wide, depth=depth + 1)) if depth < _DEPTH_MAX else []
    if field.enum_type is not None:
        numbers = [value.number for value in field.enum_type.values if value.number != 0]
        return numbers if wide else numbers[:1]
    name = scalar_name(field)
    if wide:
        return list(_WIDE_VALUES[name])
    return [{"string": "x", "bytes": b"x", "bool": True}.get(name, 1)]


def is_map(field: Any) -> bool:
    entry = field.message_type
    return entry is not None and bool(entry.GetOptions().map_entry)


def put(message: Any, field: Any, value: Any, *, wide: bool) -> None:
    """Set a field; a repeated field gets one element, or two for edge cases."""
    if is_map(field):
        put_entry(getattr(message, field.name), *value)
    elif field.is_repeated:
        getattr(message, field.name).extend([value, value] if wide else [value])
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(value)
    else:
        setattr(message, field.name, value)


def put_entry(entries: Any, key: Any, value: Any) -> None:
    if hasattr(value, "ListFields"):
        entries[key].CopyFrom(value)
    else:
        entries[key] = value


def samples(kind: Any, *, wide: bool, depth: int = 0) -> Iterator[Any]:
    """Each field alone with each value, then each two neighbours; required fields always.

    An empty event is an edge case.
    """
    fields = kind.DESCRIPTOR.fields
    choices = {field.name: values(field, wide=wide, depth=depth) for field in fields}
    required = [(one, choices[one.name][0]) for one in fields if one.is_required]
    alone = [[(field, value)] for field in fields for value in choices[field.name]]
    together = [
        [(one, choices[one.name][0]) for one in pair if choices[one.name]]
        for pair in pairwise(fields)
    ]
    for chosen in (*alone, *together, *([[]] if wide else [])):
        message = kind()
        settings = {field.name: (field, value) for field, value in (*required, *chosen)}
        for field, value in settings.values():
            put(message, field, value, wide=wide)
        yield message


def seen(message: Any) -> Seen:
    values_seen: Seen = {}
    for field, value in message.ListFields():
        if is_map(field):
            pairs = sorted(value.items())
            values_seen[field.number] = [
                {1: [as_seen(key)], 2: [as_seen(one)]} for key, one in pairs
            ]
        else:
            listed = value if field.is_repeated else [value]
            values_seen[field.number] = [as_seen(one) for one in listed]
    return values_seen


def as_seen(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    return seen(value) if hasattr(value, "ListFields") else value


def arrives(old: Seen, new: Seen, reader: Any) -> bool:
    """Whether the reader sees every value that the writer set in a field that both have."""
    return all(
        values_arrive(written, new.get(number, []), reader.fields_by_number[number])
        for number, written in old.items()
        if number in reader.fields_by_number
    )


def values_arrive(written: list[Any], read: list[Any], field: Any) -> bool:
    if len(written) != len(read):
        return False
    return all(
        arrives(one, other, field.message_type)
        if isinstance(one, dict) and isinstance(other, dict)
        else one == other  # True equals 1, and numbers of any width compare by value
        for one, other in zip(written, read, strict=True)
    )


def is_read(message: Any, reader: Any) -> bool:
    copy = reader()
    try:
        copy.MergeFromString(message.SerializePartialToString())
    except DecodeError:
        return False
    return bool(copy.IsInitialized()) and arrives(seen(message), seen(copy), reader.DESCRIPTOR)


def decoding(writer: ProtobufSchema, reader: ProtobufSchema) -> str:
    """What upb reads of the writer's events with the reader's descriptor."""
    written, read = message_type(writer), message_type(reader)
    assert written is not None or read is not None
    if written is None:
        return "no events"
    if read is None or not all(is_read(one, read) for one in samples(written, wide=False)):
        return "loses"
    return "reads" if all(is_read(one, read) for one in samples(written, wide=True)) else "in range"


def comparison(writer: ProtobufSchema, reader: ProtobufSchema) -> str:
    differences = [f"{one.kind} {one.path}" for one in reader.incompatibilities(writer)]
    decoded = decoding(writer, reader)
    note = ""
    if differences and decoded == "reads":
        note = "; the rule is stricter"
    elif not differences and decoded == "loses":
        note = "; the rule is looser"
    return f"{', '.join(differences) or 'compatible'}; {decoded}{note}"


def result_of(step: str) -> str:
    syntax = "proto2" if step.startswith("2: ") else "proto3"
    old_text, new_text = step.removeprefix("2: ").split("=>")
    old, new = schema(old_text, syntax), schema(new_text, syntax)
    return f"new reads old: {comparison(old, new)}\nold reads new: {comparison(new, old)}"


def test_every_case_is_checked_by_the_rule_and_proven_with_events(run_cases: RunCases) -> None:
    run_cases(Path(__file__).with_name("cases.case"), result_of)


def scalar_result(written: str) -> str:
    """One line for each other scalar as the reader."""
    lines = []
    for read in sorted(SCALARS - {written}):
        old, new = schema(f"{written} a = 1;"), schema(f"{read} a = 1;")
        lines.append(f"{read}: {comparison(old, new)}")
    return "\n".join(lines)


def test_every_pair_of_scalars_is_checked_and_proven(run_cases: RunCases) -> None:
    run_cases(Path(__file__).with_name("scalars.case"), scalar_result)


IMPORTED: Final = 'syntax = "proto3"; package dep; message D {{ {} }}'


def with_import(fields: str, version: int) -> ProtobufSchema:
    text = 'syntax = "proto3"; import "dep.proto"; message M { dep.D d = 1; }'
    references = (Reference("dep.proto", "dep", version),)
    return parse(text, references, {"dep.proto": IMPORTED.format(fields)})


def test_a_changed_import_is_reported_at_its_type_and_at_the_field_that_uses_it() -> None:
    old, new = with_import("int32 a = 1;", 1), with_import("string a = 1;", 2)
    assert [(one.kind, one.path) for one in new.incompatibilities(old)] == [
        ("FIELD_SCALAR_KIND_CHANGED", "#/D/1"),
        ("FIELD_NAMED_TYPE_CHANGED", "#/M/1"),
    ]
    assert decoding(old, new) == "loses"


def test_imports_of_the_same_version_are_not_compared() -> None:
    assert with_import("int32 a = 1;", 1).incompatibilities(with_import("string a = 1;", 1)) == ()


def test_an_import_with_an_added_field_is_compatible() -> None:
    old, new = with_import("int32 a = 1;", 1), with_import("int32 a = 1; int32 b = 2;", 2)
    assert new.incompatibilities(old) == ()
    assert decoding(old, new) == "reads"


def test_a_type_that_moved_into_an_import_of_the_same_package_is_still_the_same_type() -> None:
    old = parse('syntax = "proto3"; package p; message M { N n = 1; } message N { int32 a = 1; }')
    new = parse(
        'syntax = "proto3"; package p; import "n.proto"; message M { N n = 1; }',
        (Reference("n.proto", "n", 1),),
        {"n.proto": 'syntax = "proto3"; package p; message N { int32 a = 1; }'},
    )
    assert [one.kind for one in new.incompatibilities(old)] == ["MESSAGE_REMOVED"]


def test_imported_types_that_use_each_other_are_compared_once() -> None:
    def chain(kind: str) -> ProtobufSchema:
        links = " ".join(
            f"message L{n} {{ L{n + 1} a = 1; L{n + 1} b = 2; L{n} c = 3; }}" for n in range(40)
        )
        text = f'syntax = "proto3"; package dep; {links} message L40 {{ {kind} x = 1; }}'
        top = 'syntax = "proto3"; import "dep.proto"; message M { dep.L0 a = 1; }'
        return parse(top, (), {"dep.proto": text})

    differences = chain("string").incompatibilities(chain("int32"))
    assert differences[0].kind == "FIELD_SCALAR_KIND_CHANGED"
    assert len(differences) <= 1000


def test_the_sentences_name_reader_and_writer() -> None:
    new, old = schema("string a = 1;"), schema("int32 a = 1;")
    (difference,) = new.incompatibilities(old)
    assert difference.describe(reader="new", writer="old") == (
        "The kind of a SCALAR field at path '#/M/1' in the new schema does not match its kind in "
        "the old schema"
    )


@pytest.mark.parametrize(
    ("old", "new", "kind", "path"),
    [
        ("int32 a = 1;", "package q; message M { int32 a = 1; }", "PACKAGE_CHANGED", "#/"),
        ("message M { } message N { }", "message M { }", "MESSAGE_REMOVED", "#/N"),
        (
            "int32 a = 1; int32 b = 2;",
            "oneof o { int32 a = 1; int32 b = 2; }",
            "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
            "#/M/o",
        ),
    ],
)
def test_paths_start_at_the_file(old: str, new: str, kind: str, path: str) -> None:
    (difference,) = schema(new).incompatibilities(schema(old))
    assert (difference.kind, difference.path) == (kind, path)
    assert f"'{path}'" in difference.description
