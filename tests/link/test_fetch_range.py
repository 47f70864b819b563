"""Ranges fetched as raw batches equal what clients wrote and what clients would read."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from penstock.columns.arrow_records import bytes_to_arrow
from penstock.columns.open_batches import open_batches
from penstock.errors import Refused
from penstock.link import blocking
from penstock.link.fetch_range import (
    Chunk,
    FetchSettings,
    OffsetOutOfRange,
    TopicRecreated,
    fetch_range,
)
from penstock.link.offsets import Isolation, end_offsets, partitions_of
from penstock.link.operation import Request, request_of
from penstock.link.send_batches import send_batches
from penstock.link.settings import read_bootstrap
from penstock.link.transactions import end_transaction, init_producer_id
from penstock.model import Offset, TopicPartition
from penstock.protocol.batch import iterate_headers
from penstock.protocol.messages.topics import (
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    RecordsToDelete,
    TopicToDelete,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COMMITTED = Isolation.READ_COMMITTED


def written(
    bootstrap: str, topic: str, count: int, codec: str = "none", **settings: Any
) -> list[bytes]:
    """Values that confluent-kafka has written to partition 0, in order."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 2,
            "batch.num.messages": 50,
            **settings,
        }
    )
    rng = random.Random(codec)
    values = [b"%d:" % n + b"x" * rng.randrange(300) for n in range(count)]
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0
    return values


def opened(chunks: Iterator[Chunk], start: int, end: int) -> list[tuple[int, Any]]:
    """The records of a range, opened as a pipeline opens them."""
    rows: list[tuple[int, Any]] = []
    for chunk in chunks:
        columns = open_batches(
            chunk.records,
            start_offset=Offset(start),
            end_offset=Offset(end),
            aborted=chunk.aborted,
        )
        assert columns.values is not None
        values = bytes_to_arrow(columns.values).to_pylist()
        rows += zip(columns.offsets.tolist(), values, strict=True)
    return rows


@pytest.mark.parametrize("codec", CODECS)
def test_a_range_has_the_records_that_were_written(
    server: Any, shell: Any, make_topic: Callable[..., str], codec: str
) -> None:
    topic = make_topic()
    place = TopicPartition(topic, 0)
    values = written(server.bootstrap, topic, 2_000, codec)
    assert shell.run(end_offsets([place])) == {place: 2_000}
    settings = FetchSettings(chunk_bytes=20_000, checks_crc=True)
    for start, end in ((0, 2_000), (777, 1_234), (1_999, 2_000)):
        chunks = list(
            shell.stream(fetch_range(place, Offset(start), Offset(end), settings=settings))
        )
        assert opened(iter(chunks), start, end) == list(enumerate(values))[start:end]
        assert chunks[-1].end_offset == end
        assert chunks[0].high_watermark == 2_000
        assert chunks[0].log_start_offset == 0
    assert not list(shell.stream(fetch_range(place, Offset(5), Offset(5))))


