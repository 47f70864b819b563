"""Every group request in every version served, over a raw connection."""

from __future__ import annotations

import logging
import time
import uuid
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from penstock.broker.handlers import API_TABLE
from penstock.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

OFFSET_COMMIT, OFFSET_FETCH, FIND, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST = (
    8,
    9,
    10,
    *range(11, 17),
)
TXN_COMMIT, DELETE, OFFSET_DELETE, CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE = 28, 42, 47, 68, 69
TOPIC_IDS_FROM = 10


class Wire(Protocol):
    def call(self, api_key: int, version: int, **fields: Any) -> Any: ...
    def send(self, api_key: int, version: int, **fields: Any) -> None: ...
    def receive(self) -> Any: ...


class Broker(Protocol):
    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None: ...
    def topic_id(self, name: str) -> bytes: ...
    def connect(self) -> Any: ...


@pytest.fixture
def broker(start_broker: Callable[..., Broker]) -> Broker:
    started = start_broker(
        group_initial_rebalance_delay_ms="0",
        group_min_session_timeout_ms="100",
        offsets_topic_num_partitions="4",
    )
    started.create_topic("t", 2)
    with started.connect() as wire:
        for _ in range(2):
            wire.call(FIND, 4, key_type=0, coordinator_keys=["g"])
    return started


def versions(api_key: int, least: int = 0) -> list[int]:
    low, high = API_TABLE.by_key[api_key].versions
    return list(range(max(low, least), high + 1))


def join(wire: Wire, version: int, group: str = "g", member_id: str = "", **fields: Any) -> Any:
    usual = {
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\1t"}],
    }
    return wire.call(JOIN, version, group_id=group, member_id=member_id, **{**usual, **fields})


def sync(wire: Wire, version: int, joined: Any, assignment: bytes = b"mine") -> Any:
    return wire.call(
        SYNC,
        version,
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": joined.member_id, "assignment": assignment}],
    )


def member(wire: Wire) -> Any:
    """A classic member of g, in generation 1, stable."""
    first = join(wire, 9)
    joined = join(wire, 9, member_id=first.member_id)
    assert sync(wire, 5, joined).error_code == ErrorCode.none
    return joined


@pytest.mark.parametrize("version", versions(JOIN))
def test_a_member_joins_in_every_version(wire: Wire, version: int) -> None:
    joined = join(wire, version)
    if version >= 4:
        assert joined.error_code == ErrorCode.member_id_required
        joined = join(wire, version, member_id=joined.member_id)
    assert joined.error_code == ErrorCode.none
    assert (joined.generation_id, joined.protocol_name) == (1, "range")
    assert joined.leader == joined.member_id == joined.members[0].member_id
    refused = join(wire, version, member_id="unknown")
    assert refused.error_code == ErrorCode.unknown_member_id


