"""The cluster itself: brokers, folders, leaders, replicas, quorum, quotas, ACLs."""

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ErrorCode

NONE = ErrorCode.none


def test_the_cluster_is_described(wire: Any, broker: Any) -> None:
    response = wire.call(60, 2)
    assert [(row.broker_id, row.host, row.port) for row in response.brokers] == [
        (1, "127.0.0.1", broker.port)
    ]
    assert response.controller_id == 1
    assert response.cluster_id == wire.call(3, 9, topics=[]).cluster_id


def test_a_brokers_endpoint_does_not_answer_for_controllers(wire: Any) -> None:
    requested = wire.call(60, 2, endpoint_type=2)
    assert requested.error_code == ErrorCode.mismatched_endpoint_type
    assert wire.call(60, 2, endpoint_type=9).error_code == ErrorCode.unsupported_endpoint_type


def test_log_directories_have_sizes_and_free_space(wire: Any, broker: Any, make_batch: Any) -> None:
    broker.create_topic("a", 2)
    broker.create_topic("b")
    wire.produce("a", make_batch((b"k", b"v" * 1000)))
    everything = wire.call(35, 4, topics=None)
    (folder,) = everything.results
    assert {topic.name for topic in folder.topics} == {"a", "b"}
    assert 0 < folder.usable_bytes <= folder.total_bytes
    assert Path(folder.log_dir).is_dir()
    (requested,) = wire.call(35, 4, topics=[{"topic": "a", "partitions": [0]}]).results
    ((row,),) = [topic.partitions for topic in requested.topics]
    assert row.partition_size > 1000


def test_a_healthy_partition_needs_no_election(wire: Any, broker: Any) -> None:
    broker.create_topic("a")
    named = [{"topic": "a", "partitions": [0, 7]}]
    (topic,) = wire.call(43, 2, election_type=0, topic_partitions=named).replica_election_results
    codes = [row.error_code for row in topic.partition_result]
    assert codes == [ErrorCode.election_not_needed, ErrorCode.unknown_topic_or_partition]
    everywhere = wire.call(43, 2, election_type=0, topic_partitions=None)
    assert (everywhere.error_code, everywhere.replica_election_results) == (NONE, ())


def test_there_are_two_kinds_of_elections(wire: Any, broker: Any) -> None:
    broker.create_topic("a")
    named = [{"topic": "a", "partitions": [0]}]
    response = wire.call(43, 2, election_type=2, topic_partitions=named)
    assert response.error_code == ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("kind", "name", "key", "limit"),
    [
        ("user", "u", "producer_byte_rate", 1.5),
        ("user", "u", "consumer_byte_rate", float("nan")),
        ("user", "u", "consumer_byte_rate", 1e300),
        ("ip", "127.0.0.1", "connection_creation_rate", 0.5),
        ("ip", "127.0.0.1", "connection_creation_rate", 2.0**31),
        ("ip", "not an address", "connection_creation_rate", 5.0),
    ],
)
def test_an_invalid_quota_is_refused(
    kind: str, name: str, key: str, limit: float, wire: Any
) -> None:
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name}],
        "ops": [{"key": key, "value": limit, "remove": False}],
    }
    (row,) = wire.call(49, 1, entries=[entry]).entries
    assert row.error_code == ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        (None, ErrorCode.no_reassignment_in_progress),
        ([1], NONE),
        ([2], ErrorCode.invalid_replica_assignment),
        ([], ErrorCode.invalid_replica_assignment),
        ([1, 1], ErrorCode.invalid_replica_assignment),
    ],
)
def test_replicas_are_reassigned_where_that_can_be(
    replicas: list[int] | None, code: ErrorCode, wire: Any, broker: Any
) -> None:
    broker.create_topic("a")
    partition = {"partition_index": 0, "replicas": replicas}
    response = wire.call(45, 1, topics=[{"name": "a", "partitions": [partition]}])
    assert response.responses[0].partitions[0].error_code == code
    assert wire.call(46, 0, topics=None).topics == ()


def test_the_quorum_is_this_broker(wire: Any) -> None:
    requested = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
    response = wire.call(55, 2, topics=[requested])
    (row,) = response.topics[0].partitions
    assert (row.leader_id, [voter.replica_id for voter in row.current_voters]) == (1, [1])
    assert row.high_watermark == row.current_voters[0].log_end_offset > 0
    invalid = {"topic_name": "a", "partitions": [{"partition_index": 0}]}
    unknown = wire.call(55, 2, topics=[invalid]).topics[0].partitions[0]
    assert unknown.error_code == ErrorCode.unknown_topic_or_partition


