"""Send finished batches to their partitions, in order, as fast as the brokers accept them.

The batches already have their producer id, epoch and sequence, so that several processes can write
in one transaction. With a producer id up to five requests per partition are in flight, and the
broker recognises batches that are sent again: none is lost, duplicated or reordered. Without one,
one request is in flight at a time, and a lost response may duplicate a batch.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.link.operation import Receive, Request, Send, Steps, is_temporary, worse
from penstock.link.routing import Routes, operation
from penstock.link.settings import Address, UnreachableError
from penstock.model import NO_OFFSET, Offset, TopicId, TopicPartition
from penstock.protocol.batch import read_header
from penstock.protocol.fields import TopicKey
from penstock.protocol.messages.produce import (
    ALL_IN_SYNC,
    FLEXIBLE_FROM,
    PRODUCE,
    TOPIC_IDS_FROM,
    TRANSACTIONS_FROM,
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from penstock.protocol.varint import Buffer

_IN_FLIGHT_MAX: Final = 5  # batches of a producer that a partition remembers
_REQUEST_BYTES: Final = 16 << 20  # a request ends with the batch that exceeds this

_HINTS: Final = {
    ErrorCode.message_too_large: "the batch is larger than the topic's max.message.bytes",
    ErrorCode.invalid_producer_epoch: "another process took over the transactional id",
    ErrorCode.producer_fenced: "another process took over the transactional id",
    ErrorCode.invalid_txn_state: "the transaction is no longer open",
    ErrorCode.out_of_order_sequence_number: "another writer used this partition's sequence numbers",
}


@dataclass(slots=True)
class _Lane:
    """One partition's batches. `offsets` are those of the acknowledged ones, a prefix."""

    partition: TopicPartition
    batches: Sequence[Buffer]
    is_idempotent: bool
    offsets: list[Offset] = field(default_factory=list)
    sent: int = 0  # batches in flight or acknowledged
    failure: Refused | OSError | None = None  # of one in flight; those behind it do not count
    lost: int = 0  # before this one, a batch may be written although it is not acknowledged

    @property
    def has_more(self) -> bool:
        return self.sent < len(self.batches)

    @property
    def is_complete(self) -> bool:
        return len(self.offsets) == len(self.batches)


class SentBatches(NamedTuple):
    """What became of one partition's batches: `offsets` are those of the acknowledged ones.

    Without a failure, batches behind these are not written: another partition's was refused first.
    With one that is temporary, that is unknown. Any other failure is of the next batch alone.
    """

    offsets: list[Offset]
    failure: Refused | OSError | None


class _Flight(NamedTuple):
    """A request in flight, and the lanes that have a batch in it."""

    ticket: Any
    address: Address
    lanes: dict[TopicPartition, _Lane]
    topic_ids: dict[str, TopicId | None]


@operation
def send_batches(
    routes: Routes,
    batches: Mapping[TopicPartition, Sequence[Buffer]],
    *,
    acks: int = ALL_IN_SYNC,
    transactional_id: str | None = None,
) -> Steps[dict[TopicPartition, list[Offset]]]:
    """Every batch's base offset once all are acknowledged; -1 where the broker does not return it.

    In a transaction the batches add their partitions themselves (Produce 12 and later).
    """
    sender = _Sender(routes, batches, acks, transactional_id)
    yield from sender.send()
    return {lane.partition: lane.offsets for lane in sender.lanes}


@operation
def try_batches(
    routes: Routes, batches: Mapping[TopicPartition, Sequence[Buffer]], *, acks: int = ALL_IN_SYNC
) -> Steps[dict[TopicPartition, SentBatches]]:
    """The same, but a failure is part of the result: which batches are written, and why not all."""
    sender = _Sender(routes, batches, acks, None)
    failure: Refused | OSError | None = None
    try:
        yield from sender.send()
    except (Refused, OSError) as raised:
        failure = raised
    return {lane.partition: _sent(lane, failure, sender.lanes) for lane in sender.lanes}


def _sent(lane: _Lane, failure: Refused | OSError | None, lanes: Sequence[_Lane]) -> SentBatches:
    if lane.is_complete or failure is None:
        return SentBatches(lane.offsets, None)
    is_refused = any(lane.failure is not None and not is_temporary(lane.failure) for lane in lanes)
    if not is_refused:  # the cluster is the cause, not a batch
        return SentBatches(lane.offsets, failure)
    if lane.failure is None and len(lane.offsets) < lane.lost:
        lost = UnreachableError("the connection was lost before the response")
        return SentBatches(lane.offsets, lost)
    return SentBatches(lane.offsets, lane.failure)


