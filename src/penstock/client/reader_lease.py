"""Readers in a registry: declared, renewed, retired; and a consumer that declares itself.

A renewal is a new version of the declaration, and the one before is deleted. A reader is renewed
when half of its lease is over, so it costs one write per half a lease however often it starts.
`ReaderLease` renews from a thread while a consumer runs; a reader that is no longer deployed
expires. Failures are logged and retried: reading never waits for them.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Final

from penstock.client.registry import Registry
from penstock.client.registry_api import RegistryApi
from penstock.client.registry_documents import properties_of, read_source, schema_body
from penstock.schemas import readers
from penstock.schemas.model import ParsedSchema, SchemaText, SchemaType
from penstock.schemas.readers import EXPIRES, PROPERTIES, Reader, reader_properties
from penstock.serde.contract import Contract, subject_name
from penstock.serde.errors import ArgumentError, ClientError, UnknownSchemaError
from penstock.serde.frame import Side

logger: Final = logging.getLogger(__name__)

LEASE_DAYS: Final = 30
CHECK_S: Final = 6 * 3600.0  # between two checks whether a renewal is due
RETRY_S: Final = 60.0
STOP_S: Final = 1.0  # a request in flight is not waited for any longer


def today_utc() -> date:
    """Leases end with a UTC day, as registries and their clients may be anywhere."""
    return datetime.fromtimestamp(time.time(), UTC).date()


def reader_subject(subject: str, name: str) -> str:
    """Where a reader of a subject is declared."""
    try:
        return readers.reader_subject(subject, name)
    except readers.InvalidReaderError as invalid:
        raise ArgumentError(str(invalid)) from None


def leased(reader: Reader, today: date, days: int = LEASE_DAYS) -> Reader:
    """The reader with a lease of some days from today."""
    return replace(reader, last_day=today + timedelta(days=days))


def declare_reader(api: RegistryApi, subject: str, reader: Reader, today: date) -> bool:
    """Declare a reader, or renew it; False if it is declared and no renewal is due."""
    reader = _with_schema(api, subject, reader)
    assert reader.schema is not None, "it was given, or is the latest version's"
    declaration = reader_subject(subject, reader.name)
    versions = api.versions(declaration)
    if versions and not is_due(api, declaration, versions[-1], reader, today):
        return False
    api.set_config(declaration, {"compatibility": "NONE"})  # a reader may change its schema freely
    body = schema_body(_stored_schema(reader.schema))
    body["metadata"] = {"properties": reader_properties(reader)}
    registered = api.register(declaration, body)
    for number in versions:
        if number != registered.get("version"):
            with suppress(UnknownSchemaError):  # deleted meanwhile
                api.delete(declaration, number)
    return True


def is_due(api: RegistryApi, declaration: str, number: int, reader: Reader, today: date) -> bool:
    """Whether the declared reader differs, or half of its lease is over."""
    document = api.find_version(declaration, number)
    if document is None:
        return True
    declared, current = properties_of(document), reader_properties(reader)
    declared_until, until = declared.pop(EXPIRES, ""), current.pop(EXPIRES, "")
    declared = {key: value for key, value in declared.items() if key.startswith(PROPERTIES)}
    if declared != current or bool(declared_until) != bool(until):
        return True
    if not _is_same_schema(api.parse(read_source(document)), reader.schema):
        return True
    return bool(until) and _is_half_over(declared_until, until, today)


def retire_reader(api: RegistryApi, subject: str, name: str) -> bool:
    """Delete the declaration of a reader; False if there is none."""
    try:
        api.delete(reader_subject(subject, name))
    except UnknownSchemaError:
        return False
    return True


def _with_schema(api: RegistryApi, subject: str, reader: Reader) -> Reader:
    """A reader without a schema reads with the latest version."""
    if reader.schema is not None:
        return reader
    try:
        latest = api.version(subject, "latest")
    except UnknownSchemaError:
        raise ClientError(
            f"{subject} has no version that {reader.name} could read with: pass the reader's schema"
        ) from None
    return replace(reader, schema=api.parse(read_source(latest)))


def _stored_schema(schema: ParsedSchema) -> SchemaText:
    """Readers live in a context of their own: Avro's references are inlined, others name theirs."""
    if schema.type is SchemaType.AVRO:
        return SchemaText(schema.type, schema.formatted("resolved"))
    references = tuple(
        reference
        if reference.subject.startswith(":.")
        else reference._replace(subject=f":.:{reference.subject}")
        for reference in schema.references
    )
    return SchemaText(schema.type, schema.canonical, references)


def _is_same_schema(declared: ParsedSchema, current: ParsedSchema | None) -> bool:
    assert current is not None, "a declared reader has a schema"
    return (declared.type, declared.formatted("resolved")) == (
        current.type,
        current.formatted("resolved"),
    )


def _is_half_over(declared_until: str, until: str, today: date) -> bool:
    left = date.fromisoformat(declared_until[:10]) - today
    lease = date.fromisoformat(until) - today
    return left * 2 <= lease


class ReaderLease:
    """Keeps one reader of some topics' values declared until it is closed."""

    def __init__(
        self,
        registry: Registry,
        topics: list[str],
        reader: Reader,
        contract: Contract | None = None,
        *,
        days: int = LEASE_DAYS,
        today: Callable[[], date] = today_utc,
        check_s: float = CHECK_S,
        retry_s: float = RETRY_S,
    ) -> None:
        self._registry = registry
        self._topics = [topic for topic in topics if not topic.startswith("^")]  # not a pattern
        self._reader = reader
        self._contract = contract or Contract()
        self._days = days
        self._today = today
        self._check_s = check_s
        self._retry_s = retry_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader-lease", daemon=True)
        self._thread.start()

    def renew(self) -> None:
        """Declare the reader of each topic now, unless it is declared and not due."""
        reader, name = self._reader, self._contract.message_name
        source = self._contract.source(self._registry.register_reference)
        if source is not None:
            schema = self._registry.parse(source)
            reader, name = replace(reader, schema=schema), name or schema.name
        elif reader.schema is None:  # it reads with the latest version
            reader = replace(reader, only_fields=bool(reader.fields))
        today = self._today()
        for topic in self._topics:
            subject = subject_name(self._contract.names, topic, Side.VALUE, name)
            lease = leased(reader, today, self._days)
            if declare_reader(self._registry.api, subject, lease, today):
                logger.info("declared %s as a reader of %s", reader.title, subject)

    def close(self) -> None:
        """Stop renewing; the current lease expires by its date."""
        self._stopping.set()
        self._thread.join(STOP_S)

    def _run(self) -> None:
        wait_s = 0.0
        while not self._stopping.wait(wait_s):
            try:
                self.renew()
                wait_s = self._check_s
            except ClientError as failure:
                logger.warning("cannot declare the reader %s: %s", self._reader.title, failure)
                wait_s = self._retry_s
