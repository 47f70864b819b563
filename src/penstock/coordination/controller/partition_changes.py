"""Changes of many partitions at once, for one reason: the events of one batch.

A topic of which several partitions change is written whole; one partition alone has its own record.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from penstock.config.broker_keys import MIN_INSYNC
from penstock.config.topic_keys import topic_values
from penstock.coordination.controller.elections import ElectionRules
from penstock.coordination.controller.events import (
    ConfigScope,
    PartitionSet,
    PartitionState,
    TopicEvent,
    TopicSet,
)
from penstock.coordination.controller.settings import ControllerSettings
from penstock.coordination.controller.state import ClusterState, TopicState, shared_row

if TYPE_CHECKING:
    from penstock.config.resolve import Layers

UNCLEAN = "unclean.leader.election.enable"


class TopicRules:
    """The election rules of topics, by their settings; made once for all topics of a change."""

    def __init__(self, state: ClusterState, settings: ControllerSettings) -> None:
        self._state = state
        self._layers: Layers = state.layers(settings.node_id, settings.static)
        self._default = self._rules({})

    def of(self, topic: str) -> ElectionRules:
        """What the topic's settings say."""
        overrides = self._state.overrides(ConfigScope.TOPIC, topic)
        if MIN_INSYNC in overrides or UNCLEAN in overrides:
            return self._rules(overrides)
        return self._default

    def _rules(self, overrides: dict[str, str]) -> ElectionRules:
        values = topic_values(overrides, self._layers)
        return ElectionRules(values.integer(MIN_INSYNC), bool(values[UNCLEAN]))


Changed: TypeAlias = tuple[TopicState, int, PartitionState]  # partition index, and its row now


def changed_partitions(
    state: ClusterState,
    settings: ControllerSettings,
    change: Callable[[PartitionState, ElectionRules], PartitionState],
    topics: Iterable[TopicState] | None = None,
) -> Iterator[Changed]:
    """Every partition, of these topics or of all, that `change` makes different.

    Equal rows are shared: each is changed once.
    """
    rules = TopicRules(state, settings)
    changed: dict[ElectionRules, dict[int, PartitionState]] = {}  # by the row's identity
    for topic in state.topics.values() if topics is None else topics:
        of_topic = rules.of(topic.name)
        known = changed.setdefault(of_topic, {})
        for index, row in enumerate(topic.partitions):
            after = known.get(id(row))
            if after is None:
                after = change(row, of_topic)
                known[id(row)] = after = row if after is row else shared_row(after)
            if after is not row:
                yield topic, index, after


def events_for(changes: Iterable[Changed]) -> list[TopicEvent]:
    """The records of changed partitions, as few as possible."""
    by_topic: dict[str, tuple[TopicState, dict[int, PartitionState]]] = {}
    for topic, index, row in changes:
        by_topic.setdefault(topic.name, (topic, {}))[1][index] = row
    events: list[TopicEvent] = []
    for topic, rows in by_topic.values():
        if len(rows) == 1:
            ((index, row),) = rows.items()
            events.append(PartitionSet(topic.name, topic.topic_id, index, row))
        else:
            partitions = [rows.get(index, row) for index, row in enumerate(topic.partitions)]
            events.append(TopicSet(topic.name, topic.topic_id, tuple(partitions)))
    return events
