"""Readers in a registry: declared, renewed, retired.

A renewal is a new version of what is kept, and the one before is hidden; a reader that is renewed
in time costs one write per half a lease, however often it starts.
"""

from dataclasses import replace
from datetime import date, timedelta
from typing import Final

from penstock.client.registry_documents import read_source, schema_body
from penstock.gate.contracts import (
    CannotCheckError,
    parse_schema,
    properties_of,
    reader_source,
    reader_subject,
)
from penstock.gate.registry_api import RegistryApi
from penstock.gate.registry_contracts import RegistryContracts
from penstock.schemas.readers import EXPIRES, PROPERTIES, Reader, reader_properties

LEASE_DAYS: Final = 30


def leased(reader: Reader, today: date, days: int = LEASE_DAYS) -> Reader:
    """The reader, to be counted for so many days from today."""
    return replace(reader, last_day=today + timedelta(days=days))


def declare_reader(api: RegistryApi, subject: str, reader: Reader, today: date) -> bool:
    """Put a reader into the registry, or renew it; False if it is there and needs no renewal."""
    reader = _with_schema(api, subject, reader)
    kept = reader_subject(subject, reader.name)
    assert reader.schema is not None, "it was given or is the latest version's"
    source = reader_source(reader.schema)
    versions = api.versions(kept)
    if versions and not is_due(api, kept, versions[-1], reader, today):
        return False
    api.set_config(kept, {"compatibility": "NONE"})  # a reader may read with whatever it likes
    body = schema_body(source) | {"metadata": {"properties": reader_properties(reader)}}
    told = api.register(kept, body)
    for number in versions:
        if number != told.get("version"):
            api.delete_version(kept, number)
    return True


def is_due(api: RegistryApi, kept: str, number: int, reader: Reader, today: date) -> bool:
    """Whether what is kept differs, or half of its lease is over."""
    document = api.version(kept, number)
    if document is None:
        return True
    properties, wanted = properties_of(document), reader_properties(reader)
    lasts, until = properties.pop(EXPIRES, ""), wanted.pop(EXPIRES, "")
    properties = {key: one for key, one in properties.items() if key.startswith(PROPERTIES)}
    assert reader.schema is not None, "what is declared has a schema"
    known = read_source(document)
    schema = parse_schema(known, RegistryContracts(api).document, kept, strict=False)
    is_same = (schema.type, schema.formatted("resolved")) == (
        reader.schema.type,
        reader.schema.formatted("resolved"),
    )
    if not is_same or properties != wanted or bool(lasts) != bool(until):
        return True
    return bool(until) and _is_half_over(lasts, until, today)


def _is_half_over(lasts: str, until: str, today: date) -> bool:
    left = date.fromisoformat(lasts[:10]) - today
    lease = date.fromisoformat(until) - today
    return left * 2 <= lease


def _with_schema(api: RegistryApi, subject: str, reader: Reader) -> Reader:
    """A reader without a schema of its own reads with the latest version there is."""
    if reader.schema is not None:
        return reader
    versions = RegistryContracts(api).versions(subject)
    if not versions:
        raise CannotCheckError(
            f"{subject} has no version that {reader.name} could read with: give its schema"
        )
    return replace(reader, schema=versions[-1].schema)


def retire_reader(api: RegistryApi, subject: str, name: str) -> bool:
    """Take a reader out of the registry; False if there is none."""
    return api.delete_subject(reader_subject(subject, name))
