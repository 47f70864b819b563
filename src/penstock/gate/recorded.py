"""Tries a proposed schema on the last events of a topic.

Uses its own consumer, joins no group and commits nothing. The frame of an event identifies its
writer schema, so failures are counted by the version that wrote the event.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock.client.registry import Registry
from penstock.client.registry_documents import schema_body
from penstock.gate.contracts import CannotCheckError
from penstock.gate.proposals import ProposedSchema
from penstock.gate.results import RecordedResult, WriterResult
from penstock.link.settings import client_settings
from penstock.serde.contract import Contract
from penstock.serde.errors import ClientError, DecodeError, UnknownSchemaError
from penstock.serde.frame import BadFrameError, Headers, SchemaKey, Side, read_frame
from penstock.serde.serializers import Deserializer

RESPONSE_S: Final = 10.0
WAIT_S: Final = 30.0  # without a record; then the topic counts as unreachable
_BATCH: Final = 500
UNFRAMED: Final = "(no frame)"
VALUE_LOST: Final = "value_lost"
REQUIRED_MISSING: Final = "required_missing"


def try_recorded(
    bootstrap: str,
    topic: str,
    events_max: int,
    registry: Registry,
    proposal: ProposedSchema,
    *,
    settings: Mapping[str, str] | None = None,
    assert_formats: bool = False,
) -> RecordedResult:
    """Read the last events of a topic with the proposed schema."""
    contract = Contract(
        proposal.source.text,
        type=proposal.source.type,
        references=proposal.source.references,
        assert_formats=assert_formats,
    )
    side = Side.KEY if proposal.subject.endswith("-key") else Side.VALUE
    reader = _ProposedReader(registry, topic, side, contract)
    writer_name = _writer_names(registry, proposal.subject)
    result = RecordedResult(topic)
    for message in _last_messages(bootstrap, settings or {}, topic, events_max):
        _try(message, side, reader, writer_name, result)
    return result


class _ProposedReader:
    """Reads events with the proposed schema, and detects values that are lost.

    Avro and JSON refuse what they cannot read. Protobuf seldom does: it silently skips a value of
    another type, so the result is compared with that of the writer's schema.
    """

    def __init__(self, registry: Registry, topic: str, side: Side, contract: Contract) -> None:
        self._proposed = Deserializer(registry, topic, reader=contract, side=side)
        self._written = Deserializer(registry, topic, side=side)

    def failure(self, content: bytes, headers: Headers) -> tuple[str, str] | None:
        """A label and a sentence; None if the event is read as it was written."""
        try:
            value = self._proposed.deserialize(content, headers)
        except DecodeError as error:
            return str(error.reason), error.detail
        if not hasattr(value, "ListFields"):  # not a Protobuf message
            return None
        # Imported on first use, because they import upb.
        from penstock.gate.proof.protobuf_examples import lost_value
        from penstock.serde.protobuf.required_fields import missing_fields

        missing = missing_fields(value)
        if missing:
            return REQUIRED_MISSING, f"required fields are missing: {', '.join(missing)}"
        loss = lost_value(self._written.deserialize(content, headers), value)
        return None if loss is None else (VALUE_LOST, loss)


def _try(
    message: Any,
    side: Side,
    reader: _ProposedReader,
    writer_name: Callable[[SchemaKey], str],
    result: RecordedResult,
) -> None:
    content = message.value() if side is Side.VALUE else message.key()
    if content is None:
        result.empty += 1
        return
    result.events += 1
    headers = message.headers() or ()
    try:
        writer = writer_name(read_frame(content, headers, side).schema)
    except BadFrameError:
        writer = UNFRAMED
    by_writer = result.by_writer.setdefault(writer, WriterResult(writer))
    by_writer.events += 1
    failure = reader.failure(content, headers)
    if failure is not None:
        reason, detail = failure
        result.failed += 1
        by_writer.failed += 1
        by_writer.reasons[reason] += 1
        where = f"partition {message.partition()}, offset {message.offset()}"
        by_writer.first = by_writer.first or f"{where}: {detail}"


def _writer_names(registry: Registry, subject: str) -> Callable[[SchemaKey], str]:
    """Names schema ids as versions of the subject, where possible."""
    names: dict[SchemaKey, str] = {}

    def name(key: SchemaKey) -> str:
        if key not in names:
            names[key] = _writer_name(registry, subject, key)
        return names[key]

    return name


def _writer_name(registry: Registry, subject: str, key: SchemaKey) -> str:
    try:
        schema = registry.schema(key)
        document = registry.api.look_up(subject, schema_body(schema.source), deleted=True)
        return f"version {document['version']} (id {schema.id or key})"
    except UnknownSchemaError:
        return f"id {key}, not a version of {subject}"
    except ClientError:
        return f"id {key}"


def _last_messages(
    bootstrap: str, settings: Mapping[str, str], topic: str, events_max: int
) -> Iterator[Any]:
    consumer = Consumer(
        client_settings(
            bootstrap,
            {
                **settings,
                "group.id": "penstock-contract-check",  # required, but never joined
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            },
        )
    )
    try:
        ranges = _last_ranges(consumer, topic, events_max)
        consumer.assign(
            [TopicPartition(topic, number, start) for number, (start, _) in ranges.items()]
        )
        yield from _until_ends(consumer, {number: end for number, (_, end) in ranges.items()})
    except KafkaException as failure:
        raise CannotCheckError(f"cannot read {topic} at {bootstrap}: {failure.args[0]}") from None
    finally:
        consumer.close()


def _last_ranges(consumer: Consumer, topic: str, events_max: int) -> dict[int, tuple[int, int]]:
    """The first offset to read and the end offset of each partition that is not empty."""
    metadata = consumer.list_topics(topic, timeout=RESPONSE_S).topics[topic]
    if metadata.error is not None or not metadata.partitions:
        raise CannotCheckError(f"there is no topic {topic}: `penstock topic list` lists the topics")
    share = -(-events_max // len(metadata.partitions))
    ranges = {}
    for number in metadata.partitions:
        partition = TopicPartition(topic, number)
        start, end = consumer.get_watermark_offsets(partition, timeout=RESPONSE_S)
        if end > start:
            ranges[number] = (max(start, end - share), end)
    return ranges


def _until_ends(consumer: Consumer, ends: dict[int, int]) -> Iterator[Any]:
    """All messages up to the end offset of each partition."""
    deadline_s = time.monotonic() + WAIT_S
    while ends:
        messages = consumer.consume(_BATCH, timeout=1.0)
        if messages:
            deadline_s = time.monotonic() + WAIT_S
        elif time.monotonic() > deadline_s:
            raise CannotCheckError(f"no record arrived within {WAIT_S:.0f} s")
        for message in messages:
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                raise KafkaException(error)
            partition, offset = message.partition(), message.offset() or 0
            if partition not in ends:
                continue
            if error is None and offset < ends[partition]:
                yield message
            # librdkafka reports the end of a partition with the offset after its last record.
            if offset + (error is None) >= ends[partition]:
                del ends[partition]
