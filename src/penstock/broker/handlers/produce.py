"""Produce: batches into logs, by what their headers say.

Every partition of a request is decided for itself: one refusal does not touch its neighbours. All
checks come first, in one pass over the headers; then everything is appended in one breath. Only a
request that must open records or ask a transaction's coordinator waits before it acts, and holds
its connection while it does.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from penstock.broker import accepting
from penstock.broker.accepting import RefusedRecords
from penstock.broker.cluster import INTERNAL_TOPICS
from penstock.broker.handler import (
    Answer,
    Answered,
    Context,
    Disconnect,
    Handler,
    Held,
    RequestReader,
)
from penstock.broker.handlers.produce_one import produce_one
from penstock.broker.partitions import HostedTopic, Partition
from penstock.broker.quotas import Kind
from penstock.errors import ErrorCode, Refused
from penstock.log.placing import Appended
from penstock.model import Millis, ProducerEpoch, ProducerId
from penstock.protocol.answers.dialect import NO_TOPIC_ID
from penstock.protocol.answers.produce import PartitionAnswer, TopicAnswer, pack_produce
from penstock.protocol.batch import TRANSACTIONAL, BatchHeader
from penstock.protocol.produce_request import (
    OneBatch,
    ProduceRequest,
    TopicRecords,
    read_one_batch,
    read_produce_request,
)

PRODUCE: Final = 0
ALL_IN_SYNC: Final = -1
ADDS_PARTITIONS_FROM: Final = 12  # a transactional produce adds its partition from this version on
ABORTABLE_FROM: Final = 11  # older clients know no TRANSACTION_ABORTABLE
VERIFY_TRIES_MAX: Final = 3

# What a producer makes of a coordinator that is away: it retries on NOT_ENOUGH_REPLICAS, while the
# coordinator's own codes mean nothing to it.
_RETRIED: Final = frozenset(
    (
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
    )
)


class _Part:
    """One partition of a request on its way from bytes to an answer."""

    __slots__ = (
        "appended",
        "batch",
        "header",
        "index",
        "log_append_time",
        "markers_seen",
        "must_open",
        "partition",
        "refusal",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.partition: Partition | None = None
        self.batch: memoryview | bytearray = _EMPTY
        self.header: BatchHeader | None = None
        self.refusal: Refused | None = None
        self.appended: Appended | None = None
        self.log_append_time = -1
        self.must_open = False
        self.markers_seen = 0


_EMPTY: Final = bytearray()
_Topics = list[tuple[TopicRecords, list[_Part]]]


def produce(context: Context, request: ProduceRequest | OneBatch) -> Answer:
    """Append what may be appended; answer for every partition."""
    if isinstance(request, OneBatch):
        try:
            answered = produce_one(context, request)
        except OSError as error:
            return _refuse_one(context, request, _storage_error(error))
        return _produce_any(context, request.as_any()) if answered is None else answered
    return _produce_any(context, request)


def _produce_any(context: Context, request: ProduceRequest) -> Answer:
    now = context.broker.clock()
    waits = False
    size_bytes = 0
    topics: _Topics = []
    for topic in request.topics:
        hosted = _find_topic(context, topic)
        parts = []
        for index, records in topic.partitions:
            part = _Part(index)
            parts.append(part)
            if records is not None:
                size_bytes += len(records)
            try:
                _check(part, topic, hosted, records, request.acks, now)
            except Refused as refusal:
                part.refusal = refusal.without_frames()
            else:
                if part.must_open or _is_unverified(part):
                    waits = True
        topics.append((topic, parts))
    context.throttle_ms = context.broker.quotas.charge(
        Kind.PRODUCE_BYTES, context.principal, context.client_id, size_bytes
    )
    if waits:
        return _hold(context, request, topics, now)
    return _append_and_answer(context, request, topics, now)


def _find_topic(context: Context, topic: TopicRecords) -> HostedTopic | None:
    partitions = context.broker.partitions
    if topic.topic_id is not None:
        return partitions.topics_by_id.get(topic.topic_id)
    return partitions.topics.get(topic.name or "")


def _check(
    part: _Part,
    topic: TopicRecords,
    hosted: HostedTopic | None,
    records: memoryview | None,
    acks: int,
    now: Millis,
) -> None:
    """All that can be told from the request and the header alone."""
    if not -1 <= acks <= 1:
        raise Refused(ErrorCode.invalid_required_acks, f"acks={acks} is not one of -1, 0, 1")
    partition = None if hosted is None else hosted.partitions.get(part.index)
    if partition is None:
        raise _unknown(topic, hosted)
    if partition.topic_partition.topic in INTERNAL_TOPICS:
        # Compacted, so `produce_one` leaves them to this function.
        raise Refused(ErrorCode.invalid_topic_exception, "clients cannot write to internal topics")
    if records is None:
        raise Refused(ErrorCode.invalid_record, "no records were sent")
    if not (partition.takes_all_in_sync if acks == ALL_IN_SYNC else partition.takes_writes):
        partition.check_writable()
    accept = partition.settings.accept
    part.partition = partition
    part.batch = records
    part.header = header = accepting.check(records, accept)
    part.must_open = accepting.must_open(header, accept, now)


def _unknown(topic: TopicRecords, hosted: HostedTopic | None) -> Refused:
    if topic.topic_id is not None and hosted is None:
        return Refused(ErrorCode.unknown_topic_id, "no topic has this id")
    return Refused(ErrorCode.unknown_topic_or_partition, "this broker has no such partition")


def _is_unverified(part: _Part) -> bool:
    """A transactional batch whose producer has no transaction open in this partition yet."""
    header = part.header
    if header is None or not header.attributes & TRANSACTIONAL:
        return False
    assert part.partition is not None
    producer = part.partition.log.producers.producers.get(ProducerId(header.producer_id))
    return (
        producer is None
        or producer.transaction_start < 0
        or producer.producer_epoch != header.producer_epoch
    )


def _append_and_answer(
    context: Context, request: ProduceRequest, topics: _Topics, now: Millis
) -> Answered | asyncio.Future[Any]:
    for _, parts in topics:
        for part in parts:
            if part.refusal is None:
                try:
                    _append(part, now)
                except Refused as refusal:
                    part.refusal = refusal.without_frames()
    if request.acks:
        waiting = _waiting(request.acks, topics)
        if waiting:
            return asyncio.get_running_loop().create_task(
                _await_in_sync(context, request, topics, waiting)
            )
    return _answer(context, request, topics)


def _append(part: _Part, now: Millis) -> None:
    partition = part.partition
    assert partition is not None
    if accepting.stamp_times(part.batch, partition.settings.accept, now):
        part.log_append_time = now
    try:
        part.appended = partition.append(part.batch, now=now)
    except OSError as error:
        raise _storage_error(error) from error


def _storage_error(error: OSError) -> Refused:
    return Refused(ErrorCode.kafka_storage_error, f"the log: {error.strerror}")


def _refuse_one(context: Context, one: OneBatch, refusal: Refused) -> Answered:
    request = one.as_any()
    part = _Part(one.partition)
    part.refusal = refusal
    return _answer(context, request, [(request.topics[0], [part])])


def _waiting(acks: int, topics: _Topics) -> dict[asyncio.Future[None], _Part]:
    """What is not yet as safe as the client asks, or the topic's flush policy does."""
    waiting = {}
    for _, parts in topics:
        for part in parts:
            partition, appended = part.partition, part.appended
            if appended is None or partition is None:
                continue
            if appended.end_offset <= partition.log.high_watermark:
                continue
            if acks == ALL_IN_SYNC or partition.waits_for_flush:
                committed = partition.when_committed(appended.end_offset)
                if committed is not None:
                    waiting[committed] = part
    return waiting


