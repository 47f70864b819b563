"""Topics, configurations and the rest of administration: both say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pytest

if TYPE_CHECKING:
    from tests.interop.differential.conftest import AskBoth, Deliberate, Peer, Scenario

pytestmark = [pytest.mark.slow, pytest.mark.interop]

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

DELIBERATE: Final[dict[str, Deliberate]] = {
    "altering_configs": {
        "described unset": (
            (0, [("retention.ms", "604800000", 5, False, 5, [5])]),
            "the default is a synonym like any other",
        ),
        "2 figs-t [('retention.ms', 9, '1')]": (
            42,
            "UNKNOWN_SERVER_ERROR says nothing of what is wrong",
        ),
    },
}


def creating_topics(peer: Peer) -> None:
    def made(line: str, *arguments: Any, **fields: Any) -> None:
        topic = peer.create(*arguments, **fields)
        described = (int(topic.error_code), topic.num_partitions, topic.replication_factor)
        peer.note(line, described)

    made("good", peer.name("a"), 3)
    made("exists", peer.name("a"), 3)
    made("validate only", peer.name("v"), 2, validate_only=True)
    made("validate only of what exists", peer.name("a"), validate_only=True)
    made("defaults", peer.name("d"), -1, -1)
    made("no partitions", peer.name("e"), 0)
    made("minus two partitions", peer.name("e"), -2)
    made("two replicas", peer.name("e"), 1, 2)
    made("no replicas", peer.name("e"), 1, 0)
    made("minus two replicas", peer.name("e"), 1, -2)
    for name in ("", ".", "..", "a b", "a/b", "é", "x" * 249, "x" * 250):
        made(f"name {name[:5]!r}{len(name)}", name)
    made("dotted", f"{peer.name('dot')}.b")
    made("underscored", f"{peer.name('dot')}_b")
    made("own metadata", "__cluster_metadata")
    made("unknown key", peer.name("e"), configs={"no_such_key": "1"})
    for key, value in (
        ("retention.ms", "abc"), ("retention.ms", "-2"), ("cleanup.policy", "eat"),
        ("cleanup.policy", "compact,delete"), ("segment.bytes", "10"),
        ("min.insync.replicas", "0"), ("compression.type", "brotli"),
        ("message.timestamp.type", "Never"), ("min.cleanable.dirty.ratio", "1.5"),
        ("max.message.bytes", "-1"), ("max.message.bytes", "1.5"), ("retention.bytes", ""),
        ("flush.messages", "0"), ("unclean.leader.election.enable", "maybe"),
        ("compression.gzip.level", "12"), ("segment.ms", "0"), ("local.retention.ms", "-2"),
        ("remote.storage.enable", "true"), ("min.compaction.lag.ms", "-1"),
        ("max.compaction.lag.ms", "0"), ("index.interval.bytes", "-1"), ("preallocate", "true"),
        ("file.delete.delay.ms", "-1"), ("segment.jitter.ms", "5"),
        ("message.timestamp.after.max.ms", "-1"),
    ):  # fmt: skip
        made(f"{key}={value}", peer.name("e"), configs={key: value}, validate_only=True)
    both = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    made("lags crossed", peer.name("e"), configs=both, validate_only=True)
    made("assigned", peer.name("m"), -1, -1, assignments=[(0, [1]), (1, [1])])
    for line, rows in (
        ("gap", [(0, [1]), (2, [1])]), ("unknown node", [(0, [7])]), ("twice", [(0, [1, 1])]),
        ("none", [(0, [])]), ("not from 0", [(1, [1])]), ("same partition", [(0, [1]), (0, [1])]),
    ):  # fmt: skip
        made(f"assigned {line}", peer.name("e"), -1, -1, assignments=rows)
    made("assigned and counted", peer.name("e"), 1, 1, assignments=[(0, [1])])


def widening_and_deleting(peer: Peer) -> None:
    topic = peer.topic(partitions=2)

    def widened(line: str, name: str, count: int, assigned: Any = None, **fields: Any) -> None:
        row = {"name": name, "count": count}
        row["assignments"] = None if assigned is None else [{"broker_ids": a} for a in assigned]
        answer = peer.wire.call(37, 3, topics=[row], timeout=5000, **fields)
        peer.note(f"widen {line}", int(answer.results[0].error_code))

    widened("to 3", topic, 3)
    widened("to 3 again", topic, 3)
    widened("to 1", topic, 1)
    widened("to 0", topic, 0)
    widened("validate", topic, 9, validate_only=True)
    widened("no topic", peer.name("none"), 9)
    widened("assigned", topic, 4, [[1]])
    widened("wrong count assigned", topic, 6, [[1]])
    widened("unknown node", topic, 5, [[9]])
    widened("two replicas", topic, 5, [[1, 1]])
    widened("none assigned", topic, 5, [])
    widened("empty row", topic, 5, [[]])
    twice = [{"name": topic, "count": 8, "assignments": None}] * 2
    answer = peer.wire.call(37, 3, topics=twice, timeout=5000)
    peer.note("widen twice", [int(row.error_code) for row in answer.results])

    def gone(line: str, *rows: dict[str, Any], version: int = 6) -> None:
        answer = peer.wire.call(20, version, topics=rows, timeout=5000)
        codes = sorted(int(row.error_code) for row in answer.responses)
        peer.note(f"delete {line}", codes)

    other = peer.topic("other")
    gone("twice", {"name": other}, {"name": other})
    gone("unknown", {"name": peer.name("none")})
    gone("unknown id", {"name": None, "topic_id": UUID(int=99999)})
    gone("by neither", {"name": None, "topic_id": None})
    gone("by both", {"name": other, "topic_id": peer.topic_id(other)})
    gone("by id", {"name": None, "topic_id": peer.topic_id(other)})
    gone("by name", {"name": topic})
    gone("again", {"name": topic})


def altering_configs(peer: Peer) -> None:
    topic = peer.topic()
    for kind, name, changes in (
        (TOPIC, topic, [("retention.ms", SET, "1000")]),
        (TOPIC, topic, [("retention.ms", SET, "x")]),
        (TOPIC, topic, [("retention.ms", SET, None)]),
        (TOPIC, topic, [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]),
        (TOPIC, topic, [("no.such", SET, "1")]),
        (TOPIC, topic, [("no.such", DELETE, None)]),
        (TOPIC, topic, [("retention.ms", APPEND, "1")]),
        (TOPIC, topic, [("cleanup.policy", APPEND, "compact")]),
        (TOPIC, topic, [("cleanup.policy", SUBTRACT, "delete")]),
        (TOPIC, topic, [("cleanup.policy", SUBTRACT, "compact")]),
        (TOPIC, topic, [("cleanup.policy", SET, "")]),
        (TOPIC, topic, [("retention.ms", DELETE, None)]),
        (TOPIC, topic, [("retention.ms", 9, "1")]),
        (TOPIC, topic, []),
        (TOPIC, peer.name("none"), [("retention.ms", SET, "1")]),
        (TOPIC, "", [("retention.ms", SET, "1")]),
        (BROKER, "1", [("log.retention.ms", SET, "99999999")]),
        (BROKER, "1", [("log.retention.ms", DELETE, None)]),
        (BROKER, "", [("log.retention.ms", SET, "88888888")]),
        (BROKER, "", [("log.retention.ms", DELETE, None)]),
        (BROKER, "1", [("node.id", SET, "4")]),
        (BROKER, "7", [("log.retention.ms", SET, "4")]),
        (BROKER, "x", [("log.retention.ms", SET, "4")]),
        (GROUP, peer.name("g"), [("consumer.session.timeout.ms", SET, "46000")]),
        (GROUP, peer.name("g"), [("consumer.session.timeout.ms", SET, "1")]),
        (GROUP, peer.name("g"), [("no.such", SET, "1")]),
        (GROUP, "", [("consumer.session.timeout.ms", SET, "46000")]),
        (99, "x", [("a", SET, "1")]),
    ):  # fmt: skip
        line = f"{kind} {name and name[-6:]} {changes}"
        peer.note(line, peer.alter(kind, name, *changes))
    for line, kind, name, keys in (
        ("topic", TOPIC, topic, ["cleanup.policy", "no.such", "segment.bytes"]),
        ("unset", TOPIC, topic, ["retention.ms"]),
        ("group", GROUP, peer.name("g"), ["consumer.session.timeout.ms"]),
        ("no topic", TOPIC, peer.name("none"), None),
        ("bad name", TOPIC, "a b", None),
        ("other broker", BROKER, "7", None),
        ("no type", 99, "x", None),
    ):
        asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        answer = peer.wire.call(32, 4, resources=[asked], include_synonyms=True).results[0]
        rows = [
            (row.name, row.value, row.config_source, row.read_only, row.config_type,
             [synonym.source for synonym in row.synonyms])
            for row in answer.configs
        ]  # fmt: skip
        peer.note(f"described {line}", (int(answer.error_code), sorted(rows)))
    asked = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": None}
    answer = peer.wire.call(32, 4, resources=[asked]).results[0]
    values = sorted((row.name, row.value, row.config_type) for row in answer.configs)
    for name, value, kind in values:
        peer.note(f"default {name}", (value, kind))


def the_rest_of_administration(peer: Peer) -> None:
    topic = peer.topic()
    for kind in (0, 1, 2):
        for index in (0, 9):
            answer = peer.wire.call(
                43,
                2,
                election_type=kind,
                topic_partitions=[{"topic": topic, "partitions": [index]}],
                timeout=5000,
            )
            codes = {
                int(row.error_code)
                for each in answer.replica_election_results
                for row in each.partition_result
            }
            peer.note(f"elect {kind} {index}", codes | {int(answer.error_code)})
    for replicas in ([1], [7], [1, 1], [], None):
        answer = peer.wire.call(
            45,
            1,
            timeout=5000,
            topics=[{"name": topic, "partitions": [{"partition_index": 0, "replicas": replicas}]}],
        )
        moved = [int(row.error_code) for each in answer.responses for row in each.partitions]
        peer.note(f"reassign {replicas}", (int(answer.error_code), moved))
    answer = peer.wire.call(46, 0, timeout=5000, topics=None)
    peer.note("reassignments", (int(answer.error_code), len(answer.topics)))
    user = peer.name("user")
    for line, entity, key, value, remove in (
        ("set", [("user", user)], "producer_byte_rate", 1e6, False),
        ("fraction", [("user", user)], "producer_byte_rate", 1.5, False),
        ("zero", [("user", user)], "producer_byte_rate", 0.0, False),
        ("negative", [("user", user)], "consumer_byte_rate", -1.0, False),
        ("unknown key", [("user", user)], "nonsense", 1.0, False),
        ("unknown kind", [("host", user)], "producer_byte_rate", 1.0, False),
        ("no entity", [], "producer_byte_rate", 1.0, False),
        ("ip", [("ip", "127.0.0.9")], "connection_creation_rate", 5.0, False),
        ("bad ip", [("ip", "not an address")], "connection_creation_rate", 5.0, False),
        ("wrong rate for ip", [("ip", "127.0.0.9")], "producer_byte_rate", 5.0, False),
        ("remove ip", [("ip", "127.0.0.9")], "connection_creation_rate", 0.0, True),
        ("both", [("user", user), ("client-id", "c")], "request_percentage", 50.0, False),
        ("remove", [("user", user)], "producer_byte_rate", 0.0, True),
        ("remove absent", [("user", user)], "consumer_byte_rate", 0.0, True),
    ):
        entries = [
            {
                "entity": [{"entity_type": k, "entity_name": n} for k, n in entity],
                "ops": [{"key": key, "value": value, "remove": remove}],
            }
        ]
        answer = peer.wire.call(49, 1, entries=entries)
        peer.note(f"quota {line}", [int(row.error_code) for row in answer.entries])
    for match_type, match in ((0, user), (1, None), (2, None)):
        for strict in (False, True):
            component = {"entity_type": "user", "match_type": match_type, "match": match}
            answer = peer.wire.call(48, 1, components=[component], strict=strict)
            noted = [
                (sorted((e.entity_type, e.entity_name) for e in entry.entity),
                 [(v.key, v.value) for v in entry.values])
                for entry in answer.entries or ()
            ]  # fmt: skip
            peer.note(f"quotas {match_type} {strict}", (int(answer.error_code), noted))
    for asked in (topic, peer.name("none"), "a b"):
        answer = peer.wire.call(75, 0, topics=[{"name": asked}], response_partition_limit=10)
        row = answer.topics[0]
        rows = [(p.partition_index, p.leader_id, p.leader_epoch) for p in row.partitions]
        peer.note(f"describe {asked[-6:]}", (int(row.error_code), rows, row.is_internal))
    cluster = peer.wire.call(60, 1, endpoint_type=1)
    peer.note("cluster", (int(cluster.error_code), cluster.controller_id, len(cluster.brokers)))
    cluster = peer.wire.call(60, 1, endpoint_type=2)
    peer.note("cluster of controllers", int(cluster.error_code))
    cluster = peer.wire.call(60, 1, endpoint_type=7)
    peer.note("cluster of nothing", int(cluster.error_code))
    dirs = peer.wire.call(35, 4, topics=[{"topic": topic, "partitions": [0]}])
    found = [
        (int(row.error_code), [(p.partition_index, p.partition_size, p.offset_lag) for p in
         t.partitions]) for row in dirs.results for t in row.topics
    ]  # fmt: skip
    peer.note("log dirs", (int(dirs.error_code), found))
    for name in ("a b", "", "x" * 250, peer.name("none")):
        answer = peer.wire.call(
            3, 12, topics=[{"name": name}], allow_auto_topic_creation=False
        ).topics[0]
        peer.note(f"metadata {name[-6:]!r}", (int(answer.error_code), answer.name == name))
    by_id = peer.wire.call(3, 12, topics=[{"name": None, "topic_id": UUID(int=77)}]).topics[0]
    peer.note("metadata by id", (int(by_id.error_code), by_id.name, by_id.topic_id))


@pytest.mark.parametrize(
    "scenario",
    [creating_topics, widening_and_deleting, altering_configs, the_rest_of_administration],
)
def test_both_administer_alike(ask_both: AskBoth, scenario: Scenario) -> None:
    ask_both(scenario, DELIBERATE.get(scenario.__name__, {}))
