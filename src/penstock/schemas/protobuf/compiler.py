"""Runs the Protocol Buffers compiler: the last word on whether a schema is valid, and descriptors.

It runs in this process, over a temporary folder that holds the schema and its imports; the file
names that people choose never reach the file system. What it has to say it says on the process's
standard error, which is caught for that moment.

Schemas that would cost the compiler more than they are worth.

It explains every number and name that stands twice, and looks through all the others each time.

Which required fields a message lacks, by the names that upb gives them.

upb's own FindInitializationErrors, and SerializeToString to say the same, end the process (7.36) if
there is an entry in any map of such a message.
"""

import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from penstock.schemas.model import InvalidSchemaError, check_encoding
from penstock.schemas.protobuf.tree import Enum, Message, ProtoFile
from penstock.schemas.protobuf.well_known import compiler_folder

SCHEMA_NAME: Final = "default"  # what the peer calls the file of a schema
_STDERR: Final = 2
_IMPORT_NAME: Final = re.compile(r"(?!/)(?!(?:.*/)?\.{0,2}(?:/|$))[^\\\x00-\x1f\x7f:=]{1,1000}")
_ERROR: Final = re.compile(r"(?P<line>\d+):(?P<column>\d+): (?P<reason>.*)", re.DOTALL)
_ERRORS_MAX: Final = 10
_stderr_lock = threading.Lock()  # standard error belongs to the whole process


def check_import_name(name: str) -> None:
    """Refuse a name that is not a plain relative path."""
    if not _IMPORT_NAME.fullmatch(name) or not name.isprintable() or name == SCHEMA_NAME:
        raise InvalidSchemaError(f"{name!a} is not a name to import a file by")


def compile_schema(text: str, imports: Mapping[str, str]) -> tuple[FileDescriptorProto, ...]:
    """Descriptors of the imports, in an order to load them in, and of the schema, last."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        output = os.path.join(folder, "descriptors")
        arguments = ["protoc", "--include_imports", f"--descriptor_set_out={output}"]
        for number, (name, content) in enumerate({**imports, SCHEMA_NAME: text}.items()):
            check_encoding(content)
            path = os.path.join(folder, str(number))
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(content)
            arguments.append(f"--proto_path={name}={path}")
        arguments += [f"--proto_path={compiler_folder()}", SCHEMA_NAME]
        code, said = _run(arguments)
        if code != 0:
            names = {os.path.join(folder, str(number)): name for number, name in enumerate(imports)}
            names[os.path.join(folder, str(len(imports)))] = ""
            raise InvalidSchemaError(_explained(said, names))
        with open(output, "rb") as file:
            return tuple(FileDescriptorSet.FromString(file.read()).file)


def _run(arguments: list[str]) -> tuple[int, str]:
    """The compiler's exit code and its errors."""
    with _stderr_lock, tempfile.TemporaryFile() as caught:
        sys.stderr.flush()
        kept = os.dup(_STDERR)
        os.dup2(caught.fileno(), _STDERR)
        try:
            code = protoc.main(arguments)
        finally:
            os.dup2(kept, _STDERR)
            os.close(kept)
        caught.seek(0)
        return code, caught.read().decode("utf-8", "replace")


def _explained(said: str, names: Mapping[str, str]) -> str:
    """The compiler's errors for people: line and column, and the import if it is in one."""
    errors = [
        _placed(line.removeprefix(f"{path}:"), name)
        for line in said.splitlines()
        for path, name in names.items()
        if line.startswith(f"{path}:") and ": warning: " not in line
    ]
    return "; ".join(errors[:_ERRORS_MAX]) or "the compiler refused it and did not say why"


def _placed(error: str, name: str) -> str:
    where = f'in the import "{name}", ' if name else ""
    match = _ERROR.match(error.strip())
    if match is None:
        return where + error.strip()
    return f"{where}line {match['line']}, column {match['column']}: {match['reason']}"


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
        raise InvalidSchemaError(f"in {where} more than {REPEATS_MAX} numbers or names stand twice")


def _check_count(where: str, ranges: int) -> None:
    if ranges > _RANGES_MAX:
        raise InvalidSchemaError(f"in {where} more than {_RANGES_MAX} ranges are set aside")


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
