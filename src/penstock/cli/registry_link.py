"""How commands talk to a schema registry, ours or any other, and how they say what went wrong."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

import httpx
import typer

from penstock.cli.connect import UNREACHABLE, WAIT_S, fail
from penstock.schemas.model import (
    InvalidSchemaError,
    ParsedSchema,
    Reference,
    SchemaText,
    SchemaType,
)
from penstock.schemas.parse_cache import parse

LOCAL: Final = "http://127.0.0.1:8081"
NOT_FOUND: Final = 404
REFERENCES_MAX: Final = 1000
_ENDINGS: Final = {
    ".avsc": SchemaType.AVRO,
    ".proto": SchemaType.PROTOBUF,
    ".json": SchemaType.JSON,
}

RegistryUrl = Annotated[
    str,
    typer.Option("--registry", "-r", envvar="PENSTOCK_REGISTRY", help="The registry's URL."),
]


class RegistryRefusedError(Exception):
    """The registry declined: its code, and its words."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class RegistryLink:
    """A registry, asked over HTTP."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def ask(self, method: str, *segments: object, body: Any = None, **options: Any) -> Any:
        """One request; RegistryRefusedError when it is declined."""
        path = "/" + "/".join(quote(str(segment), safe="") for segment in segments)
        answer = self._client.request(method, path, json=body, params=options)
        try:
            document = answer.json()
        except ValueError:
            raise RegistryRefusedError(answer.status_code, 0, "the answer is not JSON") from None
        if answer.is_success:
            return document
        code = document.get("error_code", 0) if isinstance(document, dict) else 0
        said = document.get("message", "") if isinstance(document, dict) else ""
        raise RegistryRefusedError(answer.status_code, code, said)

    def version(self, subject: str, version: str) -> dict[str, Any]:
        """One version of a subject."""
        return dict(self.ask("GET", "subjects", subject, "versions", version))

    def parsed(self, document: dict[str, Any]) -> ParsedSchema:
        """A schema as the registry serves it, understood with all it builds on."""
        source = source_of(document)
        imports: dict[str, str] = {}
        self._gather(source.references, imports)
        return parse(source, imports, strict=False)

    def _gather(self, references: tuple[Reference, ...], imports: dict[str, str]) -> None:
        for reference in references:
            if reference.name in imports or len(imports) >= REFERENCES_MAX:
                continue
            subject, number = reference.subject, str(reference.version)
            found = source_of(
                self.ask("GET", "subjects", subject, "versions", number, deleted="true")
            )
            self._gather(found.references, imports)
            imports[reference.name] = found.text


@contextmanager
def reaching(url: str) -> Iterator[RegistryLink]:
    """A registry to talk to; what goes wrong inside becomes a message and an exit status."""
    headers = {"penstock-client": "penstock schema"}
    try:
        with httpx.Client(base_url=url, timeout=WAIT_S * 3, headers=headers) as client:
            yield RegistryLink(client)
    except RegistryRefusedError as refusal:
        fail(f"{refusal} ({refusal.code})")
    except InvalidSchemaError as wrong:
        fail(f"that is not a schema: {wrong}")
    except (httpx.ConnectError, httpx.TimeoutException):
        fail(
            f"no registry answers at {url}. Start one with `penstock up`, or name another with "
            "--registry URL.",
            UNREACHABLE,
        )
    except httpx.HTTPError as failure:
        fail(f"the registry at {url} broke off: {failure}", UNREACHABLE)


def source_of(document: dict[str, Any]) -> SchemaText:
    """The schema in an answer."""
    references = tuple(
        Reference(one["name"], one["subject"], int(one["version"]))
        for one in document.get("references") or ()
    )
    language = SchemaType(document.get("schemaType") or "AVRO")
    return SchemaText(language, document["schema"], references)


def schema_body(path: Path, kind: str | None, references: list[str] | None) -> dict[str, Any]:
    """A file as the body of a request. Its language is told by its ending unless it is given."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path} cannot be read: {error}")
    return {
        "schema": text,
        "schemaType": str(_language(path, kind)),
        "references": [_reference(one) for one in references or ()],
    }


def _language(path: Path, kind: str | None) -> SchemaType:
    if kind is not None:
        if kind.upper() not in SchemaType.__members__:
            raise typer.BadParameter(f"{kind!r} is none of avro, protobuf, json")
        return SchemaType[kind.upper()]
    if path.suffix not in _ENDINGS:
        raise typer.BadParameter(f"{path.name}: say its language with --type avro|protobuf|json")
    return _ENDINGS[path.suffix]


def _reference(text: str) -> dict[str, Any]:
    name, found, place = text.partition("=")
    subject, _, version = place.rpartition(":")
    if not found or not subject or not version.removeprefix("-").isdecimal():
        raise typer.BadParameter(f"{text!r} is not name=subject:version")
    return {"name": name, "subject": subject, "version": int(version)}
