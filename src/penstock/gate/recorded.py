"""Would a proposed schema read what is in a topic? Tries it on the last events there are.

Reads with a consumer of its own, joins no group and commits nothing. What each event was written
with comes from its frame, so failures are told by the writer's version.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock.client.registry import Registry
from penstock.client.registry_documents import schema_body
from penstock.gate.check import ProposedSchema
from penstock.gate.contracts import CannotCheckError, RecordedResult, WriterResult
from penstock.link.settings import client_settings
from penstock.serde.contract import Contract
from penstock.serde.errors import ClientError, DecodeError, UnknownSchemaError
from penstock.serde.frame import BadFrame, Headers, SchemaKey, Side, read_frame
from penstock.serde.serializers import Deserializer

ANSWER_S: Final = 10.0
WAIT_S: Final = 30.0  # without any record before the topic counts as out of reach
_BATCH: Final = 500
UNFRAMED: Final = "(no frame)"
VALUE_LOST: Final = "value_lost"
REQUIRED_MISSING: Final = "required_missing"


def try_recorded(
    bootstrap: str,
    topic: str,
    most: int,
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
    trying = _Trying(registry, topic, side, contract)
    named = _writer_names(registry, proposal.subject)
    tally = RecordedResult(topic)
    for message in _last_messages(bootstrap, settings or {}, topic, most):
        _try(message, side, trying, named, tally)
    return tally


class _Trying:
    """Reads events with the proposed schema, and finds out whether they are what was written.

    Avro and JSON refuse what they cannot read. Protobuf seldom does: a value of another type is
    passed over in silence, so what is seen is compared with what the writer's schema sees.
    """

    def __init__(self, registry: Registry, topic: str, side: Side, contract: Contract) -> None:
        self._proposed = Deserializer(registry, topic, reader=contract, side=side)
        self._written = Deserializer(registry, topic, side=side)

    def failure(self, content: bytes, headers: Headers) -> tuple[str, str] | None:
        """A label and a sentence; None if the event is read as it was written."""
        try:
            seen = self._proposed.deserialize(content, headers)
        except DecodeError as wrong:
            return str(wrong.reason), wrong.detail
        if not hasattr(seen, "ListFields"):  # no Protobuf message
            return None
        from penstock.gate.proof.protobuf_examples import lost  # with upb, only where it is met
        from penstock.serde.protobuf.required_fields import missing_fields

        lacking = missing_fields(seen)
        if lacking:
            return REQUIRED_MISSING, f"required and not there: {', '.join(lacking)}"
        told = lost(self._written.deserialize(content, headers), seen)
        return None if told is None else (VALUE_LOST, told)


def _try(
    message: Any,
    side: Side,
    trying: _Trying,
    named: Callable[[SchemaKey], str],
    tally: RecordedResult,
) -> None:
    content = message.value() if side is Side.VALUE else message.key()
    if content is None:
        tally.empty += 1
        return
    tally.events += 1
    headers = message.headers() or ()
    try:
        writer = named(read_frame(content, headers, side).schema)
    except BadFrame:
        writer = UNFRAMED
    found = tally.by_writer.setdefault(writer, WriterResult(writer))
    found.events += 1
    failure = trying.failure(content, headers)
    if failure is not None:
        reason, detail = failure
        tally.failed += 1
        found.failed += 1
        found.reasons[reason] += 1
        where = f"partition {message.partition()}, offset {message.offset()}"
        found.first = found.first or f"{where}: {detail}"


def _writer_names(registry: Registry, subject: str) -> Callable[[SchemaKey], str]:
    """Ids as versions of the subject, where they are."""
    known: dict[SchemaKey, str] = {}

    def name(key: SchemaKey) -> str:
        if key not in known:
            known[key] = _writer_name(registry, subject, key)
        return known[key]

    return name


def _writer_name(registry: Registry, subject: str, key: SchemaKey) -> str:
    try:
        schema = registry.schema(key)
        found = registry.api.look_up(subject, schema_body(schema.source), deleted=True)
        return f"version {found['version']} (id {schema.id or key})"
    except UnknownSchemaError:
        return f"id {key}, not of {subject}"
    except ClientError:
        return f"id {key}"


def _last_messages(
    bootstrap: str, settings: Mapping[str, str], topic: str, most: int
) -> Iterator[Any]:
    consumer = Consumer(
        client_settings(
            bootstrap,
            {
                **settings,
                "group.id": "penstock-contract-check",  # never joined, never committed to
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            },
        )
    )
    try:
        ends = _ends(consumer, topic, most)
        consumer.assign(
            [TopicPartition(topic, number, start) for number, (start, _) in ends.items()]
        )
        yield from _until_ends(consumer, {number: end for number, (_, end) in ends.items()})
    except KafkaException as failure:
        raise CannotCheckError(
            f"{topic} cannot be read at {bootstrap}: {failure.args[0]}"
        ) from None
    finally:
        consumer.close()


def _ends(consumer: Consumer, topic: str, most: int) -> dict[int, tuple[int, int]]:
    """Where to start and to end in each partition that has something."""
    described = consumer.list_topics(topic, timeout=ANSWER_S).topics[topic]
    if described.error is not None or not described.partitions:
        raise CannotCheckError(
            f"there is no topic {topic}: `penstock topic list` shows what there is"
        )
    share = -(-most // len(described.partitions))
    found = {}
    for number in described.partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=ANSWER_S)
        if high > low:
            found[number] = (max(low, high - share), high)
    return found


def _until_ends(consumer: Consumer, ends: dict[int, int]) -> Iterator[Any]:
    """Messages until each partition is read to its end as it was at the start."""
    end_s = time.monotonic() + WAIT_S
    while ends:
        messages = consumer.consume(_BATCH, timeout=1.0)
        if messages:
            end_s = time.monotonic() + WAIT_S
        elif time.monotonic() > end_s:
            raise CannotCheckError(f"no record came within {WAIT_S:.0f} s")
        for message in messages:
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
                raise KafkaException(error)
            partition, offset = message.partition(), message.offset() or 0
            if partition not in ends:
                continue
            if error is None and offset < ends[partition]:
                yield message
            # The end of a partition is told as the offset after its last record.
            if offset + (error is None) >= ends[partition]:
                del ends[partition]
