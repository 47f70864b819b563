"""How events are stored in `__cluster_metadata`: keyed JSON, with a version in each value.

A key is `<kind>/<name>`; a null value is a tombstone. An unknown kind or version is skipped, as an
older broker must when a newer one wrote it.
"""

import json
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import Any, Final, assert_never
from uuid import UUID

from penstock.coordination.controller.events import (
    NO_LOG_DIR,
    BrokerRemoved,
    BrokerSet,
    ClusterIdSet,
    ConfigScope,
    ConfigSet,
    Event,
    FeatureSet,
    HeartbeatReceived,
    PartitionRemoved,
    PartitionSet,
    PartitionState,
    ProducerIdsAllocated,
    QuotaSet,
    SessionsStarted,
    StopAwaited,
    TopicDeleted,
    TopicEvent,
    TopicSet,
    TopicsLeft,
    UnfenceAwaited,
)
from penstock.coordination.controller.state import SHARED_ROWS_MAX, shared_row
from penstock.machine import JournalRecord
from penstock.model import LeaderEpoch, NodeId, TopicId

VERSION: Final = 1
ROWS_PER_STEP: Final = 1000  # partitions of one topic that are read at a time
_COMMON_FIELDS: Final = 5  # leader to in-sync set
_ALL_FIELDS: Final = len(PartitionState._fields)
_write_json: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def write_event(event: Event) -> JournalRecord:
    """The record an event is stored as."""
    match event:
        case TopicSet() | TopicDeleted() | PartitionSet() | PartitionRemoved():
            return _write_topic_event(event)
        case ConfigSet():
            values = {"overrides": event.overrides} if event.overrides else None
            return _record("config", f"{event.scope.name.lower()}/{event.name}", values)
        case QuotaSet():
            limits = {"limits": event.limits} if event.limits else None
            return _record("quota", _write_json(event.entity), limits)
        case BrokerSet():
            return _record("broker", str(event.node_id), _broker_fields(event))
        case BrokerRemoved():
            return _record("broker", str(event.node_id), None)
        case FeatureSet():
            return _record("feature", event.name, {"level": event.level})
        case ProducerIdsAllocated():
            return _record("cluster", "producer-ids", {"end": event.end_producer_id})
        case ClusterIdSet():
            return _record("cluster", "id", {"id": event.cluster_id})
        case (
            HeartbeatReceived()
            | SessionsStarted()
            | StopAwaited()
            | UnfenceAwaited()
            | TopicsLeft()
        ):
            raise AssertionError("notes are not stored")
        case _:
            assert_never(event)


def _write_topic_event(event: TopicEvent) -> JournalRecord:
    match event:
        case TopicSet():
            rows = ",".join(map(_write_partition, event.partitions))
            fields = _write_json({"version": VERSION, "id": str(event.topic_id)})
            value = f'{fields[:-1]},"partitions":[{rows}]}}'
            return JournalRecord(f"topic/{event.name}".encode(), value.encode())
        case TopicDeleted():
            return _record("topic", event.name, None)
        case PartitionSet():
            fields = _write_json({"version": VERSION, "topic": event.topic})
            row = _write_partition(event.partition)
            value = f'{fields[:-1]},"index":{event.partition_index},"partition":{row}}}'
            return JournalRecord(f"partition/{_partition_name(event)}".encode(), value.encode())
        case PartitionRemoved():
            return _record("partition", _partition_name(event), None)
        case _:
            assert_never(event)


def read_events(record: JournalRecord) -> Sequence[Event]:
    """The events a stored record stands for: one, or none if it is from a newer version."""
    steps = read_in_steps(record)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            events: Sequence[Event] = done.value
            return events


def read_in_steps(record: JournalRecord) -> Generator[None, None, Sequence[Event]]:
    """The same, with pauses: a topic with 10 000 partitions takes 20 ms."""
    kind, _, name = record.key.decode().partition("/")
    fields = None if record.value is None else json.loads(record.value)
    if fields is not None and fields.get("version") != VERSION:
        return ()
    if fields is not None and "partitions" in fields:
        rows = fields["partitions"]
        partitions: list[PartitionState] = []
        for first in range(0, len(rows), ROWS_PER_STEP):
            if first or len(rows) > ROWS_PER_STEP:
                yield
            partitions += map(_read_partition, rows[first : first + ROWS_PER_STEP])
        fields["partitions"] = partitions
    reader = _READERS.get(kind)
    event = None if reader is None else reader(name, fields)
    return () if event is None else (event,)


