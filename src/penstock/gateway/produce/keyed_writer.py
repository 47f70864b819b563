"""Requests with an Idempotency-Key: events and key are written in one transaction.

The gateway owns the key topic by its fixed transactional id: claiming it fences the predecessor and
aborts what that left open, then the committed keys are read. Requests that arrive while a
transaction is open share the next one. After any failure the claim is renewed and the keys are read
again, so a commit whose response was lost is seen as done and never repeated.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.gateway.errors import GatewayError, as_gateway_error, too_many
from penstock.gateway.produce.encode import EncodedRecord
from penstock.gateway.produce.key_table import (
    KeyTable,
    ScopedKey,
    StoredResponse,
    read_stored,
    write_stored,
)
from penstock.gateway.produce.lanes import BATCH_BYTES_MAX, as_record, record_bytes
from penstock.gateway.visible_records import visible_records
from penstock.link.aio import AsyncCluster
from penstock.link.fetch_range import FetchSettings, fetch_range
from penstock.link.offsets import Isolation, end_offsets, start_offsets
from penstock.link.send_batches import send_batches
from penstock.link.topic_admin import create_topic
from penstock.link.transactions import TransactionHandle, end_transaction, init_producer_id
from penstock.model import Millis, Offset, SequenceNumber, TopicPartition
from penstock.protocol.records import Record, build_batch

logger: Final = logging.getLogger(__name__)

KEYS_TOPIC: Final = "_penstock_idempotency"
TRANSACTIONAL_ID: Final = "penstock-gateway-keys-0"
KEY_PARTITION: Final = TopicPartition(KEYS_TOPIC, 0)
TRANSACTION_BYTES_MAX: Final = 16 << 20
QUEUE_MAX: Final = 10_000
_FAILURES: Final = (Refused, OSError, Malformed)


class PartitionRecord(NamedTuple):
    """A record with its partition, or why it has none."""

    partition: TopicPartition
    record: EncodedRecord


class KeyedRequest:
    """A request under a key, and its answer when it is there."""

    def __init__(
        self,
        key: ScopedKey,
        digest: str,
        records: Sequence[PartitionRecord | GatewayError],
        now: Millis,
    ) -> None:
        self.key: Final = key
        self.digest: Final = digest
        self.records: Final = records
        self.now: Final = now
        self.answer: Final[asyncio.Future[bytes]] = asyncio.get_running_loop().create_future()

    def resolve(self, outcome: bytes | Exception) -> None:
        """Set the answer, or why there is none."""
        if self.answer.done():
            return
        if isinstance(outcome, Exception):
            self.answer.set_exception(outcome)
            self.answer.exception()  # retrieved: the client may be gone
        else:
            self.answer.set_result(outcome)


class KeyedWriter:
    """Writes keyed requests, one transaction after the other."""

    def __init__(self, cluster: AsyncCluster, table: KeyTable, kept_ms: int) -> None:
        self._cluster = cluster
        self._table = table
        self._kept_ms = kept_ms
        self._queue: list[KeyedRequest] = []
        self._handle: TransactionHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._claiming = asyncio.Lock()

    async def claim(self) -> TransactionHandle:
        """The handle of the key partition; reads the keys if it is not claimed."""
        async with self._claiming:
            if self._handle is None:
                await self._create_topic()
                handle = await self._cluster.run(init_producer_id(TRANSACTIONAL_ID))
                await self._read_keys()
                self._handle = handle
            return self._handle

    def submit(self, request: KeyedRequest) -> None:
        """Write a request that the table called new."""
        if len(self._queue) >= QUEUE_MAX:
            self._table.end(request.key)
            raise too_many("produce_queue_full", "too many requests wait to be written; try again")
        self._queue.append(request)
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Finish what is under way."""
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=5)
        await self._cluster.close()

    async def _run(self) -> None:
        requests: list[KeyedRequest] = []
        try:
            while self._queue:
                requests = self._take()
                failure = await self._transact(requests)
                if failure is not None:
                    for request in requests:
                        await self._retry_alone(request, failure, is_shared=len(requests) > 1)
        finally:
            self._task = None
            for request in requests:  # only after a bug is one left without an answer
                if not request.answer.done():
                    self._table.end(request.key)
                    request.resolve(GatewayError(500, "internal", "the request was not written"))

    def _take(self) -> list[KeyedRequest]:
        taken: list[KeyedRequest] = []
        size_bytes = 0
        while self._queue and (not taken or size_bytes < TRANSACTION_BYTES_MAX):
            request = self._queue.pop(0)
            taken.append(request)
            size_bytes += sum(
                len(each.record.value or b"")
                for each in request.records
                if isinstance(each, PartitionRecord)
            )
        return taken

    async def _retry_alone(
        self, request: KeyedRequest, failure: Exception, *, is_shared: bool
    ) -> None:
        """After a failure: the answer if it was committed nevertheless, or one more attempt."""
        outcome = failure
        try:
            await self.claim()
            stored = self._table.find(request.key)
            if stored is not None:
                request.resolve(bytes(stored.answer))
                return
            if is_shared:
                again = await self._transact([request])
                if again is None:
                    return
                outcome = again
        except _FAILURES as another:
            outcome = another
        self._table.end(request.key)
        request.resolve(as_gateway_error(outcome))

    async def _transact(self, requests: list[KeyedRequest]) -> Exception | None:
        """Write requests and commit; the failure if it is not known to be committed."""
        try:
            handle = await self.claim()
            answers = await self._append(handle, requests)
            self._handle = await self._cluster.run(end_transaction(handle, commit=True))
        except _FAILURES as failure:
            self._handle = None  # the next claim aborts what is open
            return failure
        for request, answer in zip(requests, answers, strict=True):
            self._table.store(request.key, answer)
            request.resolve(bytes(answer.answer))
        return None

    async def _append(
        self, handle: TransactionHandle, requests: list[KeyedRequest]
    ) -> list[StoredResponse]:
        """Append events, then their keys, in the open transaction."""
        placed: dict[TopicPartition, list[Record]] = {}
        for request in requests:
            for each in request.records:
                if isinstance(each, PartitionRecord):
                    row = as_record(each.record, request.now)
                    placed.setdefault(each.partition, []).append(row)
        offsets = await self._send(handle, placed)
        answers = [_answer(request, offsets) for request in requests]
        keys = [
            Record(-1, request.now, *write_stored(request.key, answer))
            for request, answer in zip(requests, answers, strict=True)
        ]
        await self._send(handle, {KEY_PARTITION: keys})
        return answers

    async def _send(
        self, handle: TransactionHandle, placed: Mapping[TopicPartition, Sequence[Record]]
    ) -> dict[TopicPartition, list[int]]:
        """The offsets of all records, in their order."""
        groups = {partition: _grouped(records) for partition, records in placed.items()}
        batches = {
            partition: [
                build_batch(
                    group,
                    producer_id=handle.producer_id,
                    producer_epoch=handle.producer_epoch,
                    base_sequence=SequenceNumber(first),
                    transactional=True,
                )
                for first, group in rows
            ]
            for partition, rows in groups.items()
        }
        operation = send_batches(batches, transactional_id=handle.transactional_id)
        bases = await self._cluster.run(operation)
        return {
            partition: [
                base + index
                for base, (_, group) in zip(bases[partition], rows, strict=True)
                for index in range(len(group))
            ]
            for partition, rows in groups.items()
        }

    async def _create_topic(self) -> None:
        configs = {
            "cleanup.policy": "compact,delete",
            "retention.ms": str(2 * self._kept_ms),
        }
        try:
            await self._cluster.run(create_topic(KEYS_TOPIC, partitions=1, configs=configs))
        except Refused as refusal:
            if refusal.code is not ErrorCode.topic_already_exists:
                raise

    async def _read_keys(self) -> None:
        start = (await self._cluster.run(start_offsets([KEY_PARTITION])))[KEY_PARTITION]
        end = (await self._cluster.run(end_offsets([KEY_PARTITION])))[KEY_PARTITION]
        self._table.forget_stored()
        settings = FetchSettings(isolation=Isolation.READ_COMMITTED)
        operation = fetch_range(KEY_PARTITION, start, end, settings=settings)
        async for chunk in self._cluster.stream(operation):
            records, _ = visible_records(chunk.records, chunk.aborted, chunk.start_offset)
            for record in records:
                try:
                    self._table.store(*read_stored(record.key, record.value))
                except Malformed as error:
                    logger.warning("%s at offset %d: %s", KEYS_TOPIC, record.offset, error)


def _grouped(records: Sequence[Record]) -> list[tuple[int, list[Record]]]:
    """Records in groups that fit a batch, each with the number of its first record."""
    groups: list[tuple[int, list[Record]]] = []
    size_bytes = 0
    for number, record in enumerate(records):
        size_bytes += record_bytes(record)
        if not groups or size_bytes > BATCH_BYTES_MAX:
            groups.append((number, []))
            size_bytes = record_bytes(record)
        groups[-1][1].append(record)
    return groups


def _answer(request: KeyedRequest, offsets: dict[TopicPartition, list[int]]) -> StoredResponse:
    """The answer of a request, which takes its offsets from the front of the lists."""
    results = [
        each.document
        if isinstance(each, GatewayError)
        else {
            "partition": each.partition.partition,
            "offset": Offset(offsets[each.partition].pop(0)),
        }
        for each in request.records
    ]
    answer = msgspec.Raw(msgspec.json.encode({"records": results}))
    return StoredResponse(request.digest, answer, request.now)
