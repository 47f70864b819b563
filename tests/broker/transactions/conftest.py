"""A transactional producer whose every request is made by the test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from penstock.errors import ErrorCode
from penstock.protocol.batch import iterate_headers
from penstock.protocol.control_records import read_marker
from penstock.protocol.records import read_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PRODUCE, FETCH, INIT, ADD, ADD_OFFSETS, END = 0, 1, 22, 24, 25, 26
DESCRIBE_PRODUCERS, DESCRIBE, LIST = 61, 65, 66
READ_COMMITTED = 1


class Wire(Protocol):
    def call(self, api_key: int, version: int, **fields: Any) -> Any: ...
    def close(self) -> None: ...


@dataclass
class Handle:
    """What a process needs to take part in a transaction: the id, the producer id, the epoch."""

    wire: Wire
    transactional_id: str
    producer_id: int = -1
    producer_epoch: int = -1
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)
    next_producer: tuple[int, int] = (
        -1,
        -1,
    )  # producer id and epoch of the response to the last end

    def init(self, timeout_ms: int = 60_000, *, version: int = 5) -> ErrorCode:
        response = self.wire.call(
            INIT,
            version,
            transactional_id=self.transactional_id,
            transaction_timeout=timeout_ms,
        )
        if response.error_code == ErrorCode.none:
            self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
            self.sequences = {}
        return ErrorCode(response.error_code)

    def init_with_retries(self, timeout_ms: int = 60_000) -> None:
        for _ in range(100):
            code = self.init(timeout_ms)
            if code == ErrorCode.none:
                return
            assert code == ErrorCode.concurrent_transactions
        raise AssertionError("the last transaction never ends")

    def copy(self) -> Handle:
        """The same identity in another process."""
        return Handle(
            self.wire,
            self.transactional_id,
            self.producer_id,
            self.producer_epoch,
            dict(self.sequences),
        )

    def add(self, *partitions: tuple[str, int], version: int = 3) -> list[ErrorCode]:
        response = self.wire.call(
            ADD,
            version,
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[
                {"name": topic, "partitions": [index]} for topic, index in partitions
            ],
        )
        return [
            ErrorCode(row.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        ]

    def end(self, *, commit: bool, version: int = 5) -> ErrorCode:
        """End with the current epoch; the new one is in `next_producer`."""
        response = self.wire.call(
            END,
            version,
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )
        self.next_producer = (
            (response.producer_id, response.producer_epoch) if version >= 5 else (-1, -1)
        )
        return ErrorCode(response.error_code)

    def produce(
        self,
        batch: Callable[..., bytearray],
        *values: str,
        topic: str = "a",
        partition: int = 0,
        version: int = 12,
        key: bytes | None = None,
    ) -> ErrorCode:
        place = (topic, partition)
        sequence = self.sequences.get(place, 0)
        records = batch(
            *[(key, value.encode()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        response = self.wire.call(
            PRODUCE,
            version,
            transactional_id=self.transactional_id,
            acks=-1,
            timeout=5000,
            topic_data=[
                {
                    "name": topic,
                    "partition_data": [{"index": partition, "records": bytes(records)}],
                }
            ],
        )
        code = ErrorCode(response.responses[0].partition_responses[0].error_code)
        if code == ErrorCode.none:
            self.sequences[place] = sequence + len(values)
        return code


class Reader:
    """Reads what is committed, as a consumer does: up to the last stable offset, less aborted."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def committed(self, topic: str = "a", partition: int = 0) -> list[str]:
        """All values that a read_committed consumer would get."""
        response = self.wire.call(
            FETCH,
            12,
            max_wait=0,
            min_bytes=0,
            max_bytes=1 << 24,
            isolation_level=READ_COMMITTED,
            session_epoch=-1,
            topics=[
                {
                    "topic": topic,
                    "partitions": [
                        {
                            "partition": partition,
                            "fetch_offset": 0,
                            "partition_max_bytes": 1 << 24,
                        }
                    ],
                }
            ],
        )
        result = response.responses[0].partitions[0]
        assert result.error_code == ErrorCode.none
        return read_committed(
            bytes(result.records or b""),
            [(row.producer_id, row.first_offset) for row in result.aborted_transactions or ()],
        )

    def stable_offset(self, topic: str = "a", partition: int = 0) -> int:
        response = self.wire.call(
            2,
            7,
            replica_id=-1,
            isolation_level=READ_COMMITTED,
            topics=[
                {
                    "name": topic,
                    "partitions": [{"partition_index": partition, "timestamp": -1}],
                }
            ],
        )
        return int(response.topics[0].partitions[0].offset)

    def state(self, transactional_id: str) -> tuple[ErrorCode, str, int, int]:
        """Code, state, producer id and epoch, as DescribeTransactions says."""
        response = self.wire.call(DESCRIBE, 0, transactional_ids=[transactional_id])
        row = response.transaction_states[0]
        return (
            ErrorCode(row.error_code),
            row.transaction_state,
            row.producer_id,
            row.producer_epoch,
        )


def read_committed(records: bytes, aborted: list[tuple[int, int]]) -> list[str]:
    """Filter a fetched run of batches as clients do."""
    pending = sorted(aborted, key=lambda row: row[1])
    skipping: set[int] = set()
    values: list[str] = []
    for position, header in iterate_headers(records):
        while pending and pending[0][1] <= header.base_offset:
            skipping.add(pending.pop(0)[0])
        if header.is_control:
            if not read_marker(records, position).commit:
                skipping.discard(header.producer_id)
        elif header.producer_id not in skipping or not header.is_transactional:
            values += [(record.value or b"").decode() for record in read_records(records, position)]
    return values


class Running(Protocol):
    def call(self, work: Callable[[], Any]) -> Any: ...
    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None: ...
    def create_internal_topic(self, name: str) -> None: ...
    def connect(self) -> Wire: ...

    cluster: Any


@pytest.fixture
def prepared(broker: Running) -> Running:
    """A broker that coordinates transactions, with the topic `a` of three partitions."""
    broker.create_internal_topic("__transaction_state")
    broker.create_topic("a", 3)
    return broker


@pytest.fixture
def connection(prepared: Running) -> Iterator[Wire]:
    """A raw connection to it."""
    wire = prepared.connect()
    yield wire
    wire.close()


@pytest.fixture
def handle(connection: Wire) -> Callable[[str], Handle]:
    """A producer."""
    return lambda transactional_id: Handle(connection, transactional_id)


@pytest.fixture
def make_handle() -> Callable[[Wire, str], Handle]:
    """A producer with its own connection."""
    return Handle


@pytest.fixture
def reader_of() -> Callable[[Wire], Reader]:
    """A reader with its own connection."""
    return Reader


@pytest.fixture
def reader(connection: Wire) -> Reader:
    """Read what is committed."""
    return Reader(connection)
