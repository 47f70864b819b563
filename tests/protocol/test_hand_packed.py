"""Hand-packed codecs against those of the schemas, in the common forms that they are made for."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ErrorCode, Malformed
from penstock.protocol.api import Api, known_versions
from penstock.protocol.bind import bind
from penstock.protocol.fields import LeaderAndEpoch, NodeEndpoint
from penstock.protocol.message import Message
from penstock.protocol.messages.fetch import (
    FETCH,
    DivergingEpoch,
    FetchedAbort,
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    RemovedTopic,
)
from penstock.protocol.messages.offsets import (
    OFFSET_COMMIT,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetCommitTopicResult,
    PartitionError,
)
from penstock.protocol.messages.produce import (
    PRODUCE,
    ProducedPartition,
    ProducedTopic,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    RecordError,
)
from penstock.protocol.messages.quorum import SnapshotId

if TYPE_CHECKING:
    from collections.abc import Callable


def by_schema(message: Message[Any, Any]) -> Message[Any, Any]:
    """The same message without its hand-packed codecs."""
    return bind(message.api, message.request, message.response, refuse=message.refuse)


BY_SCHEMA = {message.api: by_schema(message) for message in (PRODUCE, OFFSET_COMMIT)}
TOPIC_IDS_FROM = {Api.PRODUCE: 13, Api.FETCH: 13, Api.OFFSET_COMMIT: 10}
quick = settings(deadline=None, max_examples=150)

int32 = st.integers(-1, 2**31 - 1)
int64 = st.integers(-1, 2**63 - 1)
codes = st.sampled_from(list(ErrorCode))
records = st.binary(max_size=300).map(lambda content: memoryview(content))
texts = st.text(max_size=12) | st.text("x", min_size=120, max_size=300)
topic_ids = st.integers(1, 2**128 - 1).map(lambda number: UUID(int=number).bytes)
throttles = st.integers(0, 2**31 - 1)


def versions(api: Api) -> st.SearchStrategy[int]:
    return st.sampled_from(known_versions(api))


def few(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, max_size=3).map(tuple)


def built(form: Any, *fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A message with these fields first; others have their defaults."""
    return st.tuples(*fields).map(lambda values: form(*values))


