"""The controller as a machine: commands to rules, events to the state and to the log."""

from collections.abc import Sequence
from typing import Final, assert_never

from penstock.coordination.controller import codec
from penstock.coordination.controller.apply import apply
from penstock.coordination.controller.commands import (
    AllocateProducerIds,
    AlterConfigs,
    AlterPartitions,
    AlterQuotas,
    BrokerCommand,
    BrokerHeartbeat,
    Command,
    ConfirmActive,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    FenceBroker,
    ReassignPartitions,
    RegisterBroker,
    ReportReplicas,
    StartSessions,
    UnregisterBroker,
)
from penstock.coordination.controller.decide_brokers import (
    decide_confirm,
    decide_fence,
    decide_heartbeat,
    decide_register_broker,
    decide_start_sessions,
    decide_tick,
    decide_unregister,
    next_tick,
)
from penstock.coordination.controller.decide_configs import (
    decide_alter_configs,
    decide_alter_quotas,
)
from penstock.coordination.controller.decide_partitions import (
    decide_alter_partitions,
    decide_elect_leaders,
    decide_reassign,
    decide_report_replicas,
)
from penstock.coordination.controller.decide_topics import (
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
)
from penstock.coordination.controller.events import Event, ProducerIdsAllocated
from penstock.coordination.controller.settings import ControllerSettings
from penstock.coordination.controller.state import ClusterState
from penstock.coordination.controller.validate import validate
from penstock.errors import ErrorCode, Refused
from penstock.machine import JournalRecord, Outcome, Reply, TransactionMark
from penstock.model import Millis, Moment

PRODUCER_IDS_END: Final = 1 << 63


class ControllerMachine:
    """Implements `penstock.machine.Machine`."""

    def __init__(self, settings: ControllerSettings, features: dict[str, int]) -> None:
        self.settings = settings
        self.features = features

    def fresh(self) -> ClusterState:
        """A cluster without an id, brokers or topics."""
        return ClusterState()

    def decide(self, state: ClusterState, command: Command, now: Moment) -> Outcome[Event]:
        """All rules. May raise Refused; changes nothing."""
        match command:
            case CreateTopics():
                return decide_create_topics(state, command, self.settings)
            case DeleteTopics():
                return decide_delete_topics(state, command)
            case CreatePartitions():
                return decide_create_partitions(state, command)
            case AlterConfigs():
                return decide_alter_configs(state, command, self.settings)
            case AlterQuotas():
                return decide_alter_quotas(state, command)
            case ElectLeaders():
                return decide_elect_leaders(state, command)
            case ReassignPartitions():
                return decide_reassign(state, command)
            case AllocateProducerIds():
                return _decide_allocate(state, command)
            case _:
                return self._decide_on_brokers(state, command, now)

    def _decide_on_brokers(
        self, state: ClusterState, command: BrokerCommand, now: Moment
    ) -> Outcome[Event]:
        match command:
            case RegisterBroker():
                return decide_register_broker(state, command, self.settings, self.features, now)
            case BrokerHeartbeat():
                return decide_heartbeat(state, command, self.settings, now)
            case FenceBroker():
                return decide_fence(state, command, self.settings)
            case UnregisterBroker():
                return decide_unregister(state, command, self.settings)
            case ConfirmActive():
                return decide_confirm(state, command)
            case StartSessions():
                return decide_start_sessions(state, command, now)
            case AlterPartitions():
                return decide_alter_partitions(state, command, self.settings)
            case ReportReplicas():
                return decide_report_replicas(state, command, self.settings)
            case _:
                assert_never(command)

    def apply(self, state: ClusterState, event: Event) -> None:
        """Change the state. Cannot fail."""
        apply(state, event)

    def wake_at(self, state: ClusterState) -> Millis | None:
        """When the next session of a broker ends; now if partitions have yet to follow one."""
        return next_tick(state, self.settings)

    def tick(self, state: ClusterState, now: Moment) -> Outcome[Event]:
        """Fence brokers that sent no heartbeat; let partitions follow."""
        return decide_tick(state, self.settings, now)

    def validate(self, state: ClusterState) -> None:
        """Assert the invariants."""
        validate(state)

    def write_event(self, event: Event) -> JournalRecord:
        """The event as `__cluster_metadata` stores it."""
        return codec.write_event(event)

    def read_events(self, record: JournalRecord, mark: TransactionMark | None) -> Sequence[Event]:
        """The events a stored record stands for."""
        return codec.read_events(record)


def _decide_allocate(state: ClusterState, command: AllocateProducerIds) -> Outcome[Event]:
    first = state.end_producer_id
    if first + command.id_count >= PRODUCER_IDS_END:
        raise Refused(ErrorCode.unknown_server_error, "All producer ids were given out.")
    return Outcome(
        events=(ProducerIdsAllocated(first + command.id_count),),
        replies=(Reply(command.caller, first),),
    )
