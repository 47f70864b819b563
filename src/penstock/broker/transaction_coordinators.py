"""The transaction coordinators of this broker: one machine per led partition of the state log.

Brings requests to the machine that their transactional id belongs to, mints producer ids, carries
markers to their partitions and reports back. Keeps no rule of its own; never awaits.

Producer ids for this broker's clients, taken from blocks that the controller gives out.

No id is given twice in the life of a cluster: what is left of a block is lost with the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias

from penstock.broker.broker import ClusterView
from penstock.broker.coordinators import Coordinators
from penstock.broker.handler import result_of
from penstock.broker.machine_host import HostedMachine
from penstock.broker.partition import Partition
from penstock.broker.partitions import Partitions
from penstock.broker.transaction_markers import MarkerWriter
from penstock.coordination.transactions import (
    AbortTimedOut,
    AddPartitions,
    Command,
    Describe,
    EndTransaction,
    Event,
    InitProducer,
    ListIds,
    MarkersWritten,
    Missed,
    Missing,
    Producer,
    TransactionMachine,
    TransactionSettings,
    WantProducerId,
    WriteMarkers,
    needs_producer_id,
)
from penstock.coordination.transactions import Transactions as TransactionTable
from penstock.errors import ErrorCode, Refused
from penstock.machine import NO_CALLER, Deferred
from penstock.model import Millis, Moment, ProducerEpoch, ProducerId, TopicPartition
from penstock.protocol.control_records import Marker

BLOCK_COUNT: Final = 1000
REFILL_BELOW: Final = 100  # asked for ahead of need, so that nobody waits for the controller


class ProducerIds:
    """A block of ids, refilled as it is used up."""

    def __init__(self, allocate: Callable[[int], object]) -> None:
        self._allocate = allocate  # replies with the first of so many ids
        self._blocks: list[range] = []
        self._is_refilling = False

    async def prepare(self) -> None:
        """Wait for the first ones."""
        self._on_block(await result_of(self._allocate(BLOCK_COUNT)))

    def _ask_ahead(self) -> None:
        if sum(len(block) for block in self._blocks) < REFILL_BELOW and not self._is_refilling:
            self._ask()

    def take(self) -> ProducerId:
        """An id nobody had before. Refused, to be tried again, while the controller is away."""
        self._ask_ahead()
        if not self._blocks:
            raise Refused(
                ErrorCode.coordinator_load_in_progress,
                "the controller has not given producer ids yet; try again",
            )
        block = self._blocks[0]
        self._blocks[:1] = [block[1:]] if len(block) > 1 else []
        return ProducerId(block[0])

    def _ask(self) -> None:
        self._is_refilling = True
        reply = self._allocate(BLOCK_COUNT)
        if isinstance(reply, Deferred):
            reply.listen(self._on_block)
        else:
            self._on_block(reply)

    def _on_block(self, reply: object) -> None:
        self._is_refilling = False
        if isinstance(reply, int):  # else refused: the next `take` asks again
            self._blocks.append(range(reply, reply + BLOCK_COUNT))


STATE_TOPIC: Final = "__transaction_state"

Coordinator: TypeAlias = HostedMachine[TransactionTable, Command, Event]
Asked: TypeAlias = InitProducer | AddPartitions | EndTransaction | Describe


class ProducerIdSource(Protocol):
    """The controller, as far as producer ids go."""

    def allocate_producer_ids(self, count: int) -> object:
        """The first of `count` ids that nobody else will ever be given."""


class Transactions:
    """All transaction coordinators of this broker, by partition of the state log."""

    def __init__(
        self,
        *,
        partitions: Partitions,
        cluster: ClusterView,
        producer_ids: ProducerIdSource,
        settings: TransactionSettings,
        clock: Callable[[], Moment],
    ) -> None:
        self.producer_ids = ProducerIds(producer_ids.allocate_producer_ids)
        self._clock = clock
        self._machine = TransactionMachine(settings)
        self._markers = MarkerWriter(partitions, cluster, clock)
        self._coordinators = Coordinators(STATE_TOPIC, partitions, cluster, self._host)

    # The life of coordinators

    def start(self) -> None:
        """Coordinate what this broker leads. Needs the running event loop."""
        self._coordinators.start()

    def follow(self, topic: str) -> None:
        """The controller's word on a topic changed: coordinate exactly what is led here."""
        if topic == STATE_TOPIC:
            self._coordinators.follow()

    def close(self) -> None:
        """Refuse what still waits."""
        self._coordinators.close()

    def _host(self, partition: Partition) -> Coordinator:
        coordinator: Coordinator = HostedMachine(
            self._machine,
            partition,
            clock=self._clock,
            send=lambda message: self._on_send(coordinator, message),
        )
        return coordinator

    # What clients ask

    def init_producer(
        self, transactional_id: str, timeout_ms: Millis, expected: Producer | None
    ) -> object:
        """A producer starts under a transactional id."""
        return self._submit(InitProducer(NO_CALLER, transactional_id, timeout_ms, expected))

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        *,
        missing: Missing = Missing.ADD,
        client_version: int = 0,
    ) -> object:
        """Put partitions into the producer's transaction, or ask which are not in it."""
        wanted = frozenset(partitions)
        return self._submit(
            AddPartitions(NO_CALLER, transactional_id, producer, wanted, missing, client_version)
        )

    def end(
        self, transactional_id: str, producer: Producer, *, commit: bool, raises_epoch: bool
    ) -> object:
        """Commit or abort; answers whom the producer goes on as."""
        return self._submit(
            EndTransaction(NO_CALLER, transactional_id, producer, commit, raises_epoch)
        )

    def describe(self, transactional_id: str) -> object:
        """What is known of one transactional id."""
        return self._submit(Describe(NO_CALLER, transactional_id))

    def list_ids(self) -> list[object]:
        """What is known of all transactional ids of this broker, one reply per coordinator."""
        return [coordinator.submit(ListIds) for coordinator in self._coordinators]

    def verify(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Deferred[None] | None:
        """Whether a transactional batch may be appended.

        None: yes, and the coordinator has it on record. Deferred: when it has. Refused, now or by
        the Deferred; with TRANSACTION_ABORTABLE for a partition that was never added.
        """
        verified = self.add_partitions(
            transactional_id,
            Producer(producer_id, producer_epoch),
            partitions,
            missing=Missing.ADD if add else Missing.REFUSE,
            client_version=2,
        )
        if isinstance(verified, Deferred):
            checked: Deferred[None] = Deferred(verified.cancel)
            verified.listen(lambda reply: checked.resolve(_failure_in(reply)))
            return checked
        failure = _failure_in(verified)
        if failure is not None:
            raise failure
        return None

    # Between the machines and the world

    def _submit(self, command: Asked) -> object:
        try:
            coordinator = self._coordinators.of(command.transactional_id)
            if isinstance(command, InitProducer | EndTransaction) and needs_producer_id(
                coordinator.state, command
            ):
                command = command._replace(minted_producer_id=self.producer_ids.take())
        except Refused as refusal:
            return refusal
        asked = command
        return coordinator.submit(lambda caller: asked._replace(caller=caller))

    def _on_send(self, coordinator: Coordinator, message: object) -> None:
        match message:
            case WriteMarkers():
                self._write_markers(coordinator, message)
            case WantProducerId(transactional_id, producer):
                try:
                    minted = self.producer_ids.take()
                except Refused:
                    return  # the machine asks again
                coordinator.report(AbortTimedOut(transactional_id, producer, minted))
            case _:
                raise AssertionError(f"a coordinator sends no {type(message).__name__}")

    def _write_markers(self, coordinator: Coordinator, message: WriteMarkers) -> None:
        marker = Marker(
            message.producer.producer_id,
            message.producer.producer_epoch,
            message.commit,
            coordinator.leader_epoch,
        )

        def report(written: frozenset[TopicPartition]) -> None:
            coordinator.report(MarkersWritten(message.transactional_id, message.producer, written))

        self._markers.write(marker, message.partitions, report)


def _failure_in(reply: object) -> Exception | None:
    """Why the partitions are not all in the transaction, if they are not."""
    if isinstance(reply, Exception):
        return reply
    assert isinstance(reply, Missed)
    if not reply.partitions:
        return None
    return Refused(
        ErrorCode.transaction_abortable,
        f"not part of the transaction: {', '.join(map(str, sorted(reply.partitions)))}",
    )