def test_the_log_says_why_a_member_was_removed(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="penstock.broker")
    joined = join(wire, 3, session_timeout=100)
    deadline = time.monotonic() + 20
    while not (lines := [line for line in caplog.messages if "is removed" in line]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert lines[0].startswith(f"group g: member {joined.member_id} is removed: no heartbeat for")
    assert f"s before: member {joined.member_id} of client" in lines[0]


@pytest.mark.parametrize("version", versions(SYNC))
def test_a_member_syncs_in_every_version(wire: Wire, version: int) -> None:
    joined = join(wire, 3)
    assert sync(wire, version, joined).assignment == b"mine"
    stranger = sync(wire, version, join(wire, 9, "other"))
    assert stranger.error_code == ErrorCode.unknown_member_id


@pytest.mark.parametrize("version", versions(HEARTBEAT))
def test_a_heartbeat_in_every_version(wire: Wire, version: int) -> None:
    joined = member(wire)
    heartbeat_fields = {"group_id": "g", "member_id": joined.member_id}
    alive = wire.call(HEARTBEAT, version, generation_id=joined.generation_id, **heartbeat_fields)
    assert alive.error_code == ErrorCode.none
    assert wire.call(HEARTBEAT, version, generation_id=9, **heartbeat_fields).error_code == (
        ErrorCode.illegal_generation
    )


@pytest.mark.parametrize("version", versions(LEAVE))
def test_a_member_leaves_in_every_version(wire: Wire, version: int) -> None:
    joined = member(wire)
    who = {"member_id": joined.member_id}
    left = wire.call(LEAVE, version, group_id="g", **({"members": [who]} if version >= 3 else who))
    assert left.error_code == ErrorCode.none
    if version >= 3:
        assert [row.error_code for row in left.members] == [ErrorCode.none]
    state = wire.call(DESCRIBE, 5, groups=["g"]).groups[0].group_state
    assert state == "Empty"


def commit(wire: Wire, broker: Broker, version: int, offset: int, **fields: Any) -> ErrorCode:
    named = {"topic_id": _uuid(broker)} if version >= TOPIC_IDS_FROM else {"name": "t"}
    response = wire.call(
        OFFSET_COMMIT,
        version,
        **{"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", **fields},
        topics=[
            {
                **named,
                "partitions": [
                    {
                        "partition_index": 1,
                        "committed_offset": offset,
                        "committed_leader_epoch": 3,
                        "committed_metadata": "note",
                    }
                ],
            }
        ],
    )
    return ErrorCode(response.topics[0].partitions[0].error_code)


def _uuid(broker: Broker) -> Any:
    from uuid import UUID

    return UUID(bytes=broker.topic_id("t"))


@pytest.mark.parametrize("version", versions(OFFSET_COMMIT))
def test_an_offset_is_committed_in_every_version(wire: Wire, broker: Broker, version: int) -> None:
    assert commit(wire, broker, version, 7) == ErrorCode.none
    stranger = {"generation_id_or_member_epoch": 1, "member_id": "x", "group_id": "unknown"}
    expected = ErrorCode.group_id_not_found if version >= 9 else ErrorCode.illegal_generation
    assert commit(wire, broker, version, 7, **stranger) == expected


@pytest.mark.parametrize("version", versions(OFFSET_FETCH))
def test_offsets_are_fetched_in_every_version(wire: Wire, broker: Broker, version: int) -> None:
    commit(wire, broker, 9, 7)
    named = {"topic_id": _uuid(broker)} if version >= TOPIC_IDS_FROM else {"name": "t"}
    topics = [{**named, "partition_indexes": [0, 1]}]
    requested: dict[str, Any] = {"group_id": "g", "topics": topics}
    every: dict[str, Any] = {"group_id": "g", "topics": None}
    if version >= 8:
        requested, every = {"groups": [requested]}, {"groups": [every]}
    response = wire.call(OFFSET_FETCH, version, **requested)
    group = response.groups[0] if version >= 8 else response
    rows = {row.partition_index: row for row in group.topics[0].partitions}
    assert (rows[0].committed_offset, rows[1].committed_offset) == (-1, 7)
    assert rows[1].metadata == "note"
    if version >= 5:
        assert rows[1].committed_leader_epoch == 3
    if version >= 2:
        response = wire.call(OFFSET_FETCH, version, **every)
        group = response.groups[0] if version >= 8 else response
        assert [row.partition_index for row in group.topics[0].partitions] == [1]


def test_an_unknown_topic_id_is_an_error_of_each_partition(wire: Wire, broker: Broker) -> None:
    from uuid import UUID

    topics = [{"topic_id": UUID(int=99), "partition_indexes": [0]}]
    response = wire.call(OFFSET_FETCH, 10, groups=[{"group_id": "g", "topics": topics}])
    (topic,) = response.groups[0].topics
    assert topic.partitions[0].error_code == ErrorCode.unknown_topic_id
    row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    response = wire.call(
        OFFSET_COMMIT,
        10,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"topic_id": UUID(int=99), "partitions": [row]}],
    )
    assert response.topics[0].partitions[0].error_code == ErrorCode.unknown_topic_id


