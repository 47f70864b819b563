"""The rules of topics and partitions: names, counts, replicas.

A name is 1 to 249 of `a-z A-Z 0-9 . _ -`, is not `.` or `..`, and differs from every other name
when periods are read as underscores.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.config.broker_keys import REPLICATION_FACTOR, broker_values
from penstock.config.topic_keys import check_topic_overrides
from penstock.coordination.controller.commands import (
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
)
from penstock.coordination.controller.each import Accepted, decide_each
from penstock.coordination.controller.events import (
    METADATA_TOPIC,
    ConfigScope,
    ConfigSet,
    Event,
    PartitionRemoved,
    PartitionState,
    TopicDeleted,
    TopicSet,
)
from penstock.coordination.controller.placement import PlacementBroker, place
from penstock.coordination.controller.settings import ControllerSettings
from penstock.coordination.controller.state import ClusterState, TopicState, folded, shared_row
from penstock.errors import ErrorCode, Refused
from penstock.machine import Outcome, Step
from penstock.model import LeaderEpoch, NodeId, TopicId

NAME_CHARS_MAX: Final = 249
PLACEMENT_STARTS: Final = 10_000  # topics begin at different brokers, by their ids
PARTITIONS_PER_REQUEST_MAX: Final = 10_000  # one request blocks the loop until it is decided
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")
FIRST_EPOCH: Final = LeaderEpoch(0)


def check_topic_name(name: str) -> None:
    """Refuse what cannot be a topic's name."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > NAME_CHARS_MAX:
        reason = f"it has {len(name)} characters, the maximum is {NAME_CHARS_MAX}"
    elif not _LEGAL.fullmatch(name):
        reason = f"'{name}' may only hold ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    raise Refused(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {reason}")


def decide_create_topics(
    state: ClusterState, command: CreateTopics, settings: ControllerSettings
) -> Outcome[Event]:
    """Create what can be created; the others are refused one by one."""
    named = Counter(topic.name for topic in command.topics)
    created: dict[str, TopicSet] = {}  # by folded name
    partitions_left = PARTITIONS_PER_REQUEST_MAX

    def create(topic: NewTopic) -> Accepted:
        nonlocal partitions_left
        _check_new_name(state, topic.name, named, created)
        event = _new_topic(state, topic, settings, partitions_left)
        overrides = _checked_overrides(state, topic, settings)
        count, factor = len(event.partitions), len(event.partitions[0].replicas)
        partitions_left -= count
        created[folded(topic.name)] = event
        # The settings come first: they are in effect when the topic is.
        configs = (ConfigSet(ConfigScope.TOPIC, topic.name, overrides),) if overrides else ()
        step = Step(topic.name, "created with {} partitions and {} replicas", (count, factor))
        return Accepted(
            (*configs, event), CreatedTopic(topic.topic_id, count, factor), story=(step,)
        )

    return decide_each(command.caller, command.topics, create, validate_only=command.validate_only)


def decide_delete_topics(state: ClusterState, command: DeleteTopics) -> Outcome[Event]:
    """Delete what exists. A topic may be named once, be it by its name or by its id."""
    topics = [
        state.topics.get(key) if isinstance(key, str) else state.topics_by_id.get(key)
        for key in command.topics
    ]
    items = list(zip(command.topics, topics, strict=True))
    named = Counter(key if topic is None else topic.topic_id for key, topic in items)

    def delete(item: tuple[str | TopicId, TopicState | None]) -> Accepted:
        key, topic = item
        if named[key if topic is None else topic.topic_id] > 1:
            raise Refused(ErrorCode.invalid_request, "The topic is named twice.")
        if topic is None:
            by_name = isinstance(key, str)
            code = ErrorCode.unknown_topic_or_partition if by_name else ErrorCode.unknown_topic_id
            raise Refused(code, "This server does not host this topic.")
        return Accepted(
            tuple(_deletion(state, topic)),
            (topic.name, topic.topic_id),
            story=(Step(topic.name, "deleted"),),
        )

    return decide_each(command.caller, items, delete)


