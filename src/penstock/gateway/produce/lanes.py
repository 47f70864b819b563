"""Records on their way to partitions: one lane per partition, one batch in flight in each.

Records that arrive while a batch is in flight go together in the next one, so throughput rises with
load and an idle lane sends at once. With acks=all a lane is an idempotent producer: a batch that is
sent again after a lost connection is written once. A lane whose batch failed starts over as a new
producer, because the outcome of the batch may be unknown.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, TypedDict

from penstock.errors import Malformed, Refused
from penstock.gateway.errors import GatewayError, as_gateway_error, too_many
from penstock.gateway.produce.encode import EncodedRecord
from penstock.link.aio import AsyncCluster
from penstock.link.send_batches import send_batches
from penstock.link.transactions import TransactionHandle, init_producer_id
from penstock.model import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    Millis,
    Offset,
    ProducerEpoch,
    ProducerId,
    SequenceNumber,
    TopicPartition,
)
from penstock.protocol.messages.produce import ALL_IN_SYNC
from penstock.protocol.records import Record, build_batch

BATCH_BYTES_MAX: Final = 900_000  # below the usual max.message.bytes; a larger record goes alone
QUEUE_BYTES_MAX: Final = 64 << 20  # of all lanes; beyond it requests are refused
RECORD_OVERHEAD_BYTES: Final = 70
LANES_MAX: Final = 10_000  # idle ones are dropped beyond it
_SEQUENCE_END: Final = 1 << 31


class Written(NamedTuple):
    """Where a record was written; offset -1: with acks=0, or a batch that was sent twice."""

    partition: int
    offset: int
    timestamp: int


class _Identity(TypedDict):
    """The producer of a batch."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: SequenceNumber


class _Call:
    """The records of one call, and their results as they come."""

    def __init__(self, records: int) -> None:
        self.results: list[Written | GatewayError] = [_LOST] * records
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = records

    def resolve(self, number: int, result: Written | GatewayError) -> None:
        """Note the result of one record; each is noted once."""
        self.results[number] = result
        self._left -= 1
        if not self._left and not self.done.done():  # the request may be cancelled
            self.done.set_result(None)


_LOST: Final = GatewayError(500, "internal", "the record was not written")


class _Waiting(NamedTuple):
    """A record with the place of its result."""

    record: Record
    size_bytes: int
    call: _Call
    number: int  # among the records of the call


class Lanes:
    """The lanes of all partitions. Bounded by the bytes that wait in them."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self.cluster: Final = cluster
        self.waiting_bytes: int = 0
        self._lanes: dict[tuple[TopicPartition, int], _Lane] = {}

    async def write(
        self, partition: TopicPartition, records: Sequence[EncodedRecord], acks: int, now: Millis
    ) -> list[Written | GatewayError]:
        """Where each record was written, or why it was not."""
        if self.waiting_bytes > QUEUE_BYTES_MAX:
            raise too_many("produce_queue_full", "too many records wait to be written; try again")
        lane = self._lane(partition, acks)
        call = _Call(len(records))
        for index, record in enumerate(records):
            lane.add(_waiting(record, now, call, index))
        await call.done
        return call.results

    def _lane(self, partition: TopicPartition, acks: int) -> "_Lane":
        lane = self._lanes.get((partition, acks))
        if lane is None:
            if len(self._lanes) >= LANES_MAX:
                self._lanes = {key: each for key, each in self._lanes.items() if each.is_busy}
            lane = self._lanes[partition, acks] = _Lane(self, partition, acks)
        return lane

    async def close(self) -> None:
        """Finish what waits, then close the connections."""
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=5)
        await self.cluster.close()


class _Lane:
    """One partition with one setting of acks."""

    def __init__(self, lanes: Lanes, partition: TopicPartition, acks: int) -> None:
        self._lanes = lanes
        self._partition = partition
        self._acks = acks
        self._queue: deque[_Waiting] = deque()
        self._producer: TransactionHandle | None = None
        self._sequence = 0
        self.task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self.task is not None

    def add(self, waiting: _Waiting) -> None:
        """Queue a record; the lane starts to send if it is idle."""
        self._queue.append(waiting)
        self._lanes.waiting_bytes += waiting.size_bytes
        if self.task is None:
            self.task = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._queue:
                batch = self._take()
                results: Sequence[Written | GatewayError] = [_LOST] * len(batch)
                try:
                    results = await self._send(batch)
                finally:
                    self._lanes.waiting_bytes -= sum(each.size_bytes for each in batch)
                    for each, result in zip(batch, results, strict=True):
                        each.call.resolve(each.number, result)
        finally:
            self.task = None

    def _take(self) -> list[_Waiting]:
        """The next records that fit one batch: one at least."""
        taken = [self._queue.popleft()]
        size_bytes = taken[0].size_bytes
        while self._queue and size_bytes + self._queue[0].size_bytes <= BATCH_BYTES_MAX:
            taken.append(self._queue.popleft())
            size_bytes += taken[-1].size_bytes
        return taken

    async def _send(self, batch: list[_Waiting]) -> Sequence[Written | GatewayError]:
        try:
            built = build_batch([each.record for each in batch], **(await self._identity()))
            operation = send_batches({self._partition: [built]}, acks=self._acks)
            (base,) = (await self._lanes.cluster.run(operation))[self._partition]
        except (Refused, OSError, Malformed) as failure:
            self._producer = None
            return [as_gateway_error(failure)] * len(batch)
        self._sequence = (self._sequence + len(batch)) % _SEQUENCE_END
        return [
            Written(
                self._partition.partition,
                Offset(base + index) if base >= 0 else base,
                each.record.timestamp,
            )
            for index, each in enumerate(batch)
        ]

    async def _identity(self) -> _Identity:
        if self._acks != ALL_IN_SYNC:
            return _Identity(
                producer_id=NO_PRODUCER,
                producer_epoch=NO_PRODUCER_EPOCH,
                base_sequence=NO_SEQUENCE,
            )
        if self._producer is None:
            self._producer = await self._lanes.cluster.run(init_producer_id())
            self._sequence = 0
        return _Identity(
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.producer_epoch,
            base_sequence=SequenceNumber(self._sequence),
        )


def _waiting(record: EncodedRecord, now: Millis, call: _Call, number: int) -> _Waiting:
    row = as_record(record, now)
    return _Waiting(row, record_bytes(row), call, number)


def as_record(record: EncodedRecord, now: Millis) -> Record:
    """The record of a batch."""
    timestamp = now if record.timestamp is None else record.timestamp
    return Record(-1, timestamp, record.key, record.value, record.headers)


def record_bytes(record: Record) -> int:
    """About how many bytes it has in a batch."""
    headers = sum(len(name) + len(value or b"") + 8 for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + RECORD_OVERHEAD_BYTES
