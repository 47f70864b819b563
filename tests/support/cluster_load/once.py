"""A client that sends each record once, to brokers in turn, and so knows what was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import ErrorCode
from tests.support.cluster_load.client import Client
from tests.support.cluster_load.writers import PARTITIONS
from tests.support.history import Outcome, Produced
from tests.support.wire import Wire, batch

if TYPE_CHECKING:
    from tests.support.history import History

GAP_S = 0.02
RESPONSE_S = 2.5
LEADER, ALL_IN_SYNC = 1, -1
# With acks=all, "not the leader" may also mean that it was appended and then given up.
BEFORE_THE_APPEND = {
    ALL_IN_SYNC: {ErrorCode.not_enough_replicas},
    LEADER: {ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition},
}


class OnceWriter(Client):
    """Asks every broker, whether it leads or not, with acks=all and acks=1.

    What acks=1 acknowledges may be lost with the leader: it counts as unknown.
    """

    def __init__(self, name: str, history: History, bootstrap: str, topic: str) -> None:
        super().__init__(name, history)
        self._topic = topic
        self._addresses = [address.split(":") for address in bootstrap.split(",")]
        self._wires: dict[int, Wire] = {}  # by place in the addresses
        self._number = 0

    def step(self) -> None:
        number, self._number = self._number, self._number + 1
        place, rest = number % len(self._addresses), number // len(self._addresses)
        acks, partition = (ALL_IN_SYNC, LEADER)[rest % 2], rest // 2 % PARTITIONS
        try:
            wire = self._connected(place)
        except OSError:
            self.pause(GAP_S)  # nothing was sent
            return
        produced = Produced(self.name, self._topic, partition, f"{self.name}-{number}")
        try:
            row = wire.produce(
                self._topic, batch((None, produced.value.encode())), partition=partition, acks=acks
            )
        except OSError:
            self._wires.pop(place).close()
        else:
            if row.error_code == ErrorCode.none and acks == ALL_IN_SYNC:
                produced.outcome, produced.offset = Outcome.ACKNOWLEDGED, row.base_offset
                self.acknowledged += 1
            elif row.error_code in BEFORE_THE_APPEND[acks]:
                produced.outcome = Outcome.REFUSED
        self.history.add(produced)
        self.pause(GAP_S)

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()

    def _connected(self, place: int) -> Wire:
        if place not in self._wires:
            host, port = self._addresses[place]
            self._wires[place] = Wire(int(port), host=host, timeout_s=RESPONSE_S)
        return self._wires[place]
