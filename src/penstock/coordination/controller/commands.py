"""The commands of the controller and its replies.

A command that names several things gets a result for each: what became of it, or the `Refused` that
says why not. Ids are made by the shell and come with the command.
"""

from enum import Enum
from typing import NamedTuple, TypeAlias
from uuid import UUID

from penstock.config.resolve import ConfigChange
from penstock.coordination.controller.events import NO_LOG_DIR, ConfigScope, QuotaEntity
from penstock.machine import CallerId
from penstock.model import LeaderEpoch, NodeId, Offset, TopicId


class NewTopic(NamedTuple):
    """A topic to create. None takes the cluster's default."""

    name: str
    topic_id: TopicId
    partition_count: int | None = None
    replication_factor: int | None = None
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()  # (partition, replicas)
    overrides: tuple[tuple[str, str | None], ...] = ()


class CreatedTopic(NamedTuple):
    """A topic as it was created, or would be."""

    topic_id: TopicId
    partition_count: int
    replication_factor: int


class CreateTopics(NamedTuple):
    """Reply: CreatedTopic or Refused for each, in order."""

    caller: CallerId
    topics: tuple[NewTopic, ...]
    validate_only: bool = False


class DeleteTopics(NamedTuple):
    """By name or by id. Reply: (name, id) or Refused for each, in order."""

    caller: CallerId
    topics: tuple[str | TopicId, ...]


class NewPartitions(NamedTuple):
    """A topic that shall have `total_count` partitions; `assignments` are those of the new ones."""

    name: str
    total_count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


class CreatePartitions(NamedTuple):
    """Reply: None or Refused for each, in order."""

    caller: CallerId
    topics: tuple[NewPartitions, ...]
    validate_only: bool = False


class ResourceChange(NamedTuple):
    """Changes to one resource's overrides. `replace` drops all it had before (AlterConfigs)."""

    scope: ConfigScope
    name: str
    changes: tuple[ConfigChange, ...]
    replace: bool = False


class AlterConfigs(NamedTuple):
    """Reply: None or Refused for each, in order."""

    caller: CallerId
    resources: tuple[ResourceChange, ...]
    validate_only: bool = False


class QuotaChange(NamedTuple):
    """Limits to set (a number) or to remove (None) for one entity."""

    entity: QuotaEntity
    limits: tuple[tuple[str, float | None], ...]


class AlterQuotas(NamedTuple):
    """Reply: None or Refused for each, in order."""

    caller: CallerId
    changes: tuple[QuotaChange, ...]
    validate_only: bool = False


class ElectLeaders(NamedTuple):
    """Let preferred replicas lead. Reply: None or Refused for each, in order."""

    caller: CallerId
    partitions: tuple[tuple[str, int], ...]
    unclean: bool = False


class ReassignPartitions(NamedTuple):
    """New replicas, or None to cancel a move. Reply: None or Refused for each, in order."""

    caller: CallerId
    partitions: tuple[tuple[str, int, tuple[int, ...] | None], ...]


class RegisterBroker(NamedTuple):
    """A process starts as a broker. Reply: its broker epoch."""

    caller: CallerId
    node_id: NodeId
    incarnation: UUID  # of the process
    host: str
    port: int
    rack: str | None
    previous_epoch: int  # of its last registration if it lost no record since; else -1
    new_epoch: int  # where the registration will be in the log: higher than any before
    new_cluster_id: str  # taken by a cluster that has none yet
    first_producer_id: int = 0  # likewise: two clusters start at different ones
    log_dir: UUID = NO_LOG_DIR


class BrokerHeartbeat(NamedTuple):
    """A broker is alive. Reply: HeartbeatReply."""

    caller: CallerId
    node_id: NodeId
    epoch: int
    metadata_offset: Offset  # everything below is applied there
    wants_fence: bool
    wants_stop: bool
    end_offset: Offset  # of the controller's log


class HeartbeatReply(NamedTuple):
    """How the controller sees a broker."""

    is_caught_up: bool
    is_fenced: bool
    may_stop: bool


class FenceBroker(NamedTuple):
    """A broker is known to be dead. Reply: None."""

    caller: CallerId
    node_id: NodeId
    epoch: int
    reason: str


class UnregisterBroker(NamedTuple):
    """A broker will not come back. Reply: None."""

    caller: CallerId
    node_id: NodeId


class ConfirmActive(NamedTuple):
    """The controller wants to know whether a majority still follows it. Reply: None."""

    caller: CallerId


class StartSessions(NamedTuple):
    """The controller became active. Reply: None."""

    caller: CallerId


class IsrChange(NamedTuple):
    """An in-sync set that the leader of a partition proposes."""

    topic_id: TopicId
    partition_index: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    isr: tuple[tuple[NodeId, int], ...]  # with broker epochs; -1: not known to the leader
    is_recovering: bool = False


class AlterPartitions(NamedTuple):
    """Reply: PartitionState or Refused for each, in order."""

    caller: CallerId
    node_id: NodeId  # the leader that proposes
    epoch: int
    changes: tuple[IsrChange, ...]


class ReplicaCondition(Enum):
    """What a broker says of its replica of a partition."""

    ONLINE = "online"  # its log is in use again
    COMPLETE = "complete"  # and holds all that the replica ever acknowledged, in spite of a crash
    OFFLINE = "offline"  # its log cannot be used: the disk failed
    EMPTY = "empty"  # its log is damaged: it is about to be replaced by a copy of the leader's


class ReplicaReport(NamedTuple):
    """The condition of one replica of the broker that reports."""

    topic_id: TopicId
    partition_index: int
    condition: ReplicaCondition


class ReportReplicas(NamedTuple):
    """Reply: PartitionState or Refused for each, in order."""

    caller: CallerId
    node_id: NodeId
    epoch: int
    reports: tuple[ReplicaReport, ...]


class AllocateProducerIds(NamedTuple):
    """Reply: the first id of a block of `id_count`."""

    caller: CallerId
    id_count: int


BrokerCommand: TypeAlias = (
    RegisterBroker
    | BrokerHeartbeat
    | FenceBroker
    | UnregisterBroker
    | ConfirmActive
    | StartSessions
    | AlterPartitions
    | ReportReplicas
)
Command: TypeAlias = (
    CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterConfigs
    | AlterQuotas
    | ElectLeaders
    | ReassignPartitions
    | AllocateProducerIds
    | BrokerCommand
)
