"""Log lines for operators: what committed metadata changes in the cluster, one line per event.

Only the active controller logs, so that an event has one line and not one per broker. Changes of
many partitions in one batch are one line with their number.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.coordination.controller.events import (
    NO_LEADER,
    BrokerRemoved,
    BrokerSet,
    PartitionSet,
    TopicSet,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.coordination.controller.events import Event, PartitionState
    from penstock.coordination.controller.state import ClusterState
    from penstock.model import NodeId

logger: Final = logging.getLogger(__name__)


class ClusterLine(NamedTuple):
    """One line, and its level."""

    level: int
    text: str


class ClusterLog:
    """Logs a batch before it is applied, while this broker is the active controller."""

    def __init__(self, is_active: Callable[[], bool], last_step: Callable[[NodeId], str]) -> None:
        self._is_active = is_active
        self._last_step = last_step  # of a broker's story

    def note(self, state: ClusterState, events: Iterable[Event]) -> None:
        """These events are committed; the state is that before them."""
        if self._is_active():
            for line in changes_of(state, events, self._last_step):
                logger.log(*line)


def changes_of(
    state: ClusterState, events: Iterable[Event], last_step: Callable[[NodeId], str]
) -> Iterator[ClusterLine]:
    """What these events change, in words."""
    elected = unclean = leaderless = shrunk = expanded = 0
    for event in events:
        if isinstance(event, BrokerSet):
            yield from _of_broker(state.brokers.get(event.node_id), event, last_step)
        elif isinstance(event, BrokerRemoved):
            yield ClusterLine(logging.INFO, f"broker {event.node_id} was unregistered")
        for old, new in _partition_changes(state, event):
            if new.leader != old.leader:
                has_leader = new.leader != NO_LEADER
                elected += has_leader
                unclean += has_leader and new.is_recovering
                leaderless += not has_leader
            shrunk += len(new.isr) < len(old.isr)
            expanded += len(new.isr) > len(old.isr)
    if elected:
        yield ClusterLine(logging.INFO, f"{_partitions(elected)} got another leader")
    if unclean:
        yield ClusterLine(
            logging.WARNING,
            f"{_partitions(unclean)} got a leader that may lack committed records",
        )
    if leaderless:
        yield ClusterLine(logging.WARNING, f"{_partitions(leaderless)} lost the last leader")
    if shrunk or expanded:
        text = f"in-sync replicas: {_partitions(shrunk)} lost some, {expanded} gained some"
        yield ClusterLine(logging.INFO, text)


def _of_broker(
    old: BrokerSet | None, new: BrokerSet, last_step: Callable[[NodeId], str]
) -> Iterator[ClusterLine]:
    name = f"broker {new.node_id}"
    if old is None or old.epoch != new.epoch:
        yield ClusterLine(logging.INFO, f"{name} registered at {new.host}:{new.port}")
    elif new.is_fenced and not old.is_fenced:
        level = logging.INFO if old.is_stopping else logging.WARNING
        step = last_step(new.node_id)
        yield ClusterLine(level, f"{name} is {step if step.startswith('fenced') else 'fenced'}")
    elif old.is_fenced and not new.is_fenced:
        yield ClusterLine(logging.INFO, f"{name} is unfenced")
    elif new.is_stopping and not old.is_stopping:
        yield ClusterLine(logging.INFO, f"{name} is stopping")


def _partition_changes(
    state: ClusterState, event: Event
) -> Iterator[tuple[PartitionState, PartitionState]]:
    """Partitions that exist already, before and after an event."""
    if isinstance(event, PartitionSet):
        topic = state.topics.get(event.topic)
        if topic is not None and event.partition_index < len(topic.partitions):
            yield topic.partitions[event.partition_index], event.partition
    elif isinstance(event, TopicSet):
        topic = state.topics.get(event.name)
        if topic is not None and topic.topic_id == event.topic_id:
            yield from zip(topic.partitions, event.partitions, strict=False)


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"
