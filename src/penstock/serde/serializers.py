"""One event between a program's value and a record's bytes, in any of the three languages.

    write = Serializer(registry, "orders", Contract(Path("order.avsc")))
    read = Deserializer(registry, "orders")
    read.deserialize(write.serialize({"id": 7}).content)

Interchangeable with confluent-kafka's serializers and Java's, both ways. Safe for threads. Whole
batches have a faster way: `penstock.serde.batch_serializers`.
"""

import math
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple, assert_never

from penstock.schemas.model import InvalidSchemaError, ParsedSchema, SchemaText, SchemaType
from penstock.schemas.rules import RuleMode, blocking_rule, describe_rule
from penstock.serde.contract import Contract, Form, subject_name
from penstock.serde.errors import (
    ArgumentError,
    DecodeError,
    EncodeError,
    Reason,
    UnknownSchemaError,
    UnsupportedRuleError,
)
from penstock.serde.event_codec import EventDecoder, EventEncoder, Misfit, ReadAs
from penstock.serde.frame import (
    BadFrame,
    Headers,
    SchemaKey,
    Side,
    read_frame,
    write_header,
    write_prefix,
)
from penstock.serde.schema_source import (
    KnownSchema,
    Registration,
    SchemaSource,
    UnusableSchemaError,
)

DECODERS_MAX: Final = 1000  # then the oldest is made anew when it is met again
ERROR_LABELS_MAX: Final = 1000
LATENCY_BOUNDS_S: Final = (  # of one event, or of one of a batch on average
    *(1e-6, 2e-6, 4e-6, 8e-6, 15e-6, 30e-6, 60e-6),
    *(125e-6, 250e-6, 500e-6, 1e-3, 4e-3, 16e-3, 64e-3, 0.25, 1.0, 4.0),
)


@dataclass(slots=True)
class SerdeStats:
    """How many events, how long they took, and what could not be read, by subject and reason."""

    events: int = 0
    seconds: float = 0.0
    errors: Counter[tuple[str, Reason]] = field(default_factory=Counter)
    by_latency: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))

    def note(self, events: int, seconds: float) -> None:
        """Events that took so long together."""
        if events:
            self.events += events
            self.by_latency[bisect_left(LATENCY_BOUNDS_S, seconds / events)] += events
        self.seconds += seconds

    def latency_s(self, quantile: float) -> float:
        """What so many of all events took at most, to the bound above; 0 without events."""
        left = quantile * sum(self.by_latency)
        for bound, count in zip((*LATENCY_BOUNDS_S, math.inf), self.by_latency, strict=True):
            left -= count
            if count and left <= 0:
                return bound
        return 0.0

    def note_error(self, subject: str, reason: Reason) -> None:
        """One more event that could not be read."""
        if (subject, reason) not in self.errors and len(self.errors) >= ERROR_LABELS_MAX:
            subject = "(others)"
        self.errors[subject, reason] += 1


class Framed(NamedTuple):
    """One side of a record, ready to be sent."""

    content: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()  # to be added to the record's own


class _Writing(NamedTuple):
    """A schema that events are being written with."""

    registration: Registration
    schema: ParsedSchema
    encoder: EventEncoder


class _Reading(NamedTuple):
    """A decoder, and the schemas it is known by, which must live as long as it does."""

    writer: ParsedSchema
    reader: ParsedSchema | None
    decoder: EventDecoder


