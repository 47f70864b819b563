"""The machines over one internal topic: one for each of its partitions that is led here.

Which machine a group or a transactional id belongs to follows from its name alone, as every Kafka
client computes it. Keeps no rule of the machines it hosts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from penstock.broker.machine_host import HostedMachine, LoadTurns
from penstock.errors import ErrorCode, Refused
from penstock.protocol.java_hash import java_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.broker.broker import ClusterView
    from penstock.broker.partition import Partition
    from penstock.broker.partitions import Partitions

NAME_BYTES_MAX: Final = 2**15 - 1  # lengths have 16 bits in the log
CACHED_MAX: Final = 10_000  # names whose machine is cached
CACHED_CHARACTERS_MAX: Final = 255  # per name: clients must not fill the memory

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
        self._by_key: dict[
            str, HostedMachine[StateT, CommandT, EventT]
        ] = {}  # used lately; bounded
        self.is_started: bool = False

    def __iter__(self) -> Iterator[HostedMachine[StateT, CommandT, EventT]]:
        return iter(tuple(self._hosted.values()))

    def start(self) -> None:
        """Host what is led here. Needs the running event loop."""
        self.is_started = True
        self.follow()

    def follow(self) -> None:
        """Host exactly the partitions that are led here, each in its current leader epoch."""
        self._by_key.clear()
        if not self.is_started:
            return
        topic = self._partitions.topics.get(self._topic)
        partitions = {} if topic is None else topic.partitions
        led = {index: each for index, each in partitions.items() if each.is_leader}
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
        """Refuse all callers that still wait."""
        self.is_started = False
        self._by_key.clear()
        for machine in self:
            machine.close()
        self._hosted.clear()

    def of(self, key: str) -> HostedMachine[StateT, CommandT, EventT]:
        """The machine that has this group or transactional id; Refused when it is not here."""
        return self._by_key.get(key) or self._find(key)

    def _find(self, key: str) -> HostedMachine[StateT, CommandT, EventT]:
        topic = self._cluster.topic(self._topic)
        if topic is None:
            raise Refused(
                ErrorCode.not_coordinator,
                "the topic of its coordinator does not exist yet; find it again",
            )
        index = partition_of(key, len(topic.partitions))
        machine = self._hosted.get(index)
        if machine is not None:
            self._cache(key, machine)
            return machine
        partition = self._partitions.find(self._topic, index)
        if partition is not None and partition.is_leader:
            raise Refused(ErrorCode.coordinator_load_in_progress, "it is being loaded; try again")
        raise Refused(ErrorCode.not_coordinator, "another broker coordinates it; find it again")

    def _cache(self, key: str, machine: HostedMachine[StateT, CommandT, EventT]) -> None:
        if len(key) > CACHED_CHARACTERS_MAX:
            return
        if len(self._by_key) >= CACHED_MAX:
            self._by_key.clear()
        self._by_key[key] = machine


def partition_of(key: str, partition_count: int) -> int:
    """The partition of a group or a transactional id: Java's string hash of its name.

    Refused when it is too long: no log could store it, and hashing would take long.
    """
    if len(key) > NAME_BYTES_MAX or len(key.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        raise Refused(
            ErrorCode.invalid_request,
            f"a group or transactional id of more than {NAME_BYTES_MAX} bytes",
        )
    return java_hash(key) % partition_count