def test_a_batch_larger_than_a_chunk_comes_whole(
    server: Any, shell: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    place = TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": server.bootstrap})
    producer.produce(topic, b"y" * 500_000, partition=0)
    assert producer.flush(30) == 0
    written(server.bootstrap, topic, 10)
    settings = FetchSettings(chunk_bytes=1_000)
    rows = opened(shell.stream(fetch_range(place, Offset(0), Offset(11), settings=settings)), 0, 11)
    assert len(rows[0][1]) == 500_000
    assert [offset for offset, _ in rows] == list(range(11))


def test_aborted_transactions_are_listed_and_the_range_ends_at_the_last_stable_offset(
    server: Any, shell: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    place = TopicPartition(topic, 0)
    producer = Producer(
        {"bootstrap.servers": server.bootstrap, "transactional.id": topic, "linger.ms": 0}
    )
    producer.init_transactions(30)
    expected = []
    for number in range(12):
        producer.begin_transaction()
        for row in range(30):
            value = b"%d/%d" % (number, row)
            producer.produce(topic, value, partition=0)
            if number % 3:
                expected.append(value)
        if number % 3:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)
    end = shell.run(end_offsets([place], isolation=COMMITTED))[place]
    assert end == 12 * 31
    for chunk_bytes in (300, 1 << 20):
        settings = FetchSettings(isolation=COMMITTED, chunk_bytes=chunk_bytes)
        chunks = shell.stream(fetch_range(place, Offset(0), end, settings=settings))
        assert [value for _, value in opened(chunks, 0, end)] == expected


def test_waiting_for_an_open_transaction_times_out_with_a_reason(
    shell: Any, make_topic: Callable[..., str], transactional_batch: Any
) -> None:
    topic = make_topic()
    place = TopicPartition(topic, 0)
    handle = shell.run(init_producer_id(topic))
    batch = transactional_batch(handle, 0, b"a", b"b")
    assert shell.run(send_batches({place: [batch]}, transactional_id=topic)) == {place: [0]}
    settings = FetchSettings(isolation=COMMITTED, stall_ms=200, wait_ms=50)
    operation = fetch_range(place, Offset(0), Offset(2), settings=settings)
    with pytest.raises(TimeoutError, match="committed offsets only up to 0, and 2 did not arrive"):
        list(shell.stream(operation))
    shell.run(end_transaction(handle, commit=True))
    assert opened(shell.stream(operation), 0, 2) == [(0, b"a"), (1, b"b")]


def test_offsets_outside_the_log_are_refused_with_the_range_of_the_log(
    server: Any, shell: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    place = TopicPartition(topic, 0)
    written(server.bootstrap, topic, 100)
    shell.run(lambda routes: routes.send_to_any(delete_records(topic, 60)))
    with pytest.raises(OffsetOutOfRange, match="it starts at 60: retention") as refused:
        list(shell.stream(fetch_range(place, Offset(10), Offset(100))))
    assert (refused.value.start_offset, refused.value.end_offset) == (60, 100)
    with pytest.raises(OffsetOutOfRange, match="it ends at 100"):
        list(shell.stream(fetch_range(place, Offset(150), Offset(200))))


def delete_records(topic: str, offset: int) -> Request[DeleteRecordsResponse]:
    rows = DeleteRecordsTopic(topic, [RecordsToDelete(0, offset)])
    return request_of(DELETE_RECORDS, DeleteRecordsRequest([rows], 10_000))


def test_a_topic_created_again_under_its_name_is_refused(
    server: Any, shell: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    place = TopicPartition(topic, 0)
    settings = FetchSettings(chunk_bytes=5_000)
    written(server.bootstrap, topic, 1_000)
    chunks = shell.stream(fetch_range(place, Offset(0), Offset(1_000), settings=settings))
    next(chunks)
    recreate_topic(server.bootstrap, topic)
    written(server.bootstrap, topic, 1_000)
    with pytest.raises(TopicRecreated, match="deleted and created again"):
        list(chunks)


def test_cached_metadata_of_a_deleted_topic_does_not_prevent_reading_its_successor(
    server: Any, shell: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    place = TopicPartition(topic, 0)
    written(server.bootstrap, topic, 10)
    list(shell.stream(fetch_range(place, Offset(0), Offset(10))))  # the topic's id is cached now
    recreate_topic(server.bootstrap, topic)
    written(server.bootstrap, topic, 10)
    with blocking.BlockingCluster(server.bootstrap) as other:
        other.run(partitions_of([topic]))
        topic_id = other.routes.topics[topic].topic_id
    again = fetch_range(place, Offset(0), Offset(10), topic_id=topic_id)
    assert sum(chunk.end_offset - chunk.start_offset for chunk in shell.stream(again)) == 10


def recreate_topic(bootstrap: str, topic: str) -> None:
    link = blocking.BlockingLink.connect(read_bootstrap(bootstrap)[0])
    deleted = link.call(DELETE_TOPICS, DeleteTopicsRequest([TopicToDelete(topic)], 10_000))
    assert deleted.responses[0].error_code == 0
    for _ in range(100):
        body = CreateTopicsRequest([CreatableTopic(topic, 1, 1)], 9_000)
        made = link.call(CREATE_TOPICS, body)
        if made.topics[0].error_code == 0:
            break
        time.sleep(0.05)
    link.close()


def test_the_error_for_an_unknown_topic_names_it(shell: Any) -> None:
    with pytest.raises(Refused, match=r"topic 'nowhere' at broker .* does not exist"):
        list(shell.stream(fetch_range(TopicPartition("nowhere", 0), Offset(0), Offset(1))))


def test_the_connection_is_usable_after_a_reader_stops_early(
    server: Any, shell: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    place = TopicPartition(topic, 0)
    values = written(server.bootstrap, topic, 1_000)
    settings = FetchSettings(chunk_bytes=5_000)
    for _ in range(3):
        chunks = shell.stream(fetch_range(place, Offset(0), Offset(1_000), settings=settings))
        first = next(chunks)
        assert next(iterate_headers(first.records))[1].base_offset == 0
        chunks.close()
        assert shell.run(end_offsets([place])) == {place: 1_000}
    chunks = shell.stream(fetch_range(place, Offset(0), Offset(1_000), settings=settings))
    assert [value for _, value in opened(chunks, 0, 1_000)] == values


def test_a_range_continues_after_the_broker_is_killed_and_restarted(
    server: Any, shell: Any, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    place = TopicPartition(topic, 0)
    values = written(server.bootstrap, topic, 3_000)
    settings = FetchSettings(chunk_bytes=5_000)
    chunks = shell.stream(fetch_range(place, Offset(0), Offset(3_000), settings=settings))
    read = [next(chunks), next(chunks)]
    server.kill()
    server.start()
    read += chunks
    assert [value for _, value in opened(iter(read), 0, 3_000)] == values