class Serializer:
    """Writes the keys or the values of one topic under a contract."""

    def __init__(
        self,
        registry: SchemaSource,
        topic: str,
        contract: Contract | None = None,
        *,
        side: Side = Side.VALUE,
    ) -> None:
        self.registry = registry
        self.topic = topic
        self.contract = contract or Contract()
        self.side = side
        self.stats = SerdeStats()
        self._lock = threading.Lock()
        self._source: SchemaText | None = None
        self._schema: ParsedSchema | None = None  # of the contract; understood when first needed
        self._encoders: dict[int, tuple[ParsedSchema, EventEncoder]] = {}

    @cached_property
    def subject(self) -> str:
        """Where the contract is registered."""
        contract = self.contract
        name = contract.message_name
        if name is None and contract.schema is not None and contract.names.needs_record:
            name = self._own_schema().name
        return subject_name(contract.names, self.topic, self.side, name)

    def serialize(self, value: Any) -> Framed:
        """The bytes of one value. None stays None: it deletes a key in a compacted topic."""
        if value is None:
            return Framed(None)
        start_s = time.perf_counter()
        writing = self._writing()
        try:
            payload, indexes = writing.encoder.encode(value)
        except Misfit as wrong:
            raise EncodeError(self.subject, writing.schema.type, str(wrong)) from None
        framed = self._framed(writing.registration, payload, indexes)
        self.stats.note(1, time.perf_counter() - start_s)
        return framed

    def prepare(self) -> tuple[Registration, ParsedSchema]:
        """Register or look up the schema now instead of with the first event."""
        writing = self._writing()
        return writing.registration, writing.schema

    def _framed(
        self, registration: Registration, payload: bytes, indexes: Sequence[int] | None
    ) -> Framed:
        match self.contract.form:
            case Form.PREFIX:
                return Framed(write_prefix(registration.id, indexes) + payload)
            case Form.HEADER:
                header = write_header(registration.guid, indexes)
                return Framed(payload, ((self.side.header_name, header),))
            case other:
                assert_never(other)

    def _writing(self) -> _Writing:
        if self.contract.schema is None:
            latest = self.registry.latest(self.subject)
            assert latest.id is not None, "a version of a subject has an id"
            registration = Registration(latest.id, latest.guid, latest.rule_set)
            self._check_rules(registration)
            return _Writing(registration, latest.parsed, self._encoder(latest.parsed))
        schema = self._own_schema()
        assert self._source is not None, "a contract with a schema has its source"
        ask = self.registry.register if self.contract.auto_register else self.registry.look_up
        registration = ask(self.subject, self._source, normalize=self.contract.normalize)
        self._check_rules(registration)
        return _Writing(registration, schema, self._encoder(schema))

    def _check_rules(self, registration: Registration) -> None:
        """Refuse to write where a rule should run: the value would go out without it."""
        if registration.rule_set is None:
            return
        rule = blocking_rule(registration.rule_set, RuleMode.WRITE)
        if rule is not None:
            raise UnsupportedRuleError(self.subject, rule)

    def _own_schema(self) -> ParsedSchema:
        if self._schema is None:
            source = self.contract.source(self.registry.register_reference)
            assert source is not None, "only a contract with a schema is asked for it"
            self._source = source
            self._schema = self.registry.parse(source)
        return self._schema

    def _encoder(self, schema: ParsedSchema) -> EventEncoder:
        known = self._encoders.get(id(schema))
        if known is not None:
            return known[1]
        with self._lock:
            if len(self._encoders) >= DECODERS_MAX:
                self._encoders.clear()
            encoder = _encoder_of(schema, self.contract)
            self._encoders[id(schema)] = (schema, encoder)  # the schema is kept, so its id is too
            return encoder