@pytest.mark.parametrize("version", versions(FIND))
def test_a_coordinator_is_returned_in_every_version(wire: Wire, version: int) -> None:
    if version < 4:
        result = wire.call(FIND, version, key="g", key_type=0)
    else:
        result = wire.call(FIND, version, key_type=0, coordinator_keys=["g", ""]).coordinators[0]
    assert (result.error_code, result.node_id) == (ErrorCode.none, 1)
    if version >= 1:
        key = {"key": "id"} if version < 4 else {"coordinator_keys": ["id"]}
        other = wire.call(FIND, version, key_type=1, **key)
        other = other.coordinators[0] if version >= 4 else other
        assert (other.error_code, other.node_id) == (ErrorCode.none, 1)
    if version == 6:
        share = wire.call(FIND, version, key_type=2, coordinator_keys=["g:t:0"]).coordinators[0]
        assert share.error_code == ErrorCode.invalid_request


@pytest.mark.parametrize("version", versions(DESCRIBE))
def test_groups_are_described_in_every_version(wire: Wire, version: int) -> None:
    joined = member(wire)
    requested = {"groups": ["g", "unknown"], "include_authorized_operations": True}
    group, unknown = wire.call(DESCRIBE, version, **requested).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    assert (group.members[0].member_id, group.members[0].member_assignment) == (
        joined.member_id,
        b"mine",
    )
    if version >= 3:  # read, delete, describe, describe and alter configs
        assert group.authorized_operations == sum(1 << each for each in (3, 6, 8, 10, 11))
    expected = ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none
    assert (unknown.group_state, unknown.error_code) == ("Dead", expected)


@pytest.mark.parametrize("version", versions(LIST))
def test_groups_are_listed_in_every_version(wire: Wire, broker: Broker, version: int) -> None:
    member(wire)
    commit(wire, broker, 9, 1, group_id="simple")
    rows = wire.call(LIST, version).groups
    assert {(row.group_id, row.protocol_type) for row in rows} == {
        ("g", "consumer"),
        ("simple", ""),
    }
    if version >= 4:
        rows = wire.call(LIST, version, states_filter=["stable"]).groups
        assert [(row.group_id, row.group_state) for row in rows] == [("g", "Stable")]
    if version >= 5:
        assert not wire.call(LIST, version, types_filter=["consumer"]).groups


@pytest.mark.parametrize("version", versions(DELETE))
def test_groups_are_deleted_in_every_version(wire: Wire, broker: Broker, version: int) -> None:
    member(wire)
    commit(wire, broker, 9, 1, group_id="simple")
    rows = wire.call(DELETE, version, groups_names=["g", "simple", "unknown"]).results
    assert [(row.group_id, row.error_code) for row in rows] == [
        ("g", ErrorCode.non_empty_group),
        ("simple", ErrorCode.none),
        ("unknown", ErrorCode.group_id_not_found),
    ]


def test_offsets_of_topics_without_subscribers_can_be_deleted(wire: Wire, broker: Broker) -> None:
    commit(wire, broker, 9, 1)
    topics = [
        {"name": "t", "partitions": [{"partition_index": 1}]},
        {"name": "nope", "partitions": [{"partition_index": 0}]},
    ]
    response = wire.call(OFFSET_DELETE, 0, group_id="g", topics=topics)
    codes = {topic.name: topic.partitions[0].error_code for topic in response.topics}
    assert codes == {"t": ErrorCode.none, "nope": ErrorCode.unknown_topic_or_partition}
    member(wire)
    response = wire.call(OFFSET_DELETE, 0, group_id="g", topics=topics)
    assert response.topics[0].partitions[0].error_code == ErrorCode.group_subscribed_to_topic


def consumer_heartbeat(wire: Wire, version: int, epoch: int, **fields: Any) -> Any:
    requested: dict[str, Any] = {"member_id": "m", "rebalance_timeout": -1, **fields}
    return wire.call(CONSUMER_HEARTBEAT, version, group_id="g", member_epoch=epoch, **requested)


