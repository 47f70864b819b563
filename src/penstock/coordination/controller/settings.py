"""The controller's view of the broker's settings."""

from dataclasses import dataclass
from typing import Annotated

from penstock.config.resolve import Row
from penstock.model import Millis, NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Defaults of new topics; `static` is what this broker was started with, by key."""

    node_id: NodeId
    default_partition_count: Annotated[int, Row("num.partitions")]
    session_timeout_ms: Annotated[Millis, Row("broker.session.timeout.ms")]
    static: dict[str, str]