def _deletion(state: ClusterState, topic: TopicState) -> list[Event]:
    """A tombstone for every record about the topic."""
    events: list[Event] = [TopicDeleted(topic.name)]
    if state.overrides(ConfigScope.TOPIC, topic.name):
        events.append(ConfigSet(ConfigScope.TOPIC, topic.name, {}))
    events += [
        PartitionRemoved(topic.topic_id, index)
        for index, partition in enumerate(topic.partitions)
        if partition.partition_epoch > 0  # only then it can have a record of its own
    ]
    return events


def decide_create_partitions(state: ClusterState, command: CreatePartitions) -> Outcome[Event]:
    """Add partitions to topics. Existing partitions stay as they are."""
    named = Counter(topic.name for topic in command.topics)

    def add(requested: NewPartitions) -> Accepted:
        if named[requested.name] > 1:
            raise Refused(ErrorCode.invalid_request, "The topic is named twice.")
        event = _with_partitions(state, requested)
        step = Step(requested.name, "has {} partitions now", (len(event.partitions),))
        return Accepted((event,), story=(step,))

    return decide_each(command.caller, command.topics, add, validate_only=command.validate_only)


def _check_new_name(
    state: ClusterState, name: str, named: Mapping[str, int], created: Mapping[str, TopicSet]
) -> None:
    if named[name] > 1:
        raise Refused(ErrorCode.invalid_request, "The topic is named twice in one request.")
    check_topic_name(name)
    if name == METADATA_TOPIC:
        raise Refused(ErrorCode.invalid_request, f"{name} is reserved and cannot be created.")
    if name in state.topics:
        raise Refused(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
    alike = set(state.topics_by_folded_name.get(folded(name), ()))
    if folded(name) in created:
        alike.add(created[folded(name)].name)
    if alike:
        raise Refused(
            ErrorCode.invalid_topic_exception,
            f"Topic '{name}' collides with existing topic: {', '.join(sorted(alike))} "
            "(a period and an underscore count as the same)",
        )


def _checked_overrides(
    state: ClusterState, topic: NewTopic, settings: ControllerSettings
) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for name, value in topic.overrides:
        if value is None:
            raise Refused(ErrorCode.invalid_config, f"{name} is set to null")
        overrides[name] = value
    check_topic_overrides(overrides, state.layers(settings.node_id, settings.static))
    return overrides


def _new_topic(
    state: ClusterState, topic: NewTopic, settings: ControllerSettings, partitions_left: int
) -> TopicSet:
    if topic.assignments:
        if topic.partition_count is not None or topic.replication_factor is not None:
            raise Refused(
                ErrorCode.invalid_request,
                "Replicas are assigned explicitly, so the counts must both be -1.",
            )
        rows = _assigned(state, topic.assignments)
    else:
        count, factor = topic.partition_count, topic.replication_factor
        count = settings.default_partition_count if count is None else count
        factor = _default_replication_factor(state, settings) if factor is None else factor
        if count <= 0:
            raise Refused(
                ErrorCode.invalid_partitions, "The number of partitions must be at least 1, or -1."
            )
        _check_partition_count(count, partitions_left)
        rows = _placed(state, factor, first=0, count=count, shift=topic.topic_id.int)
    _check_partition_count(len(rows), partitions_left)
    return TopicSet(topic.name, topic.topic_id, tuple(_new_partition(state, row) for row in rows))


def _default_replication_factor(state: ClusterState, settings: ControllerSettings) -> int:
    values = broker_values(state.layers(settings.node_id, settings.static))
    return values.integer(REPLICATION_FACTOR)


def _check_partition_count(count: int, partitions_left: int) -> None:
    if count > partitions_left:
        raise Refused(
            ErrorCode.policy_violation,
            f"One request may create at most {PARTITIONS_PER_REQUEST_MAX} partitions.",
        )


def _assigned(
    state: ClusterState, assignments: Sequence[tuple[int, tuple[int, ...]]]
) -> list[tuple[NodeId, ...]]:
    by_partition = dict(assignments)
    if sorted(by_partition) != list(range(len(assignments))):
        raise Refused(
            ErrorCode.invalid_replica_assignment,
            "Assigned partitions must be numbered from 0, each once, without a gap.",
        )
    factor = len(by_partition[0])
    rows = [by_partition[index] for index in range(len(assignments))]
    return [_checked_replicas(state, row, factor) for row in rows]


def _checked_replicas(state: ClusterState, row: Sequence[int], factor: int) -> tuple[NodeId, ...]:
    """Replicas that were assigned explicitly, or a refusal."""
    if not row:
        reason = "it has no replicas"
    elif len(set(row)) != len(row):
        reason = "it names a broker twice"
    elif len(row) != factor:
        reason = f"it has {len(row)} replicas where others have {factor}"
    elif unknown := [node for node in row if node not in state.brokers]:
        reason = f"broker {unknown[0]} is not registered"
    else:
        return tuple(NodeId(node) for node in row)
    raise Refused(ErrorCode.invalid_replica_assignment, f"The assignment {list(row)}: {reason}.")


def _placed(
    state: ClusterState, factor: int, *, first: int, count: int, shift: int
) -> list[tuple[NodeId, ...]]:
    """Replicas on the brokers in turn; `shift` lets topics begin at different brokers."""
    if factor <= 0:
        raise Refused(
            ErrorCode.invalid_replication_factor,
            "The replication factor must be at least 1, or -1 for the default.",
        )
    brokers = [
        PlacementBroker(broker.node_id, broker.rack, broker.is_fenced or broker.is_stopping)
        for broker in state.brokers.values()
    ]
    return place(brokers, count, factor, start=first + shift % PLACEMENT_STARTS)


def _new_partition(state: ClusterState, replicas: tuple[NodeId, ...]) -> PartitionState:
    """Led by the first replica that is alive; in sync are those that are."""
    active = tuple(node for node in replicas if state.is_active(node))
    if not active:
        raise Refused(
            ErrorCode.invalid_replica_assignment,
            f"None of the brokers {list(replicas)} is alive.",
        )
    return shared_row(PartitionState(active[0], FIRST_EPOCH, 0, replicas, active))


def _with_partitions(state: ClusterState, requested: NewPartitions) -> TopicSet:
    topic = state.topics.get(requested.name)
    if topic is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, "This server does not host this topic.")
    added = requested.total_count - len(topic.partitions)
    if added <= 0:
        raise Refused(
            ErrorCode.invalid_partitions,
            f"The topic {requested.name} has {len(topic.partitions)} partition(s); "
            f"{requested.total_count} would not be an increase.",
        )
    _check_partition_count(added, PARTITIONS_PER_REQUEST_MAX)
    rows = _added_replicas(state, topic, requested, added)
    partitions = (*topic.partitions, *(_new_partition(state, row) for row in rows))
    return TopicSet(topic.name, topic.topic_id, partitions)


def _added_replicas(
    state: ClusterState, topic: TopicState, requested: NewPartitions, added: int
) -> list[tuple[NodeId, ...]]:
    factor = len(topic.partitions[0].replicas)
    if requested.assignments is None:
        first = len(topic.partitions)
        return _placed(state, factor, first=first, count=added, shift=topic.topic_id.int)
    given = len(requested.assignments)
    if given != added:
        raise Refused(
            ErrorCode.invalid_replica_assignment,
            f"{added} partition(s) are added, but {given} assignment(s) given.",
        )
    return [_checked_replicas(state, row, factor) for row in requested.assignments]


def find_partition(state: ClusterState, topic: str, index: int) -> tuple[TopicId, PartitionState]:
    """An existing partition with its topic's id, or a refusal."""
    known = state.topics.get(topic)
    if known is None or not 0 <= index < len(known.partitions):
        raise Refused(
            ErrorCode.unknown_topic_or_partition, f"There is no partition {topic}-{index}."
        )
    return known.topic_id, known.partitions[index]