class Deserializer:
    """Reads the keys or the values of one topic, whichever schemas wrote them.

    Without `reader` events come as they were written; with one (a Contract), as its schema sees
    them: fields added with their defaults, dropped, renamed. A Contract without a schema reads as
    the latest version of the subject. JSON values that the schema does not allow are undecodable
    unless `validate` is False.
    """

    def __init__(
        self,
        registry: SchemaSource,
        topic: str,
        *,
        reader: Contract | None = None,
        side: Side = Side.VALUE,
        as_dicts: bool = False,
        validate: bool = True,
        plain_indexes: bool = False,
    ) -> None:
        self.registry = registry
        self.topic = topic
        self.side = side
        self.stats = SerdeStats()
        self._reader = reader
        self._reader_schema: ParsedSchema | None = None
        self._wanted = ReadAs(
            message_type=None if reader is None else reader.message_type,
            message_name=None if reader is None else reader.message,
            as_dicts=as_dicts,
            validate=validate,
            assert_formats=reader is not None and reader.assert_formats,
            plain_indexes=plain_indexes,
        )
        self._lock = threading.Lock()
        self._decoders: dict[tuple[int, int], _Reading] = {}

    @property
    def subject(self) -> str:
        """What its errors are counted under."""
        return f"{self.topic}-{self.side}"

    def deserialize(self, content: bytes | None, headers: Headers | None = None) -> Any:
        """The value. Raises DecodeError, or RegistryUnavailableError: retry later."""
        if content is None:
            return None
        start_s = time.perf_counter()
        key: SchemaKey | None = None
        try:
            frame = read_frame(content, headers, self.side)
            key = frame.schema
            value = self._decoder(key).decode(frame)
        except BadFrame as wrong:
            raise self._undecodable(wrong.kind, str(wrong), key) from None
        except UnknownSchemaError as wrong:
            raise self._undecodable(Reason.UNKNOWN_SCHEMA, str(wrong), key) from None
        except (UnusableSchemaError, InvalidSchemaError) as wrong:
            raise self._undecodable(Reason.UNUSABLE_SCHEMA, str(wrong), key) from None
        except DecodeError as wrong:
            raise self._undecodable(wrong.reason, wrong.detail, key) from None
        self.stats.note(1, time.perf_counter() - start_s)
        return value

    def message_name(self, content: bytes, headers: Headers | None = None) -> str | None:
        """The full name of the Protobuf message that an event is; None in other languages.

        BadFrame if the event names none. To read the events of a topic as columns, name the
        message of the last one: `Contract(message=...)`.
        """
        frame = read_frame(content, headers, self.side)
        schema = self.registry.schema(frame.schema).parsed
        if schema.type is not SchemaType.PROTOBUF:
            return None
        from penstock.serde.protobuf import event as protobuf_event

        plain = self._wanted.plain_indexes
        writer = protobuf_event.own(schema)
        return protobuf_event.named_message(writer, frame, plain_indexes=plain)[0]

    def _undecodable(self, reason: Reason, detail: str, key: SchemaKey | None) -> DecodeError:
        self.stats.note_error(self.subject, reason)
        named = None if key is None else str(key)
        return DecodeError(reason, detail, schema=named, subject=self.subject)

    def _decoder(self, key: SchemaKey) -> EventDecoder:
        known_writer, latest = self.registry.schema(key), self._latest_reader()
        _check_read_rules(known_writer, latest)
        writer, reader = known_writer.parsed, self._seen_through(latest)
        known = self._decoders.get((id(writer), id(reader)))
        if known is not None:
            return known.decoder
        decoder = _decoder_of(writer, self._wanted._replace(schema=reader))
        with self._lock:
            if len(self._decoders) >= DECODERS_MAX:
                self._decoders.clear()
            self._decoders[id(writer), id(reader)] = _Reading(writer, reader, decoder)
        return decoder

    def check_rules(self, writer: KnownSchema) -> None:
        """Raise DecodeError if a rule should run on events of this schema and may not fail."""
        _check_read_rules(writer, self._latest_reader())

    def _latest_reader(self) -> KnownSchema | None:
        """The latest version of the subject, if that is what events are read as."""
        reader = self._reader
        if reader is None or reader.schema is not None:
            return None
        subject = subject_name(reader.names, self.topic, self.side, reader.message)
        return self.registry.latest(subject)

    def reader_schema(self) -> ParsedSchema | None:
        """The schema that events are seen through; None: each through its own."""
        return self._seen_through(self._latest_reader())

    def _seen_through(self, latest: KnownSchema | None) -> ParsedSchema | None:
        if latest is not None:
            return latest.parsed
        if self._reader is None or self._wanted.message_type is not None:
            return None
        if self._reader_schema is None:
            source = self._reader.source(self.registry.register_reference)
            assert source is not None, "a reader with a schema has its source"
            try:
                self._reader_schema = self.registry.parse(source)
            except UnusableSchemaError as wrong:  # the program's fault, not that of each event
                raise ArgumentError(f"the reader's schema cannot be used: {wrong}") from None
        return self._reader_schema


def _check_read_rules(writer: KnownSchema, latest: KnownSchema | None) -> None:
    """The rules are those of the schema that wrote the event.

    Where events are read as the latest version, also that version's, and its migration rules for
    events of another one.
    """
    if writer.rule_set is None and (latest is None or latest.rule_set is None):
        return
    rule = blocking_rule(writer.rule_set, RuleMode.READ)
    if rule is None and latest is not None:
        rule = blocking_rule(latest.rule_set, RuleMode.READ)
        if rule is None and latest.guid != writer.guid:
            rule = blocking_rule(latest.rule_set, RuleMode.UPGRADE)
    if rule is not None:
        raise DecodeError(
            Reason.UNUSABLE_SCHEMA,
            f"the schema has the rule {describe_rule(rule)}, which this client does not run",
        )


def _encoder_of(schema: ParsedSchema, contract: Contract) -> EventEncoder:
    """A language is imported when it is first met: Protobuf's compiler is heavy."""
    match schema.type:
        case SchemaType.AVRO:
            from penstock.serde.avro import event as avro_event

            return avro_event.AvroEventEncoder(avro_event.own(schema))
        case SchemaType.PROTOBUF:
            from penstock.serde.protobuf import event as protobuf_event

            return protobuf_event.ProtobufEventEncoder(
                protobuf_event.own(schema), contract.message_name
            )
        case SchemaType.JSON:
            from penstock.serde.json import event as json_event

            return json_event.JsonEventEncoder(json_event.own(schema, contract.assert_formats))
        case other:
            assert_never(other)


def _decoder_of(writer: ParsedSchema, wanted: ReadAs) -> EventDecoder:
    match writer.type:
        case SchemaType.AVRO:
            from penstock.serde.avro import event as avro_event

            return avro_event.AvroEventDecoder(avro_event.own(writer), wanted)
        case SchemaType.PROTOBUF:
            from penstock.serde.protobuf import event as protobuf_event

            return protobuf_event.ProtobufEventDecoder(protobuf_event.own(writer), wanted)
        case SchemaType.JSON:
            from penstock.serde.json import event as json_event

            return json_event.JsonEventDecoder(json_event.own(writer), wanted)
        case other:
            assert_never(other)