class _Sender:
    """One call: its lanes, sent again from the first batch that is not acknowledged."""

    def __init__(
        self,
        routes: Routes,
        batches: Mapping[TopicPartition, Sequence[Buffer]],
        acks: int,
        transactional_id: str | None,
    ) -> None:
        self._routes = routes
        self._acks = acks
        self._transactional_id = transactional_id
        self.lanes = [
            _Lane(partition, queue, all(read_header(batch).producer_id >= 0 for batch in queue))
            for partition, queue in batches.items()
        ]

    def send(self) -> Steps[None]:
        """Send until all is acknowledged, or raise why it cannot be."""
        yield from self._routes.with_retries(
            "produce", self.attempt, self.invalidate, progress=self.acknowledged
        )

    def acknowledged(self) -> int:
        return sum(len(lane.offsets) for lane in self.lanes)

    def invalidate(self) -> None:
        self._routes.invalidate_topics(
            {lane.partition.topic for lane in self.lanes if not lane.is_complete}
        )

    def attempt(self) -> Steps[None]:
        """Send until all is acknowledged, or something failed and nothing is in flight."""
        for lane in self.lanes:
            lane.sent, lane.failure = len(lane.offsets), None
        flights: deque[_Flight] = deque()
        failure: Exception | None = None
        while True:
            if failure is None:
                yield from self._launch(flights)
            if not flights:
                break
            flight = flights.popleft()
            try:
                response = yield Receive(flight.ticket)
            except OSError as lost:
                for lane in flight.lanes.values():
                    lane.failure = lane.failure or lost
                    lane.lost = max(lane.lost, lane.sent)
                failure = worse(failure, lost)
            else:
                failure = worse(failure, self._land(flight, response))
        if failure is not None:
            raise failure

    def _launch(self, flights: deque[_Flight]) -> Steps[None]:
        """Send one more batch of each lane that may have more in flight, until none may."""
        while ready := self._ready(flights):
            by_leader = yield from self._routes.by_leader(ready)
            for address, routes in by_leader.items():
                topic_ids = {name: route.topic_id for (name, _), route in routes.items()}
                lanes = _within_limit([ready[partition] for partition in routes])
                ticket = yield Send(address, self._request(lanes, topic_ids))
                for lane in lanes:
                    lane.sent += 1
                carried = {lane.partition: lane for lane in lanes}
                flights.append(_Flight(ticket, address, carried, topic_ids))

    def _ready(self, flights: deque[_Flight]) -> dict[TopicPartition, _Lane]:
        in_flight = Counter(partition for flight in flights for partition in flight.lanes)
        return {
            lane.partition: lane
            for lane in self.lanes
            if lane.has_more
            and in_flight[lane.partition] < (_IN_FLIGHT_MAX if lane.is_idempotent else 1)
        }

    def _request(
        self, lanes: Sequence[_Lane], topic_ids: Mapping[str, TopicId | None]
    ) -> Request[ProduceResponse]:
        topics: dict[str, list[ProducePartition]] = {}
        for lane in lanes:
            name, index = lane.partition
            batch = memoryview(lane.batches[lane.sent])
            topics.setdefault(name, []).append(ProducePartition(index, batch))

        def body(version: int) -> ProduceRequest:
            named = [
                ProduceTopic(_topic_key(name, topic_ids[name], version), partitions)
                for name, partitions in topics.items()
            ]
            timeout_ms = self._routes.settings.request_timeout_ms
            return ProduceRequest(self._transactional_id, self._acks, timeout_ms, named)

        has_ids = all(topic_ids[name] is not None for name in topics)
        return Request(
            PRODUCE,
            body,
            version_min=FLEXIBLE_FROM if self._transactional_id is None else TRANSACTIONS_FROM,
            version_max=TOPIC_IDS_FROM if has_ids else TOPIC_IDS_FROM - 1,
            has_response=self._acks != 0,
        )

    def _land(self, flight: _Flight, response: ProduceResponse | None) -> Refused | None:
        if response is None:  # acks=0: sent is all that can be known
            for lane in flight.lanes.values():
                lane.offsets.append(NO_OFFSET)
            return None
        names = {key.bytes: name for name, key in flight.topic_ids.items() if key is not None}
        failure: Refused | None = None
        missing = set(flight.lanes)
        for topic, rows in response.topics:
            name = topic if isinstance(topic, str) else names.get(topic)
            for row in rows:
                partition = TopicPartition(name or "", row.partition)
                if partition in flight.lanes:
                    missing.discard(partition)
                    refusal = _take_result(flight.lanes[partition], row, flight.address)
                    failure = worse(failure, refusal)
        for partition in missing:
            message = f"the response of broker {flight.address} lacks {partition}"
            lacking = Refused(ErrorCode.network_exception, message)
            lane = flight.lanes[partition]
            lane.failure, lane.lost = lane.failure or lacking, max(lane.lost, lane.sent)
            failure = worse(failure, lacking)
        return failure


def _topic_key(name: str, topic_id: TopicId | None, version: int) -> TopicKey:
    if version < TOPIC_IDS_FROM:
        return name
    assert topic_id is not None, "this version is used only if all ids are known"
    return topic_id.bytes


def _take_result(lane: _Lane, row: ProducedPartition, address: Address) -> Refused | None:
    """Behind a failed batch nothing counts: it is sent again."""
    if lane.failure is not None:
        return None
    code = ErrorCode(row.error_code)
    if code is ErrorCode.none:
        lane.offsets.append(Offset(row.base_offset))
        return None
    if code is ErrorCode.duplicate_sequence_number:  # written before, at an unknown offset
        lane.offsets.append(NO_OFFSET)
        return None
    reason = row.error_message or _HINTS.get(code, code.name)
    lane.failure = Refused(code, f"produce to {lane.partition} at broker {address}: {reason}")
    return lane.failure


def _within_limit(lanes: list[_Lane]) -> list[_Lane]:
    taken, size = [], 0
    for lane in lanes:
        taken.append(lane)
        size += len(lane.batches[lane.sent])
        if size >= _REQUEST_BYTES:
            break
    return taken
