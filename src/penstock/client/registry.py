"""A registry over HTTP, asked as seldom as can be: schemas never change once they have an id.

Two caches, schema -> id and id -> parsed schema, bounded, shared by all threads of the process: a
cold process asks once for each schema however many threads want it. While the registry is down,
what is cached goes on working and the rest raises RegistryUnavailableError, which is worth a retry.

Works with any registry that speaks Confluent's API.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from penstock.client.registry_documents import read_rule_set, read_source, schema_body
from penstock.client.registry_http import (
    ATTEMPTS,
    TIMEOUT_S,
    RegistryHttp,
    RequestStats,
    quoted,
)
from penstock.client.single_flight import CacheStats, SingleFlight
from penstock.closing import Closing
from penstock.schemas.identity import RuleSet, fingerprint
from penstock.schemas.model import InvalidSchemaError, ParsedSchema, Reference, SchemaText
from penstock.schemas.parse_cache import parse
from penstock.serde.errors import RegistryUnavailableError, UnknownSchemaError
from penstock.serde.frame import SchemaId, SchemaKey
from penstock.serde.schema_source import KnownSchema, Registration, UnusableSchemaError

CHARACTERS_MAX: Final = 64 << 20  # of schema texts that are remembered
IDS_MAX: Final = 10_000
LATEST_S: Final = 60.0  # how long "the latest version" is believed to be
REFUSAL_S: Final = 10.0  # how long an id the registry does not know is not asked for again
REFERENCES_MAX: Final = 1000


class _Document(NamedTuple):
    """A schema as the registry tells it."""

    id: SchemaId | None
    guid: UUID | None
    source: SchemaText
    version: int | None
    rule_set: RuleSet | None


class Registry(Closing):
    """A client of a schema registry. Share one per process: its caches are what makes it fast.

    registry = Registry("http://127.0.0.1:8081", client="fraud-scorer 7")
    registry.schema(SchemaId(42)).parsed.name

    `urls` may name several nodes, separated by commas; `client` is how the registry knows who
    uses which schema.
    """

    def __init__(
        self,
        urls: str,
        *,
        client: str = "penstock-client",
        auth: tuple[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        attempts: int = ATTEMPTS,
        characters_max: int = CHARACTERS_MAX,
        ids_max: int = IDS_MAX,
        latest_s: float = LATEST_S,
        refusal_s: float = REFUSAL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.http = RegistryHttp(
            urls, client=client, auth=auth, timeout_s=timeout_s, attempts=attempts, clock=clock
        )
        lasting = (UnknownSchemaError, UnusableSchemaError)
        self._schemas: SingleFlight[SchemaKey, KnownSchema] = SingleFlight(
            characters_max, _characters, clock, lasting=lasting, refusal_s=refusal_s
        )
        self._documents: SingleFlight[tuple[str, int], _Document] = SingleFlight(
            characters_max, lambda found: len(found.source.text) + 1, clock
        )
        self._ids: SingleFlight[tuple[str, SchemaText, bool, bool], Registration] = SingleFlight(
            ids_max, lambda found: 1, clock
        )
        self._latest: SingleFlight[str, KnownSchema] = SingleFlight(
            characters_max,
            _characters,
            clock,
            answer_s=latest_s,
            passing=(RegistryUnavailableError,),
            refusal_s=refusal_s,
        )

    @property
    def url(self) -> str:
        """The first of its addresses."""
        return self.http.urls[0]

    @property
    def request_stats(self) -> RequestStats:
        """Of all requests: how many, how many failed, how long they took."""
        return self.http.stats

    @property
    def cache_stats(self) -> Mapping[str, CacheStats]:
        """By cache: `id_by_schema` for writers, `schema_by_id` for readers, `latest`."""
        return {
            "id_by_schema": self._ids.stats,
            "schema_by_id": self._schemas.stats,
            "latest": self._latest.stats,
        }

    def schema(self, key: SchemaKey) -> KnownSchema:
        """The schema that a frame names, by id or GUID."""
        return self._schemas.find(key, lambda: self._fetch(key))

    def register(
        self, subject: str, source: SchemaText, *, normalize: bool = False
    ) -> Registration:
        """The id of a schema under a subject; registers it if it is new there."""
        return self._identify(subject, source, normalize=normalize, register=True)

    def look_up(self, subject: str, source: SchemaText, *, normalize: bool = False) -> Registration:
        """The id of a schema registered under a subject; raises UnknownSchemaError if it is not."""
        return self._identify(subject, source, normalize=normalize, register=False)

    def latest(self, subject: str, *, fresh: bool = False) -> KnownSchema:
        """The latest version of a subject, which is believed to stay that for a minute.

        `fresh` asks the registry in any case, for decisions that last longer than a minute.
        """
        if not fresh:
            return self._latest.find(subject, lambda: self._fetch_latest(subject))
        found = self._fetch_latest(subject)
        self._latest.keep(subject, found)
        return found

    def version(self, subject: str, version: int) -> KnownSchema:
        """One version of a subject."""
        return self._understood(None, self._document(subject, version), subject)

    def understand(self, source: SchemaText) -> ParsedSchema:
        """Parse a schema of the program's own, with its references fetched from the registry."""
        return self._parse(source, self._imports(source))

    def refer(self, name: str, source: SchemaText) -> Reference:
        """Register what another schema imports, under the name it is imported by."""
        self.register(name, source)
        told = self.http.post(f"/subjects/{quoted(name)}", schema_body(source), {}, name)
        return Reference(name, name, int(told["version"]))

    def imports(self, source: SchemaText) -> Mapping[str, str]:
        """The texts of everything a schema of the program's own refers to."""
        return self._imports(source)

    def _identify(
        self, subject: str, source: SchemaText, *, normalize: bool, register: bool
    ) -> Registration:
        key = (subject, source, normalize, register)
        return self._ids.find(
            key, lambda: self._ask_id(subject, source, normalize=normalize, register=register)
        )

    def _ask_id(
        self, subject: str, source: SchemaText, *, normalize: bool, register: bool
    ) -> Registration:
        path = f"/subjects/{quoted(subject)}" + ("/versions" if register else "")
        told = self.http.post(
            path,
            schema_body(source),
            {"normalize": "true"} if normalize else {},
            f"the id of {subject}",
        )
        schema_id = SchemaId(int(told["id"]))
        guid = _guid(told)
        if guid is not None:  # a registry that answers with one also answers with added rules
            return Registration(schema_id, guid, read_rule_set(told))
        known = self.schema(schema_id)
        return Registration(schema_id, known.guid, known.rule_set)

    def _fetch(self, key: SchemaKey) -> KnownSchema:
        path = f"/schemas/guids/{key}" if isinstance(key, UUID) else f"/schemas/ids/{key}"
        document = _document(self.http.ask(path, {}, f"schema {key}"))
        return self._understood(key, document, None)

    def _fetch_latest(self, subject: str) -> KnownSchema:
        told = self.http.ask(f"/subjects/{quoted(subject)}/versions/latest", {}, subject)
        found = self._understood(None, _document(told), subject)
        if found.id is not None:
            self._schemas.keep(found.id, found)
        return found

    def _document(self, subject: str, version: int) -> _Document:
        """A version's text. Asks nothing else, so that no flight waits for another."""
        path = f"/subjects/{quoted(subject)}/versions/{version}"
        # A reference may be to a version that was deleted since; it stays readable.
        return self._documents.find(
            (subject, version),
            lambda: _document(
                self.http.ask(path, {"deleted": "true"}, f"version {version} of {subject}")
            ),
        )

    def _understood(
        self, key: SchemaKey | None, document: _Document, subject: str | None
    ) -> KnownSchema:
        imports = self._imports(document.source)
        parsed = self._parse(document.source, imports)
        guid = document.guid or (key if isinstance(key, UUID) else _own_guid(document.source))
        schema_id = document.id if key is None or isinstance(key, UUID) else key
        return KnownSchema(
            schema_id,
            guid,
            document.source,
            imports,
            parsed,
            subject,
            document.version,
            document.rule_set,
        )

    def _parse(self, source: SchemaText, imports: Mapping[str, str]) -> ParsedSchema:
        try:
            return parse(source, imports, strict=False)
        except InvalidSchemaError as wrong:
            raise UnusableSchemaError(42201, f"the schema cannot be understood: {wrong}") from None

    def _imports(self, source: SchemaText) -> dict[str, str]:
        """Everything a schema reaches, what imports nothing first."""
        texts: dict[str, str] = {}
        self._collect(source.references, texts, ())
        return texts

    def _collect(
        self, references: tuple[Reference, ...], texts: dict[str, str], path: tuple[str, ...]
    ) -> None:
        for reference in references:
            if reference.name in texts:
                continue
            if reference.name in path or len(path) > REFERENCES_MAX or len(texts) > REFERENCES_MAX:
                raise UnusableSchemaError(
                    42201, f"the references go in circles: {' -> '.join(path)}"
                )
            found = self._document(reference.subject, reference.version)
            self._collect(found.source.references, texts, (*path, reference.name))
            texts[reference.name] = found.source.text

    def close(self) -> None:
        """Close its connections; what is cached can still be read."""
        self.http.close()


def _characters(found: KnownSchema) -> int:
    return 1 + len(found.source.text) + sum(map(len, found.imports.values()))


def _document(told: Mapping[str, Any]) -> _Document:
    schema_id = SchemaId(int(told["id"])) if told.get("id") is not None else None
    return _Document(
        schema_id, _guid(told), read_source(told), told.get("version"), read_rule_set(told)
    )


def _guid(told: Mapping[str, Any]) -> UUID | None:
    """Registries from before GUIDs tell none."""
    text = told.get("guid")
    return UUID(text) if isinstance(text, str) else None


def _own_guid(source: SchemaText) -> UUID:
    """As the registry would make it; right unless the schema has metadata or rules."""
    return UUID(bytes=fingerprint(source.text, source.references))
