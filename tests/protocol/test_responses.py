"""Each packer against kio's reader, in every version it claims, on any input."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ErrorCode
from penstock.protocol.fields import LeaderAndEpoch, Node
from penstock.protocol.kio_codec import known_versions, response_reader
from penstock.protocol.messages import (
    classic_groups,
    consumer_groups,
    fetch,
    list_offsets,
    metadata,
    produce,
)
from penstock.protocol.messages import offsets as group_offsets

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

int32 = st.integers(-(2**31), 2**31 - 1)
small = st.integers(0, 200)
offsets = st.integers(-1, 2**63 - 1)
throttles = st.integers(0, 2**31 - 1)
codes = st.sampled_from([int(code) for code in ErrorCode])
texts = st.text(max_size=20) | st.text(alphabet="x", min_size=120, max_size=300)
optional_texts = st.none() | texts
topic_ids = st.binary(min_size=16, max_size=16)
nodes = st.lists(st.builds(Node, int32, texts, int32, optional_texts), max_size=3)
leaders = st.none() | st.builds(LeaderAndEpoch, st.integers(0, 9), st.integers(0, 9))
quick = settings(deadline=None, max_examples=40)


def lists(items: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Short ones, and one whose count takes two bytes as a varint."""
    return few(items) | items.map(lambda item: [item] * 130)


