"""The rules of topics and partitions: names, counts, replicas.

A name is 1 to 249 of `a-z A-Z 0-9 . _ -`, is not `.` or `..`, and differs from every other name
when periods are read as underscores.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.config.topic_keys import check_topic_overrides
from penstock.coordination.controller.commands import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MadeTopic,
    MorePartitions,
    NewTopic,
)
from penstock.coordination.controller.settings import ControllerRules
from penstock.coordination.controller.state import (
    METADATA_TOPIC,
    Cluster,
    ConfigScope,
    ConfigSet,
    Event,
    PartitionForgotten,
    PartitionState,
    Topic,
    TopicDeleted,
    TopicSet,
    folded,
)
from penstock.errors import ErrorCode, Refused
from penstock.machine import Outcome, Reply
from penstock.model import LeaderEpoch, NodeId, TopicId

NAME_CHARS_MAX: Final = 249
PARTITIONS_PER_REQUEST_MAX: Final = 10_000  # one request blocks the loop until it is decided
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")
FIRST_EPOCH: Final = LeaderEpoch(0)


def check_topic_name(name: str) -> None:
    """Refuse what cannot be a topic's name."""
    if not name:
        wrong = "the empty string is not allowed"
    elif name in (".", ".."):
        wrong = f"'{name}' is not allowed"
    elif len(name) > NAME_CHARS_MAX:
        wrong = f"it has {len(name)} characters, and {NAME_CHARS_MAX} is the most"
    elif not _LEGAL.fullmatch(name):
        wrong = f"'{name}' may only hold ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    raise Refused(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {wrong}")


def decide_create_topics(
    state: Cluster, command: CreateTopics, rules: ControllerRules
) -> Outcome[Event]:
    """Make what can be made, and say of the rest why not."""
    named = Counter(topic.name for topic in command.topics)
    made: dict[str, TopicSet] = {}
    answers: list[MadeTopic | Refused] = []
    events: list[Event] = []
    partitions_left = PARTITIONS_PER_REQUEST_MAX
    for topic in command.topics:
        try:
            _check_new_name(state, topic.name, named, made)
            created = _new_topic(state, topic, rules, partitions_left)
            overrides = _checked_overrides(state, topic, rules)
        except Refused as refusal:
            answers.append(refusal)
            continue
        partitions_left -= len(created.partitions)
        made[folded(topic.name)] = created
        replicas = created.partitions[0].replicas
        answers.append(MadeTopic(topic.topic_id, len(created.partitions), len(replicas)))
        # settings first: whoever hears of the topic finds them in place
        if overrides:
            events.append(ConfigSet(ConfigScope.TOPIC, topic.name, overrides))
        events.append(created)
    return _answered(command, events, answers)


def decide_delete_topics(state: Cluster, command: DeleteTopics) -> Outcome[Event]:
    """Delete what there is. A topic may be meant once, be it by its name or by its id."""
    found = [
        state.topics.get(wanted) if isinstance(wanted, str) else state.topics_by_id.get(wanted)
        for wanted in command.topics
    ]
    named = Counter(
        wanted if topic is None else topic.topic_id
        for wanted, topic in zip(command.topics, found, strict=True)
    )
    events: list[Event] = []
    answers: list[object] = []
    for wanted, topic in zip(command.topics, found, strict=True):
        if named[wanted if topic is None else topic.topic_id] > 1:
            answers.append(Refused(ErrorCode.invalid_request, "The topic is named twice."))
        elif topic is None:
            by_name = isinstance(wanted, str)
            code = ErrorCode.unknown_topic_or_partition if by_name else ErrorCode.unknown_topic_id
            answers.append(Refused(code, "This server does not host this topic."))
        else:
            answers.append((topic.name, topic.topic_id))
            events += _gone(state, topic)
    return Outcome(events=tuple(events), replies=(Reply(command.caller, answers),))


def _gone(state: Cluster, topic: Topic) -> list[Event]:
    """A topic's end, and the end of every record that was about it."""
    events: list[Event] = [TopicDeleted(topic.name)]
    if state.overrides(ConfigScope.TOPIC, topic.name):
        events.append(ConfigSet(ConfigScope.TOPIC, topic.name, {}))
    events += [
        PartitionForgotten(topic.topic_id, index)
        for index, partition in enumerate(topic.partitions)
        if partition.partition_epoch > 0  # only such a one can have a record of its own
    ]
    return events


def decide_create_partitions(
    state: Cluster, command: CreatePartitions, rules: ControllerRules
) -> Outcome[Event]:
    """Widen topics. Partitions that are there stay as they are."""
    named = Counter(more.name for more in command.topics)
    events: list[Event] = []
    answers: list[Refused | None] = []
    for more in command.topics:
        try:
            if named[more.name] > 1:
                raise Refused(ErrorCode.invalid_request, "The topic is named twice.")
            events.append(_widened(state, more, rules))
            answers.append(None)
        except Refused as refusal:
            answers.append(refusal)
    return _answered(command, events, answers)


def _answered(
    command: CreateTopics | CreatePartitions, events: Sequence[Event], answers: Sequence[object]
) -> Outcome[Event]:
    reply = Reply(command.caller, list(answers))
    return Outcome(events=() if command.validate_only else tuple(events), replies=(reply,))


