"""OffsetCommit and OffsetFetch against kio's codecs, on valid and on broken requests."""

import random
import uuid
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ErrorCode, Malformed
from penstock.protocol.kio_codec import (
    encode,
    fill,
    known_versions,
    request_reader,
    request_type,
    response_reader,
)
from penstock.protocol.messages.offsets import (
    CommittedPartition,
    CommitTopic,
    CommitTopicResult,
    OffsetCommitRequest,
    OffsetCommitResponse,
    read_commit_request,
    write_commit_response,
)

OFFSET_COMMIT = 8
VERSIONS = [version for version in known_versions(OFFSET_COMMIT) if version >= 2]
FLEXIBLE = (8, 9, 10)
int32 = st.integers(-1, 2**31 - 1)
texts = st.text(max_size=20)
rows = st.builds(CommittedPartition, int32, st.integers(-1, 2**63 - 1), int32, texts)
requests = st.builds(
    OffsetCommitRequest,
    texts,
    int32,
    texts,
    st.none() | texts,
    st.lists(st.builds(CommitTopic, texts, st.lists(rows, max_size=3)), max_size=2),
)
ONE = OffsetCommitRequest(
    "group", 3, "member", None, [CommitTopic("topic", [CommittedPartition(0, 42, 1)])]
)


def topic_id_of(name: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_DNS, name)


def written(version: int, request: OffsetCommitRequest, metadata: str | None = None) -> bytes:
    return encode(
        fill(
            request_type(OFFSET_COMMIT, version),
            group_id=request.group_id,
            generation_id_or_member_epoch=request.generation,
            member_id=request.member_id,
            group_instance_id=request.instance_id,
            topics=[
                {
                    "name": topic,
                    "topic_id": topic_id_of(str(topic)),
                    "partitions": [
                        {
                            "partition_index": row.partition,
                            "committed_offset": row.offset,
                            "committed_leader_epoch": row.leader_epoch,
                            "committed_metadata": row.metadata or metadata,
                        }
                        for row in partitions
                    ],
                }
                for topic, partitions in request.topics
            ],
        )
    )


def as_version_has_it(request: OffsetCommitRequest, version: int) -> Any:
    """What is left of the request in this version."""
    topics = []
    for topic, partitions in request.topics:
        key = topic_id_of(str(topic)).bytes if version >= 10 else topic
        kept = [row if version >= 6 else row._replace(leader_epoch=-1) for row in partitions]
        topics.append((key, kept))
    instance_id = request.instance_id if version >= 7 else None
    return request.group_id, request.generation, request.member_id, instance_id, topics


def plain(request: OffsetCommitRequest) -> Any:
    topics = [(topic, list(partitions)) for topic, partitions in request.topics]
    return (*request[:4], topics)


@settings(deadline=None, max_examples=150)
@given(version=st.sampled_from(VERSIONS), request=requests)
def test_a_commit_is_read_as_it_was_written(version: int, request: OffsetCommitRequest) -> None:
    body = memoryview(b"head" + written(version, request))
    assert plain(read_commit_request(body, 4, version)) == as_version_has_it(request, version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("metadata", ["", None])
def test_a_commit_of_one_partition_is_read(version: int, metadata: str | None) -> None:
    body = memoryview(written(version, ONE, metadata))
    assert plain(read_commit_request(body, 0, version)) == as_version_has_it(ONE, version)


@pytest.mark.parametrize("version", FLEXIBLE)
@pytest.mark.parametrize("size", [127, 300, 1024, 5000])
def test_long_names_are_read(version: int, size: int) -> None:
    long = ONE._replace(group_id="g" * size, member_id="m" * size)
    body = memoryview(written(version, long))
    assert plain(read_commit_request(body, 0, version)) == as_version_has_it(long, version)


@pytest.mark.parametrize("metadata", ["x", "said", "x" * 200, "\0\0\0\0", "\x01\0\0\0"])
def test_metadata_is_read(metadata: str) -> None:
    ((topic, (row,)),) = ONE.topics
    request = ONE._replace(topics=[CommitTopic(topic, [row._replace(metadata=metadata)])])
    body = memoryview(written(9, request))
    assert plain(read_commit_request(body, 0, 9)) == as_version_has_it(request, 9)


@pytest.mark.parametrize("version", FLEXIBLE)
def test_a_commit_that_is_cut_short_is_malformed(version: int) -> None:
    body = written(version, ONE)
    for end in range(len(body)):
        with pytest.raises(Malformed):
            read_commit_request(memoryview(body[:end]), 0, version)


@pytest.mark.parametrize("version", FLEXIBLE)
def test_changed_bytes_are_read_as_kio_reads_them_or_are_malformed(version: int) -> None:
    rng = random.Random(version)
    valid = written(version, ONE)
    generated = request_reader(OFFSET_COMMIT, version)
    read = 0
    for _ in range(3000):
        body = bytearray(valid)
        for _ in range(rng.randint(1, 3)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        try:
            request = read_commit_request(memoryview(body), 0, version)
        except Malformed:
            continue
        theirs, _ = generated(bytes(body), 0)
        read += 1
        assert (request.group_id, request.member_id) == (theirs.group_id, theirs.member_id)
        assert [row[:2] for topic in request.topics for row in topic.partitions] == [
            (row.partition_index, row.committed_offset)
            for topic in theirs.topics
            for row in topic.partitions
        ]
    assert read > 100


@settings(deadline=None, max_examples=60)
@given(
    version=st.sampled_from(FLEXIBLE),
    name=texts | st.text(alphabet="x", min_size=120, max_size=249),
    topic_id=st.integers(1, 2**128 - 1),
    partition=int32,
    code=st.sampled_from(list(ErrorCode)),
    throttle_ms=st.integers(0, 2**31 - 1),
)
def test_the_response_for_one_partition_reads_back(
    version: int, name: str, topic_id: int, partition: int, code: ErrorCode, throttle_ms: int
) -> None:
    topic = uuid.UUID(int=topic_id).bytes if version >= 10 else name
    sent = OffsetCommitResponse([CommitTopicResult(topic, [(partition, code)])])
    body = write_commit_response(sent, version, throttle_ms)
    response, end = response_reader(OFFSET_COMMIT, version)(body, 0)
    (got,) = response.topics
    (row,) = got.partitions
    assert (got.topic_id.bytes if version >= 10 else got.name) == topic
    assert (row.partition_index, row.error_code) == (partition, code)
    assert response.throttle_time == timedelta(milliseconds=throttle_ms)
    assert end == len(body)
