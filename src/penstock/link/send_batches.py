"""Prepared batches to their partitions, in order, as fast as the brokers take them.

The batches carry producer id, epoch and sequence already, so that several processes can write in
one transaction. With a producer id up to five requests are under way to a broker, and what must
be sent again is recognised there: no batch is lost, doubled or reordered. Without one, a request
at a time, and a lost answer may double a batch.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.link.operation import Begin, Finish, Parts, Request, Steps
from penstock.link.routing import Routes, operation
from penstock.link.settings import Address
from penstock.model import NO_OFFSET, Offset, TopicId, TopicPartition
from penstock.protocol.api import Api
from penstock.protocol.batch import read_header
from penstock.protocol.fields import TopicKey
from penstock.protocol.kio_codec import BodyReader
from penstock.protocol.messages.produce import (
    ALL_IN_SYNC,
    FLEXIBLE_FROM,
    TOPIC_IDS_FROM,
    TRANSACTIONS_FROM,
    PartitionData,
    PartitionResult,
    ProduceRequest,
    ProduceResponse,
    TopicData,
    read_response,
    write_request,
)
from penstock.protocol.varint import Buffer

_UNDER_WAY_MAX: Final = 5  # per broker: as many batches of a producer as a partition remembers
_REQUEST_BYTES: Final = 16 << 20  # a request ends with the batch that passes this

_HINTS: Final = {
    ErrorCode.message_too_large: "the batch is larger than the topic's max.message.bytes",
    ErrorCode.invalid_producer_epoch: "another process has taken over the transactional id",
    ErrorCode.producer_fenced: "another process has taken over the transactional id",
    ErrorCode.invalid_txn_state: "the transaction is not open any longer",
    ErrorCode.out_of_order_sequence_number: "another writer has used this partition's sequences",
}


@dataclass(slots=True)
class _Lane:
    """One partition's batches. `offsets` are of those acknowledged, a prefix of the batches."""

    partition: TopicPartition
    batches: Sequence[Buffer]
    is_idempotent: bool
    offsets: list[Offset] = field(default_factory=list)
    sent: int = 0  # batches under way or acknowledged
    is_troubled: bool = False  # one under way has failed; those behind it do not count

    @property
    def has_more(self) -> bool:
        return self.sent < len(self.batches)


class _Flight(NamedTuple):
    """A request under way, and the lanes that have a batch in it."""

    ticket: Any
    where: Address
    lanes: dict[TopicPartition, _Lane]
    topic_ids: dict[str, TopicId | None]


@operation
def produce(
    routes: Routes,
    batches: Mapping[TopicPartition, Sequence[Buffer]],
    *,
    acks: int = ALL_IN_SYNC,
    transactional_id: str | None = None,
) -> Steps[dict[TopicPartition, list[Offset]]]:
    """Every batch's base offset once all are acknowledged; -1 where the broker does not say.

    In a transaction the batches add their partitions to it themselves (Produce 12 and later).
    """
    sending = _Sending(routes, batches, acks, transactional_id)
    yield from routes.patiently(
        "produce", sending.attempt, sending.doubt, progress=sending.acknowledged
    )
    return {lane.partition: lane.offsets for lane in sending.lanes}


