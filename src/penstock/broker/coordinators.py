"""The machines over one internal topic: one for each of its partitions that is led here.

Which machine a group or a transactional id belongs to follows from its name alone, as every Kafka
client computes it. Keeps no rule of the machines it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from penstock.broker.broker import ClusterView
from penstock.broker.hosting import HostedMachine
from penstock.broker.partition import Partition
from penstock.broker.partitions import Partitions
from penstock.errors import ErrorCode, Refused

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
            if led.get(index) is not machine.partition:
                del self._hosted[index]
                machine.close()
        for index, partition in led.items():
            if index not in self._hosted:
                self._hosted[index] = self._host(partition)

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
    units = key.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for position in range(0, len(units), 2):
        unit = units[position] << 8 | units[position + 1]
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    return (hashed & 0x7FFFFFFF) % partition_count
