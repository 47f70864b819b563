"""Runs the Protocol Buffers compiler: it decides whether a schema is valid, and makes descriptors.

The compiler runs in this process, over a temporary folder with the schema and its imports; names
of imports never become names of files. It writes its errors to the standard error of the process,
which is redirected meanwhile. This is the only module of `schemas` with input and output: the
compiler reads and writes files only.

`check_limits` refuses schemas that would cost the compiler too much: it explains every repeated
number and name, and searches all others for each.
"""

import os
import re
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import grpc_tools
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from penstock.schemas.model import InvalidSchemaError, check_encoding
from penstock.schemas.protobuf.tree import Enum, Message, ProtoFile

SCHEMA_NAME: Final = "default"  # Confluent's name for the file of a schema
REPEATS_MAX: Final = 100
_RANGES_MAX: Final = 5000
_ERRORS_MAX: Final = 10
_STDERR: Final = 2
_IMPORT_NAME: Final = re.compile(r"(?!/)(?!(?:.*/)?\.{0,2}(?:/|$))[^\\\x00-\x1f\x7f:=]{1,1000}")
_ERROR: Final = re.compile(r"(?P<line>\d+):(?P<column>\d+): (?P<reason>.*)", re.DOTALL)
_BUNDLED: Final = Path(grpc_tools.__file__).parent / "_proto"
_stderr_lock = threading.Lock()  # standard error belongs to the whole process


def check_import_name(name: str) -> None:
    """Refuse a name that is not a plain relative path."""
    if not _IMPORT_NAME.fullmatch(name) or not name.isprintable() or name == SCHEMA_NAME:
        raise InvalidSchemaError(f"invalid import name {name!a}: use a relative path")


@lru_cache(maxsize=64)
def read_bundled(name: str) -> str | None:
    """The text of a file that comes with the compiler; None if there is none of that name."""
    path = _BUNDLED / name
    return path.read_text(encoding="utf-8") if path.is_file() else None


def compile_schema(text: str, imports: Mapping[str, str]) -> tuple[FileDescriptorProto, ...]:
    """Descriptors of the imports in loading order, and of the schema, which is the last."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder_name:
        folder = Path(folder_name)
        output = folder / "descriptors"
        arguments = ["protoc", "--include_imports", f"--descriptor_set_out={output}"]
        names: dict[str, str] = {}  # path -> name of the import; empty for the schema itself
        for number, (name, content) in enumerate({**imports, SCHEMA_NAME: text}.items()):
            check_encoding(content)
            path = folder / str(number)
            path.write_text(content, encoding="utf-8", newline="")
            names[str(path)] = "" if name == SCHEMA_NAME else name
            arguments.append(f"--proto_path={name}={path}")
        arguments += [f"--proto_path={_BUNDLED}", SCHEMA_NAME]
        code, errors = _run(arguments)
        if code != 0:
            raise InvalidSchemaError(_explained(errors, names))
        return tuple(FileDescriptorSet.FromString(output.read_bytes()).file)


def _run(arguments: list[str]) -> tuple[int, str]:
    """The exit code of the compiler and its standard error."""
    with _stderr_lock, tempfile.TemporaryFile() as captured:
        sys.stderr.flush()
        original = os.dup(_STDERR)
        os.dup2(captured.fileno(), _STDERR)
        try:
            code = protoc.main(arguments)
        finally:
            os.dup2(original, _STDERR)
            os.close(original)
        captured.seek(0)
        return code, captured.read().decode("utf-8", "replace")


def _explained(output: str, names: Mapping[str, str]) -> str:
    """The compiler's errors with line and column, and the name of the import if it is in one."""
    errors = [
        _located(line.removeprefix(f"{path}:"), name)
        for line in output.splitlines()
        for path, name in names.items()
        if line.startswith(f"{path}:") and ": warning: " not in line
    ]
    return "; ".join(errors[:_ERRORS_MAX]) or "the compiler refused it without a reason"


def _located(error: str, name: str) -> str:
    where = f'in the import "{name}", ' if name else ""
    match = _ERROR.match(error.strip())
    if match is None:
        return where + error.strip()
    return f"{where}line {match['line']}, column {match['column']}: {match['reason']}"


def check_limits(file: ProtoFile) -> None:
    """Refuse a file with too many repeated names, numbers or ranges."""
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
    fields = message.all_fields
    _check_repeats(message.name, [field.number for field in fields])
    _check_repeats(message.name, [field.name for field in fields])
    _check_repeats(message.name, [nested.name for nested in message.nested])
    values = sum(len(reserved.values) for reserved in message.reserved)
    ranges = sum(len(extensions.ranges) for extensions in message.extensions)
    _check_count(message.name, values + ranges)
    for enum in message.enums:
        _check_enum(enum)


def _check_enum(enum: Enum) -> None:
    _check_repeats(enum.name, [value.name for value in enum.values])
    _check_count(enum.name, sum(len(reserved.values) for reserved in enum.reserved))


def _check_repeats(where: str, values: Sequence[object]) -> None:
    if len(values) - len(set(values)) > REPEATS_MAX:
        raise InvalidSchemaError(
            f"more than {REPEATS_MAX} numbers or names are repeated in {where}"
        )


def _check_count(where: str, ranges: int) -> None:
    if ranges > _RANGES_MAX:
        raise InvalidSchemaError(f"more than {_RANGES_MAX} ranges are reserved in {where}")
