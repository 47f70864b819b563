"""One broker: the parts that handlers work with, composed by the node.

Has no rules of its own. `ClusterView` is what the data plane needs to know about the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.broker.counts import RequestCounts
from penstock.broker.opening import Opening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from penstock.broker.active_controller import ActiveController
    from penstock.broker.admission import RecordInspector
    from penstock.broker.controller_client import ControllerClient
    from penstock.broker.dispatch import Dispatcher
    from penstock.broker.fetch_sessions import FetchSessions
    from penstock.broker.group_coordinators import GroupCoordinators
    from penstock.broker.handler import ApiTable
    from penstock.broker.leadership import Leadership
    from penstock.broker.lost_brokers import LostBrokers
    from penstock.broker.metadata_follower import MetadataFollower
    from penstock.broker.metadata_image import MetadataImage
    from penstock.broker.partitions import Partitions
    from penstock.broker.quorum.quorum_node import QuorumNode
    from penstock.broker.quotas import Quotas
    from penstock.broker.replication.follower_sessions import FollowerSessions
    from penstock.broker.replication.in_sync_changes import InSyncChanges
    from penstock.broker.replication.unusable_replicas import UnusableReplicas
    from penstock.broker.settings import BrokerSettings, TopicSettings
    from penstock.broker.suspected_leaders import SuspectedLeaders
    from penstock.broker.transaction_coordinators import TransactionCoordinators
    from penstock.model import Millis, NodeId, TopicId


class Endpoint(NamedTuple):
    """The address at which clients connect to a broker."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None = None


class TopicView(Protocol):
    """A topic of the cluster."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> TopicId: ...
    @property
    def partitions(self) -> Sequence[Leadership]:
        """By partition index."""


class ClusterView(Protocol):
    """The cluster, as far as this broker knows."""

    @property
    def cluster_id(self) -> str: ...
    def brokers(self) -> Iterable[Endpoint]:
        """The live brokers."""

    def topics(self) -> Iterable[TopicView]:
        """All topics, in no particular order."""

    def topic(self, name: str) -> TopicView | None:
        """A topic by name."""

    def topic_by_id(self, topic_id: TopicId) -> TopicView | None:
        """A topic by its id."""

    def topic_settings(self, name: str) -> TopicSettings:
        """A topic's configuration: its own over the broker's over the defaults."""


@dataclass(slots=True)
class Broker:
    """The parts of a broker; every handler gets them."""

    settings: BrokerSettings
    clock: Callable[[], Millis]  # the time of day, for what is stored or shown
    steady_clock: Callable[[], Millis]  # for time-outs
    partitions: Partitions
    cluster: MetadataImage
    quotas: Quotas
    api_table: ApiTable
    inspector: RecordInspector
    fetch_sessions: FetchSessions
    log_folder: Path
    opening: Opening = field(default_factory=Opening)
    counts: RequestCounts = field(init=False)
    quorum: QuorumNode = field(init=False)
    follower: MetadataFollower = field(init=False)
    controller: ActiveController = field(init=False)
    controller_client: ControllerClient = field(init=False)
    dispatcher: Dispatcher = field(init=False)
    lost_brokers: LostBrokers = field(init=False)
    suspected_leaders: SuspectedLeaders = field(init=False)
    follower_sessions: FollowerSessions = field(init=False)
    in_sync_changes: InSyncChanges = field(init=False)
    unusable: UnusableReplicas = field(init=False)
    groups: GroupCoordinators = field(init=False)
    transactions: TransactionCoordinators = field(init=False)

    def __post_init__(self) -> None:
        self.counts = RequestCounts(self.api_table)
