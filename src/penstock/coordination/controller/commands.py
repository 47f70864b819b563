"""What may be asked of the controller, and what it answers.

A command that names several things is answered thing by thing: each with what became of it or with
the `Refused` that says why not.
"""

from typing import NamedTuple, TypeAlias

from penstock.config.resolve import ConfigChange
from penstock.coordination.controller.state import ConfigScope, QuotaEntity
from penstock.machine import CallerId
from penstock.model import NodeId, TopicId


class NewTopic(NamedTuple):
    """A topic to make. The id is minted by the shell. None takes the cluster's default."""

    name: str
    topic_id: TopicId
    partition_count: int | None = None
    replication_factor: int | None = None
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()  # (partition, replicas)
    overrides: tuple[tuple[str, str | None], ...] = ()


class MadeTopic(NamedTuple):
    """A topic as it was made, or would be."""

    topic_id: TopicId
    partition_count: int
    replication_factor: int


class CreateTopics(NamedTuple):
    """Answered with MadeTopic or Refused for each, in order."""

    caller: CallerId
    topics: tuple[NewTopic, ...]
    validate_only: bool = False


class DeleteTopics(NamedTuple):
    """By name or by id. Answered with (name, id) or Refused for each, in order."""

    caller: CallerId
    topics: tuple[str | TopicId, ...]


class MorePartitions(NamedTuple):
    """A topic to widen to `total_count` partitions; `assignments` are those of the new ones."""

    name: str
    total_count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


class CreatePartitions(NamedTuple):
    """Answered with None or Refused for each, in order."""

    caller: CallerId
    topics: tuple[MorePartitions, ...]
    validate_only: bool = False


class ResourceChange(NamedTuple):
    """Changes to one resource's overrides. `replace` drops all it had before (AlterConfigs)."""

    scope: ConfigScope
    name: str
    changes: tuple[ConfigChange, ...]
    replace: bool = False


class AlterConfigs(NamedTuple):
    """Answered with None or Refused for each, in order."""

    caller: CallerId
    resources: tuple[ResourceChange, ...]
    validate_only: bool = False


class QuotaChange(NamedTuple):
    """Limits to set (a number) or to take away (None) for one entity."""

    entity: QuotaEntity
    limits: tuple[tuple[str, float | None], ...]


class AlterQuotas(NamedTuple):
    """Answered with None or Refused for each, in order."""

    caller: CallerId
    changes: tuple[QuotaChange, ...]
    validate_only: bool = False


class ElectLeaders(NamedTuple):
    """Let preferred replicas lead. Answered with None or Refused for each, in order."""

    caller: CallerId
    partitions: tuple[tuple[str, int], ...]
    unclean: bool = False


class ReassignPartitions(NamedTuple):
    """New replicas, or None to end a move. Answered with None or Refused for each, in order."""

    caller: CallerId
    partitions: tuple[tuple[str, int, tuple[int, ...] | None], ...]


class RegisterBroker(NamedTuple):
    """A broker starts. After an unclean stop the partitions it leads begin a new leader epoch."""

    caller: CallerId
    node_id: NodeId
    host: str
    port: int
    rack: str | None
    stopped_cleanly: bool
    fresh_cluster_id: str  # taken if the cluster has none yet


class AllocateProducerIds(NamedTuple):
    """Answered with the first id of a block of `id_count`."""

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
