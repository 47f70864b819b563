"""The transaction coordinators of this broker: one machine per led partition of the state topic.

Brings commands to the machine that their transactional id belongs to, with a new producer id where
one is needed; brings markers to their partitions and reports back. Keeps no rule; never awaits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.broker.coordinators import Coordinators, partition_of
from penstock.broker.machine_host import HostedMachine
from penstock.broker.producer_ids import ProducerIds, ProducerIdSource
from penstock.broker.remote_transactions import Question
from penstock.broker.transaction_markers import MarkerWriter
from penstock.coordination.transactions import (
    AbortTimedOut,
    AddPartitions,
    Command,
    DescribeTransaction,
    EndTransaction,
    Event,
    IfMissing,
    InitProducer,
    ListTransactions,
    MarkersWritten,
    MissingPartitions,
    ProducerIdentity,
    RequestProducerId,
    TransactionMachine,
    TransactionSettings,
    TransactionsState,
    WriteMarkers,
    needs_producer_id,
)
from penstock.errors import ErrorCode, Refused
from penstock.machine import NO_CALLER, Deferred
from penstock.protocol.control_records import Marker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.broker.broker import ClusterView
    from penstock.broker.partition import Partition
    from penstock.broker.partitions import Partitions
    from penstock.broker.remote_transactions import RemoteTransactions
    from penstock.model import Millis, Moment, NodeId, ProducerEpoch, ProducerId, TopicPartition

TRANSACTIONS_TOPIC: Final = "__transaction_state"

TransactionCoordinator: TypeAlias = HostedMachine[TransactionsState, Command, Event]
ClientCommand: TypeAlias = InitProducer | AddPartitions | EndTransaction | DescribeTransaction


class TransactionCoordinators:
    """All transaction coordinators of this broker, by partition of the state topic."""

    def __init__(
        self,
        *,
        partitions: Partitions,
        cluster: ClusterView,
        producer_ids: ProducerIdSource,
        settings: TransactionSettings,
        clock: Callable[[], Moment],
        remote: RemoteTransactions,
    ) -> None:
        self.producer_ids: ProducerIds = ProducerIds(producer_ids.allocate_producer_ids)
        self._clock = clock
        self._machine = TransactionMachine(settings)
        self._markers = MarkerWriter(partitions, cluster, clock, remote)
        self._remote = remote
        self._cluster = cluster
        self._node_id = partitions.node_id
        self._coordinators = Coordinators(TRANSACTIONS_TOPIC, partitions, cluster, self._host)

    # The life of coordinators.

    def start(self) -> None:
        """Coordinate what this broker leads. Needs the running event loop."""
        self._coordinators.start()

    def follow(self, topic: str) -> None:
        """A topic was created, changed or deleted: coordinate exactly what is led here."""
        if topic == TRANSACTIONS_TOPIC:
            self._coordinators.follow()

    def close(self) -> None:
        """Refuse all callers that still wait."""
        self._coordinators.close()

    def _host(self, partition: Partition) -> TransactionCoordinator:
        coordinator: TransactionCoordinator = HostedMachine(
            self._machine,
            partition,
            clock=self._clock,
            send=lambda message: self._on_send(coordinator, message),
            key_name="transactional id",
        )
        return coordinator

    # For metrics.

    def open_since_ms(self) -> list[Millis]:
        """When each transaction began that is open or ending."""
        return [
            transaction.started_at
            for coordinator in self._coordinators
            for transaction in tuple(coordinator.state.by_id.values())
            if not transaction.state.is_ended and transaction.started_at >= 0
        ]

    # For handlers.

    def init_producer(
        self, transactional_id: str, timeout_ms: Millis, expected: ProducerIdentity | None
    ) -> object:
        """A producer starts under a transactional id."""
        return self._submit(InitProducer(NO_CALLER, transactional_id, timeout_ms, expected))

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        *,
        if_missing: IfMissing = IfMissing.ADD,
        client_version: int = 0,
    ) -> object:
        """Add partitions to the producer's transaction, or find out which are not in it."""
        return self._submit(
            AddPartitions(
                NO_CALLER,
                transactional_id,
                producer,
                frozenset(partitions),
                if_missing,
                client_version,
            )
        )

    def end(
        self, transactional_id: str, producer: ProducerIdentity, *, commit: bool, raises_epoch: bool
    ) -> object:
        """Commit or abort; the reply is the identity that the producer uses from then on."""
        return self._submit(
            EndTransaction(NO_CALLER, transactional_id, producer, commit, raises_epoch)
        )

    def describe(self, transactional_id: str) -> object:
        """The state of one transactional id."""
        return self._submit(DescribeTransaction(NO_CALLER, transactional_id))

    def list_transactions(self) -> list[object]:
        """All transactional ids of this broker, one reply per coordinator."""
        return [coordinator.submit(ListTransactions) for coordinator in self._coordinators]

    def verify(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> Deferred[None] | None:
        """Whether a transactional batch may be appended, wherever its coordinator is.

        None: yes, and the coordinator has the partitions. Deferred: when it has. Refused, now or by
        the Deferred; with TRANSACTION_ABORTABLE for a partition that was never added.
        """
        coordinator = self._other_coordinator(transactional_id)
        if coordinator is not None:
            reply: Deferred[None] = Deferred()
            producer = ProducerIdentity(producer_id, producer_epoch)
            question = Question(transactional_id, producer, partitions, not add, reply)
            self._remote.ask(coordinator, question)
            return reply
        verified = self.add_partitions(
            transactional_id,
            ProducerIdentity(producer_id, producer_epoch),
            partitions,
            if_missing=IfMissing.ADD if add else IfMissing.REFUSE,
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

    def _other_coordinator(self, transactional_id: str) -> NodeId | None:
        """The other broker that coordinates it; None: this one does, or none."""
        topic = self._cluster.topic(TRANSACTIONS_TOPIC)
        if topic is None:
            return None
        leader = topic.partitions[partition_of(transactional_id, len(topic.partitions))].leader
        return None if leader in (-1, self._node_id) else leader

    # Between the machines and the partitions.

    def _submit(self, command: ClientCommand) -> object:
        try:
            coordinator = self._coordinators.of(command.transactional_id)
            if isinstance(command, InitProducer | EndTransaction) and needs_producer_id(
                coordinator.state, command
            ):
                command = command._replace(new_producer_id=self.producer_ids.take())
        except Refused as refusal:
            return refusal
        final = command
        return coordinator.submit(lambda caller: final._replace(caller=caller))

    def _on_send(self, coordinator: TransactionCoordinator, message: object) -> None:
        match message:
            case WriteMarkers():
                self._write_markers(coordinator, message)
            case RequestProducerId(transactional_id, producer):
                try:
                    new_producer_id = self.producer_ids.take()
                except Refused:
                    return  # the machine sends it again
                coordinator.report(AbortTimedOut(transactional_id, producer, new_producer_id))
            case _:
                raise AssertionError(f"unknown message {type(message).__name__}")

    def _write_markers(self, coordinator: TransactionCoordinator, message: WriteMarkers) -> None:
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
    assert isinstance(reply, MissingPartitions)
    if not reply.partitions:
        return None
    return Refused(
        ErrorCode.transaction_abortable,
        f"not part of the transaction: {', '.join(map(str, sorted(reply.partitions)))}",
    )
