"""Requests that no client sends in its right mind, and some clients send: both answer alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pytest

from penstock.protocol.compression import Codec
from tests.support.wire import batch

if TYPE_CHECKING:
    from tests.interop.differential.conftest import AskBoth, Deliberate, Peer, Scenario

pytestmark = [pytest.mark.slow, pytest.mark.interop]

TOPIC: Final = 2
METADATA_TOPIC: Final = "__cluster_metadata"
UNKNOWN_ID: Final = UUID(int=5)

DELIBERATE: Final[dict[str, Deliberate]] = {
    "naming_topics": {
        "v12 id, name": ([(0, "ming-topics-t", False), (0, "ming-topics-u", False)],
                         "each is answered, also where ids and names are mixed"),
    },
    "quotas": {
        "quota nan": ([42], "no limit is not a number"),
        "quota host": ([42], "the same name is another address tomorrow"),
    },
}  # fmt: skip


def naming_topics(peer: Peer) -> None:
    topic, other, none = peer.topic(partitions=3), peer.topic("u"), peer.name("none")
    topic_id = peer.topic_id(topic)
    by_id = {"name": None, "topic_id": topic_id}
    for line, versions, asked in (
        ("id", (10, 11, 12), [by_id]),
        ("id, name", (12,), [by_id, {"name": other}]),
        ("nothing", (10, 11), [{"name": None, "topic_id": None}]),
        ("id and other name", (12,), [{"name": other, "topic_id": topic_id}]),
        ("unknown id and name", (12,), [{"name": topic, "topic_id": UNKNOWN_ID}]),
        ("twice", (1, 9, 12), [{"name": topic}, {"name": topic}]),
        ("own", (1, 9, 12), [{"name": "__consumer_offsets"}, {"name": METADATA_TOPIC}]),
    ):
        for version in versions:
            rows = peer.wire.call(3, version, topics=asked, allow_auto_topic_creation=False).topics
            noted = [(int(row.error_code), row.name and row.name[-13:], row.is_internal)
                     for row in rows]  # fmt: skip
            peer.note(f"v{version} {line}", sorted(noted, key=repr))
    asked = [{"name": none}, {"name": "a b"}, {"name": None, "topic_id": UNKNOWN_ID}]
    for topics in (asked[:2], asked[2:]):
        rows = peer.wire.call(
            3, 12, topics=topics, allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        ).topics  # fmt: skip
        operations = [row.topic_authorized_operations for row in rows]
        peer.note(f"operations {len(topics)}", operations)
    answer = peer.wire.call(20, 6, topics=[{"name": topic}, by_id], timeout=5000)
    codes = {int(row.error_code) for row in answer.responses}
    peer.note("deleted by name and id", (codes, peer.topic_id(topic) == topic_id))


def cursors(peer: Peer) -> None:
    topic, other, none = peer.topic(partitions=3), peer.topic("u"), peer.name("none")
    for cursor in ((topic, 1), (topic, 9), (topic, -1), (none, 0), ("", 0), (other, 0)):
        name, index = cursor
        answer = peer.wire.call(
            75, 0, topics=[{"name": topic}, {"name": other}], response_partition_limit=2,
            cursor={"topic_name": name, "partition_index": index},
        )  # fmt: skip
        rows = [(int(row.error_code), row.name, len(row.partitions)) for row in answer.topics]
        following = answer.next_cursor
        after = following and (following.topic_name, following.partition_index)
        peer.note(f"cursor {name[-4:]} {index}", (rows, after))


def settings(peer: Peer) -> None:
    topic = peer.topic()
    for keys in ([], ["retention.ms", "retention.ms"], ["no.such"]):
        asked = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": keys}
        (result,) = peer.wire.call(32, 4, resources=[asked]).results
        peer.note(f"described {keys}", (int(result.error_code), len(result.configs)))
    for api_key in (33, 44):
        for name in ("a b", "", "x" * 250, peer.name("none")):
            resource = {"resource_type": TOPIC, "resource_name": name, "configs": []}
            (row,) = peer.wire.call(api_key, 1, resources=[resource]).responses
            peer.note(f"altered by {api_key} {name[:5]!r}", int(row.error_code))
    grows = peer.topic("grows", compression_type="uncompressed", max_message_bytes="1000")
    for size in (100, 5000):
        packed = bytes(batch((b"k", bytes(size)), codec=Codec.GZIP))
        peer.note(f"unpacked {size}", peer.produced(grows, packed))


def offsets_of_no_partition(peer: Peer) -> None:
    topic, group = peer.topic(partitions=2), peer.name("g")
    peer.await_group(group)

    def committed(line: str, version: int, *indexes: int, **who: Any) -> None:
        named = {"topic_id": peer.topic_id(topic)} if version >= 10 else {"name": topic}
        rows = [
            {"partition_index": index, "committed_offset": 3, "committed_leader_epoch": -1}
            for index in indexes
        ]
        asked = {"generation_id_or_member_epoch": -1, "member_id": "", "group_id": group, **who}
        answer = peer.wire.call(8, version, topics=[{**named, "partitions": rows}], **asked)
        codes = [(row.partition_index, int(row.error_code)) for row in answer.topics[0].partitions]
        peer.note(f"v{version} {line}", sorted(codes))

    for version in range(2, 11):
        committed("none", version, 2)
        committed("some", version, 0, 7, -1, 1)
        stranger = {"generation_id_or_member_epoch": 3, "member_id": "stranger"}
        committed("stranger", version, 0, **stranger)
    (described,) = peer.wire.call(15, 5, groups=[group], include_authorized_operations=True).groups
    peer.note("operations", described.authorized_operations)


def quotas(peer: Peer) -> None:
    user = peer.name("user")

    def altered(line: str, *rows: tuple[tuple[str, str], list[tuple[str, float | None]]]) -> None:
        entries = [
            {
                "entity": [{"entity_type": kind, "entity_name": name}],
                "ops": [{"key": key, "value": limit or 0.0, "remove": limit is None}
                        for key, limit in limits],
            }
            for (kind, name), limits in rows
        ]  # fmt: skip
        answer = peer.wire.call(49, 1, entries=entries)
        peer.note(f"quota {line}", [int(row.error_code) for row in answer.entries])

    mine, produce, fetch = ("user", user), "producer_byte_rate", "consumer_byte_rate"
    altered("entity twice", (mine, [(produce, 1.0)]), (mine, [(fetch, 2.0)]))
    altered("key twice", (mine, [(produce, 1.0), (produce, 2.0)]))
    altered("set and taken away", (mine, [(produce, 1.0), (produce, None)]))
    altered("unknown taken away", (mine, [("nonsense", None)]))
    altered("vast", (mine, [(fetch, 1e300)]))
    altered("nan", (mine, [(fetch, float("nan"))]))
    altered("connections", (("ip", "10.0.0.9"), [("connection_creation_rate", 2.0**31)]))
    altered("host", (("ip", "localhost"), [("connection_creation_rate", 5000.0)]))
    for kind, match_type, match in (
        ("user", 0, user), ("user", 0, None), ("user", 1, "x"), ("user", 2, "x"), ("user", 3, None),
        ("", 2, None), ("host", 2, None),
    ):  # fmt: skip
        component = {"entity_type": kind, "match_type": match_type, "match": match}
        code = peer.wire.call(48, 1, components=[component], strict=True).error_code
        peer.note(f"quotas {kind} {match_type} {match and match[-4:]}", int(code))


def quorum_and_credentials(peer: Peer) -> None:
    for line, name, *indexes in (
        ("own", METADATA_TOPIC, 0), ("other partition", METADATA_TOPIC, 1), ("topic", "t", 0),
        ("twice", METADATA_TOPIC, 0, 0), ("none", METADATA_TOPIC),
    ):  # fmt: skip
        asked = {"topic_name": name, "partitions": [{"partition_index": i} for i in indexes]}
        answer = peer.wire.call(55, 2, topics=[asked])
        codes = [int(row.error_code) for each in answer.topics for row in each.partitions]
        peer.note(f"quorum {line}", (int(answer.error_code), codes))
    for users in (None, [], [{"name": "x"}], [{"name": "x"}] * 2):
        results = peer.wire.call(50, 0, users=users).results
        peer.note(f"credentials {users}", [int(row.error_code) for row in results])
    peer.note("tokens", int(peer.wire.call(41, 3, owners=None).error_code))
    moved = [{"name": peer.topic(), "partitions": [{"partition_index": 0, "replicas": [1]}]}]
    for allowed in (True, False):
        answer = peer.wire.call(45, 1, topics=moved, allow_replication_factor_change=allowed)
        peer.note(f"reassigned {allowed}", answer.allow_replication_factor_change)


@pytest.mark.parametrize(
    "scenario",
    [naming_topics, cursors, settings, offsets_of_no_partition, quotas, quorum_and_credentials],
)
def test_both_answer_odd_requests_alike(ask_both: AskBoth, scenario: Scenario) -> None:
    ask_both(scenario, DELIBERATE.get(scenario.__name__, {}))
