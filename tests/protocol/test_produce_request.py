"""The produce reader against kio's writer, on sound and on broken requests."""

import random
import uuid
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Malformed
from penstock.protocol.messages import encode, fill, known_versions, request_reader, request_type
from penstock.protocol.produce_request import read_one_batch, read_produce_request

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
    request, end = read_produce_request(frame, 4, version)
    assert end == len(frame)
    assert (request.transactional_id, request.acks, request.timeout_ms) == (
        transactional_id,
        acks,
        1_234,
    )
    for (name, topic_id, partitions), topic in zip(given_topics, request.topics, strict=True):
        assert topic.name == (None if version >= 13 else name)
        assert topic.topic_id == (topic_id if version >= 13 else None)
        assert topic.partitions == partitions


def test_records_are_views_of_the_frame_that_can_be_written_to() -> None:
    frame = bytearray(written(9, None, -1, [("t", bytes(15) + b"x", [(0, b"records")])]))
    request, _ = read_produce_request(memoryview(frame), 0, 9)
    records = request.topics[0].partitions[0].records
    assert records is not None
    records[:3] = b"REC"
    assert b"RECords" in frame


@pytest.mark.parametrize("version", list(known_versions(0)))
def test_every_truncation_and_trailing_byte_is_malformed(version: int) -> None:
    body = written(version, "tx", 1, [("t", bytes(15) + b"x", [(0, b"records"), (1, None)])] * 2)
    for broken in (*(body[:size] for size in range(len(body))), body + b"\0"):
        with pytest.raises(Malformed):
            read_produce_request(memoryview(broken), 0, version)


@pytest.mark.parametrize("version", list(known_versions(0)))
def test_mutations_are_read_as_kio_reads_them_or_are_malformed(version: int) -> None:
    body = written(version, "tx", 1, [("t", bytes(15) + b"x", [(0, b"records"), (1, None)])] * 2)
    chance = random.Random(version)
    generated = request_reader(0, version)
    for _ in range(300):
        broken = bytearray(body)
        for _ in range(chance.randrange(1, 4)):
            broken[chance.randrange(len(broken))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        with suppress(Malformed):
            request, _ = read_produce_request(memoryview(broken), 0, version)
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
        read_produce_request(memoryview(body), 0, version)


def test_a_name_that_is_not_utf8_is_malformed() -> None:
    body = written(9, None, 1, [("tttt", bytes(15) + b"x", [])]).replace(
        b"tttt", b"\xff\xff\xff\xff"
    )
    with pytest.raises(Malformed, match="UTF-8"):
        read_produce_request(memoryview(body), 0, 9)


@settings(deadline=None, max_examples=200)
@given(
    version=st.sampled_from(known_versions(0)),
    name=st.text(min_size=0, max_size=200),
    records=st.none() | st.binary(max_size=300),
    acks=st.sampled_from([-1, 0, 1]),
    transactional_id=st.none() | st.just("x"),
    partitions=st.integers(1, 2),
)
def test_one_batch_reads_as_any_other_request(
    version: int,
    name: str,
    records: bytes | None,
    acks: int,
    transactional_id: str | None,
    partitions: int,
) -> None:
    rows = [(5 + index, records) for index in range(partitions)]
    body = b"head" + written(version, transactional_id, acks, [(name, bytes(15) + b"x", rows)])
    one = read_one_batch(memoryview(body), 4, version)
    if one is not None:
        assert (one.as_any(), len(body)) == read_produce_request(memoryview(body), 4, version)
    is_short = 0 < len(name.encode()) < 127 or version >= 13
    is_usual = transactional_id is None and records is not None and partitions == 1
    assert one is not None or not (
        version >= 9 and is_short and is_usual and len(records or b"") > 60
    )


@pytest.mark.parametrize("version", [9, 12, 13])
def test_one_batch_that_was_mutated_reads_as_any_other_or_is_left_to_it(version: int) -> None:
    body = written(version, None, 1, [("t" * 9, bytes(15) + b"x", [(3, b"records" * 9)])])
    chance = random.Random(version)
    taken = 0
    for _ in range(2000):
        broken = bytearray(body)
        for _ in range(chance.randrange(1, 3)):
            broken[chance.randrange(len(broken))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        frame = memoryview(broken[: chance.randrange(len(broken) // 2, len(broken) + 40)])
        with suppress(Malformed):
            one = read_one_batch(frame, 0, version)
            if one is not None:
                taken += 1
                assert one.as_any() == read_produce_request(frame, 0, version)[0]
    assert taken > 100


@pytest.mark.parametrize("version", [9, 12, 13])
def test_one_batch_that_was_cut_short_is_never_taken(version: int) -> None:
    body = written(version, None, 1, [("t" * 9, bytes(15) + b"x", [(3, b"records" * 9)])])
    assert read_one_batch(memoryview(body), 0, version) is not None
    for broken in (*(body[:size] for size in range(len(body))), body + b"\0"):
        with suppress(Malformed):
            assert read_one_batch(memoryview(broken), 0, version) is None
