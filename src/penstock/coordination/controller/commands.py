"""The commands of the controller and its replies.

A command that names several things gets a result for each: what became of it, or the `Refused` that
says why not. Ids are made by the shell and come with the command.
"""

from typing import NamedTuple, TypeAlias

from penstock.config.resolve import ConfigChange
from penstock.coordination.controller.events import ConfigScope, QuotaEntity
from penstock.machine import CallerId
from penstock.model import NodeId, TopicId


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
    """A broker starts. After an unclean stop the partitions it leads get a new leader epoch."""

    caller: CallerId
    node_id: NodeId
    host: str
    port: int
    rack: str | None
    stopped_cleanly: bool
    new_cluster_id: str  # taken by a cluster that has none yet


class AllocateProducerIds(NamedTuple):
    """Reply: the first id of a block of `id_count`."""

    caller: CallerId
    id_count: int


Command: TypeAlias = (
    CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterConfigs
    | AlterQuotas
    | ElectLeaders
    | ReassignPartitions
    | RegisterBroker
    | AllocateProducerIds
)