def test_acls_are_refused_as_by_kafka_without_an_authorizer(wire: Any) -> None:
    assert wire.call(29, 3).error_code == ErrorCode.security_disabled
    (created,) = wire.call(30, 3, creations=[{"resource_name": "a"}]).results
    assert created.error_code == ErrorCode.security_disabled
    (deleted,) = wire.call(31, 3, filters=[{}]).filter_results
    assert deleted.error_code == ErrorCode.security_disabled


def test_tokens_are_refused_as_by_kafka_without_a_key(wire: Any) -> None:
    for api_key, version in ((38, 3), (39, 2), (40, 2)):
        code = wire.call(api_key, version).error_code
        assert code == ErrorCode.delegation_token_auth_disabled
    code = wire.call(41, 3, owners=None).error_code
    assert code == ErrorCode.delegation_token_request_not_allowed


def _quota(entity: dict[str, str | None], **limits: float | None) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [
            {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
            for key, value in limits.items()
        ],
    }


def _quotas(wire: Any, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    named = [
        {"entity_type": kind, "match_type": match, "match": name}
        for kind, match, name in components
    ]
    entries = wire.call(48, 1, components=named, strict=strict).entries
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            row.key: row.value for row in entry.values
        }
        for entry in entries
    }


def test_quotas_are_set_described_and_removed(wire: Any, broker: Any) -> None:
    alice, app = ("user", "alice"), ("client-id", "app")
    anybody = ("user", None)
    changes = [
        _quota({"user": "alice"}, producer_byte_rate=1000.0, consumer_byte_rate=2000.0),
        _quota({"user": "alice", "client-id": "app"}, request_percentage=5.0),
        _quota({"user": None}, producer_byte_rate=7.0),
        _quota({"user": "bob"}, nope=7.0),
    ]
    results = wire.call(49, 1, entries=changes).entries
    assert [row.error_code for row in results] == [NONE, NONE, NONE, ErrorCode.invalid_request]
    both: Any = {(app, alice): {"request_percentage": 5.0}}
    only: Any = {(alice,): {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0}}
    default: Any = {(anybody,): {"producer_byte_rate": 7.0}}
    assert _quotas(wire) == {**only, **both, **default}
    assert _quotas(wire, ("user", 0, "alice")) == {**only, **both}
    assert _quotas(wire, ("user", 0, "alice"), strict=True) == only
    assert _quotas(wire, ("user", 1, None), strict=True) == default
    assert _quotas(wire, ("user", 2, None), ("client-id", 2, None)) == both
    wire.call(49, 1, entries=[_quota({"user": "alice"}, producer_byte_rate=None)])
    assert _quotas(wire, ("user", 0, "alice"), strict=True) == {
        (alice,): {"consumer_byte_rate": 2000.0}
    }


def test_a_validated_quota_is_not_set(wire: Any) -> None:
    wire.call(49, 1, entries=[_quota({"user": "a"}, producer_byte_rate=1.0)], validate_only=True)
    assert _quotas(wire) == {}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("planet", 0, "x")], ErrorCode.unsupported_version),
        ([("user", 0, "x"), ("user", 0, "y")], ErrorCode.invalid_request),
        ([("ip", 0, "x"), ("user", 0, "y")], ErrorCode.invalid_request),
        ([("user", 0, None)], ErrorCode.invalid_request),
        ([("user", 7, None)], ErrorCode.invalid_request),
        ([("user", 1, "x")], ErrorCode.invalid_request),
        ([("user", 2, "x")], ErrorCode.invalid_request),
        ([("", 2, None)], ErrorCode.invalid_request),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(
    components: list[tuple[str, int, str | None]], code: ErrorCode, wire: Any
) -> None:
    named = [
        {"entity_type": kind, "match_type": match, "match": name}
        for kind, match, name in components
    ]
    assert wire.call(48, 1, components=named).error_code == code


def test_names_given_twice_are_refused_in_one_row(wire: Any) -> None:
    twice = [{"name": "a", "num_partitions": 1, "replication_factor": 1}] * 2
    (created,) = wire.call(19, 7, topics=twice).topics
    assert created.error_code == ErrorCode.invalid_request
    assert {row.error_code for row in wire.call(20, 6, topics=[{"name": "a"}] * 2).responses} == {
        ErrorCode.invalid_request
    }


