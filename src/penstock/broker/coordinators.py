"""The machines over one internal topic: one for each of its partitions that is led here.

Which machine a group or a transactional id belongs to follows from its name alone, as every Kafka
client computes it. Keeps no rule of the machines it holds.

The group coordinators of this broker: one machine per led partition of `__consumer_offsets`.

Brings requests to the machine that their group belongs to, with the topics as the cluster knows
them now. Keeps no rule of its own; never awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeAlias, TypeVar

from penstock.broker.broker import ClusterView
from penstock.broker.machine_host import HostedMachine, LoadTurns
from penstock.broker.metadata_image import ClusterController
from penstock.broker.partition import Partition
from penstock.broker.partitions import Partitions
from penstock.broker.settings import GroupConfig
from penstock.coordination.controller.events import ConfigScope
from penstock.coordination.groups import GroupMachine, GroupSettings, Topic, TopicCatalogue
from penstock.coordination.groups.commands import Command, DropTopics, ListGroups
from penstock.coordination.groups.events import Event
from penstock.coordination.groups.state import NO_TOPICS
from penstock.coordination.groups.state import Groups as GroupTable
from penstock.errors import ErrorCode, Refused
from penstock.machine import NO_CALLER, CallerId
from penstock.model import Moment
from penstock.protocol.control_records import Marker
from penstock.protocol.java_hash import java_hash

NAME_BYTES_MAX: Final = 2**15 - 1  # lengths have 16 bits in the log
_KEPT_MAX: Final = 10_000  # names whose machine is remembered
_KEPT_CHARACTERS_MAX: Final = 255  # what is sent must not fill our memory

StateT = TypeVar("StateT")
CommandT = TypeVar("CommandT")
EventT = TypeVar("EventT")


class Coordinators(Generic[StateT, CommandT, EventT]):
    """From `start` to `close` there is a machine for each led partition, and for no other."""

    def __init__(
        self,
        topic: str,
        partitions: Partitions,
        cluster: ClusterView,
        host: Callable[[Partition], HostedMachine[StateT, CommandT, EventT]],
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._cluster = cluster
        self._host = host
        self._loads = LoadTurns()
        self._hosted: dict[int, HostedMachine[StateT, CommandT, EventT]] = {}
        self._by_key: dict[str, HostedMachine[StateT, CommandT, EventT]] = {}  # asked for lately
        self.is_started = False

    def __iter__(self) -> Iterator[HostedMachine[StateT, CommandT, EventT]]:
        return iter(tuple(self._hosted.values()))

    def start(self) -> None:
        """Host what is led here. Needs the running event loop."""
        self.is_started = True
        self.follow()

    def follow(self) -> None:
        """The controller's word on the topic changed."""
        self._by_key.clear()
        if not self.is_started:
            return
        topic = self._partitions.topics.get(self._topic)
        held = {} if topic is None else topic.partitions
        led = {index: partition for index, partition in held.items() if partition.is_leader}
        for index, machine in tuple(self._hosted.items()):
            partition = led.get(index)
            if partition is not machine.partition or partition.leader_epoch != machine.leader_epoch:
                del self._hosted[index]
                machine.close()
        for index, partition in led.items():
            if index not in self._hosted:
                self._hosted[index] = self._host(partition)
                self._loads.add(self._hosted[index])

    def close(self) -> None:
        """Refuse what still waits."""
        self.is_started = False
        self._by_key.clear()
        for machine in self:
            machine.close()
        self._hosted.clear()

    def at(self, index: int) -> HostedMachine[StateT, CommandT, EventT] | None:
        """The machine over that partition, if it is hosted here."""
        return self._hosted.get(index)

    def of(self, key: str) -> HostedMachine[StateT, CommandT, EventT]:
        """The machine that has this group or transactional id; Refused when it is not here."""
        kept = self._by_key.get(key)
        return self._find(key) if kept is None else kept

    def _find(self, key: str) -> HostedMachine[StateT, CommandT, EventT]:
        topic = self._cluster.topic(self._topic)
        if topic is None:
            raise Refused(ErrorCode.not_coordinator, "nobody has asked for a coordinator yet")
        index = partition_of(key, len(topic.partitions))
        machine = self._hosted.get(index)
        if machine is not None:
            self._keep(key, machine)
            return machine
        partition = self._partitions.find(self._topic, index)
        if partition is not None and partition.is_leader:
            raise Refused(ErrorCode.coordinator_load_in_progress, "it is being loaded; try again")
        raise Refused(ErrorCode.not_coordinator, "another broker coordinates it; find it again")

    def _keep(self, key: str, machine: HostedMachine[StateT, CommandT, EventT]) -> None:
        if len(key) > _KEPT_CHARACTERS_MAX:
            return
        if len(self._by_key) >= _KEPT_MAX:
            self._by_key.clear()
        self._by_key[key] = machine


def partition_of(key: str, partition_count: int) -> int:
    """Where a group or a transactional id is coordinated: Java's string hash of its name.

    Refused when it is too long to be anybody's: no log could keep it, and hashing would take long.
    """
    if len(key) > NAME_BYTES_MAX or len(key.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        told = f"a group or transactional id of more than {NAME_BYTES_MAX} bytes"
        raise Refused(ErrorCode.invalid_request, told)
    return java_hash(key) % partition_count


OFFSETS_TOPIC: Final = "__consumer_offsets"

Coordinator: TypeAlias = HostedMachine[GroupTable, Command, Event]


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
        self._default_config: GroupConfig | None = None

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
        )
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
            coordinator.report(DropTopics(NO_CALLER, gone))

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

    def config_of(self, group_id: str) -> GroupConfig:
        """What the group has set for itself. Most have set nothing."""
        if self._cluster.state.overrides(ConfigScope.GROUP, group_id):
            return self._cluster.group_config(group_id)
        if self._default_config is None:
            self._default_config = self._cluster.group_config(group_id)
        return self._default_config