def _record(kind: str, name: str, fields: dict[str, Any] | None) -> JournalRecord:
    key = f"{kind}/{name}".encode()
    if fields is None:
        return JournalRecord(key, None)
    return JournalRecord(key, _write_json({"version": VERSION, **fields}).encode())


def _partition_name(event: PartitionSet | PartitionRemoved) -> str:
    return f"{event.topic_id}/{event.partition_index}"


@lru_cache(maxsize=SHARED_ROWS_MAX)
def _write_partition(partition: PartitionState) -> str:
    """The fields in order; what few partitions have is left out when it is not there."""
    if partition.offline:
        return _write_json(partition)
    has_more = partition.elr or partition.last_known_elr or partition.is_recovering
    return _write_json(partition[: _ALL_FIELDS - 1 if has_more else _COMMON_FIELDS])


def _read_partition(row: list[Any]) -> PartitionState:
    leader, leader_epoch, partition_epoch, replicas, isr, *more = row
    elr, last_known_elr, is_recovering, *offline = more or ((), (), False)
    return shared_row(
        PartitionState(
            NodeId(leader),
            LeaderEpoch(leader_epoch),
            partition_epoch,
            tuple(replicas),
            tuple(isr),
            tuple(elr),
            tuple(last_known_elr),
            is_recovering,
            tuple(offline[0]) if offline else (),
        )
    )


def _broker_fields(broker: BrokerSet) -> dict[str, Any]:
    return {
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "epoch": broker.epoch,
        "incarnation": str(broker.incarnation),
        "fenced": broker.is_fenced,
        "stopping": broker.is_stopping,
        "log_dir": str(broker.log_dir),
    }


_Fields = dict[str, Any] | None


def _read_topic(name: str, fields: _Fields) -> Event:
    if fields is None:
        return TopicDeleted(name)
    return TopicSet(name, TopicId(UUID(fields["id"])), tuple(fields["partitions"]))


def _read_partition_set(name: str, fields: _Fields) -> Event | None:
    if fields is None:  # its topic was deleted, and has a tombstone of its own
        return None
    topic_id = TopicId(UUID(name.partition("/")[0]))
    partition = _read_partition(fields["partition"])
    return PartitionSet(fields["topic"], topic_id, fields["index"], partition)


def _read_config(name: str, fields: _Fields) -> Event | None:
    scope, _, resource = name.partition("/")
    if scope.upper() not in ConfigScope.__members__:
        return None
    overrides = {} if fields is None else fields["overrides"]
    return ConfigSet(ConfigScope[scope.upper()], resource, overrides)


def _read_quota(name: str, fields: _Fields) -> Event:
    entity = tuple((kind, entity_name) for kind, entity_name in json.loads(name))
    return QuotaSet(entity, {} if fields is None else fields["limits"])


def _read_broker(name: str, fields: _Fields) -> Event | None:
    node_id = NodeId(int(name))
    if fields is None:
        return BrokerRemoved(node_id)
    broker = BrokerSet(node_id, fields["host"], fields["port"], fields["rack"])
    if "epoch" not in fields:  # of a version that knew one broker only
        return broker
    return broker._replace(
        epoch=fields["epoch"],
        incarnation=UUID(fields["incarnation"]),
        is_fenced=fields["fenced"],
        is_stopping=fields["stopping"],
        log_dir=UUID(fields["log_dir"]) if "log_dir" in fields else NO_LOG_DIR,
    )


def _read_feature(name: str, fields: _Fields) -> Event | None:
    return None if fields is None else FeatureSet(name, fields["level"])


def _read_cluster(name: str, fields: _Fields) -> Event | None:
    if fields is None:
        return None
    if name == "producer-ids":
        return ProducerIdsAllocated(fields["end"])
    return ClusterIdSet(fields["id"]) if name == "id" else None


_READERS: Final[dict[str, Callable[[str, _Fields], Event | None]]] = {
    "topic": _read_topic,
    "partition": _read_partition_set,
    "config": _read_config,
    "quota": _read_quota,
    "broker": _read_broker,
    "feature": _read_feature,
    "cluster": _read_cluster,
}