@pytest.mark.parametrize("version", versions(CONSUMER_HEARTBEAT))
def test_the_consumer_protocol_in_every_version(wire: Wire, broker: Broker, version: int) -> None:
    response = {"subscribed_topic_names": ["t"], "topic_partitions": [], "rebalance_timeout": 5000}
    joined = consumer_heartbeat(wire, version, 0, **response)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (ErrorCode.none, "m", 1)
    (part,) = joined.assignment.topic_partitions
    assert (part.topic_id, part.partitions) == (_uuid(broker), (0, 1))
    assert consumer_heartbeat(wire, version, 1).assignment is None
    refused = consumer_heartbeat(wire, version, 5)
    assert refused.error_code == ErrorCode.fenced_member_epoch
    nameless = consumer_heartbeat(wire, version, 0, **response, member_id="")
    if version == 0:
        assert nameless.member_id
    else:
        assert nameless.error_code == ErrorCode.invalid_request
    for described in versions(CONSUMER_DESCRIBE):
        group, unknown = wire.call(CONSUMER_DESCRIBE, described, group_ids=["g", "x"]).groups
        assert group.assignor_name == "uniform"
        assert {row.member_id for row in group.members} >= {"m"}
        assert unknown.error_code == ErrorCode.group_id_not_found
    assert consumer_heartbeat(wire, version, -1).member_epoch == -1


@pytest.mark.parametrize("version", versions(TXN_COMMIT))
def test_a_transactional_offset_takes_effect_when_the_transaction_commits(
    wire: Wire, broker: Broker, version: int
) -> None:
    wire.call(FIND, 4, key_type=1, coordinator_keys=["tx"])
    began = wire.call(22, 4, transactional_id="tx", transaction_timeout=60_000)
    producer = {
        "transactional_id": "tx",
        "producer_id": began.producer_id,
        "producer_epoch": began.producer_epoch,
    }
    if version < 5:
        assert wire.call(25, 3, group_id="g", **producer).error_code == ErrorCode.none
    row = {"partition_index": 0, "committed_offset": 42, "committed_metadata": ""}
    response = wire.call(
        TXN_COMMIT,
        version,
        group_id="g",
        generation_id=-1,
        member_id="",
        topics=[{"name": "t", "partitions": [row]}],
        **producer,
    )
    assert response.topics[0].partitions[0].error_code == ErrorCode.none
    requested = {"groups": [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}]}
    stable = wire.call(OFFSET_FETCH, 9, require_stable=True, **requested)
    assert stable.groups[0].topics[0].partitions[0].error_code == ErrorCode.unstable_offset_commit
    assert wire.call(26, 3, committed=True, **producer).error_code == ErrorCode.none
    fetched = wire.call(OFFSET_FETCH, 9, require_stable=True, **requested)
    assert fetched.groups[0].topics[0].partitions[0].committed_offset == 42


def test_a_commit_outside_the_transaction_of_its_producer_is_refused(
    wire: Wire, broker: Broker
) -> None:
    wire.call(FIND, 4, key_type=1, coordinator_keys=["tx"])
    began = wire.call(22, 4, transactional_id="tx", transaction_timeout=60_000)
    row = {"partition_index": 0, "committed_offset": 42, "committed_metadata": ""}
    response = wire.call(
        TXN_COMMIT,
        3,
        transactional_id="tx",
        producer_id=began.producer_id,
        producer_epoch=began.producer_epoch,
        group_id="g",
        generation_id=-1,
        member_id="",
        topics=[{"name": "t", "partitions": [row]}],
    )
    assert response.topics[0].partitions[0].error_code == ErrorCode.invalid_txn_state


def test_offsets_of_a_deleted_topic_are_deleted(wire: Wire, broker: Broker) -> None:
    commit(wire, broker, 9, 7)
    deleted = wire.call(20, 4, topic_names=["t"], timeout=5000)
    assert deleted.responses[0].error_code == ErrorCode.none
    for _ in range(100):
        response = wire.call(OFFSET_FETCH, 7, group_id="g", topics=None)
        if not response.topics:
            return
        time.sleep(0.02)
    raise AssertionError("the offsets are still there")


def test_a_group_can_require_monotonic_commits(wire: Wire, broker: Broker) -> None:
    change = {"name": "penstock.offsets.monotonic", "config_operation": 0, "value": "true"}
    resource = {"resource_type": 32, "resource_name": "g", "configs": [change]}
    altered = wire.call(44, 1, resources=[resource], validate_only=False)
    assert altered.responses[0].error_code == ErrorCode.none
    joined = member(wire)
    mine = {
        "generation_id_or_member_epoch": joined.generation_id,
        "member_id": joined.member_id,
    }
    assert commit(wire, broker, 9, 7, **mine) == ErrorCode.none
    assert commit(wire, broker, 9, 6, **mine) == ErrorCode.invalid_request
    assert commit(wire, broker, 9, 8, **mine) == ErrorCode.none


