"""The overview of a cluster as a document, and how each panel of the pages is filled. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.console.samples.cluster_survey import ClusterSurvey
from penstock.console.samples.sampler import Sampler
from penstock.model import Millis
from penstock.monitor.group_lag import Lag

WORST_GROUPS: Final = 10
PENSTOCK: Final = "penstock"  # the kind of a cluster; others are Apache Kafka


def panels(sample: ClusterSurvey, kind: str, *, has_sql: bool) -> dict[str, str]:
    """How each panel is filled on this cluster."""
    disks = None if sample.sizes is None else sample.sizes.by_broker.values()
    has_disks = disks is not None and any(each.total_bytes >= 0 for each in disks)
    of_cluster = "unavailable" if sample.cluster is None else "served"
    of_topics = "unavailable" if sample.topics is None else "served"
    return {
        "brokers": of_cluster,
        "controller": of_cluster if kind == PENSTOCK else "unavailable",
        "partitions": of_topics,
        "configs": of_topics,
        "records": of_topics,
        "histogram": "unavailable" if sample.ends is None else "derived",
        "throughput": "unavailable" if sample.ends is None else "derived",
        "bytes_out": "unavailable",  # no cluster reports it over the Kafka protocol
        "sizes": "unavailable" if sample.sizes is None else "served",
        "disk": "served" if has_disks else "unavailable",
        "groups": "unavailable" if sample.groups is None else "served",
        "lag_seconds": "derived",
        "schemas": "served",
        "quarantine": "served",
        "pipelines": "served",
        "sql": "served" if has_sql else "unavailable",
    }


def overview_document(
    sample: ClusterSurvey,
    kind: str,
    sampler: Sampler,
    lags: Mapping[str, Lag],
    quarantine: Sequence[Mapping[str, Any]],
    now: Millis,
) -> dict[str, Any]:
    """The overview of a sample, as pages get it."""
    topics = sample.topics or ()
    partitions = [row for topic in topics for row in topic.partitions]
    history = sampler.throughput.history
    latest = history[-1] if history and history[-1].at == sample.at else None
    return {
        "type": "overview",
        "time": str(sample.at),
        "stale": sampler.failure,
        "controller": controller_of(sample, kind),
        "brokers": _brokers(sample),
        "topics": len(topics),
        "partitions": len(partitions),
        "offline": sum(row.leader < 0 for row in partitions),
        "under_replicated": sum(len(row.in_sync) < len(row.replicas) for row in partitions),
        "rates": {
            "records_in": None if latest is None else latest.records_in,
            "bytes_in": None if latest is None else latest.bytes_in,
            "bytes_out": None,
        },
        "groups": _worst_groups(sample, lags, now),
        "quarantine": quarantine,
    }


def controller_of(sample: ClusterSurvey, kind: str) -> int | None:
    """None if it is not known: brokers of Apache Kafka name any broker as the controller."""
    if sample.cluster is None or kind != PENSTOCK or sample.cluster.controller_id < 0:
        return None
    return sample.cluster.controller_id


def _brokers(sample: ClusterSurvey) -> list[dict[str, Any]]:
    leaders: dict[int, int] = {}
    replicas: dict[int, int] = {}
    for topic in sample.topics or ():
        for row in topic.partitions:
            leaders[row.leader] = leaders.get(row.leader, 0) + 1
            for node_id in row.replicas:
                replicas[node_id] = replicas.get(node_id, 0) + 1
    disks = {} if sample.sizes is None else sample.sizes.by_broker
    rows = []
    for broker in sorted(() if sample.cluster is None else sample.cluster.brokers):
        disk = disks.get(broker.broker_id)
        rows.append(
            {
                "id": broker.broker_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "fenced": broker.is_fenced,
                "leaders": leaders.get(broker.broker_id, 0),
                "replicas": replicas.get(broker.broker_id, 0),
                "bytes": None if disk is None else str(disk.log_bytes),
                "disk_total": _known(None if disk is None else disk.total_bytes),
                "disk_free": _known(None if disk is None else disk.free_bytes),
            }
        )
    return rows


def _known(size: int | None) -> str | None:
    return None if size is None or size < 0 else str(size)


def _worst_groups(
    sample: ClusterSurvey, lags: Mapping[str, Lag], now: Millis
) -> list[dict[str, Any]]:
    states = {row.group: row.state for row in sample.groups or ()}
    worst = sorted(lags.items(), key=lambda row: (-row[1].records, row[0]))
    return [
        {
            "group": group,
            "state": states.get(group),
            "lag": str(lag.records),
            "lag_seconds": round(lag.seconds(now), 1),
        }
        for group, lag in worst[:WORST_GROUPS]
    ]
