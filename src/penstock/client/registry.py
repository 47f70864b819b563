"""A schema registry over HTTP with caches: a schema never changes once it has an id.

Three bounded caches (id by schema, schema by id, latest version), shared by all threads of the
process: a new process sends one request per schema however many threads need it. While the registry
is down, cached schemas still work and the others raise RegistryUnavailableError, which is worth a
retry. Never caches what may change, except the latest version of a subject, for a minute.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from penstock.client.registry_api import ATTEMPTS, TIMEOUT_S, RegistryApi, RequestStats
from penstock.client.registry_documents import (
    Document,
    collect_imports,
    parse_schema,
    read_rule_set,
    read_source,
    schema_body,
)
from penstock.client.single_flight import CacheStats, SingleFlight
from penstock.closing import Closing
from penstock.schemas.identity import RuleSet, fingerprint
from penstock.schemas.model import ParsedSchema, Reference, SchemaText
from penstock.serde.errors import RegistryUnavailableError, UnknownSchemaError
from penstock.serde.frame import SchemaId, SchemaKey
from penstock.serde.schema_source import KnownSchema, Registration, UnusableSchemaError

CHARACTERS_MAX: Final = 64 << 20  # of schema texts in each cache
IDS_MAX: Final = 10_000
LATEST_S: Final = 60.0  # how long the latest version is cached
UNKNOWN_S: Final = 10.0  # how long an unknown id is not requested again


class _Version(NamedTuple):
    """A schema as the registry serves it."""

    id: SchemaId | None
    guid: UUID | None
    source: SchemaText
    version: int | None
    rule_set: RuleSet | None


class Registry(Closing):
    """A client of a schema registry with caches. Share one per process. Safe for threads.

    registry = Registry("http://127.0.0.1:8081", client="fraud-scorer 7")
    registry.schema(SchemaId(42)).parsed.name

    `urls` may name several nodes, separated by commas. `client` is the name under which the
    registry counts this program's use of schemas.
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
        unknown_s: float = UNKNOWN_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.api: Final = RegistryApi(
            urls, client=client, auth=auth, timeout_s=timeout_s, attempts=attempts, clock=clock
        )
        lasting = (UnknownSchemaError, UnusableSchemaError)
        self._schemas: SingleFlight[SchemaKey, KnownSchema] = SingleFlight(
            characters_max, _characters, clock, lasting=lasting, failure_s=unknown_s
        )
        self._versions: SingleFlight[tuple[str, int], _Version] = SingleFlight(
            characters_max, lambda version: len(version.source.text) + 1, clock
        )
        self._ids: SingleFlight[tuple[str, SchemaText, bool, bool], Registration] = SingleFlight(
            ids_max, lambda _registration: 1, clock
        )
        self._latest: SingleFlight[str, KnownSchema] = SingleFlight(
            characters_max,
            _characters,
            clock,
            value_s=latest_s,
            passing=(RegistryUnavailableError,),
            failure_s=unknown_s,
        )

    @property
    def url(self) -> str:
        """The first of its addresses."""
        return self.api.url

    @property
    def request_stats(self) -> RequestStats:
        """How many requests were sent, how many failed, and how long they took."""
        return self.api.stats

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
        """The latest version of a subject, cached for a minute.

        `fresh` skips the cache, for decisions that last longer than a minute.
        """
        if not fresh:
            return self._latest.find(subject, lambda: self._fetch_latest(subject))
        latest = self._fetch_latest(subject)
        self._latest.put(subject, latest)
        return latest

    def version(self, subject: str, version: int) -> KnownSchema:
        """One version of a subject."""
        return self._known(None, self._version(subject, version), subject)

    def parse(self, source: SchemaText) -> ParsedSchema:
        """Parse a schema of the program's own, with its references fetched from the registry."""
        return parse_schema(source, self.imports(source))

    def register_reference(self, name: str, source: SchemaText) -> Reference:
        """Register what another schema imports, under the name it is imported by."""
        self.register(name, source)
        document = self.api.look_up(name, schema_body(source))
        return Reference(name, name, int(document["version"]))

    def imports(self, source: SchemaText) -> Mapping[str, str]:
        """The texts of all that a schema refers to, directly or not."""
        return collect_imports(
            source, lambda subject, number: self._version(subject, number).source
        )

    def close(self) -> None:
        """Close its connections; cached schemas can still be read."""
        self.api.close()

    def _identify(
        self, subject: str, source: SchemaText, *, normalize: bool, register: bool
    ) -> Registration:
        key = (subject, source, normalize, register)
        return self._ids.find(
            key, lambda: self._request_id(subject, source, normalize=normalize, register=register)
        )

    def _request_id(
        self, subject: str, source: SchemaText, *, normalize: bool, register: bool
    ) -> Registration:
        request = self.api.register if register else self.api.look_up
        document = request(subject, schema_body(source), normalize=normalize)
        schema_id = SchemaId(int(document["id"]))
        guid = _guid(document)
        if guid is not None:  # a registry that returns one also returns added rules
            return Registration(schema_id, guid, read_rule_set(document))
        known = self.schema(schema_id)
        return Registration(schema_id, known.guid, known.rule_set)

    def _fetch(self, key: SchemaKey) -> KnownSchema:
        kind = "guids" if isinstance(key, UUID) else "ids"
        return self._known(key, _read_version(self.api.schema(kind, key)), None)

    def _fetch_latest(self, subject: str) -> KnownSchema:
        document = self.api.version(subject, "latest")
        latest = self._known(None, _read_version(document), subject)
        if latest.id is not None:
            self._schemas.put(latest.id, latest)
        return latest

    def _version(self, subject: str, version: int) -> _Version:
        """One version, alone: no flight waits for another flight."""
        # A reference may name a version that was deleted since; it stays readable.
        return self._versions.find(
            (subject, version),
            lambda: _read_version(self.api.version(subject, version, deleted=True)),
        )

    def _known(self, key: SchemaKey | None, version: _Version, subject: str | None) -> KnownSchema:
        imports = self.imports(version.source)
        parsed = parse_schema(version.source, imports)
        guid = version.guid or (key if isinstance(key, UUID) else _computed_guid(version.source))
        schema_id = version.id if key is None or isinstance(key, UUID) else key
        return KnownSchema(
            schema_id,
            guid,
            version.source,
            imports,
            parsed,
            subject,
            version.version,
            version.rule_set,
        )


def _characters(schema: KnownSchema) -> int:
    return 1 + len(schema.source.text) + sum(map(len, schema.imports.values()))


def _read_version(document: Document) -> _Version:
    schema_id = SchemaId(int(document["id"])) if document.get("id") is not None else None
    return _Version(
        schema_id,
        _guid(document),
        read_source(document),
        document.get("version"),
        read_rule_set(document),
    )


def _guid(document: Document) -> UUID | None:
    """Registries from before GUIDs return none."""
    text = document.get("guid")
    return UUID(text) if isinstance(text, str) else None


def _computed_guid(source: SchemaText) -> UUID:
    """As the registry would compute it; right unless the schema has metadata or rules."""
    return UUID(bytes=fingerprint(source.text, source.references))