def one(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return items.map(lambda item: (item,))


def topics_of(api: Api, version: int) -> st.SearchStrategy[Any]:
    return topic_ids if version >= TOPIC_IDS_FROM[api] else texts


def joined(written: Any) -> bytes:
    return written if isinstance(written, bytes) else b"".join(written)


# Produce.


def produce_requests(version: int) -> st.SearchStrategy[ProduceRequest]:
    rows = built(ProducePartition, int32, st.none() | records)
    topics = topics_of(Api.PRODUCE, version)
    return built(
        ProduceRequest,
        st.none() | texts,
        st.integers(-2, 2),
        int32,
        one(built(ProduceTopic, topics, one(rows))) | few(built(ProduceTopic, topics, few(rows))),
    )


@quick
@given(version=versions(Api.PRODUCE), data=st.data())
def test_a_produce_request_is_written_and_read_as_the_schema_says(
    version: int, data: st.DataObject
) -> None:
    request = data.draw(produce_requests(version))
    body = joined(PRODUCE.write_request(request, version))
    assert body == joined(BY_SCHEMA[Api.PRODUCE].write_request(request, version))
    assert PRODUCE.read_request(memoryview(b"head" + body), 4, version) == request


def test_records_of_a_request_are_views_of_the_frame_that_can_be_written_to() -> None:
    row = ProducePartition(0, memoryview(b"records" * 9))
    sent = ProduceRequest(None, -1, 1000, [ProduceTopic("t", [row])])
    frame = bytearray(joined(PRODUCE.write_request(sent, 9)))
    request = PRODUCE.read_request(memoryview(frame), 0, 9)
    records = request.topics[0].partitions[0].records
    assert records is not None
    records[:3] = b"REC"
    assert b"RECords" in frame


produced = built(ProducedPartition, int32, st.just(ErrorCode.none), int64, int64, int64) | (
    built(
        ProducedPartition,
        int32,
        codes,
        int64,
        int64,
        int64,
        few(built(RecordError, int32, st.none() | texts)),
        st.none() | texts,
        st.none() | built(LeaderAndEpoch, st.integers(0, 9), st.integers(0, 9)),
    )
)
nodes = few(built(NodeEndpoint, int32, texts, int32, st.none() | texts))


@quick
@given(version=versions(Api.PRODUCE), throttle_ms=throttles, endpoints=nodes, data=st.data())
def test_a_produce_response_is_written_as_the_schema_says(
    version: int, throttle_ms: int, endpoints: Any, data: st.DataObject
) -> None:
    topics = topics_of(Api.PRODUCE, version)
    rows = data.draw(
        one(built(ProducedTopic, topics, one(produced)))
        | few(built(ProducedTopic, topics, few(produced)))
    )
    response = ProduceResponse(rows, data.draw(st.sampled_from([(), endpoints])))
    written = joined(PRODUCE.write_response(response, version, throttle_ms))
    expected = BY_SCHEMA[Api.PRODUCE].write_response(response, version, throttle_ms)
    assert written == expected


# Fetch.

fetch_by_schema = bind(Api.FETCH, FetchRequest, FetchResponse, refuse=FETCH.refuse)


@quick
@given(version=st.integers(15, 18), data=st.data())
def test_a_fetch_request_is_read_as_the_schema_says(version: int, data: st.DataObject) -> None:
    topics = topics_of(Api.FETCH, version)
    rows = built(FetchPartition, int32, int32, int64, int32, int64, int32)
    request = data.draw(
        built(
            FetchRequest,
            int32,
            int32,
            int32,
            st.integers(0, 1),
            int32,
            int32,
            few(built(FetchTopic, topics, few(rows))),
            few(built(RemovedTopic, topics, few(int32))),
            texts,
        )
    )
    body = memoryview(b"head" + joined(FETCH.write_request(request, version)))
    assert FETCH.read_request(body, 4, version) == request
    assert fetch_by_schema.read_request(body, 4, version) == request


@quick
@given(version=versions(Api.FETCH), throttle_ms=throttles, data=st.data())
def test_a_fetch_response_is_written_as_the_schema_says(
    version: int, throttle_ms: int, data: st.DataObject
) -> None:
    small = st.integers(0, 9)
    rows = built(
        FetchedPartition,
        int32,
        codes,
        int64,
        int64,
        int64,
        st.none() | records,
        st.none() | few(built(FetchedAbort, int64, int64)),
        int32,
        st.none() | built(DivergingEpoch, small, small),
        st.none() | built(LeaderAndEpoch, small, small),
        st.none() | built(SnapshotId, small, small),
    )
    topics = few(built(FetchedTopic, topics_of(Api.FETCH, version), few(rows)))
    response = data.draw(built(FetchResponse, codes, int32, topics, nodes))
    written = joined(FETCH.write_response(response, version, throttle_ms))
    assert written == fetch_by_schema.write_response(response, version, throttle_ms)


def test_a_fetch_response_passes_the_records_on_as_the_views_they_are() -> None:
    view = memoryview(bytes(1000))[10:990]
    row = FetchedPartition(0, records=view)
    response = FetchResponse(topics=[FetchedTopic("t", [row, row])])
    buffers = FETCH.write_response(response, 12, 0)
    assert [buffer for buffer in buffers if buffer is view] == [view, view]


def test_the_records_of_a_fetch_response_are_views_of_its_frame() -> None:
    row = FetchedPartition(0, records=b"before")
    response = FetchResponse(topics=[FetchedTopic("t", [row])])
    frame = bytearray(joined(FETCH.write_response(response, 12, 0)))
    read = FETCH.read_response(memoryview(frame), 0, 12)
    position = frame.index(b"before")
    frame[position : position + 6] = b"after!"
    assert read.topics[0].partitions[0].records == b"after!"


# OffsetCommit.


def commit_requests(version: int) -> st.SearchStrategy[OffsetCommitRequest]:
    topics = topics_of(Api.OFFSET_COMMIT, version)
    epochs = int32 if version >= 6 else st.just(-1)
    metadata = st.sampled_from(["", None, "x", "\0\0\0\0", "\x01\0\0\0"]) | texts
    rows = built(OffsetCommitPartition, int32, int64, epochs, metadata)
    return built(
        OffsetCommitRequest,
        texts | st.text("g", min_size=1000, max_size=1100),
        int32,
        texts,
        st.none() | texts if version >= 7 else st.none(),
        one(built(OffsetCommitTopic, topics, one(rows)))
        | few(built(OffsetCommitTopic, topics, few(rows))),
    )


@quick
@given(version=versions(Api.OFFSET_COMMIT), data=st.data())
def test_a_commit_is_read_as_the_schema_says(version: int, data: st.DataObject) -> None:
    request = data.draw(commit_requests(version))
    body = joined(OFFSET_COMMIT.write_request(request, version))
    assert OFFSET_COMMIT.read_request(memoryview(b"head" + body), 4, version) == request


@quick
@given(version=versions(Api.OFFSET_COMMIT), throttle_ms=throttles, data=st.data())
def test_the_response_to_a_commit_is_written_as_the_schema_says(
    version: int, throttle_ms: int, data: st.DataObject
) -> None:
    rows = built(PartitionError, int32, codes)
    topics = topics_of(Api.OFFSET_COMMIT, version)
    response = OffsetCommitResponse(
        data.draw(
            one(built(OffsetCommitTopicResult, topics, one(rows)))
            | few(built(OffsetCommitTopicResult, topics, few(rows)))
        )
    )
    written = OFFSET_COMMIT.write_response(response, version, throttle_ms)
    expected = BY_SCHEMA[Api.OFFSET_COMMIT].write_response(response, version, throttle_ms)
    assert written == expected


# Bytes from clients.


def common_request(message: Message[Any, Any], version: int) -> Any:
    topic: Any = bytes(range(16)) if version >= TOPIC_IDS_FROM[message.api] else "topic"
    if message.api is Api.PRODUCE:
        row = ProducePartition(3, memoryview(b"records" * 9))
        return ProduceRequest(None, 1, 1000, [ProduceTopic(topic, [row])])
    if message.api is Api.FETCH:
        rows = [FetchPartition(0, 1, 2, 3, 4, 5)] * 2
        removed = [RemovedTopic(topic, [1])]
        return FetchRequest(1, 2, 3, 0, 5, 6, [FetchTopic(topic, rows)], removed, "rack")
    committed = OffsetCommitPartition(0, 42, 1)
    return OffsetCommitRequest("g", 3, "m", topics=[OffsetCommitTopic(topic, [committed])])


common = pytest.mark.parametrize(
    ("message", "plain", "version"),
    [
        *((PRODUCE, BY_SCHEMA[Api.PRODUCE], version) for version in (9, 12, 13)),
        *((FETCH, fetch_by_schema, version) for version in (15, 18)),
        *((OFFSET_COMMIT, BY_SCHEMA[Api.OFFSET_COMMIT], version) for version in (8, 9, 10)),
    ],
    ids=lambda value: value.api.name.lower() if isinstance(value, Message) else str(value),
)


def result_of(read: Callable[..., Any], body: bytes, version: int) -> Any:
    try:
        return read(memoryview(body), 0, version)
    except Malformed:
        return Malformed


@common
def test_changed_bytes_are_read_as_the_schema_says(
    message: Message[Any, Any], plain: Message[Any, Any], version: int
) -> None:
    body = joined(message.write_request(common_request(message, version), version))
    rng = random.Random(version)
    malformed = 0
    for _ in range(2000):
        changed = bytearray(body)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(len(changed))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        read = result_of(message.read_request, bytes(changed), version)
        assert read == result_of(plain.read_request, bytes(changed), version)
        malformed += read is Malformed
    assert 50 < malformed < 1950


@common
def test_every_truncation_is_malformed(
    message: Message[Any, Any], plain: Message[Any, Any], version: int
) -> None:
    body = joined(message.write_request(common_request(message, version), version))
    for size in range(len(body)):
        assert result_of(message.read_request, body[:size], version) is Malformed
        assert result_of(plain.read_request, body[:size], version) is Malformed
