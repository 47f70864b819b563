"""`_schemas` byte for byte, and what other registries wrote into it."""

import base64
import json
from typing import Any

import pytest

from penstock.machine import JournalRecord
from penstock.model import Millis
from penstock.registry.store.codec import read_event, write_event
from penstock.registry.store.events import (
    Contents,
    ContextCreated,
    Event,
    LogMarked,
    Mode,
    ModeSet,
    SubjectCleared,
    SubjectConfig,
    SubjectConfigSet,
    SubjectDeleted,
    Version,
    VersionRemoved,
    VersionStored,
)
from penstock.registry.subject_names import Subject
from penstock.schemas.identity import Metadata, Rule, RuleSet
from penstock.schemas.model import Reference, SchemaText, SchemaType

S = Subject("orders-value")
PLAIN = Contents(SchemaText(SchemaType.AVRO, '"string"'))
RICH = Contents(
    SchemaText(SchemaType.PROTOBUF, 'syntax = "proto3";', (Reference("a.proto", "a", 2),)),
    Metadata({"a.b": ("PII",)}, {"owner": "shop"}, ("owner",)),
    RuleSet(
        domain_rules=(
            Rule(
                "r", "why", "CONDITION", "WRITE", "CEL", ("t",), {"k": "v"}, "1 > 0", "NONE", "DLQ"
            ),
        ),
        enable_at="now",
    ),
)


def stored(contents: Contents, *, deleted: bool = False) -> VersionStored:
    fingerprint = contents.fingerprint()
    return VersionStored(
        Version(S, 3, 7, contents, fingerprint, deleted=deleted, timestamp=Millis(5))
    )


EVENTS: list[tuple[Event, bytes]] = [
    (
        stored(PLAIN),
        b'{"keytype":"SCHEMA","subject":"orders-value","version":3,"magic":1}',
    ),
    (stored(RICH), b'{"keytype":"SCHEMA","subject":"orders-value","version":3,"magic":1}'),
    (
        stored(PLAIN, deleted=True),
        b'{"keytype":"SCHEMA","subject":"orders-value","version":3,"magic":1}',
    ),
    (
        VersionRemoved(S, 3),
        b'{"keytype":"SCHEMA","subject":"orders-value","version":3,"magic":1}',
    ),
    (
        SubjectConfigSet(None, SubjectConfig(compatibility="FULL")),
        b'{"keytype":"CONFIG","magic":0}',
    ),
    (
        SubjectConfigSet(S, SubjectConfig(compatibility="NONE", normalize=True, alias="x")),
        b'{"keytype":"CONFIG","subject":"orders-value","magic":0}',
    ),
    (SubjectConfigSet(S, None), b'{"keytype":"CONFIG","subject":"orders-value","magic":0}'),
    (ModeSet(None, Mode.IMPORT), b'{"keytype":"MODE","magic":0}'),
    (ModeSet(S, Mode.READONLY), b'{"keytype":"MODE","subject":"orders-value","magic":0}'),
    (ModeSet(S, None), b'{"keytype":"MODE","subject":"orders-value","magic":0}'),
    (
        SubjectDeleted(S, 4),
        b'{"keytype":"DELETE_SUBJECT","subject":"orders-value","magic":0}',
    ),
    (SubjectCleared(S), b'{"keytype":"CLEAR_SUBJECT","subject":"orders-value","magic":0}'),
    (
        ContextCreated(".eu"),
        b'{"keytype":"CONTEXT","tenant":"default","context":".eu","magic":0}',
    ),
    (LogMarked({}), b'{"keytype":"NOOP","magic":0}'),
    (LogMarked({".": 9}), b'{"keytype":"NOOP","magic":0}'),
]


@pytest.mark.parametrize(("event", "key"), EVENTS)
def test_an_event_is_read_as_it_was_written(event: Event, key: bytes) -> None:
    record = write_event(event)
    assert record.key == key
    assert read_event(record.key, record.value, Millis(5)) == event


def test_a_schema_is_written_as_confluent_writes_it() -> None:
    record = write_event(stored(PLAIN))
    assert record.value is not None
    assert json.loads(record.value) == {
        "subject": "orders-value",
        "version": 3,
        "id": 7,
        "md5": base64.b64encode(PLAIN.fingerprint()).decode(),
        "schema": '"string"',
        "schemaType": "AVRO",
        "deleted": False,
    }


def test_settings_are_written_as_confluent_writes_them() -> None:
    record = write_event(SubjectConfigSet(S, SubjectConfig(compatibility="FULL", policy="LENIENT")))
    assert json.loads(record.value or b"") == {
        "subject": "orders-value",
        "compatibilityLevel": "FULL",
        "compatibilityPolicy": "LENIENT",
    }


def test_an_old_record_without_type_hash_and_mark_is_a_live_avro_schema() -> None:
    key = b'{"magic":1,"keytype":"SCHEMA","version":1,"subject":"s"}'
    value = b'{"subject":"s","version":1,"id":4,"schema":"\\"int\\""}'
    event = read_event(key, value, Millis(0))
    assert isinstance(event, VersionStored)
    version = event.version
    assert (version.id, version.contents.source, version.deleted) == (
        4,
        SchemaText(SchemaType.AVRO, '"int"'),
        False,
    )
    assert version.fingerprint == version.contents.fingerprint()


def test_settings_without_a_subject_take_the_one_of_their_key() -> None:
    key = b'{"keytype":"CONFIG","subject":"s","magic":0}'
    event = read_event(key, b'{"compatibilityLevel":"NONE"}', Millis(0))
    assert event == SubjectConfigSet("s", SubjectConfig(compatibility="NONE"))


@pytest.mark.parametrize(
    "record",
    [
        JournalRecord(b"", None),
        JournalRecord(b"not json", b"{}"),
        JournalRecord(b"[]", b"{}"),
        JournalRecord(b'{"keytype":"ASSOC","magic":0}', b"{}"),
        JournalRecord(b'{"keytype":"SCHEMA","subject":"s","version":1}', b"not json"),
        JournalRecord(b'{"keytype":"SCHEMA","subject":"s","version":"x"}', b"{}"),
        JournalRecord(b'{"keytype":"SCHEMA","subject":"s","version":1}', b'{"schemaType":"XSD"}'),
        JournalRecord(b'{"keytype":"MODE","magic":0}', b'{"mode":"SLEEP"}'),
    ],
)
def test_unknown_records_are_left_out(record: Any) -> None:
    assert read_event(record.key, record.value, Millis(0)) is None
