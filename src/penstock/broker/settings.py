"""The broker's views of its settings, of a topic's and of a group's."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final, NamedTuple

from penstock.config.broker_keys import (
    HEARTBEAT_INTERVAL,
    OFFSETS_MONOTONIC,
    SESSION_TIMEOUT,
    broker_values,
)
from penstock.config.resolve import Layers, Row, Values, contains, view
from penstock.config.topic_keys import topic_values
from penstock.log.settings import LogSettings, RetentionSettings, log_settings
from penstock.model import Millis, NodeId
from penstock.upkeep.settings import CompactionSettings

CODECS_WITH_LEVEL: Final = ("gzip", "lz4", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """The limits of connections. Each limit costs only the connection that reaches it."""

    request_bytes_max: Annotated[int, Row("socket.request.max.bytes")]
    connections_max: Annotated[int, Row("max.connections")]
    connections_per_host_max: Annotated[int, Row("max.connections.per.ip")]
    idle_ms: Annotated[Millis, Row("connections.max.idle.ms")]  # without a request in flight
    frame_ms: Annotated[Millis, Row("penstock.request.timeout.ms")]  # from first to last byte
    in_flight_max: Annotated[int, Row("penstock.requests.in.flight.max")]  # then reading pauses
    unsent_bytes_max: Annotated[int, Row("penstock.unsent.max.bytes")]  # then reading pauses
    backlog: Annotated[int, Row("socket.listen.backlog.size")]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The broker's own settings, fixed at its start."""

    node_id: NodeId
    network: NetworkSettings
    fetch_bytes_max: Annotated[int, Row("fetch.max.bytes")]  # of one response
    fetch_sessions_max: Annotated[int, Row("max.incremental.fetch.session.cache.slots")]
    creates_missing_topics: Annotated[bool, Row("auto.create.topics.enable")]
    can_delete_topics: Annotated[bool, Row("delete.topic.enable")]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsTopicSettings:
    """How `__consumer_offsets` is created."""

    partition_count: Annotated[int, Row("offsets.topic.num.partitions")]
    replication_factor: Annotated[int, Row("offsets.topic.replication.factor")]
    segment_bytes: Annotated[int, Row("offsets.topic.segment.bytes")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionTopicSettings:
    """How `__transaction_state` is created."""

    partition_count: Annotated[int, Row("transaction.state.log.num.partitions")]
    replication_factor: Annotated[int, Row("transaction.state.log.replication.factor")]
    segment_bytes: Annotated[int, Row("transaction.state.log.segment.bytes")]
    min_insync_replicas: Annotated[int, Row("transaction.state.log.min.isr")]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The settings that one group may set for itself."""

    is_monotonic: Annotated[bool, Row(OFFSETS_MONOTONIC)]
    session_timeout_ms: Annotated[int, Row(SESSION_TIMEOUT)]
    heartbeat_interval_ms: Annotated[int, Row(HEARTBEAT_INTERVAL)]


class TimestampType(Enum):
    """The clock that a record's timestamp is from: the producer's or the broker's."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionSettings:
    """The conditions that a produced batch must meet. None is without limit."""

    max_message_bytes: Annotated[int, Row("max.message.bytes")]
    timestamp_type: Annotated[TimestampType, Row("message.timestamp.type", TimestampType)]
    timestamp_before_max_ms: Annotated[Millis | None, Row("message.timestamp.before.max.ms")]
    timestamp_after_max_ms: Annotated[Millis, Row("message.timestamp.after.max.ms")]
    compression: Annotated[str, Row("compression.type")]
    compression_level: int | None  # None: the codec's default
    min_insync_replicas: Annotated[int, Row("min.insync.replicas")]
    keys_required: Annotated[bool, Row("cleanup.policy", contains("compact"))]


class TopicSettings(NamedTuple):
    """A topic's settings, one view for each package."""

    log: LogSettings
    admission: AdmissionSettings
    retention: RetentionSettings
    compaction: CompactionSettings


def topic_settings(overrides: Mapping[str, str], layers: Layers) -> TopicSettings:
    """The views of a topic with these overrides, which were checked before they were stored."""
    values = topic_values(overrides, layers)
    expiration_ms = Millis(broker_values(layers).integer("producer.id.expiration.ms"))
    return TopicSettings(
        log=log_settings(values, producer_id_expiration_ms=expiration_ms),
        admission=view(AdmissionSettings, values, compression_level=_compression_level(values)),
        retention=view(RetentionSettings, values),
        compaction=view(CompactionSettings, values),
    )


def _compression_level(values: Values) -> int | None:
    codec = values.text("compression.type")
    if codec not in CODECS_WITH_LEVEL:
        return None
    level = values.integer(f"compression.{codec}.level")
    return None if codec == "gzip" and level == -1 else level
