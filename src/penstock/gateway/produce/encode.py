"""The records of a request as bytes: JSON, base64, or under a schema.

May block while the registry is asked: runs in a thread if a schema is involved. A record that
cannot be encoded is a GatewayError in its place, and the others are written.
"""

import binascii
import json
from base64 import b64decode
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from penstock.gateway.errors import GatewayError, as_gateway_error
from penstock.gateway.produce.bodies import ABSENT, ProduceBody, RecordBody, SchemaChoices
from penstock.gateway.produce.from_json import avro_value, protobuf_value
from penstock.schemas.avro import AvroSchema
from penstock.schemas.model import ParsedSchema, SchemaText, SchemaType
from penstock.schemas.rules import RuleMode, blocking_rule
from penstock.serde.contract import Contract, Form
from penstock.serde.errors import ClientError, EncodeError, UnsupportedRuleError
from penstock.serde.event_codec import InvalidValueError
from penstock.serde.frame import SchemaId, Side
from penstock.serde.language import LANGUAGES
from penstock.serde.schema_source import KnownSchema, Registration, SchemaSource
from penstock.serde.serializers import FrameMaker

_WRITERS_MAX: Final = 1_000  # then all are dropped, and made again when they are needed
_NULL: Final = b"null"
_NO_ID: Final = SchemaId(0)
RecordHeaders: TypeAlias = tuple[tuple[str, bytes | None], ...]


class EncodedRecord(NamedTuple):
    """A record, ready to be placed and sent."""

    key: bytes | None
    value: bytes | None
    headers: RecordHeaders
    timestamp: int | None
    partition: int | None


class SchemaChoice(NamedTuple):
    """A schema by id, by version of a subject, or by text. Hashable, so that it is found once."""

    side: Side
    schema_id: int | None
    version: int | None  # LATEST: the latest
    text: str | None
    type: str
    subject: str

    @property
    def is_given(self) -> bool:
        return any(each is not None for each in (self.schema_id, self.version, self.text))


LATEST: Final = -1


class SchemaWriter:
    """Encodes JSON values with one registered schema."""

    def __init__(self, known: KnownSchema, side: Side) -> None:
        assert known.id is not None, "a version of a subject has an id"
        rule = blocking_rule(known.rule_set, RuleMode.WRITE)
        if rule is not None:
            raise UnsupportedRuleError(known.subject or f"id {known.id}", rule)
        self.known: Final = known
        self._registration = Registration(known.id, known.guid, known.rule_set)
        self._frames = FrameMaker(self._registration, Form.PREFIX, side)
        codec = LANGUAGES[known.parsed.type].event_codec
        self._encoder = codec.event_encoder(known.parsed, Contract())
        self._descriptor = _descriptor(known.parsed)

    def encode(self, value: Any) -> bytes:
        """The bytes of a value in its frame; raises EncodeError."""
        schema = self.known.parsed
        if isinstance(schema, AvroSchema):
            value = avro_value(value, schema.root)
        elif self._descriptor is not None:
            value = protobuf_value(value, self._descriptor)
        try:
            payload, indexes = self._encoder.encode(value)
        except InvalidValueError as error:
            name = f"id {self._registration.id}"
            raise EncodeError(name, schema.type, str(error)) from None
        return self._frames.parts(indexes)[0] + payload


def _descriptor(schema: ParsedSchema) -> Any:
    if schema.type is not SchemaType.PROTOBUF:
        return None
    from penstock.serde.protobuf.event import MessageTypes, protobuf_schema  # heavy, rarely needed

    return MessageTypes(protobuf_schema(schema)).at((0,)).DESCRIPTOR


