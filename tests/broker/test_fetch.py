"""Fetch: slices and their limits, waiting and waking, sessions, isolation, epochs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from penstock.errors import ErrorCode
from penstock.model import LeaderEpoch, Millis
from penstock.protocol.batch import iterate_headers, read_header
from penstock.protocol.control_records import build_marker, read_marker
from penstock.protocol.records import read_records

if TYPE_CHECKING:
    from tests.broker.conftest import RunningBroker, StartBroker
    from tests.support.wire import Wire

MakeBatch = Callable[..., bytearray]
FETCH = 1


@pytest.fixture
def topic(broker: RunningBroker, wire: Wire, make_batch: MakeBatch) -> str:
    """A topic with five batches of one record each."""
    broker.create_topic("t", 2)
    for number in range(5):
        assert wire.produce("t", make_batch((b"k", b"%d" % number))).base_offset == number
    return "t"


def topic_rows(
    topic: str, *partitions: int, offset: int = 0, **fields: Any
) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic,
            "partitions": [
                {
                    "partition": index,
                    "fetch_offset": offset,
                    "partition_max_bytes": 1 << 20,
                    **fields,
                }
                for index in partitions
            ],
        }
    ]


def offsets(records: bytes) -> list[int]:
    return [header.base_offset for _, header in iterate_headers(records)]


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_reads_from_an_offset_to_the_end(
    wire: Wire, topic: str, version: int
) -> None:
    response = wire.fetch(topic, 2, version=version)
    assert response.error_code == ErrorCode.none
    assert response.high_watermark == 5
    assert offsets(response.records) == [2, 3, 4]


@pytest.mark.parametrize("version", range(13, 19))
def test_later_versions_speak_topic_ids_only(
    broker: RunningBroker, wire: Wire, topic: str, version: int
) -> None:
    def fetch(topic_id: UUID) -> Any:
        requested = {"partition": 0, "fetch_offset": 4, "partition_max_bytes": 1000}
        return wire.call(
            FETCH,
            version,
            max_wait=0,
            min_bytes=1,
            session_epoch=-1,
            topics=[{"topic_id": topic_id, "partitions": [requested]}],
        ).responses[0]

    known = UUID(bytes=broker.topic_id(topic))
    response = fetch(known)
    assert response.topic_id == known
    assert offsets(response.partitions[0].records) == [4]
    assert fetch(UUID(int=99)).partitions[0].error_code == ErrorCode.unknown_topic_id


@pytest.mark.parametrize("offset", [-1, 6, 1 << 40])
def test_an_offset_outside_the_log_is_out_of_range(wire: Wire, topic: str, offset: int) -> None:
    response = wire.fetch(topic, offset)
    assert response.error_code == ErrorCode.offset_out_of_range
    assert response.high_watermark == -1
    assert response.records == b""


def test_an_unknown_partition_is_refused_as_unknown(wire: Wire, topic: str) -> None:
    assert wire.fetch("nowhere", 0).error_code == ErrorCode.unknown_topic_or_partition


def test_the_first_batch_comes_whole_however_small_the_limits(wire: Wire, topic: str) -> None:
    response = wire.fetch(topic, 1, max_bytes=1, partition_max_bytes=1)
    assert offsets(response.records) == [1]


def test_max_bytes_bounds_all_partitions_together(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    broker.create_topic("many", 4)
    for index in range(4):
        wire.produce("many", make_batch((None, bytes(1000))), partition=index)
    response = wire.call(
        FETCH,
        11,
        max_wait=0,
        min_bytes=1,
        max_bytes=2500,
        session_epoch=-1,
        topics=topic_rows("many", 0, 1, 2, 3),
    )
    sizes = [len(part.records) for part in response.responses[0].partitions]
    assert [size > 0 for size in sizes] == [True, True, False, False]
    assert sum(sizes) <= 2500


def test_a_leader_epoch_is_fenced_when_old_and_unknown_when_new(wire: Wire, topic: str) -> None:
    def code(epoch: int) -> ErrorCode:
        result: ErrorCode = wire.fetch(topic, 0, current_leader_epoch=epoch).error_code
        return result

    current = 0
    while code(current) == ErrorCode.fenced_leader_epoch:
        current += 1
    assert code(current) == ErrorCode.none
    assert code(current + 1) == ErrorCode.unknown_leader_epoch


def test_a_reader_with_a_diverging_log_gets_the_diverging_epoch(
    broker: RunningBroker, wire: Wire, topic: str, make_batch: MakeBatch
) -> None:
    partition = broker.partitions.find(topic, 0)
    assert partition is not None
    led = partition.leadership
    raised = led._replace(leader_epoch=LeaderEpoch(led.leader_epoch + 5))
    broker.call(lambda: partition.lead(raised))
    wire.produce(topic, make_batch())
    response = wire.fetch(topic, 6, last_fetched_epoch=led.leader_epoch)
    assert response.error_code == ErrorCode.none
    assert response.diverging_epoch.epoch == led.leader_epoch
    assert response.diverging_epoch.end_offset == 5
    assert response.records == b""
    assert offsets(wire.fetch(topic, 5, last_fetched_epoch=led.leader_epoch).records) == [5]


# Waiting.


def test_a_fetch_at_the_end_waits_for_its_time(wire: Wire, topic: str) -> None:
    began = time.monotonic()
    response = wire.fetch(topic, 5, max_wait=300)
    assert time.monotonic() - began >= 0.29
    assert response.records == b""


def test_a_waiting_fetch_wakes_with_the_append(
    broker: RunningBroker, wire: Wire, topic: str, make_batch: MakeBatch
) -> None:
    wire.send(
        FETCH,
        11,
        max_wait=60_000,
        min_bytes=1,
        session_epoch=-1,
        topics=topic_rows(topic, 0, offset=5),
    )
    with broker.connect() as other:
        other.produce(topic, make_batch())
    assert offsets(wire.receive().responses[0].partitions[0].records) == [5]
    assert broker.call(lambda: broker.partitions.find(topic, 0).polls) == {}  # type: ignore[union-attr]  # it is there


def test_min_bytes_count_over_all_partitions(
    broker: RunningBroker, wire: Wire, topic: str, make_batch: MakeBatch
) -> None:
    wire.send(
        FETCH,
        11,
        max_wait=60_000,
        min_bytes=2500,
        session_epoch=-1,
        topics=[*topic_rows(topic, 0, offset=5), *topic_rows(topic, 1)],
    )
    with broker.connect() as other:
        for index in (0, 1):
            other.produce(topic, make_batch((None, bytes(1000))), partition=index)
            assert broker.call(lambda: len(broker.partitions.find(topic, 0).polls)) == 1  # type: ignore[union-attr]  # it is there
        other.produce(topic, make_batch((None, bytes(1000))), partition=0)
    response = wire.receive()
    assert sum(len(part.records) for row in response.responses for part in row.partitions) >= 2500


def test_a_waiting_fetch_ends_when_its_topic_is_deleted(
    broker: RunningBroker, wire: Wire, topic: str
) -> None:
    wire.send(
        FETCH,
        11,
        max_wait=60_000,
        min_bytes=1,
        session_epoch=-1,
        topics=topic_rows(topic, 0, offset=5),
    )
    with broker.connect() as other:
        while not broker.call(lambda: broker.partitions.find(topic, 0).polls):  # type: ignore[union-attr]  # it is there
            time.sleep(0.01)
        other.call(20, 4, topic_names=[topic], timeout=1000)
    code = wire.receive().responses[0].partitions[0].error_code
    assert code == ErrorCode.unknown_topic_or_partition


def test_a_client_that_goes_away_leaves_no_poll_behind(broker: RunningBroker, topic: str) -> None:
    with broker.connect() as deleted:
        deleted.send(
            FETCH,
            11,
            max_wait=60_000,
            min_bytes=1,
            session_epoch=-1,
            topics=topic_rows(topic, 0, offset=5),
        )
        while not broker.call(lambda: broker.partitions.find(topic, 0).polls):  # type: ignore[union-attr]  # it is there
            time.sleep(0.01)
    give_up_at = time.monotonic() + 10
    while broker.call(lambda: broker.partitions.find(topic, 0).polls):  # type: ignore[union-attr]  # it is there
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def test_many_readers_and_writers_lose_nothing(
    broker: RunningBroker, make_batch: MakeBatch
) -> None:
    broker.create_topic("busy")
    total = 300
    seen: dict[int, list[int]] = {}

    def read(number: int) -> None:
        with broker.connect() as reader:
            result: list[int] = []
            while len(result) < total:
                records = reader.fetch("busy", len(result), max_wait=1000).records
                result += [row.offset for row in read_all(records) if row.offset >= len(result)]
            seen[number] = result

    readers = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for reader in readers:
        reader.start()
    with broker.connect() as writer:
        for _ in range(total // 3):
            writer.produce("busy", make_batch((b"a", b""), (b"b", b""), (b"c", b"")))
    for reader in readers:
        reader.join(30)
    assert seen == {number: list(range(total)) for number in range(4)}


def read_all(records: bytes) -> list[Any]:
    return [
        record
        for position, _ in iterate_headers(records)
        for record in read_records(records, position)
    ]


# Transactions.


def end_transaction(broker: RunningBroker, topic: str, producer_id: int, *, commit: bool) -> None:
    partition = broker.partitions.find(topic, 0)
    assert partition is not None
    now = Millis(int(time.time() * 1000))
    marker = build_marker(
        commit=commit,
        producer_id=producer_id,  # type: ignore[arg-type]  # a plain number is one
        producer_epoch=0,  # type: ignore[arg-type]  # a plain number is one
        coordinator_epoch=0,
        timestamp=now,
    )
    broker.call(lambda: partition.append_marker(marker, read_marker(marker), now=now))


def write_in_transaction(broker: RunningBroker, topic: str, batch: bytearray) -> None:
    """As if the coordinator had verified it."""
    partition = broker.partitions.find(topic, 0)
    assert partition is not None
    now = Millis(int(time.time() * 1000))
    broker.call(lambda: partition.append(batch, read_header(batch), now=now))


def test_read_committed_stops_at_an_open_transaction_and_lists_aborted_ones(
    broker: RunningBroker, wire: Wire, topic: str, make_batch: MakeBatch
) -> None:
    def transactional(producer_id: int) -> bytearray:
        return make_batch(
            producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
        )

    write_in_transaction(broker, topic, transactional(7))  # at 5
    write_in_transaction(broker, topic, transactional(8))  # at 6
    wire.produce(topic, make_batch())  # at 7
    committed = wire.fetch(topic, 0, isolation_level=1)
    assert offsets(committed.records) == [0, 1, 2, 3, 4]
    assert committed.last_stable_offset == 5
    assert committed.aborted_transactions == ()
    assert len(offsets(wire.fetch(topic, 0).records)) == 8
    end_transaction(broker, topic, 7, commit=False)  # at 8
    still = wire.fetch(topic, 5, isolation_level=1)
    assert offsets(still.records) == [5]
    assert [(row.producer_id, row.first_offset) for row in still.aborted_transactions] == [(7, 5)]
    end_transaction(broker, topic, 8, commit=True)  # at 9
    settled = wire.fetch(topic, 5, isolation_level=1)
    assert offsets(settled.records) == [5, 6, 7, 8, 9]
    assert settled.last_stable_offset == 10


def test_a_committed_reader_sleeps_through_an_open_transaction_and_wakes_at_its_end(
    broker: RunningBroker, wire: Wire, topic: str, make_batch: MakeBatch
) -> None:
    wire.send(
        FETCH,
        11,
        max_wait=60_000,
        min_bytes=1,
        isolation_level=1,
        session_epoch=-1,
        topics=topic_rows(topic, 0, offset=5),
    )
    batch = make_batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    write_in_transaction(broker, topic, batch)
    wire.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        wire.receive_frame()
    wire.socket.settimeout(20)
    end_transaction(broker, topic, 7, commit=True)
    assert offsets(wire.receive().responses[0].partitions[0].records) == [5, 6]


# Sessions.


def fetch_in_session(
    wire: Wire, session_id: int, epoch: int, topics: list[dict[str, Any]], **fields: Any
) -> Any:
    return wire.call(
        FETCH,
        12,
        max_wait=0,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=topics,
        **fields,
    )


def changed(response: Any) -> list[tuple[int, int]]:
    return [
        (part.partition_index, len(offsets(part.records)))
        for row in response.responses
        for part in row.partitions
    ]


def test_a_session_returns_only_what_changed(wire: Wire, topic: str, make_batch: MakeBatch) -> None:
    opened = fetch_in_session(wire, 0, 0, [*topic_rows(topic, 0, offset=5), *topic_rows(topic, 1)])
    assert opened.session_id > 0
    assert changed(opened) == [(0, 0), (1, 0)]
    session_id = opened.session_id
    assert changed(fetch_in_session(wire, session_id, 1, [])) == []
    wire.produce(topic, make_batch(), partition=1)
    assert changed(fetch_in_session(wire, session_id, 2, [])) == [(1, 1)]
    assert changed(fetch_in_session(wire, session_id, 3, topic_rows(topic, 1, offset=1))) == []
    removed = [{"topic": topic, "partitions": [1]}]
    wire.produce(topic, make_batch(), partition=1)
    assert changed(fetch_in_session(wire, session_id, 4, [], forgotten_topics_data=removed)) == []


def test_an_invalid_session_must_start_over(wire: Wire, topic: str) -> None:
    unknown = fetch_in_session(wire, 4711, 1, [])
    assert (unknown.error_code, unknown.session_id) == (ErrorCode.fetch_session_id_not_found, 0)
    session_id = fetch_in_session(wire, 0, 0, topic_rows(topic, 0)).session_id
    stale = fetch_in_session(wire, session_id, 5, [])
    assert stale.error_code == ErrorCode.invalid_fetch_session_epoch
    closed = fetch_in_session(wire, session_id, -1, topic_rows(topic, 0))
    assert (closed.session_id, changed(closed)) == (0, [(0, 5)])
    deleted = fetch_in_session(wire, session_id, 1, [])
    assert deleted.error_code == ErrorCode.fetch_session_id_not_found


def test_an_error_in_a_session_is_returned_every_time_and_its_end_too(
    broker: RunningBroker, wire: Wire
) -> None:
    session_id = fetch_in_session(wire, 0, 0, topic_rows("later", 0)).session_id
    assert changed(fetch_in_session(wire, session_id, 1, [])) == [(0, 0)]
    broker.create_topic("later")
    response = fetch_in_session(wire, session_id, 2, [])
    assert response.responses[0].partitions[0].error_code == ErrorCode.none


def test_a_client_is_served_without_a_session_when_there_are_too_many(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(max_incremental_fetch_session_cache_slots="1")
    broker.create_topic("t")
    with broker.connect() as wire:
        assert fetch_in_session(wire, 0, 0, topic_rows("t", 0)).session_id > 0
        refused = fetch_in_session(wire, 0, 0, topic_rows("t", 0))
        assert (refused.error_code, refused.session_id) == (ErrorCode.none, 0)
