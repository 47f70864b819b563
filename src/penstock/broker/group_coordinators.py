"""The group coordinators of this broker: one machine per led partition of `__consumer_offsets`.

Brings commands to the machine that their group belongs to, with the topics as the cluster knows
them now. Keeps no rule of its own; never awaits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.broker.coordinators import Coordinators
from penstock.broker.machine_host import HostedMachine
from penstock.coordination.groups import (
    GroupMachine,
    GroupSettings,
    GroupsState,
    TopicCatalogue,
    TopicInfo,
)
from penstock.coordination.groups.commands import Command, DropTopics, ListGroups
from penstock.coordination.groups.events import Event
from penstock.coordination.groups.state import NO_TOPICS, ClassicGroup
from penstock.errors import ErrorCode, Refused
from penstock.machine import NO_CALLER, CallerId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.broker.metadata_image import MetadataImage
    from penstock.broker.partition import Partition
    from penstock.broker.partitions import Partitions
    from penstock.broker.settings import GroupConfig
    from penstock.model import Moment
    from penstock.protocol.control_records import Marker

OFFSETS_TOPIC: Final = "__consumer_offsets"

GroupCoordinator: TypeAlias = HostedMachine[GroupsState, Command, Event]


class GroupCoordinators:
    """All group coordinators of this broker, by partition of the offsets topic."""

    def __init__(
        self,
        *,
        partitions: Partitions,
        cluster: MetadataImage,
        settings: GroupSettings,
        clock: Callable[[], Moment],
    ) -> None:
        self.settings = settings
        self._cluster = cluster
        self._clock = clock
        self._machine = GroupMachine(settings)
        self._coordinators = Coordinators(OFFSETS_TOPIC, partitions, cluster, self._host)
        self._catalogue = NO_TOPICS
        self._is_catalogue_stale = True
        self._dropped: set[str] = set()

    # The life of coordinators.

    def start(self) -> None:
        """Coordinate what this broker leads. Needs the running event loop."""
        self._coordinators.start()

    def follow(self, topic: str) -> None:
        """A topic was created, changed or deleted: coordinate exactly what is led here."""
        self._is_catalogue_stale = True
        if topic == OFFSETS_TOPIC:
            self._coordinators.follow()
        elif self._coordinators.is_started and self._cluster.topic(topic) is None:
            self._drop_later(topic)

    def close(self) -> None:
        """Refuse all callers that still wait."""
        self._coordinators.close()

    def _host(self, partition: Partition) -> GroupCoordinator:
        return HostedMachine(
            self._machine,
            partition,
            clock=self._clock,
            marker_event=self._on_marker,
            key_name="group",
        )

    def _on_marker(self, marker: Marker) -> Event:
        return self._machine.on_marker(marker.producer_id, is_commit=marker.commit)

    def _drop_later(self, topic: str) -> None:
        """All topics that are deleted in one turn of the loop cost one pass over the offsets."""
        if not self._dropped:
            asyncio.get_running_loop().call_soon(self._drop)
        self._dropped.add(topic)

    def _drop(self) -> None:
        deleted = frozenset(topic for topic in self._dropped if self._cluster.topic(topic) is None)
        self._dropped.clear()
        for coordinator in self._coordinators:
            coordinator.report(DropTopics(NO_CALLER, deleted))

    # For metrics.

    @property
    def group_count(self) -> int:
        """Groups that this broker coordinates, without those that only have offsets."""
        return sum(len(coordinator.state.groups) for coordinator in self._coordinators)

    def members_and_generations(self) -> Iterator[tuple[str, int, int]]:
        """Of each group: its name, the number of its members, and its generation."""
        for coordinator in self._coordinators:
            for name, group in tuple(coordinator.state.groups.items()):
                number = group.generation if isinstance(group, ClassicGroup) else group.epoch
                yield name, len(group.members), number

    # For handlers.

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
        if self._is_catalogue_stale:
            by_name = {
                topic.name: TopicInfo(topic.topic_id, len(topic.partitions))
                for topic in self._cluster.topics()
            }
            names = {topic.topic_id: name for name, topic in by_name.items()}
            self._catalogue = TopicCatalogue(self._catalogue.version + 1, by_name, names)
            self._is_catalogue_stale = False
        return self._catalogue

    def config_of(self, group_id: str) -> GroupConfig:
        """The settings of a group: its own over the broker's over the defaults."""
        cluster = self._cluster
        return cluster.group_configs.get(group_id) or cluster.group_config(group_id)