def test_a_created_topic_is_returned_with_its_settings(wire: Any) -> None:
    requested = {
        "name": "a",
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [{"name": "retention.ms", "value": "7"}],
    }
    (created,) = wire.call(19, 7, topics=[requested]).topics
    assert (created.num_partitions, created.replication_factor) == (1, 1)
    settings = {row.name: (row.value, row.config_source) for row in created.configs}
    assert settings["retention.ms"] == ("7", 1)
    assert settings["cleanup.policy"] == ("delete", 5)
    assert created.topic_id is not None


def test_a_topic_is_deleted_by_its_id(wire: Any, broker: Any) -> None:
    broker.create_topic("a")
    (topic,) = wire.call(3, 12, topics=[{"name": "a"}]).topics
    (deleted,) = wire.call(20, 6, topics=[{"name": None, "topic_id": topic.topic_id}]).responses
    assert (deleted.name, deleted.error_code) == ("a", NONE)
    (again,) = wire.call(20, 6, topics=[{"name": None, "topic_id": topic.topic_id}]).responses
    assert again.error_code == ErrorCode.unknown_topic_id


def test_topics_are_not_deleted_where_that_is_forbidden(start_broker: Any) -> None:
    broker = start_broker(delete_topic_enable="false")
    broker.create_topic("a")
    with broker.connect() as wire:
        (refused,) = wire.call(20, 6, topics=[{"name": "a"}]).responses
    assert refused.error_code == ErrorCode.topic_deletion_disabled


def test_a_partition_cannot_move_to_an_unknown_folder(wire: Any, broker: Any) -> None:
    broker.create_topic("a")
    (folder,) = wire.call(35, 4, topics=None).results
    requested = [
        {"path": path, "topics": [{"name": "a", "partitions": [index]}]}
        for path, index in ((folder.log_dir, 0), (folder.log_dir, 7), ("/nowhere", 0))
    ]
    (topic,) = wire.call(34, 2, dirs=requested).results
    assert [row.error_code for row in topic.partitions] == [
        NONE,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.log_dir_not_found,
    ]


def test_no_user_has_credentials(wire: Any) -> None:
    assert wire.call(50, 0, users=None).results == ()
    (named,) = wire.call(50, 0, users=[{"name": "alice"}]).results
    assert named.error_code == ErrorCode.resource_not_found
    (twice,) = wire.call(50, 0, users=[{"name": "alice"}] * 2).results
    assert twice.error_code == ErrorCode.duplicate_resource


def test_features_stay_at_their_level(wire: Any) -> None:
    same = {"feature": "transaction.version", "max_version_level": 2}
    other = {"feature": "transaction.version", "max_version_level": 1}
    assert wire.call(57, 2, feature_updates=[same]).error_code == NONE
    assert wire.call(57, 2, feature_updates=[other]).error_code == ErrorCode.invalid_update_version
    (row,) = wire.call(57, 1, feature_updates=[other]).results
    assert row.error_code == ErrorCode.invalid_update_version


def test_an_entity_named_twice_keeps_its_quotas(wire: Any) -> None:
    wire.call(49, 1, entries=[_quota({"user": "a"}, producer_byte_rate=7.0)])
    twice = [
        _quota({"user": "a"}, producer_byte_rate=1.0),
        _quota({"user": "a"}, consumer_byte_rate=2.0),
    ]
    (row,) = wire.call(49, 1, entries=twice).entries
    assert row.error_code == ErrorCode.invalid_request
    same_key = _quota({"user": "a"}, producer_byte_rate=1.0)
    same_key["ops"] *= 2
    (row,) = wire.call(49, 1, entries=[same_key]).entries
    assert row.error_code == ErrorCode.invalid_request
    assert _quotas(wire) == {(("user", "a"),): {"producer_byte_rate": 7.0}}


def test_a_quota_of_any_name_can_be_removed(wire: Any) -> None:
    (row,) = wire.call(49, 1, entries=[_quota({"user": "a"}, nonsense=None)]).entries
    assert row.error_code == NONE


@pytest.mark.parametrize("allowed", [True, False])
def test_a_reassignment_response_repeats_the_permission(
    allowed: bool, wire: Any, broker: Any
) -> None:
    broker.create_topic("a")
    requested = [{"name": "a", "partitions": [{"partition_index": 0, "replicas": [1]}]}]
    response = wire.call(45, 1, topics=requested, allow_replication_factor_change=allowed)
    assert response.allow_replication_factor_change is allowed
