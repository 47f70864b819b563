"""The group coordinators of this broker: one machine per led partition of `__consumer_offsets`.

Brings requests to the machine that their group belongs to, with the topics as the cluster knows
them now. Keeps no rule of its own; never awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from penstock.broker.cluster import ClusterController
from penstock.broker.coordinators import Coordinators
from penstock.broker.hosting import NOBODY, HostedMachine
from penstock.broker.partition import Partition
from penstock.broker.partitions import Partitions
from penstock.config.group import HEARTBEAT_INTERVAL, OFFSETS_MONOTONIC, SESSION_TIMEOUT
from penstock.config.resolve import Values
from penstock.coordination.controller.state import ConfigScope
from penstock.coordination.groups import GroupMachine, GroupSettings, Topic, TopicCatalogue
from penstock.coordination.groups.commands import Command, DropTopics, ListGroups
from penstock.coordination.groups.events import Event
from penstock.coordination.groups.state import NO_TOPICS
from penstock.coordination.groups.state import Groups as GroupTable
from penstock.errors import ErrorCode, Refused
from penstock.machine import CallerId
from penstock.model import Moment
from penstock.protocol.control import Marker

OFFSETS_TOPIC: Final = "__consumer_offsets"

Coordinator: TypeAlias = HostedMachine[GroupTable, Command, Event]


class GroupRules:
    """What one group has set for itself."""

    __slots__ = ("heartbeat_interval_ms", "is_monotonic", "session_timeout_ms")

    def __init__(self, values: Values) -> None:
        self.is_monotonic = values.flag(OFFSETS_MONOTONIC)
        self.session_timeout_ms = values.whole(SESSION_TIMEOUT)
        self.heartbeat_interval_ms = values.whole(HEARTBEAT_INTERVAL)


class Groups:
    """All group coordinators of this broker, by partition of the offsets topic."""

    def __init__(
        self,
        *,
        partitions: Partitions,
        cluster: ClusterController,
        settings: GroupSettings,
        clock: Callable[[], Moment],
    ) -> None:
        self.settings = settings
        self._cluster = cluster
        self._clock = clock
        self._machine = GroupMachine(settings)
        self._coordinators = Coordinators(OFFSETS_TOPIC, partitions, cluster, self._host)
        self._catalogue = NO_TOPICS
        self._is_catalogue_old = True
        self._dropped: set[str] = set()
        self._default_rules: GroupRules | None = None

    # The life of coordinators

    def start(self) -> None:
        """Coordinate what this broker leads. Needs the running event loop."""
        self._coordinators.start()

    def follow(self, topic: str) -> None:
        """The controller's word on a topic changed: coordinate exactly what is led here."""
        self._is_catalogue_old = True
        if topic == OFFSETS_TOPIC:
            self._coordinators.follow()
        elif self._coordinators.is_started and self._cluster.topic(topic) is None:
            self._drop_later(topic)

    def close(self) -> None:
        """Refuse what still waits."""
        self._coordinators.close()

    def _host(self, partition: Partition) -> Coordinator:
        coordinator: Coordinator = HostedMachine(
            self._machine,
            partition,
            clock=self._clock,
            marker_event=self._on_marker,
            loads_in_turns=True,  # a million offsets take seconds, and others wait
        )
        coordinator.start()
        return coordinator

    def _on_marker(self, marker: Marker) -> Event:
        return self._machine.on_marker(marker.producer_id, is_commit=marker.commit)

    def _drop_later(self, topic: str) -> None:
        """Many topics that are deleted in one turn of the loop cost one walk over the offsets."""
        if not self._dropped:
            asyncio.get_running_loop().call_soon(self._drop)
        self._dropped.add(topic)

    def _drop(self) -> None:
        gone = frozenset(topic for topic in self._dropped if self._cluster.topic(topic) is None)
        self._dropped.clear()
        for coordinator in self._coordinators:
            coordinator.tell(DropTopics(NOBODY, gone))

    # What handlers ask

    def submit(self, group_id: str, command: Callable[[CallerId], Command]) -> object:
        """Decide a command where the group is: its reply, a Refused, or a Deferred of that."""
        if not group_id:
            return Refused(ErrorCode.invalid_group_id, "group.id is empty")
        try:
            coordinator = self._coordinators.of(group_id)
        except Refused as refusal:
            return refusal
        return coordinator.submit(command)

    def list_groups(self) -> list[object]:
        """The groups of this broker, one reply per coordinator."""
        return [coordinator.submit(ListGroups) for coordinator in self._coordinators]

    def catalogue(self) -> TopicCatalogue:
        """The topics as they are now; the same object until one of them changes."""
        if self._is_catalogue_old:
            by_name = {
                topic.name: Topic(topic.topic_id, len(topic.partitions))
                for topic in self._cluster.topics()
            }
            names = {topic.topic_id: name for name, topic in by_name.items()}
            self._catalogue = TopicCatalogue(self._catalogue.version + 1, by_name, names)
            self._is_catalogue_old = False
        return self._catalogue

    def rules_of(self, group_id: str) -> GroupRules:
        """What the group has set for itself. Most have set nothing."""
        if self._cluster.state.overrides(ConfigScope.GROUP, group_id):
            return GroupRules(self._cluster.group_settings(group_id))
        if self._default_rules is None:
            self._default_rules = GroupRules(self._cluster.group_settings(group_id))
        return self._default_rules
