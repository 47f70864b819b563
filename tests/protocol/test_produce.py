"""Produce messages against kio's codecs, on valid and on broken requests."""

import random
import uuid
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Malformed
from penstock.protocol.kio_codec import encode, fill, known_versions, request_reader, request_type
from penstock.protocol.messages.produce import (
    PartitionData,
    PartitionResult,
    ProduceRequest,
    ProduceResponse,
    TopicData,
    TopicResult,
    read_request,
    read_response,
    write_request,
    write_response,
)

topics = st.lists(
    st.tuples(
        st.text(max_size=10),
        st.binary(min_size=16, max_size=16).filter(any),
        st.lists(
            st.tuples(st.integers(-1, 2**31 - 1), st.none() | st.binary(max_size=300)), max_size=3
        ),
    ),
    max_size=3,
)
Topics = list[tuple[str, bytes, list[tuple[int, bytes | None]]]]


def written(version: int, transactional_id: str | None, acks: int, given_topics: Topics) -> bytes:
    return encode(
        fill(
            request_type(0, version),
            transactional_id=transactional_id,
            acks=acks,
            timeout=1_234,
            topic_data=[
                {
                    "name": name,
                    "topic_id": uuid.UUID(bytes=topic_id),
                    "partition_data": [
                        {"index": index, "records": records} for index, records in partitions
                    ],
                }
                for name, topic_id, partitions in given_topics
            ],
        )
    )


@settings(deadline=None, max_examples=100)
@given(
    version=st.sampled_from(known_versions(0)),
    transactional_id=st.none() | st.text(max_size=10),
    acks=st.integers(-2, 2),
    given_topics=topics,
)
def test_what_kio_writes_is_read(
    version: int, transactional_id: str | None, acks: int, given_topics: Topics
) -> None:
    body = written(version, transactional_id, acks, given_topics)
    frame = memoryview(bytearray(b"head" + body))
    request = read_request(frame, 4, version)
    assert (request.transactional_id, request.acks, request.timeout_ms) == (
        transactional_id,
        acks,
        1_234,
    )
    for (name, topic_id, partitions), topic in zip(given_topics, request.topics, strict=True):
        assert topic.topic == (topic_id if version >= 13 else name)
        assert list(topic.partitions) == partitions


def test_records_are_views_of_the_frame_that_can_be_written_to() -> None:
    frame = bytearray(written(9, None, -1, [("t", bytes(15) + b"x", [(0, b"records")])]))
    request = read_request(memoryview(frame), 0, 9)
    records = request.topics[0].partitions[0].records
    assert records is not None
    records[:3] = b"REC"
    assert b"RECords" in frame


@pytest.mark.parametrize("version", list(known_versions(0)))
def test_every_truncation_and_trailing_byte_is_malformed(version: int) -> None:
    body = written(version, "tx", 1, [("t", bytes(15) + b"x", [(0, b"records"), (1, None)])] * 2)
    for broken in (*(body[:size] for size in range(len(body))), body + b"\0"):
        with pytest.raises(Malformed):
            read_request(memoryview(broken), 0, version)


@pytest.mark.parametrize("version", list(known_versions(0)))
def test_mutations_are_read_as_kio_reads_them_or_are_malformed(version: int) -> None:
    body = written(version, "tx", 1, [("t", bytes(15) + b"x", [(0, b"records"), (1, None)])] * 2)
    rng = random.Random(version)
    generated = request_reader(0, version)
    for _ in range(300):
        broken = bytearray(body)
        for _ in range(rng.randrange(1, 4)):
            broken[rng.randrange(len(broken))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        with suppress(Malformed):
            request = read_request(memoryview(broken), 0, version)
            theirs, _ = generated(broken, 0)
            assert (request.acks, len(request.topics)) == (theirs.acks, len(theirs.topic_data))


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (9, b"\x00\x00\x01\x00\x00\x00\x01\xff\xff\xff\xff\x0f"),
        (9, b"\x00\x00\x01\x00\x00\x00\x01\x00\x00"),
        (9, b"\x00\x00\x01\x00\x00\x00\x01\x02\x00\x01\x00\x00"),
        (7, b"\xff\xff\x00\x01\x00\x00\x00\x01\x7f\xff\xff\xff"),
        (7, b"\xff\xff\x00\x01\x00\x00\x00\x01\xff\xff\xff\xff"),
        (7, b"\xff\xff\x00\x01\x00\x00\x00\x01\x00\x00\x00\x01\xff\xff\x00\x00\x00\x00"),
        (7, b"\xff\xfe\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00"),
    ],
)
def test_absurd_counts_and_nulls_are_malformed(version: int, body: bytes) -> None:
    with pytest.raises(Malformed):
        read_request(memoryview(body), 0, version)


