"""The controller as a machine: each command to its rules, each event to the state and the log."""

from collections.abc import Sequence
from typing import Final, assert_never

from penstock.coordination.controller import codec, state
from penstock.coordination.controller.commands import (
    AllocateProducerIds,
    AlterConfigs,
    AlterQuotas,
    Command,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    ReassignPartitions,
    RegisterBroker,
)
from penstock.coordination.controller.decide_brokers import (
    decide_elect_leaders,
    decide_reassign,
    decide_register_broker,
)
from penstock.coordination.controller.decide_configs import (
    decide_alter_configs,
    decide_alter_quotas,
)
from penstock.coordination.controller.decide_topics import (
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
)
from penstock.coordination.controller.settings import ControllerRules
from penstock.coordination.controller.state import Cluster, Event, ProducerIdsTaken
from penstock.coordination.controller.validate import validate
from penstock.errors import ErrorCode, Refused
from penstock.machine import JournalRecord, Outcome, Reply, TransactionMark
from penstock.model import Millis, Moment

PRODUCER_IDS_END: Final = 1 << 63


class ControllerMachine:
    """Implements `penstock.machine.Machine`."""

    def __init__(self, rules: ControllerRules, features: dict[str, int]) -> None:
        self.rules = rules
        self.features = features

    def fresh(self) -> Cluster:
        """A cluster without anything."""
        return Cluster()

    def decide(self, state: Cluster, command: Command, now: Moment) -> Outcome[Event]:
        """All rules live behind here. May raise Refused; changes nothing."""
        match command:
            case CreateTopics():
                return decide_create_topics(state, command, self.rules)
            case DeleteTopics():
                return decide_delete_topics(state, command)
            case CreatePartitions():
                return decide_create_partitions(state, command, self.rules)
            case AlterConfigs():
                return decide_alter_configs(state, command, self.rules)
            case AlterQuotas():
                return decide_alter_quotas(state, command)
            case ElectLeaders():
                return decide_elect_leaders(state, command)
            case ReassignPartitions():
                return decide_reassign(state, command)
            case RegisterBroker():
                return decide_register_broker(state, command, self.features)
            case AllocateProducerIds():
                return _decide_allocate(state, command)
            case _:
                assert_never(command)

    def apply(self, cluster: Cluster, event: Event) -> None:
        """Change the state. Cannot fail."""
        state.apply(cluster, event)

    def wake_at(self, state: Cluster) -> Millis | None:
        """Nothing here depends on time: sessions of brokers come with more than one broker."""
        return None

    def tick(self, state: Cluster, now: Moment) -> Outcome[Event]:
        """Nothing to do."""
        return Outcome()

    def validate(self, state: Cluster) -> None:
        """Assert the invariants."""
        validate(state)

    def write_event(self, event: Event) -> JournalRecord:
        """The event as `__cluster_metadata` stores it."""
        return codec.write_event(event)

    def read_events(self, record: JournalRecord, mark: TransactionMark | None) -> Sequence[Event]:
        """What a stored record stands for."""
        return codec.read_events(record)


def _decide_allocate(state: Cluster, command: AllocateProducerIds) -> Outcome[Event]:
    first = state.end_producer_id
    if first + command.id_count >= PRODUCER_IDS_END:
        raise Refused(ErrorCode.unknown_server_error, "All producer ids are given out.")
    return Outcome(
        events=(ProducerIdsTaken(first + command.id_count),),
        replies=(Reply(command.caller, first),),
    )
