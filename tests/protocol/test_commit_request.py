"""The reader of offset commits against kio's writer, on sound and on broken requests."""

import random
import uuid
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Malformed
from penstock.protocol.commit_request import read_commit_request
from penstock.protocol.messages import encode, fill, request_reader, request_type

OFFSET_COMMIT = 8
FLEXIBLE = (8, 9, 10)
int32 = st.integers(-1, 2**31 - 1)
optional_texts = st.none() | st.text(max_size=10) | st.just("x" * 200)
partitions = st.lists(
    st.tuples(int32, st.integers(-1, 2**63 - 1), int32, optional_texts), max_size=3
)
topics = st.lists(st.tuples(st.text(max_size=10), st.integers(1, 2**64), partitions), max_size=3)


def written(version: int, group: str, instance_id: str | None, asked: list[Any]) -> bytes:
    return encode(
        fill(
            request_type(OFFSET_COMMIT, version),
            group_id=group,
            generation_id_or_member_epoch=7,
            member_id="member",
            group_instance_id=instance_id,
            topics=[
                {
                    "name": name,
                    "topic_id": uuid.UUID(int=number),
                    "partitions": [
                        {
                            "partition_index": index,
                            "committed_offset": offset,
                            "committed_leader_epoch": epoch,
                            "committed_metadata": metadata,
                        }
                        for index, offset, epoch, metadata in rows
                    ],
                }
                for name, number, rows in asked
            ],
        )
    )


def as_told(request: Any) -> tuple[Any, ...]:
    """What both readers must say of a request."""
    return (
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        [
            (
                getattr(topic, "name", ""),
                getattr(topic, "topic_id", None),
                [
                    (
                        row.partition_index,
                        row.committed_offset,
                        row.committed_leader_epoch,
                        row.committed_metadata,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


@settings(deadline=None, max_examples=60)
@given(
    version=st.sampled_from(FLEXIBLE),
    group=st.text(max_size=20),
    instance_id=optional_texts,
    asked=topics,
)
def test_a_commit_is_read_as_kio_reads_it(
    version: int, group: str, instance_id: str | None, asked: list[Any]
) -> None:
    body = written(version, group, instance_id, asked)
    request, reached = read_commit_request(memoryview(b"head" + body), 4, version)
    expected, _ = request_reader(OFFSET_COMMIT, version)(body, 0)
    assert reached == 4 + len(body)
    assert as_told(request) == as_told(expected)


@pytest.mark.parametrize("version", FLEXIBLE)
def test_a_commit_that_is_cut_short_is_malformed(version: int) -> None:
    body = written(version, "group", None, [("topic", 5, [(0, 42, 1, "said"), (1, 43, 1, None)])])
    for end in range(len(body)):
        with pytest.raises(Malformed):
            read_commit_request(memoryview(body[:end]), 0, version)


@pytest.mark.parametrize("version", FLEXIBLE)
def test_a_commit_of_any_bytes_is_read_or_malformed(version: int) -> None:
    chance = random.Random(version)
    sound = written(version, "group", "me", [("topic", 5, [(0, 42, 1, "said")])])
    for _ in range(2000):
        body = bytearray(sound)
        for _ in range(chance.randint(1, 4)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        with suppress(Malformed):
            read_commit_request(memoryview(body), 0, version)


def test_a_count_beyond_the_frame_is_malformed() -> None:
    start = b"\x02g" + bytes(4) + b"\x01" + b"\x00"
    with pytest.raises(Malformed, match="entries"):
        read_commit_request(memoryview(start + b"\xff\xff\xff\xff\x0f"), 0, 9)
