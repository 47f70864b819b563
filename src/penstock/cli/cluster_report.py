"""What `penstock cluster` shows, made of what brokers report. Connects to nothing.

A partition is under-replicated if a replica is not in sync, under min.insync.replicas if too few
are for a write with acks=all, and offline without a leader.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from penstock.link.topic_admin import PartitionDescription, TopicDescription
from penstock.protocol.messages.cluster import DescribedBroker
from penstock.protocol.messages.configs import DescribedConfig
from penstock.protocol.messages.quorum import DescribedQuorumPartition, QuorumReplica

MIN_INSYNC: Final = "min.insync.replicas"
SHOWN_MAX: Final = 20  # partitions with a problem; the rest is counted


class PartitionProblem(NamedTuple):
    """A partition that is not in sync everywhere, and why."""

    partition: str
    leader: int | None
    in_sync: list[int]
    missing: dict[int, str]  # replicas and why they are not in sync
    is_under_min_insync: bool

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


def broker_rows(
    brokers: Iterable[DescribedBroker], topics: Sequence[TopicDescription]
) -> list[dict[str, Any]]:
    """Each broker, with how many partitions it leads and has a replica of."""
    partitions = [partition for topic in topics for partition in topic.partitions]
    leaders = Counter(partition.leader for partition in partitions)
    replicas = Counter(node for partition in partitions for node in partition.replicas)
    return [
        {
            "broker": broker.broker_id,
            "address": f"{broker.host}:{broker.port}",
            "state": "fenced" if broker.is_fenced else "live",
            "rack": broker.rack,
            "leaders": leaders[broker.broker_id],
            "replicas": replicas[broker.broker_id],
        }
        for broker in sorted(brokers)
    ]


def led_by_others(topics: Iterable[TopicDescription]) -> dict[str, list[int]]:
    """The partitions that are not led by their preferred replica, by topic."""
    others = {
        topic.name: [
            partition.partition
            for partition in topic.partitions
            if partition.replicas and partition.leader != partition.replicas[0]
        ]
        for topic in topics
    }
    return {name: sorted(indexes) for name, indexes in sorted(others.items()) if indexes}


def under_replicated(topics: Iterable[TopicDescription]) -> dict[str, list[PartitionDescription]]:
    """The partitions with a replica that is not in sync, by topic."""
    found = {
        topic.name: [
            partition
            for partition in topic.partitions
            if len(partition.in_sync) < len(partition.replicas) or partition.leader < 0
        ]
        for topic in topics
    }
    return {name: partitions for name, partitions in sorted(found.items()) if partitions}


def min_insync_of(configs: Mapping[str, Sequence[DescribedConfig]]) -> dict[str, int]:
    """How many replicas a write with acks=all requires, by topic."""
    return {
        topic: int(row.value)
        for topic, rows in configs.items()
        for row in rows
        if row.name == MIN_INSYNC and row.value is not None
    }


def problems(
    partitions: Mapping[str, Sequence[PartitionDescription]],
    min_insync: Mapping[str, int],
    brokers: Iterable[DescribedBroker],
) -> list[PartitionProblem]:
    """Those without a leader first, then those that refuse writes."""
    states = {broker.broker_id: broker.is_fenced for broker in brokers}
    rows = [
        _problem(f"{topic}-{each.partition}", each, min_insync.get(topic, 1), states)
        for topic, several in partitions.items()
        for each in several
    ]
    return sorted(rows, key=lambda row: (row.leader is not None, not row.is_under_min_insync))


def _problem(
    name: str, partition: PartitionDescription, min_insync: int, is_fenced: Mapping[int, bool]
) -> PartitionProblem:
    in_sync = sorted(partition.in_sync)
    needed = min(min_insync, len(partition.replicas))
    return PartitionProblem(
        name,
        partition.leader if partition.leader >= 0 else None,
        in_sync,
        {
            node: _reason(is_fenced.get(node), node in partition.offline)
            for node in partition.replicas
            if node not in in_sync or is_fenced.get(node) is not False
        },
        len(in_sync) < needed,
    )


def _reason(is_fenced: bool | None, is_offline: bool) -> str:
    if is_fenced is None:
        return "not registered"
    if is_fenced:
        return "fenced"
    return "its log is offline" if is_offline else "lagging"


def problem_counts(rows: Sequence[PartitionProblem]) -> dict[str, int]:
    """How many partitions have each problem."""
    return {
        "under_replicated": len(rows),
        "under_min_insync": sum(row.is_under_min_insync for row in rows),
        "offline": sum(row.leader is None for row in rows),
    }


def replica_rows(quorum: DescribedQuorumPartition, now_ms: int) -> list[dict[str, Any]]:
    """Each replica of the metadata: how far it has come, and when it fetched last."""
    replicas = [*quorum.current_voters, *quorum.observers]
    end = max(
        (each.log_end_offset for each in replicas if each.replica_id == quorum.leader_id),
        default=quorum.high_watermark,
    )
    voters = {each.replica_id for each in quorum.current_voters}
    return [
        {
            "replica": each.replica_id,
            "role": _role(each, quorum.leader_id, voters),
            "end_offset": each.log_end_offset,
            "lag": max(0, end - each.log_end_offset),
            "fetched_ms_ago": _age(each.last_fetch_timestamp, now_ms),
            "caught_up_ms_ago": _age(each.last_caught_up_timestamp, now_ms),
        }
        for each in sorted(replicas)
    ]


def _role(replica: QuorumReplica, leader: int, voters: set[int]) -> str:
    if replica.replica_id == leader:
        return "leader"
    return "voter" if replica.replica_id in voters else "observer"


def _age(at_ms: int, now_ms: int) -> int | None:
    return None if at_ms < 0 else max(0, now_ms - at_ms)
