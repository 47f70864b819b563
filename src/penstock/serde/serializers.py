"""One event between a program's value and a record's bytes, in any of the three languages.

    serializer = Serializer(registry, "orders", Contract(Path("order.avsc")))
    deserializer = Deserializer(registry, "orders")
    deserializer.deserialize(serializer.serialize({"id": 7}).content)

Interchangeable with confluent-kafka's serializers and Java's, both ways. Safe for threads. Whole
batches are faster with `penstock.serde.batch_serializers`.
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.schemas.model import InvalidSchemaError, ParsedSchema, SchemaText
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
from penstock.serde.event_codec import (
    EventDecoder,
    EventEncoder,
    Indexes,
    InvalidValueError,
    ReadAs,
)
from penstock.serde.frame import (
    BadFrameError,
    Headers,
    SchemaKey,
    Side,
    read_frame,
    write_header,
    write_prefix,
)
from penstock.serde.language import LANGUAGES
from penstock.serde.schema_source import (
    KnownSchema,
    Registration,
    SchemaSource,
    UnusableSchemaError,
)
from penstock.serde.serde_stats import SerdeStats

CODECS_MAX: Final = 1000  # then all are dropped, and made again when they are needed


class Framed(NamedTuple):
    """A key or value, ready to be sent."""

    content: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()  # to be added to the record's own


# What comes before each payload, and what is added to each record's headers.
FrameParts: TypeAlias = tuple[bytes, Sequence[tuple[str, bytes]]]


class FrameMaker:
    """Makes the frames of one registered schema."""

    def __init__(self, registration: Registration, form: Form, side: Side) -> None:
        self._registration = registration
        self._form = form
        self._side = side
        self._parts: dict[Indexes | None, FrameParts] = {}

    def parts(self, indexes: Indexes | None) -> FrameParts:
        """The parts of a frame around a message of the schema."""
        known = self._parts.get(indexes)
        if known is None:
            if self._form is Form.PREFIX:
                known = (write_prefix(self._registration.id, indexes), ())
            else:
                header = write_header(self._registration.guid, indexes)
                known = (b"", ((self._side.header_name, header),))
            self._parts[indexes] = known  # as many as the schema has messages
        return known


class Writing(NamedTuple):
    """A schema that events are being written with."""

    registration: Registration
    schema: ParsedSchema
    encoder: EventEncoder
    frames: FrameMaker


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
        self.contract: Contract = contract or Contract()
        self.side = side
        self.stats: SerdeStats = SerdeStats()
        self._own: tuple[SchemaText, ParsedSchema] | None = None  # of the contract, parsed
        self._current: tuple[object, Writing] | None = None  # by the registry's own object

    @cached_property
    def subject(self) -> str:
        """Where the contract is registered."""
        contract = self.contract
        name = contract.message_name
        if name is None and contract.schema is not None and contract.names.needs_record:
            name = self._own_schema()[1].name
        return subject_name(contract.names, self.topic, self.side, name)

    def serialize(self, value: Any) -> Framed:
        """The bytes of one value. None stays None: it deletes a key in a compacted topic."""
        if value is None:
            return Framed(None)
        start_s = time.perf_counter()
        writing = self.prepare()
        try:
            payload, indexes = writing.encoder.encode(value)
        except InvalidValueError as error:
            raise EncodeError(self.subject, writing.schema.type, str(error)) from None
        prefix, headers = writing.frames.parts(indexes)
        framed = Framed(prefix + payload, headers)
        self.stats.note(1, time.perf_counter() - start_s)
        return framed

    def prepare(self) -> Writing:
        """What events are written with; registers or looks up the schema if that is not done."""
        known = self._find_known()
        current = self._current
        # The registry returns the same object until something changes, and that never changes.
        if current is not None and current[0] is known:
            return current[1]
        return self._make_writing(known)

    @cached_property
    def _find_known(self) -> Callable[[], KnownSchema | Registration]:
        """Asks the registry for the schema to write with: in its cache after the first time."""
        contract = self.contract
        if contract.schema is None:
            return partial(self.registry.latest, self.subject)
        identify = self.registry.register if contract.auto_register else self.registry.look_up
        source, _ = self._own_schema()
        return partial(identify, self.subject, source, normalize=contract.normalize)

    def _make_writing(self, known: KnownSchema | Registration) -> Writing:
        rule = blocking_rule(known.rule_set, RuleMode.WRITE)
        if rule is not None:  # the value would be sent without it
            raise UnsupportedRuleError(self.subject, rule)
        schema = known.parsed if isinstance(known, KnownSchema) else self._own_schema()[1]
        current = self._current
        if current is not None and current[1].schema is schema:
            encoder = current[1].encoder
        else:
            encoder = LANGUAGES[schema.type].event_codec.event_encoder(schema, self.contract)
        assert known.id is not None, "a version of a subject has an id"
        registration = Registration(known.id, known.guid, known.rule_set)
        frames = FrameMaker(registration, self.contract.form, self.side)
        writing = Writing(registration, schema, encoder, frames)
        self._current = (known, writing)
        return writing

    def _own_schema(self) -> tuple[SchemaText, ParsedSchema]:
        if self._own is None:
            source = self.contract.source(self.registry.register_reference)
            assert source is not None, "called only for a contract with a schema"
            self._own = (source, self.registry.parse(source))
        return self._own


class _Reading(NamedTuple):
    """A decoder, and its schemas, which must live as long as their ids are keys."""

    writer: ParsedSchema
    reader: ParsedSchema | None
    decoder: EventDecoder


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
        self.stats: SerdeStats = SerdeStats()
        self._reader = reader
        self._reader_schema: ParsedSchema | None = None
        self._read_as = ReadAs(
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
        """The value. Raises DecodeError for this event's fault, RegistryUnavailableError if not."""
        if content is None:
            return None
        start_s = time.perf_counter()
        key: SchemaKey | None = None
        try:
            frame = read_frame(content, headers, self.side)
            key = frame.schema
            value = self._decoder(key).decode(frame)
        except BadFrameError as error:
            raise self._decode_error(error.kind, str(error), key) from None
        except UnknownSchemaError as error:
            raise self._decode_error(Reason.UNKNOWN_SCHEMA, str(error), key) from None
        except (UnusableSchemaError, InvalidSchemaError) as error:
            raise self._decode_error(Reason.UNUSABLE_SCHEMA, str(error), key) from None
        except DecodeError as error:
            raise self._decode_error(error.reason, error.detail, key) from None
        self.stats.note(1, time.perf_counter() - start_s)
        return value

    def message_name(self, content: bytes, headers: Headers | None = None) -> str | None:
        """The full name of the Protobuf message that an event is; None in other languages.

        BadFrameError if the event names none. To read the events of a topic as columns, name the
        message of the last one: `Contract(message=...)`.
        """
        frame = read_frame(content, headers, self.side)
        writer = self.registry.schema(frame.schema).parsed
        codec = LANGUAGES[writer.type].event_codec
        return codec.message_name(writer, frame, plain_indexes=self._read_as.plain_indexes)

    def _decode_error(self, reason: Reason, detail: str, key: SchemaKey | None) -> DecodeError:
        self.stats.note_error(self.subject, reason)
        schema = None if key is None else str(key)
        return DecodeError(reason, detail, schema=schema, subject=self.subject)

    def _decoder(self, key: SchemaKey) -> EventDecoder:
        known_writer, latest = self.registry.schema(key), self._latest_reader()
        _check_read_rules(known_writer, latest)
        writer, reader = known_writer.parsed, self._reader_of(latest)
        known = self._decoders.get((id(writer), id(reader)))
        if known is not None:
            return known.decoder
        codec = LANGUAGES[writer.type].event_codec
        decoder = codec.event_decoder(writer, self._read_as._replace(schema=reader))
        with self._lock:
            if len(self._decoders) >= CODECS_MAX:
                self._decoders.clear()
            self._decoders[id(writer), id(reader)] = _Reading(writer, reader, decoder)
        return decoder

    def check_rules(self, writer: KnownSchema) -> None:
        """Raise DecodeError if a rule must run on events of this schema, and none is run here."""
        _check_read_rules(writer, self._latest_reader())

    def _latest_reader(self) -> KnownSchema | None:
        """The latest version of the subject, if that is what events are read as."""
        reader = self._reader
        if reader is None or reader.schema is not None:
            return None
        subject = subject_name(reader.names, self.topic, self.side, reader.message)
        return self.registry.latest(subject)

    def reader_schema(self) -> ParsedSchema | None:
        """The schema that events are read as; None: each as it was written."""
        return self._reader_of(self._latest_reader())

    def _reader_of(self, latest: KnownSchema | None) -> ParsedSchema | None:
        if latest is not None:
            return latest.parsed
        if self._reader is None or self._read_as.message_type is not None:
            return None
        if self._reader_schema is None:
            source = self._reader.source(self.registry.register_reference)
            assert source is not None, "a reader with a schema has its text"
            try:
                self._reader_schema = self.registry.parse(source)
            except UnusableSchemaError as error:  # the program's fault, not that of each event
                raise ArgumentError(f"the reader's schema cannot be used: {error}") from None
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