def commit_code(wire: Wire, version: int, metadata: str, **fields: Any) -> ErrorCode:
    row = {
        "partition_index": 0,
        "committed_offset": 5,
        "committed_leader_epoch": -1,
        "committed_metadata": metadata,
    }
    topic = {"name": "t", "partitions": [row], **fields.pop("topic", {})}
    who = {"group_id": "simple", "generation_id_or_member_epoch": -1, "member_id": "", **fields}
    response = wire.call(OFFSET_COMMIT, version, topics=[topic], **who)
    code: ErrorCode = response.topics[0].partitions[0].error_code
    return code


@pytest.mark.parametrize("version", versions(OFFSET_COMMIT, 8))
def test_a_commit_gets_the_same_response_with_and_without_metadata(
    wire: Wire, broker: Broker, version: int
) -> None:
    """Commits with metadata are read by the schema."""
    known = {"topic": {"topic_id": uuid.UUID(bytes=broker.topic_id("t"))}}
    joined = member(wire)
    as_member = {**known, "group_id": "g", "member_id": joined.member_id}
    cases: list[dict[str, Any]] = [
        known,
        {"topic": {"name": "nothing", "topic_id": uuid.UUID(int=5)}},
        {**known, "group_id": ""},
        {**known, "generation_id_or_member_epoch": 3},
        {**as_member, "generation_id_or_member_epoch": joined.generation_id},
        {**as_member, "generation_id_or_member_epoch": joined.generation_id + 1},
        {**as_member, "member_id": "stranger", "generation_id_or_member_epoch": 1},
    ]
    codes = [commit_code(wire, version, "", **case) for case in cases]
    assert codes == [commit_code(wire, version, "note", **case) for case in cases]
    assert codes[0] == codes[4] == ErrorCode.none
    assert ErrorCode.none not in (*codes[1:4], *codes[5:])


def test_a_group_id_that_is_too_long_is_refused(wire: Wire) -> None:
    group = "g" * 40_000
    assert commit_code(wire, 9, "", group_id=group) == ErrorCode.invalid_request
    (result,) = wire.call(FIND, 4, key_type=0, coordinator_keys=[group]).coordinators
    assert result.error_code == ErrorCode.invalid_request
    assert commit_code(wire, 9, "") == ErrorCode.none


@pytest.mark.parametrize("version", versions(OFFSET_COMMIT))
@pytest.mark.parametrize("indexes", [(2,), (-1,), (0, 2, -1, 1)])
def test_an_offset_of_a_missing_partition_is_refused(
    wire: Wire, broker: Broker, version: int, indexes: tuple[int, ...]
) -> None:
    rows = [
        {"partition_index": index, "committed_offset": 5, "committed_leader_epoch": -1}
        for index in indexes
    ]
    named = {"topic_id": _uuid(broker)} if version >= TOPIC_IDS_FROM else {"name": "t"}
    who = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
    response = wire.call(OFFSET_COMMIT, version, topics=[{**named, "partitions": rows}], **who)
    unknown = ErrorCode.unknown_topic_or_partition
    assert [(row.partition_index, row.error_code) for row in response.topics[0].partitions] == [
        (index, ErrorCode.none if index in (0, 1) else unknown) for index in indexes
    ]
    stored = wire.call(OFFSET_FETCH, 7, group_id="g", topics=None).topics
    there = [row.partition_index for topic in stored for row in topic.partitions]
    assert sorted(there) == [index for index in (0, 1) if index in indexes]


@pytest.mark.parametrize("version", versions(OFFSET_COMMIT))
def test_a_group_known_by_its_offsets_alone_has_no_members(
    wire: Wire, broker: Broker, version: int
) -> None:
    assert commit(wire, broker, version, 7) == ErrorCode.none
    stranger = {"generation_id_or_member_epoch": 3, "member_id": "stranger"}
    assert commit(wire, broker, version, 8, **stranger) == ErrorCode.unknown_member_id