async def _await_in_sync(
    context: Context,
    request: ProduceRequest,
    topics: _Topics,
    waiting: dict[asyncio.Future[None], _Part],
) -> Answered:
    """Answer when every in-sync replica has all of it, or the client's patience ends."""
    await asyncio.wait(waiting, timeout=max(request.timeout_ms, 0) / 1000)
    for committed, part in waiting.items():
        if not committed.done():
            part.refusal = Refused(ErrorCode.request_timed_out, "not on all replicas in time")
        elif isinstance(error := committed.exception(), Refused):
            part.refusal = error.without_frames()
    return _answer(context, request, topics)


def _answer(context: Context, request: ProduceRequest, topics: _Topics) -> Answered:
    if request.acks == 0:
        for _, parts in topics:
            for part in parts:
                if part.refusal is not None:
                    raise Disconnect(f"a produce with acks=0 failed: {part.refusal}")
        return None
    return pack_produce(
        context.api_version,
        [
            TopicAnswer(
                topic.name or "", [_row(part) for part in parts], topic.topic_id or NO_TOPIC_ID
            )
            for topic, parts in topics
        ],
        throttle_ms=context.throttle_ms,
    )


def _row(part: _Part) -> PartitionAnswer:
    appended, refusal = part.appended, part.refusal
    if refusal is not None:
        indexes = refusal.indexes if isinstance(refusal, RefusedRecords) else ()
        return PartitionAnswer(
            part.index,
            refusal.code,
            -1,
            -1,
            -1,
            [(int(index), refusal.message) for index in indexes],
            refusal.message,
        )
    assert appended is not None
    return PartitionAnswer(
        part.index, 0, appended.base_offset, part.log_append_time, appended.start_offset
    )


