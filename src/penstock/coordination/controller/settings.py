"""What the controller must know of its settings."""

from dataclasses import dataclass, field

from penstock.model import NodeId


@dataclass(frozen=True, slots=True)
class ControllerRules:
    """Defaults and limits. `static` is what this broker was started with, by key."""

    node_id: NodeId
    default_partition_count: int = 1
    default_replication_factor: int = 1
    partitions_per_request_max: int = 10_000  # one request holds the loop for as long as it takes
    static: dict[str, str] = field(default_factory=dict)