def test_a_name_that_is_not_utf8_is_malformed() -> None:
    body = written(9, None, 1, [("tttt", bytes(15) + b"x", [])]).replace(
        b"tttt", b"\xff\xff\xff\xff"
    )
    with pytest.raises(Malformed, match="UTF-8"):
        read_request(memoryview(body), 0, 9)


@settings(deadline=None, max_examples=200)
@given(
    version=st.sampled_from(known_versions(0)),
    name=st.text(min_size=0, max_size=200),
    records=st.none() | st.binary(max_size=300),
    acks=st.sampled_from([-1, 0, 1]),
    transactional_id=st.none() | st.just("x"),
)
def test_a_request_for_one_partition_is_read(
    version: int, name: str, records: bytes | None, acks: int, transactional_id: str | None
) -> None:
    topic_id = bytes(15) + b"x"
    body = b"head" + written(version, transactional_id, acks, [(name, topic_id, [(5, records)])])
    request = read_request(memoryview(body), 4, version)
    topic = topic_id if version >= 13 else name
    assert (request.transactional_id, request.acks) == (transactional_id, acks)
    assert [(key, list(rows)) for key, rows in request.topics] == [(topic, [(5, records)])]


@pytest.mark.parametrize("version", [9, 12, 13])
def test_a_mutated_request_for_one_partition_is_read_as_kio_reads_it_or_is_malformed(
    version: int,
) -> None:
    body = written(version, None, 1, [("t" * 9, bytes(15) + b"x", [(3, b"records" * 9)])])
    rng = random.Random(version)
    generated = request_reader(0, version)
    read = 0
    for _ in range(2000):
        broken = bytearray(body)
        for _ in range(rng.randrange(1, 3)):
            broken[rng.randrange(len(broken))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        with suppress(Malformed):
            request = read_request(memoryview(broken), 0, version)
            theirs, _ = generated(broken, 0)
            rows = [
                (data.index, data.records)
                for topic in theirs.topic_data
                for data in topic.partition_data
            ]
            assert request.acks == theirs.acks
            assert [tuple(data) for topic in request.topics for data in topic.partitions] == rows
            read += 1
    assert read > 100


@pytest.mark.parametrize("version", [9, 12, 13])
def test_a_request_for_one_partition_that_was_cut_short_is_malformed(version: int) -> None:
    body = written(version, None, 1, [("t" * 9, bytes(15) + b"x", [(3, b"records" * 9)])])
    for broken in (*(body[:size] for size in range(len(body))), body + b"\0"):
        with pytest.raises(Malformed):
            read_request(memoryview(broken), 0, version)


@settings(deadline=None, max_examples=100)
@given(
    version=st.integers(9, 13),
    transactional_id=st.none() | st.text(max_size=10),
    acks=st.sampled_from([-1, 0, 1]),
    given_topics=topics,
)
def test_a_written_request_reads_back(
    version: int, transactional_id: str | None, acks: int, given_topics: Topics
) -> None:
    request = ProduceRequest(
        transactional_id,
        acks,
        1_234,
        [
            TopicData(
                topic_id if version >= 13 else name,
                [PartitionData(index, memoryview(data or b"")) for index, data in partitions],
            )
            for name, topic_id, partitions in given_topics
        ],
    )
    body = memoryview(b"".join(write_request(request, version)))
    assert plain(read_request(body, 0, version)) == plain(request)


def plain(request: ProduceRequest) -> tuple[object, ...]:
    topics = [(topic, [tuple(data) for data in rows]) for topic, rows in request.topics]
    return (*request[:3], topics)


RESULTS = [
    PartitionResult(7, 0, base_offset=123, log_append_time=-1, log_start_offset=99),
    PartitionResult(8, 87, record_errors=[(3, "no key"), (4, None)], error_message="refused"),
    PartitionResult(9, 0, base_offset=1, log_append_time=1_700_000_000_123, log_start_offset=0),
]


@pytest.mark.parametrize("version", list(known_versions(0)))
@pytest.mark.parametrize("results", [RESULTS[:1], RESULTS[1:2], RESULTS], ids=len)
@pytest.mark.parametrize("name", ["t", "x" * 200])
def test_a_written_response_reads_back(
    version: int, results: list[PartitionResult], name: str
) -> None:
    topic = bytes(range(16)) if version >= 13 else name
    response = ProduceResponse([TopicResult(topic, results)])
    body = memoryview(bytes(write_response(response, version, throttle_ms=5)))
    ((read_topic, rows),) = read_response(body, 0, version).topics
    assert read_topic == topic
    for row, result in zip(rows, results, strict=True):
        expected = result
        if version < 8:  # neither messages nor record errors
            expected = expected._replace(record_errors=(), error_message=None)
        if version < 5:
            expected = expected._replace(log_start_offset=-1)
        assert row._replace(record_errors=tuple(row.record_errors)) == expected._replace(
            record_errors=tuple(expected.record_errors)
        )
