"""The fetch reader against kio's writer, on sound and on broken requests."""

import random
import uuid
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Malformed
from penstock.protocol.kio_codec import encode, fill, request_reader, request_type
from penstock.protocol.messages.fetch import WantedPartition, from_entity, read_fetch_request

FETCH = 1
int32 = st.integers(-1, 2**31 - 1)
partitions = st.lists(st.tuples(int32, int32, int32, int32), max_size=3)
topics = st.lists(st.tuples(st.text(max_size=10), st.integers(1, 2**64), partitions), max_size=3)
forgotten = st.lists(
    st.tuples(st.text(max_size=10), st.integers(1, 2**64), st.lists(int32, max_size=3)), max_size=2
)


def written(version: int, asked: list[Any], dropped: list[Any], rack_id: str) -> bytes:
    return encode(
        fill(
            request_type(FETCH, version),
            max_wait=500,
            min_bytes=1,
            max_bytes=1000,
            isolation_level=1,
            session_id=7,
            session_epoch=8,
            topics=[
                {
                    "topic": name,
                    "topic_id": uuid.UUID(int=number),
                    "partitions": [
                        {
                            "partition": index,
                            "current_leader_epoch": epoch,
                            "fetch_offset": offset,
                            "last_fetched_epoch": epoch,
                            "partition_max_bytes": size,
                        }
                        for index, epoch, offset, size in rows
                    ],
                }
                for name, number, rows in asked
            ],
            forgotten_topics_data=[
                {"topic": name, "topic_id": uuid.UUID(int=number), "partitions": rows}
                for name, number, rows in dropped
            ],
            rack_id=rack_id,
        )
    )


@settings(deadline=None, max_examples=100)
@given(version=st.integers(12, 18), asked=topics, dropped=forgotten, rack_id=st.text(max_size=5))
def test_what_kio_writes_is_read(
    version: int, asked: list[Any], dropped: list[Any], rack_id: str
) -> None:
    body = written(version, asked, dropped, rack_id)
    frame = memoryview(bytearray(b"head" + body))
    request, reached = read_fetch_request(frame, 4, version)
    assert reached == len(frame)

    def key(name: str, number: int) -> str | bytes:
        return uuid.UUID(int=number).bytes if version >= 13 else name

    assert request[:6] == (500, 1, 1000, 1, 7, 8)
    assert request.topics == [
        (
            key(name, number),
            [WantedPartition(i, epoch, offset, epoch, -1, size) for i, epoch, offset, size in rows],
        )
        for name, number, rows in asked
    ]
    assert request.forgotten == [(key(name, number), rows) for name, number, rows in dropped]


@pytest.mark.parametrize("version", [4, 7, 9, 11])
def test_older_versions_come_out_in_the_same_shape(version: int) -> None:
    body = written(version, [("t", 1, [(3, 2, 55, 99)])], [("u", 1, [1, 2])], "")
    entity, _ = request_reader(FETCH, version)(body, 0)
    request = from_entity(entity)
    assert (request.max_wait_ms, request.min_bytes, request.isolation_level) == (500, 1, 1)
    epoch = 2 if version >= 9 else -1
    assert request.topics == [("t", [(3, epoch, 55, -1, -1, 99)])]
    assert request.forgotten == ([("u", [1, 2])] if version >= 7 else [])


@pytest.mark.parametrize("version", [12, 13, 18])
def test_a_broken_request_is_malformed_or_another_request(version: int) -> None:
    chance = random.Random(version)
    body = written(version, [("topic", 5, [(0, 1, 2, 3)] * 2)], [("gone", 6, [1])], "rack")
    for _ in range(2000):
        broken = bytearray(body)
        for _ in range(chance.randint(1, 3)):
            broken[chance.randrange(len(broken))] = chance.choice((0, 1, 127, 128, 255))
        del broken[chance.randrange(len(broken) // 2, len(broken) + 1) :]
        with suppress(Malformed):
            read_fetch_request(memoryview(broken), 0, version)


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_request_that_is_cut_short_is_malformed(cut: int) -> None:
    body = written(16, [("topic", 5, [(0, 1, 2, 3)])], [], "rack")
    with pytest.raises(Malformed):
        read_fetch_request(memoryview(body[:-cut]), 0, 16)
