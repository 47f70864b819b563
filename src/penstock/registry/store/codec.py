"""`_schemas` byte for byte: keys and values as Confluent's registry writes them.

The members of a key have one order, because compaction compares bytes. Members of values may be
missing, as older registries wrote them. A record that cannot be read is not an event.
"""

import base64
import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.machine import JournalRecord
from penstock.model import Millis
from penstock.registry.errors import DeclinedError
from penstock.registry.store.documents import (
    Document,
    read_config,
    read_flag,
    read_metadata,
    read_references,
    read_rule_set,
    read_text,
    read_whole,
    write_config,
    write_metadata,
    write_references,
    write_rule_set,
)
from penstock.registry.store.events import (
    Contents,
    ContextCreated,
    Event,
    LogMarked,
    Mode,
    ModeSet,
    SubjectCleared,
    SubjectConfigSet,
    SubjectDeleted,
    Version,
    VersionRemoved,
    VersionStored,
)
from penstock.registry.subject_names import DEFAULT_CONTEXT, Subject, normal
from penstock.schemas.model import SchemaText, SchemaType

LEVEL_NAME: Final = "compatibilityLevel"
_TENANT: Final = "default"


def to_json(document: object) -> bytes:
    """Compact, and in UTF-8."""
    return msgspec.json.encode(document)


def write_event(event: Event) -> JournalRecord:
    """The event as its record."""
    match event:
        case VersionStored(version):
            return _record(_schema_key(*version.key), write_version(version))
        case VersionRemoved(subject, number):
            return _record(_schema_key(subject, number), None)
        case SubjectDeleted(subject, last_version):
            key = _key("DELETE_SUBJECT", subject)
            return _record(key, {"subject": subject, "version": last_version})
        case SubjectCleared(subject):
            return _record(_key("CLEAR_SUBJECT", subject), {"subject": subject})
        case SubjectConfigSet(scope, config):
            members = None if config is None else _scoped(scope, write_config(config, LEVEL_NAME))
            return _record(_key("CONFIG", scope), members)
        case ModeSet(scope, mode):
            members = None if mode is None else _scoped(scope, {"mode": str(mode)})
            return _record(_key("MODE", scope), members)
        case ContextCreated(context):
            members = {"tenant": _TENANT, "context": context}
            return _record({"keytype": "CONTEXT", **members, "magic": 0}, members)
        case LogMarked(last_ids):
            key = {"keytype": "NOOP", "magic": 0}
            return _record(key, {"lastIds": dict(last_ids)} if last_ids else None)


def _record(key: Document, value: Document | None) -> JournalRecord:
    return JournalRecord(to_json(key), None if value is None else to_json(value))


def _key(kind: str, subject: str | None) -> Document:
    named = {} if subject is None else {"subject": subject}
    return {"keytype": kind, **named, "magic": 0}


def _schema_key(subject: Subject, number: int) -> Document:
    return {"keytype": "SCHEMA", "subject": subject, "version": number, "magic": 1}


def _scoped(scope: str | None, members: Document) -> Document:
    return members if scope is None else {"subject": scope, **members}


def write_version(version: Version) -> Document:
    """The value of a SCHEMA record."""
    source = version.contents.source
    return {
        "subject": version.subject,
        "version": version.number,
        "id": version.id,
        "md5": base64.b64encode(version.fingerprint).decode(),
        "schemaType": str(source.type),
        **write_contract(version.contents),
        "schema": source.text,
        "deleted": version.deleted,
    }


def write_contract(contents: Contents) -> Document:
    """References, metadata and rules of a schema, if it has any."""
    members: Document = {}
    if contents.source.references:
        members["references"] = write_references(contents.source.references)
    if contents.metadata is not None:
        members["metadata"] = write_metadata(contents.metadata)
    if contents.rule_set is not None:
        members["ruleSet"] = write_rule_set(contents.rule_set)
    return members


def read_event(key: bytes | None, value: bytes | None, timestamp: Millis) -> Event | None:
    """The event a record stands for; None if it is unknown or cannot be read."""
    try:
        name = msgspec.json.decode(key or b"")
        members = None if value is None else msgspec.json.decode(value)
        if not isinstance(name, dict) or not (members is None or isinstance(members, dict)):
            return None
        return _read(name, members, timestamp)
    except (msgspec.DecodeError, DeclinedError, ValueError, RecursionError) as reason:
        logging.getLogger(__name__).warning("a record of the log is ignored: %s", reason)
        return None


def _read(key: Mapping[str, Any], value: Document | None, timestamp: Millis) -> Event | None:
    match key.get("keytype"):
        case "SCHEMA":
            return _read_version(key, value, timestamp)
        case "CONFIG":
            config = None if value is None else read_config(value, LEVEL_NAME)
            return SubjectConfigSet(_scope(key), config)
        case "MODE":
            mode = None if value is None else read_text(value, "mode")
            return ModeSet(_scope(key), None if mode is None else Mode(mode.upper()))
        case "DELETE_SUBJECT" if value is not None:
            return SubjectDeleted(_subject(key), read_whole(value, "version") or 0)
        case "CLEAR_SUBJECT" if value is not None:
            return SubjectCleared(_subject(key))
        case "CONTEXT" if value is not None:
            return ContextCreated(read_text(key, "context") or DEFAULT_CONTEXT)
        case "NOOP":
            ids = (value or {}).get("lastIds") or {}
            return LogMarked({str(context): int(last) for context, last in ids.items()})
        case _:
            return None


def _read_version(
    key: Mapping[str, Any], value: Document | None, timestamp: Millis
) -> VersionStored | VersionRemoved | None:
    subject, number = _subject(key), read_whole(key, "version")
    if number is None:
        return None
    if value is None:
        return VersionRemoved(subject, number)
    language = SchemaType(read_text(value, "schemaType") or SchemaType.AVRO)
    source = SchemaText(language, read_text(value, "schema") or "", read_references(value))
    contents = Contents(source, read_metadata(value), read_rule_set(value))
    return VersionStored(
        Version(
            subject,
            number,
            read_whole(value, "id") or 0,
            contents,
            contents.fingerprint(),
            deleted=read_flag(value, "deleted") or False,
            timestamp=timestamp,
        )
    )


def _subject(key: Mapping[str, Any]) -> Subject:
    return normal(read_text(key, "subject") or "")


def _scope(key: Mapping[str, Any]) -> str | None:
    subject = read_text(key, "subject")
    return None if subject is None else normal(subject) or None
