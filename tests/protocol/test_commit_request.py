"""The short reader and packer of offset commits against kio, on sound and on broken requests."""

import random
import uuid
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ErrorCode
from penstock.protocol.answers.offset_commit import pack_one_commit
from penstock.protocol.commit_request import CommitHead, OneCommit, read_one_commit
from penstock.protocol.messages import (
    encode,
    fill,
    request_reader,
    request_type,
    response_reader,
)

OFFSET_COMMIT = 8
FLEXIBLE = (8, 9, 10)
int32 = st.integers(-1, 2**31 - 1)
texts = st.text(max_size=20)
optional_texts = st.none() | texts
heads = st.builds(CommitHead, texts, int32, texts, optional_texts, texts, int32)
commits = st.builds(OneCommit, heads, st.integers(-1, 2**63 - 1), int32)


def written(
    version: int,
    commit: OneCommit,
    topic_id: int = 7,
    partitions: int = 1,
    metadata: str | None = "",
) -> bytes:
    head = commit.head
    return encode(
        fill(
            request_type(OFFSET_COMMIT, version),
            group_id=head.group_id,
            generation_id_or_member_epoch=head.generation,
            member_id=head.member_id,
            group_instance_id=head.instance_id,
            topics=[
                {
                    "name": head.topic,
                    "topic_id": uuid.UUID(int=topic_id),
                    "partitions": [
                        {
                            "partition_index": head.partition,
                            "committed_offset": commit.offset,
                            "committed_leader_epoch": commit.leader_epoch,
                            "committed_metadata": metadata,
                        }
                    ]
                    * partitions,
                }
            ],
        )
    )


def as_kio_reads(version: int, body: bytes) -> OneCommit:
    request, _ = request_reader(OFFSET_COMMIT, version)(body, 0)
    (topic,) = request.topics
    (row,) = topic.partitions
    assert not row.committed_metadata
    head = CommitHead(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        (topic.topic_id or uuid.UUID(int=0)).bytes if version >= 10 else topic.name,
        row.partition_index,
    )
    return OneCommit(head, row.committed_offset, row.committed_leader_epoch)


@settings(deadline=None, max_examples=100)
@given(
    version=st.sampled_from(FLEXIBLE),
    commit=commits,
    topic_id=st.integers(1, 2**128 - 1),
    metadata=st.sampled_from(["", None]),
)
def test_a_commit_of_one_partition_is_read_as_kio_reads_it(
    version: int, commit: OneCommit, topic_id: int, metadata: str | None
) -> None:
    body = written(version, commit, topic_id, metadata=metadata)
    assert read_one_commit(memoryview(b"head" + body), 4, version) == as_kio_reads(version, body)


COMMIT = OneCommit(CommitHead("group", 3, "member", None, "topic", 0), 42, 1)


@pytest.mark.parametrize("version", FLEXIBLE)
def test_long_names_are_read_too(version: int) -> None:
    head = COMMIT.head._replace(group_id="g" * 127, member_id="m" * 300)
    body = written(version, COMMIT._replace(head=head))
    assert read_one_commit(memoryview(body), 0, version) == as_kio_reads(version, body)


def test_a_head_that_is_too_large_to_keep_is_left_to_kio() -> None:
    head = COMMIT.head._replace(group_id="g" * 1024)
    assert read_one_commit(memoryview(written(9, COMMIT._replace(head=head))), 0, 9) is None


@pytest.mark.parametrize("metadata", ["x", "said", "x" * 200, "\0\0\0\0", "\x01\0\0\0"])
def test_a_commit_that_says_something_is_left_to_kio(metadata: str) -> None:
    assert read_one_commit(memoryview(written(9, COMMIT, metadata=metadata)), 0, 9) is None


def test_more_than_one_partition_and_old_versions_are_left_to_kio() -> None:
    assert read_one_commit(memoryview(written(9, COMMIT, partitions=2)), 0, 9) is None
    assert read_one_commit(memoryview(written(9, COMMIT, partitions=0)), 0, 9) is None
    assert read_one_commit(memoryview(written(7, COMMIT)), 0, 7) is None


@pytest.mark.parametrize("version", FLEXIBLE)
def test_what_is_cut_short_or_goes_on_is_left_to_kio(version: int) -> None:
    body = written(version, COMMIT)
    for end in range(len(body)):
        assert read_one_commit(memoryview(body[:end]), 0, version) is None
    assert read_one_commit(memoryview(body + b"\0"), 0, version) is None


@pytest.mark.parametrize("version", FLEXIBLE)
def test_changed_bytes_are_read_as_kio_reads_them_or_left_to_it(version: int) -> None:
    chance = random.Random(version)
    sound = written(version, COMMIT)
    read = 0
    for _ in range(3000):
        body = bytearray(sound)
        for _ in range(chance.randint(1, 3)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        commit = read_one_commit(memoryview(body), 0, version)
        if commit is not None:
            read += 1
            assert commit == as_kio_reads(version, bytes(body))
    assert read


@settings(deadline=None, max_examples=60)
@given(
    version=st.sampled_from(FLEXIBLE),
    name=texts | st.text(alphabet="x", min_size=120, max_size=249),
    topic_id=st.integers(1, 2**128 - 1),
    partition=int32,
    code=st.sampled_from(list(ErrorCode)),
    throttle_ms=st.integers(0, 2**31 - 1),
)
def test_the_answer_for_one_partition_reads_back(
    version: int, name: str, topic_id: int, partition: int, code: ErrorCode, throttle_ms: int
) -> None:
    topic = uuid.UUID(int=topic_id).bytes if version >= 10 else name
    body = pack_one_commit(topic, partition, code, throttle_ms)
    response, reached = response_reader(OFFSET_COMMIT, version)(body, 0)
    (told,) = response.topics
    (row,) = told.partitions
    assert (told.topic_id.bytes if version >= 10 else told.name) == topic
    assert (row.partition_index, row.error_code) == (partition, code)
    assert response.throttle_time == timedelta(milliseconds=throttle_ms)
    assert reached == len(body)