class RecordEncoder:
    """Encodes the records of any topic. Safe for threads.

    Without `registers`, a schema that is new gets no id: what it encodes is only to be looked at.
    """

    def __init__(self, schemas: SchemaSource, *, registers: bool = True) -> None:
        self._schemas = schemas
        self._registers = registers
        self._writers: dict[tuple[int, Side], SchemaWriter] = {}

    def encode(self, topic: str, body: ProduceBody) -> list[EncodedRecord | GatewayError]:
        """The records of a body in their order."""
        rows = [body] if isinstance(body.records, msgspec.UnsetType) else body.records
        choices = {side: schema_choice(side, topic, body) for side in Side}
        return [self._encode(topic, row, choices) for row in rows]

    def _encode(
        self, topic: str, row: RecordBody, choices: dict[Side, SchemaChoice]
    ) -> EncodedRecord | GatewayError:
        try:
            own = {side: schema_choice(side, topic, row) for side in Side}
            used = {side: own[side] if own[side].is_given else choices[side] for side in Side}
            if row.value is ABSENT and row.value_base64 is None:
                raise invalid_record("a record needs value or value_base64; null is a tombstone")
            return EncodedRecord(
                self._side(used[Side.KEY], row.key, row.key_base64),
                self._side(used[Side.VALUE], row.value, row.value_base64),
                read_headers(row.headers),
                row.timestamp,
                row.partition,
            )
        except GatewayError as error:
            return error
        except ClientError as error:
            return as_gateway_error(error)

    def _side(self, choice: SchemaChoice, value: msgspec.Raw, base64: str | None) -> bytes | None:
        side = choice.side
        if base64 is not None:
            if value is not ABSENT or choice.is_given:
                raise invalid_record(f"{side}_base64 excludes {side} and a schema for it")
            return read_base64(base64, f"{side}_base64")
        text = bytes(value)
        if value is ABSENT or text == _NULL:
            return None
        if choice.is_given:
            return self.writer(choice).encode(msgspec.json.decode(text))
        if side is Side.KEY and text.startswith(b'"'):
            key: str = msgspec.json.decode(text)
            return key.encode()
        return text

    def writer(self, choice: SchemaChoice) -> SchemaWriter:
        """What encodes with the chosen schema; registers a text that is new."""
        schemas = self._schemas
        if choice.text is not None and not self._registers:
            return SchemaWriter(_unregistered(schemas, choice), choice.side)
        if choice.schema_id is not None:
            known = schemas.schema(SchemaId(choice.schema_id))
        elif choice.version is not None:
            latest = choice.version == LATEST
            known = (
                schemas.latest(choice.subject)
                if latest
                else schemas.version(choice.subject, choice.version)
            )
        else:
            registration = schemas.register(choice.subject, _source(choice))
            known = schemas.schema(registration.id)
        assert known.id is not None, "a version of a subject has an id"
        writer = self._writers.get((known.id, choice.side))
        if writer is None:
            if len(self._writers) >= _WRITERS_MAX:
                self._writers = {}
            writer = self._writers[known.id, choice.side] = SchemaWriter(known, choice.side)
        return writer


def _unregistered(schemas: SchemaSource, choice: SchemaChoice) -> KnownSchema:
    source = _source(choice)
    return KnownSchema(_NO_ID, UUID(int=0), source, {}, schemas.parse(source))


def schema_choice(side: Side, topic: str, row: SchemaChoices) -> SchemaChoice:
    """The schema that a record or body names for its keys or values."""
    schema_id, version, text, type_ = _schema_fields(side, row)
    if sum(each is not None for each in (schema_id, version, text)) > 1:
        raise invalid_record(f"give one of {side}_schema_id, {side}_schema_version, {side}_schema")
    if isinstance(text, dict):
        text = json.dumps(text)
    return SchemaChoice(side, schema_id, version, text, type_, f"{topic}-{side}")


def _schema_fields(
    side: Side, row: SchemaChoices
) -> tuple[int | None, int | None, str | dict[str, Any] | None, str]:
    if side is Side.KEY:
        return row.key_schema_id, row.key_schema_version, row.key_schema, row.key_schema_type
    return row.value_schema_id, row.value_schema_version, row.value_schema, row.value_schema_type


def uses_schema(body: ProduceBody) -> bool:
    """Whether encoding it may ask the registry, and so may block."""
    rows: Sequence[SchemaChoices] = (
        () if isinstance(body.records, msgspec.UnsetType) else body.records
    )
    return any(
        each is not None
        for row in (body, *rows)
        for side in Side
        for each in _schema_fields(side, row)[:3]
    )


def _source(choice: SchemaChoice) -> SchemaText:
    if choice.type.upper() not in SchemaType.__members__:
        known = ", ".join(SchemaType)
        raise invalid_record(f"{choice.side}_schema_type {choice.type!r} is not one of {known}")
    return SchemaText(SchemaType[choice.type.upper()], choice.text or "")


def read_headers(
    given: Sequence[tuple[str, str | dict[str, str] | None]],
) -> RecordHeaders:
    """Headers as bytes."""
    return tuple((name, _header(name, value)) for name, value in given)


def _header(name: str, value: str | dict[str, str] | None) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if set(value) != {"base64"}:
        raise invalid_record(f'header {name!r} is neither text nor {{"base64": …}}')
    return read_base64(value["base64"], f"header {name!r}")


def read_base64(text: str, what: str) -> bytes:
    """The bytes; a record's error if it is not base64."""
    try:
        return b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise invalid_record(f"{what} is not base64") from None


def invalid_record(message: str) -> GatewayError:
    return GatewayError(400, "invalid_record", message)