class _Sending:
    """One call to produce: its lanes, sent again from the first that is not acknowledged."""

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
            _Lane(partition, some, all(read_header(batch).producer_id >= 0 for batch in some))
            for partition, some in batches.items()
        ]

    def acknowledged(self) -> int:
        return sum(len(lane.offsets) for lane in self.lanes)

    def doubt(self) -> None:
        self._routes.doubt_topics(
            {lane.partition.topic for lane in self.lanes if len(lane.offsets) < len(lane.batches)}
        )

    def attempt(self) -> Steps[None]:
        """Send until all is acknowledged or something failed and nothing is under way."""
        for lane in self.lanes:
            lane.sent, lane.is_troubled = len(lane.offsets), False
        flights: deque[_Flight] = deque()
        trouble: OSError | Refused | None = None
        while True:
            if trouble is None:
                yield from self._launch(flights)
            if not flights:
                break
            flight = flights.popleft()
            try:
                answer = yield Finish(flight.ticket)
            except OSError as lost:
                for lane in flight.lanes.values():
                    lane.is_troubled = True
                trouble = _worse(trouble, lost)
            else:
                trouble = _worse(trouble, self._land(flight, answer))
        if trouble is not None:
            raise trouble

    def _launch(self, flights: deque[_Flight]) -> Steps[None]:
        """One more batch of every lane that may have one more under way, while there are such."""
        while ready := self._ready(flights):
            located = yield from self._routes.located(ready)
            topic_ids = {name: place.topic_id for (name, _), place in located.items()}
            by_broker: dict[Address, list[_Lane]] = {}
            for partition, place in located.items():
                by_broker.setdefault(place.address, []).append(ready[partition])
            for address, waiting in by_broker.items():
                lanes = _within_limit(waiting)
                ticket = yield Begin(address, self._request(lanes, topic_ids))
                for lane in lanes:
                    lane.sent += 1
                carried = {lane.partition: lane for lane in lanes}
                flights.append(_Flight(ticket, address, carried, topic_ids))

    def _ready(self, flights: deque[_Flight]) -> dict[TopicPartition, _Lane]:
        under_way = Counter(partition for flight in flights for partition in flight.lanes)
        return {
            lane.partition: lane
            for lane in self.lanes
            if lane.has_more
            and under_way[lane.partition] < (_UNDER_WAY_MAX if lane.is_idempotent else 1)
        }

    def _request(self, lanes: Sequence[_Lane], topic_ids: Mapping[str, TopicId | None]) -> Request:
        topics: dict[str, list[PartitionData]] = {}
        for lane in lanes:
            name, index = lane.partition
            batch = memoryview(lane.batches[lane.sent])
            topics.setdefault(name, []).append(PartitionData(index, batch))

        def write(version: int) -> Parts:
            named = [
                TopicData(_topic_key(name, topic_ids[name], version), partitions)
                for name, partitions in topics.items()
            ]
            timeout_ms = self._routes.settings.answer_ms
            request = ProduceRequest(self._transactional_id, self._acks, timeout_ms, named)
            return write_request(request, version)

        has_ids = all(topic_ids[name] is not None for name in topics)
        return Request(
            int(Api.PRODUCE),
            write,
            _reader,
            least=FLEXIBLE_FROM if self._transactional_id is None else TRANSACTIONS_FROM,
            last=TOPIC_IDS_FROM if has_ids else TOPIC_IDS_FROM - 1,
            is_answered=self._acks != 0,
        )

    def _land(self, flight: _Flight, answer: ProduceResponse | None) -> Refused | None:
        if answer is None:  # acks=0: sent is all that can be known
            for lane in flight.lanes.values():
                lane.offsets.append(NO_OFFSET)
            return None
        names = {key.bytes: name for name, key in flight.topic_ids.items() if key is not None}
        trouble: Refused | None = None
        told = set()
        for topic, rows in answer.topics:
            name = topic if isinstance(topic, str) else names.get(topic)
            for row in rows:
                partition = TopicPartition(name or "", row.partition)
                if partition in flight.lanes:
                    told.add(partition)
                    verdict = _settle(flight.lanes[partition], row, flight.where)
                    trouble = _worse_refusal(trouble, verdict)
        for partition in flight.lanes.keys() - told:
            flight.lanes[partition].is_troubled = True
            silent = f"broker {flight.where} said nothing of {partition}"
            trouble = _worse_refusal(trouble, Refused(ErrorCode.network_exception, silent))
        return trouble


def _topic_key(name: str, topic_id: TopicId | None, version: int) -> TopicKey:
    if version < TOPIC_IDS_FROM:
        return name
    assert topic_id is not None, "the version was chosen by whether all ids are known"
    return topic_id.bytes


def _reader(version: int) -> BodyReader:
    return lambda frame, position: (
        read_response(memoryview(frame), position, version),
        len(frame),
    )


def _settle(lane: _Lane, row: PartitionResult, where: Address) -> Refused | None:
    """Take one partition's verdict. Behind a failed batch nothing counts: it is sent again."""
    if lane.is_troubled:
        return None
    code = ErrorCode(row.error_code)
    if code is ErrorCode.none:
        lane.offsets.append(Offset(row.base_offset))
        return None
    if code is ErrorCode.duplicate_sequence_number:  # written before; where, nobody remembers
        lane.offsets.append(NO_OFFSET)
        return None
    lane.is_troubled = True
    said = row.error_message or _HINTS.get(code, code.name)
    return Refused(code, f"produce to {lane.partition} at broker {where}: {said}")


def _within_limit(lanes: list[_Lane]) -> list[_Lane]:
    taken, size = [], 0
    for lane in lanes:
        taken.append(lane)
        size += len(lane.batches[lane.sent])
        if size >= _REQUEST_BYTES:
            break
    return taken


def _worse_refusal(one: Refused | None, other: Refused | None) -> Refused | None:
    worse = _worse(one, other)
    assert worse is None or isinstance(worse, Refused)
    return worse


def _worse(
    one: OSError | Refused | None, other: OSError | Refused | None
) -> OSError | Refused | None:
    """What is refused for good outweighs what may work the next time."""
    if one is None:
        return other
    if isinstance(other, Refused) and not other.code.retriable:
        return other
    return one
