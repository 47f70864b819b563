"""`/console/api/topics`: all topics with rates and lag, one topic, its settings."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from penstock.config.key_rows import ValueType
from penstock.config.resolve import ConfigSource
from penstock.console.console_node import ConsoleNode
from penstock.console.samples.cluster_survey import ClusterSurvey, LogSizes
from penstock.console.table_responses import TableBody, TableCache, table_response, write_table
from penstock.gateway.json_responses import json_response
from penstock.gateway.request_bodies import TopicName
from penstock.link.offsets import Isolation, end_offsets, start_offsets
from penstock.link.topic_admin import TopicDescription, describe_configs, describe_topics
from penstock.model import TopicPartition
from penstock.protocol.messages.configs import DescribedConfig
from penstock.registry.subject_names import Subject
from penstock.serde.frame import Side

COLUMNS: Final = (
    "name", "partitions", "replication_factor", "internal", "records", "bytes", "rate_in", "groups",
    "max_lag", "under_replicated",
)  # fmt: skip
_SOURCES: Final = {ConfigSource.TOPIC: "topic", ConfigSource.DEFAULT: "default"}  # else: broker


def topic_routes(node: ConsoleNode) -> APIRouter:
    """Topics."""
    router = APIRouter(tags=["console"])
    table = TableCache()

    @router.get("/console/api/topics")
    async def list_topics(request: Request) -> Response:
        """All topics with their records, bytes, rates and lag, as of the last sample."""
        sample = await node.sampler.sample()
        version = (node.sampler.number, node.lag.updated_at)
        body = await node.sampler.in_thread(
            lambda: table.body(version, lambda: _topics_table(node, sample))
        )
        return table_response(body, request)

    @router.get("/console/api/topics/{topic}")
    async def read_topic(topic: TopicName) -> Response:
        """A topic: its partitions with offsets and sizes, its groups, its subjects."""
        sample = await node.sampler.sample()
        (description,) = await node.gateway.run(describe_topics([topic]))
        return json_response(await _topic_document(node, sample, description))

    @router.get("/console/api/topics/{topic}/configs")
    async def read_configs(topic: TopicName) -> Response:
        """The settings of a topic: where each value comes from, its default, its meaning."""
        configs = await node.gateway.run(describe_configs([topic], documented=True))
        return json_response({"configs": list(map(_config, sorted(configs[topic])))})

    return router


def _topics_table(node: ConsoleNode, sample: ClusterSurvey) -> TableBody:
    groups: defaultdict[str, int] = defaultdict(int)
    lags: dict[str, int] = {}
    for (_, name), lag in node.lag.by_group_and_topic.items():
        groups[name] += 1
        lags[name] = max(lags.get(name, 0), lag.records)
    rates = node.sampler.throughput.by_topic
    sizes = _topic_sizes(sample)
    rows = []
    for topic in sample.topics or ():
        places = [TopicPartition(topic.name, row.partition) for row in topic.partitions]
        rate, lag_max = rates.get(topic.name), lags.get(topic.name)
        size = None if sizes is None else sizes.get(topic.name, 0)
        rows.append(
            (
                topic.name,
                len(topic.partitions),
                topic.replication_factor,
                topic.is_internal,
                _records(sample, places),
                None if size is None else str(size),
                None if rate is None else round(rate, 2),
                groups[topic.name],
                None if lag_max is None else str(lag_max),
                sum(len(row.in_sync) < len(row.replicas) for row in topic.partitions),
            )
        )
    return write_table(COLUMNS, rows)


def _records(sample: ClusterSurvey, places: Sequence[TopicPartition]) -> str | None:
    if sample.starts is None or sample.ends is None:
        return None
    starts, ends = sample.starts, sample.ends
    return str(sum(max(0, ends[each] - starts.get(each, 0)) for each in places if each in ends))


def _topic_sizes(sample: ClusterSurvey) -> dict[str, int] | None:
    """The bytes of each topic, all replicas included."""
    if sample.sizes is None:
        return None
    sizes: defaultdict[str, int] = defaultdict(int)
    for (_, place), size in sample.sizes.by_replica.items():
        sizes[place.topic] += size
    return sizes


async def _topic_document(
    node: ConsoleNode, sample: ClusterSurvey, topic: TopicDescription
) -> dict[str, Any]:
    led = [TopicPartition(topic.name, row.partition) for row in topic.partitions if row.leader >= 0]
    node.gateway.cluster.routes.invalidate_topics([topic.name])
    starts = await node.gateway.run(start_offsets(led))
    ends = await node.gateway.run(end_offsets(led, isolation=Isolation.READ_COMMITTED))
    partitions = []
    for row in topic.partitions:
        place = TopicPartition(topic.name, row.partition)
        partitions.append(
            {
                "partition": row.partition,
                "leader": row.leader,
                "leader_epoch": row.leader_epoch,
                "replicas": row.replicas,
                "in_sync": row.in_sync,
                "offline": row.offline,
                "earliest": str(starts[place]) if place in starts else None,
                "latest": str(ends[place]) if place in ends else None,
                "bytes": _size_at(sample.sizes, row.leader, place),
            }
        )
    counts = [ends[place] - starts[place] for place in led]
    return {
        "name": topic.name,
        "internal": topic.is_internal,
        "replication_factor": topic.replication_factor,
        "partitions": partitions,
        "skew": round(max(counts) * len(counts) / sum(counts), 2) if sum(counts) else 1.0,
        "groups": _groups_of(node, sample, topic.name),
        "subjects": {str(side): _subject(node, topic.name, side) for side in Side},
    }


def _size_at(sizes: LogSizes | None, broker: int, place: TopicPartition) -> str | None:
    size = None if sizes is None else sizes.by_replica.get((broker, place))
    return None if size is None else str(size)


def _groups_of(node: ConsoleNode, sample: ClusterSurvey, topic: str) -> list[dict[str, Any]]:
    members = {row.group: row.members for row in sample.groups or ()}
    now = node.clock()
    return [
        {
            "group": group,
            "lag": str(lag.records),
            "lag_seconds": round(lag.seconds(now), 1),
            "members": members.get(group),
        }
        for (group, of_topic), lag in sorted(node.lag.by_group_and_topic.items())
        if of_topic == topic
    ]


def _subject(node: ConsoleNode, topic: str, side: Side) -> str | None:
    subject = Subject(f"{topic}-{side}")
    return subject if node.registry.state.has_subject(subject) else None


def _config(row: DescribedConfig) -> dict[str, Any]:
    defaults = [each.value for each in row.synonyms if each.source == ConfigSource.DEFAULT]
    known = row.config_type in ValueType.__members__.values()
    return {
        "name": row.name,
        "value": row.value,
        "source": _SOURCES.get(ConfigSource(row.config_source), "broker"),
        "default": defaults[0] if defaults else None,
        "doc": row.documentation,
        "type": ValueType(row.config_type).name.lower() if known else None,
        "sensitive": row.is_sensitive,
        "read_only": row.read_only,
    }