def few(items: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(items, max_size=3)


def versions(api_key: int) -> st.SearchStrategy[int]:
    return st.sampled_from(known_versions(api_key))


def read(api_key: int, version: int, body: bytes) -> Any:
    """kio's view of a body that must end where it says."""
    entity, _ = response_reader(api_key, version)(body, 0)
    return entity


def topic_id_of(raw: bytes) -> uuid.UUID | None:
    return uuid.UUID(bytes=raw) if any(raw) else None


def millis(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)


produce_partitions = st.builds(
    produce.PartitionResult,
    partition=int32,
    error_code=codes,
    base_offset=offsets,
    log_append_time=st.integers(-1, 2**42),
    log_start_offset=offsets,
    record_errors=few(st.tuples(int32, optional_texts)),
    error_message=optional_texts,
    current_leader=leaders,
)


@quick
@given(
    version=versions(0),
    named=few(st.tuples(texts, topic_ids, few(produce_partitions))),
    throttle_ms=throttles,
    endpoints=nodes,
)
def test_a_produce_response_reads_back(
    version: int,
    named: list[tuple[str, bytes, list[produce.PartitionResult]]],
    throttle_ms: int,
    endpoints: list[Node],
) -> None:
    topics = [
        produce.TopicResult(topic_id if version >= 13 else name, rows)
        for name, topic_id, rows in named
    ]
    response_sent = produce.ProduceResponse(topics, endpoints)
    body = produce.write_response(response_sent, version, throttle_ms)
    response = read(0, version, body)
    assert millis(response.throttle_time) == throttle_ms
    if version >= 10:
        assert [(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints] == endpoints
    assert len(response.responses) == len(topics)
    for topic, got in zip(topics, response.responses, strict=True):
        if isinstance(topic.topic, bytes):
            assert got.topic_id == topic_id_of(topic.topic)
        else:
            assert got.name == topic.topic
        assert len(got.partition_responses) == len(topic.partitions)
        for answer, row in zip(topic.partitions, got.partition_responses, strict=True):
            check_produced_partition(version, answer, row)


def check_produced_partition(version: int, answer: produce.PartitionResult, row: Any) -> None:
    assert (row.index, row.error_code, row.base_offset) == (
        answer.partition,
        answer.error_code,
        answer.base_offset,
    )
    if answer.log_append_time == -1:
        assert row.log_append_time is None
    else:
        assert millis(row.log_append_time - EPOCH) == answer.log_append_time
    if version >= 5:
        assert row.log_start_offset == answer.log_start_offset
    if version >= 8 and answer.error_code:
        assert row.error_message == answer.error_message
        errors = [(e.batch_index, e.batch_index_error_message) for e in row.record_errors]
        assert errors == answer.record_errors
    if version >= 10 and answer.error_code and answer.current_leader:
        leader = (row.current_leader.leader_id, row.current_leader.leader_epoch)
        assert leader == answer.current_leader


fetch_partitions = st.builds(
    fetch.PartitionAnswer,
    partition=int32,
    error_code=codes,
    high_watermark=offsets,
    last_stable_offset=offsets,
    log_start_offset=offsets,
    records=st.binary(max_size=300).map(memoryview),
    aborted=st.none() | few(st.tuples(offsets, offsets)),
    preferred_read_replica=int32,
    diverging_epoch=st.none() | st.builds(fetch.EpochEnd, st.integers(0, 9), st.integers(0, 9)),
    current_leader=leaders,
)


@quick
@given(
    version=versions(1),
    topics=few(st.builds(fetch.TopicAnswer, texts, few(fetch_partitions), topic_id=topic_ids)),
    throttle_ms=throttles,
    error_code=codes,
    session_id=int32,
    endpoints=nodes,
)
def test_a_fetch_answer_reads_back(
    version: int,
    topics: list[fetch.TopicAnswer],
    throttle_ms: int,
    error_code: int,
    session_id: int,
    endpoints: list[Node],
) -> None:
    pieces = fetch.pack_fetch(
        version,
        topics,
        throttle_ms=throttle_ms,
        error_code=error_code,
        session_id=session_id,
        nodes=endpoints,
    )
    response = read(1, version, b"".join(pieces))
    assert millis(response.throttle_time) == throttle_ms
    if version >= 7:
        assert (response.error_code, response.session_id) == (error_code, session_id)
    if version >= 16:
        assert [(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints] == endpoints
    for topic, got in zip(topics, response.responses, strict=True):
        if version >= 13:
            assert got.topic_id == topic_id_of(topic.topic_id)
        else:
            assert got.topic == topic.name
        for answer, row in zip(topic.partitions, got.partitions, strict=True):
            check_fetched_partition(version, answer, row)


def check_fetched_partition(version: int, answer: fetch.PartitionAnswer, row: Any) -> None:
    assert row.partition_index == answer.partition
    assert row.error_code == answer.error_code
    assert row.high_watermark == answer.high_watermark
    assert row.last_stable_offset == answer.last_stable_offset
    assert row.records == bytes(answer.records)
    aborted = row.aborted_transactions
    if aborted is not None:
        aborted = [(entry.producer_id, entry.first_offset) for entry in aborted]
    assert aborted == answer.aborted
    if version >= 5:
        assert row.log_start_offset == answer.log_start_offset
    if version >= 11:
        assert row.preferred_read_replica == answer.preferred_read_replica
    if version >= 12:
        diverging = (row.diverging_epoch.epoch, row.diverging_epoch.end_offset)
        assert diverging == (answer.diverging_epoch or (-1, -1))
        leader = (row.current_leader.leader_id, row.current_leader.leader_epoch)
        assert leader == (answer.current_leader or (-1, -1))


def test_a_fetch_answer_passes_record_bytes_through_as_the_views_they_are() -> None:
    view = memoryview(bytes(1000))[10:990]
    answer = fetch.PartitionAnswer(0, records=view)
    pieces = fetch.pack_fetch(12, [fetch.TopicAnswer("t", [answer, answer])])
    assert [piece for piece in pieces if piece is view] == [view, view]


metadata_partitions = st.builds(
    metadata.PartitionAnswer, codes, int32, int32, int32, few(int32), lists(int32), few(int32)
)


@quick
@given(
    version=versions(3),
    topics=few(
        st.builds(
            metadata.TopicAnswer,
            texts,
            few(metadata_partitions),
            codes,
            topic_ids,
            st.booleans(),
            int32,
        )
    ),
    brokers=nodes,
    cluster_id=optional_texts,
    controller_id=int32,
    throttle_ms=throttles,
    operations=int32,
    error_code=codes,
    packed_before=st.booleans(),
)
def test_a_metadata_answer_reads_back(
    version: int,
    topics: list[metadata.TopicAnswer],
    brokers: list[Node],
    cluster_id: str | None,
    controller_id: int,
    throttle_ms: int,
    operations: int,
    error_code: int,
    packed_before: bool,
) -> None:
    response = read(
        3,
        version,
        metadata.pack_metadata(
            version,
            [metadata.pack_topic(version, topic) for topic in topics] if packed_before else topics,
            brokers=brokers,
            cluster_id=cluster_id,
            controller_id=controller_id,
            throttle_ms=throttle_ms,
            authorized_operations=operations,
            error_code=error_code,
        ),
    )
    for broker, got in zip(brokers, response.brokers, strict=True):
        assert (got.node_id, got.host, got.port) == broker[:3]
        assert version < 1 or got.rack == broker.rack
    assert version < 1 or response.controller_id == controller_id
    assert version < 2 or response.cluster_id == cluster_id
    assert version < 3 or millis(response.throttle_time) == throttle_ms
    assert version not in (8, 9, 10) or response.cluster_authorized_operations == operations
    assert version < 13 or response.error_code == error_code
    for topic, row in zip(topics, response.topics, strict=True):
        assert (row.name, row.error_code) == (topic.name, topic.error_code)
        assert version < 1 or row.is_internal == topic.is_internal
        assert version < 8 or row.topic_authorized_operations == topic.authorized_operations
        assert version < 10 or row.topic_id == topic_id_of(topic.topic_id)
        for answer, partition in zip(topic.partitions, row.partitions, strict=True):
            check_described_partition(version, answer, partition)


def check_described_partition(version: int, answer: metadata.PartitionAnswer, row: Any) -> None:
    assert (row.error_code, row.partition_index, row.leader_id) == answer[:3]
    assert list(row.replica_nodes) == answer.replicas
    assert list(row.isr_nodes) == answer.in_sync
    assert version < 5 or list(row.offline_replicas) == answer.offline
    assert version < 7 or row.leader_epoch == answer.leader_epoch


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_asked_for_by_an_unknown_id_has_no_name(version: int) -> None:
    topic = metadata.TopicAnswer(None, error_code=100, topic_id=bytes(range(16)))
    body = metadata.pack_metadata(version, [topic], brokers=[], cluster_id="c", controller_id=1)
    (row,) = read(3, version, body).topics
    assert row.name is None
    assert row.topic_id == uuid.UUID(bytes=topic.topic_id)


@quick
@given(
    version=versions(2),
    topics=few(
        st.builds(
            list_offsets.TopicAnswer,
            texts,
            lists(st.builds(list_offsets.PartitionAnswer, int32, codes, offsets, offsets, int32)),
        )
    ),
    throttle_ms=throttles,
)
def test_a_list_offsets_answer_reads_back(
    version: int, topics: list[list_offsets.TopicAnswer], throttle_ms: int
) -> None:
    response = read(
        2, version, list_offsets.pack_list_offsets(version, topics, throttle_ms=throttle_ms)
    )
    assert version < 2 or millis(response.throttle_time) == throttle_ms
    for topic, got in zip(topics, response.topics, strict=True):
        assert got.name == topic.name
        for answer, row in zip(topic.partitions, got.partitions, strict=True):
            assert (row.partition_index, row.error_code, row.timestamp, row.offset) == answer[:4]
            assert version < 4 or row.leader_epoch == answer.leader_epoch


@quick
@given(version=versions(12), error_code=codes, throttle_ms=throttles)
def test_a_heartbeat_answer_reads_back(version: int, error_code: int, throttle_ms: int) -> None:
    response = read(
        12, version, classic_groups.pack_heartbeat(version, error_code, throttle_ms=throttle_ms)
    )
    assert response.error_code == error_code
    assert version < 1 or millis(response.throttle_time) == throttle_ms


join_answers = st.builds(
    classic_groups.JoinAnswer,
    codes,
    texts,
    int32,
    optional_texts,
    optional_texts,
    texts,
    st.booleans(),
    lists(st.builds(classic_groups.MemberAnswer, texts, optional_texts, st.binary(max_size=300))),
)


@quick
@given(version=versions(11), joined=join_answers, throttle_ms=throttles)
def test_a_join_answer_reads_back(
    version: int, joined: classic_groups.JoinAnswer, throttle_ms: int
) -> None:
    response = read(
        11, version, classic_groups.pack_join_group(version, joined, throttle_ms=throttle_ms)
    )
    assert (response.error_code, response.generation_id) == (joined.error_code, joined.generation)
    assert (response.leader, response.member_id) == (joined.leader, joined.member_id)
    assert version < 2 or millis(response.throttle_time) == throttle_ms
    if version >= 7:
        told = (response.protocol_type, response.protocol_name)
        assert told == (joined.protocol_type, joined.protocol)
    else:
        assert response.protocol_name == (joined.protocol or "")
    assert version < 9 or response.skip_assignment == joined.skip_assignment
    for member, got in zip(joined.members, response.members, strict=True):
        assert (got.member_id, got.metadata) == (member.member_id, member.metadata)
        assert version < 5 or got.group_instance_id == member.instance_id


@quick
@given(
    version=versions(14),
    error_code=codes,
    assignment=st.binary(max_size=300),
    protocol_type=optional_texts,
    protocol=optional_texts,
    throttle_ms=throttles,
)
def test_a_sync_answer_reads_back(
    version: int,
    error_code: int,
    assignment: bytes,
    protocol_type: str | None,
    protocol: str | None,
    throttle_ms: int,
) -> None:
    body = classic_groups.pack_sync_group(
        version,
        error_code,
        assignment,
        protocol_type=protocol_type,
        protocol=protocol,
        throttle_ms=throttle_ms,
    )
    response = read(14, version, body)
    assert (response.error_code, response.assignment) == (error_code, assignment)
    assert version < 1 or millis(response.throttle_time) == throttle_ms
    told = (protocol_type, protocol)
    assert version < 5 or (response.protocol_type, response.protocol_name) == told


@quick
@given(
    version=versions(8),
    named=few(st.tuples(texts, topic_ids, lists(st.tuples(int32, codes)))),
    throttle_ms=throttles,
)
def test_an_offset_commit_response_reads_back(
    version: int, named: list[tuple[str, bytes, list[tuple[int, int]]]], throttle_ms: int
) -> None:
    topics = [
        group_offsets.CommitTopicResult(topic_id if version >= 10 else name, rows)
        for name, topic_id, rows in named
    ]
    sent = group_offsets.OffsetCommitResponse(topics)
    response = read(8, version, group_offsets.write_commit_response(sent, version, throttle_ms))
    assert version < 3 or millis(response.throttle_time) == throttle_ms
    for topic, got in zip(topics, response.topics, strict=True):
        assert key_of(got, version) == topic.topic
        rows = [(row.partition_index, row.error_code) for row in got.partitions]
        assert rows == topic.partitions


def key_of(topic: Any, version: int) -> str | bytes:
    if version < 10:
        return str(topic.name)
    return bytes(16) if topic.topic_id is None else bytes(topic.topic_id.bytes)


fetched_partitions = st.builds(
    group_offsets.FetchedPartition, int32, offsets, int32, optional_texts, codes
)


@quick
@given(
    version=versions(9),
    named=st.lists(
        st.tuples(texts, few(st.tuples(texts, topic_ids, few(fetched_partitions))), codes),
        min_size=1,
        max_size=3,
    ),
    throttle_ms=throttles,
)
def test_an_offset_fetch_response_reads_back(
    version: int,
    named: list[tuple[str, list[tuple[str, bytes, list[Any]]], int]],
    throttle_ms: int,
) -> None:
    groups = [
        group_offsets.FetchedGroup(
            group_id,
            [
                group_offsets.FetchedTopic(topic_id if version >= 10 else name, rows)
                for name, topic_id, rows in topics
            ],
            code,
        )
        for group_id, topics, code in named[: None if version >= 8 else 1]
    ]
    sent = group_offsets.OffsetFetchResponse(groups)
    response = read(9, version, group_offsets.write_fetch_response(sent, version, throttle_ms))
    assert version < 3 or millis(response.throttle_time) == throttle_ms
    for group, got in zip(groups, response.groups if version >= 8 else [response], strict=True):
        assert version < 8 or got.group_id == group.group_id
        assert version < 2 or got.error_code == group.error_code
        for topic, row in zip(group.topics, got.topics, strict=True):
            assert key_of(row, version) == topic.topic
            for fetched, cell in zip(topic.partitions, row.partitions, strict=True):
                assert (cell.partition_index, cell.committed_offset) == fetched[:2]
                assert (cell.metadata, cell.error_code) == fetched[3:]
                assert version < 5 or cell.committed_leader_epoch == fetched.leader_epoch


@quick
@given(
    version=versions(68),
    error_code=codes,
    error_message=optional_texts,
    member_id=optional_texts,
    member_epoch=int32,
    interval_ms=throttles,
    throttle_ms=throttles,
    assignment=st.none() | few(st.builds(consumer_groups.AssignedTopic, topic_ids, lists(int32))),
)
def test_a_consumer_group_heartbeat_answer_reads_back(
    version: int,
    error_code: int,
    error_message: str | None,
    member_id: str | None,
    member_epoch: int,
    interval_ms: int,
    throttle_ms: int,
    assignment: list[consumer_groups.AssignedTopic] | None,
) -> None:
    body = consumer_groups.pack_consumer_group_heartbeat(
        member_id=member_id,
        member_epoch=member_epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=assignment,
        error_code=error_code,
        error_message=error_message,
        throttle_ms=throttle_ms,
    )
    response = read(68, version, body)
    assert (response.error_code, response.error_message) == (error_code, error_message)
    assert (response.member_id, response.member_epoch) == (member_id, member_epoch)
    assert millis(response.heartbeat_interval) == interval_ms
    assert millis(response.throttle_time) == throttle_ms
    if assignment is None:
        assert response.assignment is None
    else:
        got = [
            (entry.topic_id, list(entry.partitions))
            for entry in response.assignment.topic_partitions
        ]
        assert got == [(topic_id_of(entry.topic_id), entry.partitions) for entry in assignment]
