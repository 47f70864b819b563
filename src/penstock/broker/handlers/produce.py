"""Produce: batches into logs, by what their headers say.

One loop. Each partition of a request is appended, refused, or held while its records are opened in
a thread or its transaction is verified. The response leaves when every partition has its result:
now, or when the high watermark has passed the last append.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.broker import admission
from penstock.broker.admission import RefusedRecords
from penstock.broker.handler import (
    Answer,
    Client,
    Context,
    Disconnect,
    Handler,
    Held,
    hold,
    result_of,
)
from penstock.broker.metadata_image import INTERNAL_TOPICS
from penstock.broker.partition_lookup import current_leader, endpoints_of, find_partition
from penstock.broker.permissions import AllOf, Operation, on_each_topic, on_transactional_id
from penstock.broker.quotas import QuotaKind
from penstock.broker.refused_batches import RefusedBatches, header_of_refused
from penstock.errors import ErrorCode, Refused
from penstock.machine import Deferred
from penstock.model import LeaderEpoch, Millis, Offset, ProducerEpoch, ProducerId
from penstock.protocol.batch import TRANSACTIONAL, BatchHeader, read_header, set_append_time
from penstock.protocol.fields import TopicKey
from penstock.protocol.messages.produce import (
    ALL_IN_SYNC,
    PRODUCE,
    TRANSACTIONS_FROM,
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    ProduceResponse,
    RecordError,
)

if TYPE_CHECKING:
    from penstock.broker.partition import Partition
    from penstock.log.producer_state import ProducerState

ABORTABLE_FROM: Final = 11  # TRANSACTION_ABORTABLE
VERIFY_TRIES_MAX: Final = 3
_NONE: Final = ErrorCode.none

_RETRIED: Final = frozenset(
    (
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
    )
)


class _Write:
    """One partition of a request on its way from bytes to a result."""

    __slots__ = (
        "_client",
        "_key",
        "batch",
        "end_offset",
        "header",
        "index",
        "is_stale",
        "leader_epoch",
        "must_open",
        "partition",
        "result",
    )

    batch: memoryview | bytearray
    header: BatchHeader
    leader_epoch: LeaderEpoch  # under which it was admitted
    must_open: bool
    partition: Partition

    def __init__(self, client: Client, key: TopicKey, index: int) -> None:
        self._client = client
        self._key = key
        self.index = index
        self.end_offset = Offset(0)
        self.is_stale: bool = True  # what the coordinator said of its transaction does not hold
        self.result: ProducedPartition | None = None

    def admit(
        self, partition: Partition, records: memoryview | None, acks: int, now: Millis
    ) -> bool:
        """Check everything but the records. False: open them, or verify the transaction."""
        if not -1 <= acks <= 1:
            raise Refused(ErrorCode.invalid_required_acks, f"acks={acks} is not one of -1, 0, 1")
        if partition.topic_partition.topic in INTERNAL_TOPICS:
            raise Refused(
                ErrorCode.invalid_topic_exception, "clients cannot write to internal topics"
            )
        if not partition.is_leader:
            partition.check_leader(-1)
        if acks == ALL_IN_SYNC and not partition.has_min_insync:
            partition.check_min_insync()
        if records is None:
            raise Refused(ErrorCode.invalid_record, "no records were sent")
        self.partition, self.batch = partition, records
        self.leader_epoch = partition.leader_epoch
        self.header, self.must_open = partition.admission.check(records, now)
        if self._client.refused_batches is not None:
            self._client.refused_batches.check((self._key, self.index), self.header, self.producer)
        return not (
            self.must_open or (self.header.attributes & TRANSACTIONAL and self.is_unverified)
        )

    @property
    def producer(self) -> ProducerState | None:
        """What the partition knows of its producer."""
        return self.partition.log.producers.producers.get(ProducerId(self.header.producer_id))

    @property
    def is_unverified(self) -> bool:
        """Whether its producer has no transaction open in this partition yet."""
        header = self.header
        if not header.attributes & TRANSACTIONAL:
            return False
        producer = self.producer
        return (
            producer is None
            or producer.transaction_start < 0
            or producer.producer_epoch != header.producer_epoch
        )

    def watch_markers(self) -> None:
        """From now on, a marker of the producer makes this write stale."""
        producer_id = ProducerId(self.header.producer_id)
        self.partition.marker_watchers.setdefault(producer_id, []).append(self)

    def unwatch_markers(self) -> None:
        """End `watch_markers`."""
        producer_id = ProducerId(self.header.producer_id)
        watchers = self.partition.marker_watchers[producer_id]
        watchers.remove(self)
        if not watchers:
            del self.partition.marker_watchers[producer_id]

    def append(self, now: Millis) -> bool:
        """True: committed by that. Refused and OSError leave the log as it was."""
        partition, append_time = self.partition, -1
        if partition.admission.sets_append_time:
            self.header, append_time = set_append_time(self.batch, self.header, now), now
        base_offset, self.end_offset, _, log_start_offset = partition.append(
            self.batch, self.header, now=now, epoch=self.leader_epoch
        )
        self.result = tuple.__new__(
            ProducedPartition,
            (self.index, _NONE, base_offset, append_time, log_start_offset, (), None, None),
        )
        return self.end_offset <= partition.log.high_watermark

    def refuse(self, error: Refused | OSError, header: BatchHeader | None) -> None:
        """Keep the code and message for the response, not the error: its frames hold buffers.

        `header` is that of its batch, if that can be read.
        """
        if isinstance(error, OSError):
            error = Refused(ErrorCode.kafka_storage_error, f"the log: {error.strerror}")
        if header is not None:
            client = self._client
            if client.refused_batches is None:
                client.refused_batches = RefusedBatches()
            client.refused_batches.add((self._key, self.index), header, error.code)
        indexes = error.indexes if isinstance(error, RefusedRecords) else ()
        self.result = ProducedPartition(
            self.index,
            error.code,
            record_errors=[RecordError(int(index), error.message) for index in indexes],
            error_message=error.message,
            current_leader=current_leader(error),
        )


_Writes = list[tuple[TopicKey, list[_Write]]]


def produce(context: Context, request: ProduceRequest) -> Answer[ProduceResponse]:
    """The one loop: each partition is appended, refused, or held."""
    broker, acks = context.broker, request.acks
    now = broker.clock()
    writes: _Writes = []
    held: list[_Write] = []
    uncommitted: list[_Write] = []
    for key, partitions in request.topics:
        row: list[_Write] = []
        for index, records in partitions:
            row.append(write := _Write(context.client, key, index))
            try:
                partition = find_partition(broker, key, index)
                if not write.admit(partition, records, acks, now):
                    held.append(write)
                elif not write.append(now):
                    uncommitted.append(write)
            except (Refused, OSError) as error:
                write.refuse(error, header_of_refused(records))
        writes.append((key, row))
    if broker.quotas.limits_bytes:
        context.throttle_ms = _charge(context, request)
    if held:
        for write in held:
            write.batch = bytearray(write.batch)  # the connection's buffer will be used again
        return hold(partial(_append_held, context, request, writes, held, uncommitted, now))
    if uncommitted or acks == 0:
        return _answer(context, request, writes, uncommitted)
    return _response(context, writes)


def _charge(context: Context, request: ProduceRequest) -> int:
    size_bytes = sum(
        len(partition.records or b"") for topic in request.topics for partition in topic.partitions
    )
    return context.broker.quotas.charge(
        QuotaKind.PRODUCE_BYTES, context.principal, context.client_id, size_bytes
    )


# Responses.


def _answer(
    context: Context, request: ProduceRequest, writes: _Writes, uncommitted: list[_Write]
) -> Answer[ProduceResponse]:
    """The response: now if everything is as safe as `acks` says, else when it is."""
    if request.acks == 0:
        _disconnect_if_refused(writes)
        return None
    late = [
        write
        for write in uncommitted
        if request.acks == ALL_IN_SYNC or write.partition.waits_for_flush
    ]
    return _Waiting(context, request, writes, late).deferred if late else _response(context, writes)


def _response(context: Context, writes: _Writes) -> ProduceResponse:
    topics = []
    leaders = []
    for key, row in writes:
        results = []
        for write in row:
            result = write.result
            assert result is not None, "every partition has its result"
            results.append(result)
            if result.current_leader is not None:
                leaders.append(result.current_leader)
        topics.append(tuple.__new__(ProducedTopic, (key, results)))
    endpoints = endpoints_of(context.broker.cluster, leaders) if leaders else ()
    return tuple.__new__(ProduceResponse, (topics, endpoints))


def _disconnect_if_refused(writes: _Writes) -> None:
    """There is no response with acks=0: closing the connection reports the failure."""
    for _, row in writes:
        for write in row:
            result = write.result
            if result is not None and result.error_code:
                raise Disconnect(
                    "a produce with acks=0 failed: "
                    f"{ErrorCode(result.error_code).name}: {result.error_message}"
                )


class _Waiting:
    """A request whose appends are not committed yet: one timer, no task and no future."""

    __slots__ = ("_context", "_left", "_timer", "_writes", "deferred")

    def __init__(
        self, context: Context, request: ProduceRequest, writes: _Writes, late: list[_Write]
    ) -> None:
        self.deferred: Deferred[ProduceResponse] = Deferred(self._on_cancel)
        self._context = context
        self._writes = writes
        self._left = dict.fromkeys(late)
        timeout_s = max(request.timeout_ms, 0) / 1000
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._on_timeout)
        for write in late:
            write.partition.call_when_committed(
                write.end_offset,
                partial(self._on_committed, write),
                needs_min_insync=request.acks == ALL_IN_SYNC,
            )

    def _on_committed(self, write: _Write, refusal: Refused | None) -> None:
        if write not in self._left:
            return  # the response has left: the request timed out
        del self._left[write]
        if refusal is not None:
            write.refuse(refusal, write.header)
        if not self._left:
            self._finish()

    def _on_timeout(self) -> None:
        for write in self._left:
            write.refuse(
                Refused(
                    ErrorCode.request_timed_out,
                    "appended, but not committed on all in-sync replicas within the timeout",
                ),
                write.header,
            )
        self._left.clear()
        self._finish()

    def _finish(self) -> None:
        self._timer.cancel()
        self.deferred.resolve(_response(self._context, self._writes))

    def _on_cancel(self) -> None:
        self._timer.cancel()


# Writes that wait before they are appended.


async def _append_held(
    context: Context,
    request: ProduceRequest,
    writes: _Writes,
    held: list[_Write],
    uncommitted: list[_Write],
    now: Millis,
    held_response: Held[ProduceResponse],
) -> ProduceResponse | None:
    for write in held:
        if write.must_open:
            await _open(context, write, now)
    await _verify(context, request, [write for write in held if write.result is None])
    # No await from here to the append: what was verified is still true.
    for write in held:
        if write.result is None:
            try:
                if not write.append(now):
                    uncommitted.append(write)
            except (Refused, OSError) as error:
                write.refuse(error, write.header)
    held_response.release()
    response: ProduceResponse | None = await result_of(
        _answer(context, request, writes, uncommitted)
    )
    return response


async def _open(context: Context, write: _Write, now: Millis) -> None:
    broker, batch, accept = context.broker, write.batch, write.partition.settings.admission
    assert isinstance(batch, bytearray)
    work = partial(admission.open_and_check, batch, write.header, accept, now, broker.inspector)
    try:
        memory_bytes = admission.memory_to_open(batch, write.header, accept)
        write.batch = await broker.opening.run(memory_bytes, work)
        write.header = read_header(write.batch)  # it may have been compressed again
    except Refused as refusal:
        write.refuse(refusal, write.header)


async def _verify(context: Context, request: ProduceRequest, writes: list[_Write]) -> None:
    """Ask the coordinator until its answer holds: a marker written meanwhile makes it stale."""
    for write in writes:
        write.watch_markers()
    try:
        await _verify_watched(context, request, writes)
    finally:
        for write in writes:
            write.unwatch_markers()


async def _verify_watched(context: Context, request: ProduceRequest, writes: list[_Write]) -> None:
    for _ in range(VERIFY_TRIES_MAX):
        stale = [write for write in writes if write.is_unverified and write.is_stale]
        if not stale:
            return
        for write in stale:
            write.is_stale = False
        try:
            await _ask_coordinator(context, request, stale)
        except Refused as refusal:
            for write in stale:
                write.refuse(_as_producer_sees(refusal, context.api_version), write.header)
            return
    for write in writes:
        if write.is_unverified:
            write.refuse(
                Refused(
                    ErrorCode.invalid_txn_state,
                    "could not verify the transaction because its markers kept arriving; retry",
                ),
                write.header,
            )


async def _ask_coordinator(context: Context, request: ProduceRequest, writes: list[_Write]) -> None:
    header = writes[0].header
    producer = header.producer_id, header.producer_epoch
    if request.transactional_id is None:
        raise Refused(ErrorCode.invalid_txn_state, "a transactional batch without its id")
    if any((write.header.producer_id, write.header.producer_epoch) != producer for write in writes):
        raise Refused(ErrorCode.invalid_producer_id_mapping, "two producers in one request")
    verified = context.broker.transactions.verify(
        request.transactional_id,
        ProducerId(header.producer_id),
        ProducerEpoch(header.producer_epoch),
        [write.partition.topic_partition for write in writes],
        add=context.api_version >= TRANSACTIONS_FROM,
    )
    if verified is not None:
        await result_of(verified)


def _as_producer_sees(refusal: Refused, api_version: int) -> Refused:
    code = refusal.code
    if code in _RETRIED or (
        code == ErrorCode.concurrent_transactions and api_version < TRANSACTIONS_FROM
    ):
        code = ErrorCode.not_enough_replicas
    elif code == ErrorCode.producer_fenced:
        code = ErrorCode.invalid_producer_epoch
    elif code == ErrorCode.transaction_abortable and api_version < ABORTABLE_FROM:
        code = ErrorCode.invalid_txn_state
    return Refused(code, refusal.message)


HANDLERS = (
    Handler(
        PRODUCE,
        versions=(3, 13),
        handle=produce,
        allow=AllOf(on_transactional_id(Operation.WRITE), on_each_topic(Operation.WRITE)),
        # librdkafka before 2 derives what a broker can do from the lowest version it sees.
        advertised_from=0,
    ),
)