# The slow way: what must be asked or opened first.


def _hold(context: Context, request: ProduceRequest, topics: _Topics, now: Millis) -> Held:
    for _, parts in topics:
        for part in parts:
            part.batch = bytearray(part.batch)  # the connection's buffer will be used again
    task = asyncio.get_running_loop().create_task(_produce_slowly(context, request, topics, now))
    return Held(task)


async def _produce_slowly(
    context: Context, request: ProduceRequest, topics: _Topics, now: Millis
) -> Answered:
    parts = [part for _, parts in topics for part in parts if part.refusal is None]
    for part in parts:
        if part.must_open:
            await _open(context, part, now)
    await _verify(context, request, [part for part in parts if part.refusal is None])
    # No await from here to the append: what was verified is still true.
    answered = _append_and_answer(context, request, topics, now)
    return await answered if isinstance(answered, asyncio.Future) else answered


async def _open(context: Context, part: _Part, now: Millis) -> None:
    assert part.partition is not None
    assert part.header is not None
    assert isinstance(part.batch, bytearray)
    batch, header, accept = part.batch, part.header, part.partition.settings.accept
    broker = context.broker
    work = partial(accepting.open_and_check, batch, header, accept, now, broker.inspector)
    try:
        memory_bytes = accepting.memory_to_open(batch, header, accept)
        part.batch = await broker.opening.run(memory_bytes, work)
    except Refused as refusal:
        part.refusal = refusal.without_frames()


async def _verify(context: Context, request: ProduceRequest, parts: list[_Part]) -> None:
    """Ask the coordinator until the answer holds: a marker written meanwhile makes it stale."""
    for _ in range(VERIFY_TRIES_MAX):
        unverified = [part for part in parts if part.refusal is None and _is_unverified(part)]
        stale = [part for part in unverified if part.markers_seen != _markers(part) + 1]
        if not stale:
            return
        for part in stale:
            part.markers_seen = _markers(part) + 1
        try:
            await _ask_coordinator(context, request, stale)
        except Refused as refusal:
            for part in stale:
                part.refusal = _as_producer_sees(refusal, context.api_version)
            return
    for part in parts:
        if part.refusal is None and _is_unverified(part):
            part.refusal = Refused(ErrorCode.invalid_txn_state, "transactions end too fast here")


def _markers(part: _Part) -> int:
    assert part.partition is not None
    return part.partition.markers_written


async def _ask_coordinator(context: Context, request: ProduceRequest, parts: list[_Part]) -> None:
    header = parts[0].header
    assert header is not None
    if request.transactional_id is None:
        raise Refused(ErrorCode.invalid_txn_state, "a transactional batch without its id")
    if any(part.header is None or part.header[9:11] != header[9:11] for part in parts):
        raise Refused(ErrorCode.invalid_producer_id_mapping, "two producers in one request")
    verified = context.broker.transactions.verify(
        request.transactional_id,
        ProducerId(header.producer_id),
        ProducerEpoch(header.producer_epoch),
        [part.partition.topic_partition for part in parts if part.partition is not None],
        add=context.api_version >= ADDS_PARTITIONS_FROM,
    )
    if verified is not None:
        await verified


def _as_producer_sees(refusal: Refused, api_version: int) -> Refused:
    code = refusal.code
    if code in _RETRIED or (
        code == ErrorCode.concurrent_transactions and api_version < ADDS_PARTITIONS_FROM
    ):
        code = ErrorCode.not_enough_replicas
    elif code == ErrorCode.producer_fenced:
        code = ErrorCode.invalid_producer_epoch
    elif code == ErrorCode.transaction_abortable and api_version < ABORTABLE_FROM:
        code = ErrorCode.invalid_txn_state
    return Refused(code, refusal.message)


def _reader(version: int) -> RequestReader:
    def read(frame: memoryview, position: int) -> tuple[ProduceRequest | OneBatch, int]:
        one = read_one_batch(frame, position, version)
        return read_produce_request(frame, position, version) if one is None else (one, len(frame))

    return read


HANDLERS = (
    Handler(
        PRODUCE,
        versions=(3, 13),
        handle=produce,
        read=_reader,
        # librdkafka before 2 judges what a broker can do by the least version it sees.
        least_advertised=0,
    ),
)
