"""How commands connect to a schema registry, read schema files, and report errors."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import typer

from penstock.cli.error_output import UNREACHABLE, fail
from penstock.client.registry_api import RegistryApi
from penstock.schemas.model import Reference, SchemaText, SchemaType
from penstock.serde.errors import ClientError, RegistryUnavailableError
from penstock.serde.language import SUFFIXES
from penstock.serde.schema_source import UnusableSchemaError

TIMEOUT_S: Final = 30.0


def registry_api(url: str, client: str) -> RegistryApi:
    """A registry for one command: each node is tried once."""
    return RegistryApi(url, client=client, timeout_s=TIMEOUT_S, attempts=1)


@contextmanager
def open_registry(url: str) -> Iterator[RegistryApi]:
    """A registry; an error inside becomes a message and an exit status."""
    try:
        with registry_api(url, "penstock schema") as api:
            yield api
    except RegistryUnavailableError as failure:
        fail(
            f"cannot connect to the registry at {url}: {failure.cause}. Start one with "
            "`penstock up`, or name another with --registry URL.",
            UNREACHABLE,
        )
    except UnusableSchemaError as failure:
        fail(failure.message)
    except ClientError as failure:
        fail(str(failure))


def read_schema_file(
    path: Path, language: str | None, references: Sequence[str] | None
) -> SchemaText:
    """The schema in a file. Its suffix gives the language, unless that is given."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"cannot read {path}: {error}")
    return SchemaText(_language(path, language), text, read_references(references or ()))


def _language(path: Path, language: str | None) -> SchemaType:
    if language is not None:
        if language.upper() not in SchemaType.__members__:
            raise typer.BadParameter(f"{language!r} is not one of avro, protobuf, json")
        return SchemaType[language.upper()]
    if path.suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise typer.BadParameter(f"{path.name} does not end in {known}: pass --type")
    return SUFFIXES[path.suffix]


def read_references(texts: Sequence[str]) -> tuple[Reference, ...]:
    """The --reference options; a name has one reference."""
    references = tuple(map(_read_reference, texts))
    for name, count in Counter(reference.name for reference in references).items():
        if count > 1:
            raise typer.BadParameter(f"--reference {name} is given {count} times")
    return references


def _read_reference(text: str) -> Reference:
    name, _, location = text.partition("=")
    subject, _, version = location.rpartition(":")
    if not name or not subject or not version.removeprefix("-").isdecimal():
        raise typer.BadParameter(f"{text!r} is not NAME=SUBJECT:VERSION")
    return Reference(name, subject, int(version))