def _check_new_name(
    state: Cluster, name: str, named: Mapping[str, int], made: dict[str, TopicSet]
) -> None:
    if named[name] > 1:
        raise Refused(ErrorCode.invalid_request, "The topic is named twice in one request.")
    check_topic_name(name)
    if name == METADATA_TOPIC:
        raise Refused(
            ErrorCode.invalid_request, f"{name} is the cluster's own and cannot be created."
        )
    if name in state.topics:
        raise Refused(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
    alike = set(state.topics_by_folded_name.get(folded(name), ()))
    alike.update(each.name for each in (made.get(folded(name)),) if each is not None)
    if alike:
        raise Refused(
            ErrorCode.invalid_topic_exception,
            f"Topic '{name}' collides with existing topic: {', '.join(sorted(alike))} "
            "(a period and an underscore count as the same)",
        )


def _checked_overrides(state: Cluster, topic: NewTopic, rules: ControllerRules) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for name, value in topic.overrides:
        if value is None:
            raise Refused(ErrorCode.invalid_config, f"{name} is set to null")
        overrides[name] = value
    check_topic_overrides(overrides, state.layers(rules.node_id, rules.static))
    return overrides


def _new_topic(
    state: Cluster, topic: NewTopic, rules: ControllerRules, partitions_left: int
) -> TopicSet:
    if topic.assignments:
        if topic.partition_count is not None or topic.replication_factor is not None:
            raise Refused(
                ErrorCode.invalid_request,
                "Replicas were assigned by hand, so the counts must both be -1.",
            )
        rows = _assigned(state, topic.assignments)
    else:
        count, factor = topic.partition_count, topic.replication_factor
        count = rules.default_partition_count if count is None else count
        factor = rules.default_replication_factor if factor is None else factor
        if count <= 0:
            raise Refused(
                ErrorCode.invalid_partitions, "The number of partitions must be at least 1, or -1."
            )
        _check_partition_count(count, partitions_left)
        rows = _placed(state, factor, first=0, count=count, shift=topic.topic_id.int)
    _check_partition_count(len(rows), partitions_left)
    return TopicSet(topic.name, topic.topic_id, tuple(_new_partition(row) for row in rows))


def _check_partition_count(count: int, partitions_left: int) -> None:
    if count > partitions_left:
        raise Refused(
            ErrorCode.policy_violation,
            "The request asks for more partitions than one request may make.",
        )


def _assigned(
    state: Cluster, assignments: Sequence[tuple[int, tuple[int, ...]]]
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


def _checked_replicas(state: Cluster, row: Sequence[int], factor: int) -> tuple[NodeId, ...]:
    """Replicas assigned by hand, if such replicas can be."""
    if not row:
        wrong = "it has no replicas"
    elif len(set(row)) != len(row):
        wrong = "it names a broker twice"
    elif len(row) != factor:
        wrong = f"it has {len(row)} replicas where others have {factor}"
    elif unknown := [node for node in row if node not in state.brokers]:
        wrong = f"it includes broker {unknown[0]}, and no such broker is registered"
    else:
        return tuple(NodeId(node) for node in row)
    raise Refused(ErrorCode.invalid_replica_assignment, f"The assignment {list(row)}: {wrong}.")


def _placed(
    state: Cluster, factor: int, *, first: int, count: int, shift: int
) -> list[tuple[NodeId, ...]]:
    """Replicas spread over the brokers in turn; `shift` lets topics begin at different brokers."""
    if factor <= 0:
        raise Refused(
            ErrorCode.invalid_replication_factor,
            "The replication factor must be at least 1, or -1 for the default.",
        )
    brokers = sorted(state.brokers)
    if factor > len(brokers):
        raise Refused(
            ErrorCode.invalid_replication_factor,
            f"{factor} replicas need {factor} brokers, and {len(brokers)} are registered.",
        )
    starts = range(first + shift % len(brokers), first + shift % len(brokers) + count)
    return [
        tuple(brokers[(start + step) % len(brokers)] for step in range(factor)) for start in starts
    ]


def _new_partition(replicas: tuple[NodeId, ...]) -> PartitionState:
    return PartitionState(replicas[0], FIRST_EPOCH, 0, replicas, replicas)


def _widened(state: Cluster, more: MorePartitions, rules: ControllerRules) -> TopicSet:
    topic = state.topics.get(more.name)
    if topic is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, "This server does not host this topic.")
    added = more.total_count - len(topic.partitions)
    if added <= 0:
        raise Refused(
            ErrorCode.invalid_partitions,
            f"The topic {more.name} has {len(topic.partitions)} partition(s); "
            f"{more.total_count} would not be an increase.",
        )
    _check_partition_count(added, PARTITIONS_PER_REQUEST_MAX)
    rows = _added_replicas(state, topic, more, added)
    partitions = (*topic.partitions, *(_new_partition(row) for row in rows))
    return TopicSet(topic.name, topic.topic_id, partitions)


def _added_replicas(
    state: Cluster, topic: Topic, more: MorePartitions, added: int
) -> list[tuple[NodeId, ...]]:
    factor = len(topic.partitions[0].replicas)
    if more.assignments is None:
        first = len(topic.partitions)
        return _placed(state, factor, first=first, count=added, shift=topic.topic_id.int)
    if len(more.assignments) != added:
        raise Refused(
            ErrorCode.invalid_replica_assignment,
            f"{added} partition(s) are added, but {len(more.assignments)} assignment(s) given.",
        )
    return [_checked_replicas(state, row, factor) for row in more.assignments]


def partition_of(state: Cluster, topic: str, index: int) -> tuple[TopicId, PartitionState]:
    """A partition that must be there."""
    found = state.topics.get(topic)
    if found is None or not 0 <= index < len(found.partitions):
        raise Refused(
            ErrorCode.unknown_topic_or_partition, f"There is no partition {topic}-{index}."
        )
    return found.topic_id, found.partitions[index]
