"""One broker: builds its parts, joins the cluster, serves, and stops in order.

The order of a stop is the reverse of the dependencies: leaders move away, no new requests, pending
requests are answered, the services close, then the logs, and last the clean-shutdown file.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import secrets
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from penstock.broker.active_controller import ActiveController
from penstock.broker.background import start_background
from penstock.broker.broker import Broker, Endpoint
from penstock.broker.broker_links import BrokerLinks
from penstock.broker.cluster_log import ClusterLog
from penstock.broker.controller_client import ControllerClient
from penstock.broker.dispatch import Dispatcher
from penstock.broker.fetch_sessions import FetchSessions
from penstock.broker.flusher import Flusher
from penstock.broker.group_coordinators import GroupCoordinators
from penstock.broker.handlers import API_TABLE
from penstock.broker.handlers.api_versions import FEATURES
from penstock.broker.held_partitions import HeldPartitions
from penstock.broker.lifecycle import BrokerLifecycle
from penstock.broker.listener import Listener
from penstock.broker.lost_brokers import LostBrokers
from penstock.broker.metadata_follower import MetadataFollower
from penstock.broker.metadata_image import MetadataImage
from penstock.broker.partitions import Partitions
from penstock.broker.quorum.membership import QuorumMembership, start_quorum
from penstock.broker.quotas import Quotas
from penstock.broker.registration_file import boot_id, previous_epoch, save_registration
from penstock.broker.remote_transactions import RemoteTransactions
from penstock.broker.replication.follower_sessions import FollowerSessions
from penstock.broker.replication.in_sync_changes import InSyncChanges
from penstock.broker.replication.replica_reports import OwnReplica, ReplicaReports
from penstock.broker.replication.replicas import Replicas
from penstock.broker.replication.unusable_replicas import UnusableReplicas
from penstock.broker.suspected_leaders import SuspectedLeaders
from penstock.broker.transaction_coordinators import TransactionCoordinators
from penstock.config.resolve import view
from penstock.consensus.replica.leader import ReplicaSettings
from penstock.coordination.controller import ControllerMachine
from penstock.coordination.controller.commands import ReplicaCondition
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.transactions import TransactionSettings
from penstock.log.log_dir import PartitionLogStore
from penstock.log.log_dir_identity import save_identity
from penstock.model import Millis, Offset
from penstock.node.broker_upkeep import BrokerUpkeep
from penstock.node.checkpoint_writer import write_checkpoints
from penstock.node.clocks import SYSTEM_CLOCKS, Clocks
from penstock.node.listen_address import CannotListenError, bracketed
from penstock.node.metadata_folder import (
    open_metadata,
    recover_logs,
    report_ignored_settings,
    report_recovery,
    set_strays_aside,
)
from penstock.node.record_inspector import Inspector
from penstock.node.settings import NodeSettings, broker_view, controller_view
from penstock.node.stall_recovery import StallRecovery

if TYPE_CHECKING:
    from penstock.broker.quorum.metadata_log import MetadataLog
    from penstock.consensus.raft import OffsetAndEpoch, RoleChange
    from penstock.log import LogDirectory, LogDirectoryIdentity
    from penstock.upkeep.scheduler import Upkeep


logger: Final = logging.getLogger(__name__)

SESSION_IDS_END: Final = 1 << 31
STOP_S: Final = 4.0  # a graceful stop waits this long for pending responses
HAND_OVER_S: Final = 10.0  # and this long for other brokers to take over
GARBAGE_MIN: Final = 10_000  # new objects before a collection: requests that wait are no garbage
FETCH_SESSION_IDLE_MS: Final = Millis(120_000)  # then a session may be evicted


class RunningBroker:
    """The parts of one broker, from the folder on disk to the listener."""

    partitions: Partitions
    flusher: Flusher
    metadata: MetadataLog
    image: MetadataImage
    held: HeldPartitions
    follower: MetadataFollower
    controller: ActiveController
    links: BrokerLinks
    client: ControllerClient
    lost_brokers: LostBrokers
    in_sync_changes: InSyncChanges
    replicas: Replicas
    reports: ReplicaReports
    remote_transactions: RemoteTransactions
    transactions: TransactionCoordinators
    groups: GroupCoordinators
    broker: Broker
    server: Listener
    lifecycle: BrokerLifecycle
    upkeep: Upkeep
    is_joined: bool = False  # takes part in the quorum: `stop` must end that

    def __init__(
        self,
        settings: NodeSettings,
        folder: LogDirectory,
        identity: LogDirectoryIdentity,
        clocks: Clocks = SYSTEM_CLOCKS,
    ) -> None:
        self.settings = settings
        self.folder = folder
        self.clocks = clocks
        self._identity = identity
        self.partitions = Partitions(
            settings.node_id,
            PartitionLogStore(folder, clocks.wall),
            ReplicaSettings(Millis(settings.values.integer("replica.lag.time.max.ms"))),
        )
        self.flusher = Flusher(self.partitions, clock=clocks.steady)
        self.partitions.flush = self.flusher
        self.metadata = open_metadata(folder, clocks.wall())
        self._session_ms = Millis(settings.values.integer("broker.session.timeout.ms"))
        quotas = Quotas(clocks.monotonic_s)
        self.image = MetadataImage(settings.node_id, settings.static, quotas)
        self.partitions.is_eligible = self.image.may_join
        self.held = HeldPartitions(self.partitions, self.image.topic, self.image.topic_settings)
        self.follower = MetadataFollower(self.image, self.held, clock=clocks.wall)
        machine = ControllerMachine(controller_view(settings), dict(FEATURES))
        self.controller = ActiveController(machine, self.follower, clocks.moment)
        cluster_log = ClusterLog(lambda: self.controller.is_active, self.controller.last_step)
        self.follower.before_batch = cluster_log.note
        self.links = BrokerLinks()
        self.broker = self._build_broker(quotas)
        self.server = Listener(self.broker.dispatcher, self.broker.settings.network)
        self._upkeep = BrokerUpkeep(self.partitions, folder.path, settings.values, clocks)
        self.upkeep = self._upkeep.upkeep
        self._tasks: list[asyncio.Task[None]] = []
        self.stalls: StallRecovery | None = None  # None: it does not serve yet
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def _build_broker(self, quotas: Quotas) -> Broker:
        """What the handlers see, with the coordinators."""
        settings, clocks = self.settings, self.clocks
        views = broker_view(settings)
        broker = Broker(
            settings=views,
            clock=clocks.wall,
            steady_clock=clocks.steady,
            partitions=self.partitions,
            cluster=self.image,
            quotas=quotas,
            api_table=API_TABLE,
            inspector=Inspector(),
            fetch_sessions=FetchSessions(
                sessions_max=views.fetch_sessions_max,
                idle_ms=FETCH_SESSION_IDLE_MS,
                new_id=_new_session_id,
            ),
            log_folder=self.folder.path,
        )
        broker.follower, broker.controller = self.follower, self.controller
        self.client = broker.controller_client = ControllerClient(
            broker, self.controller, self.follower, self.links
        )
        broker.dispatcher = Dispatcher(broker)
        self.lost_brokers = broker.lost_brokers = LostBrokers(self.controller, self.image)
        self.controller.on_active = self.lost_brokers.check_all
        broker.suspected_leaders = SuspectedLeaders(clocks.steady, Millis(2 * self._session_ms))
        broker.follower_sessions = FollowerSessions(_new_session_id)
        self.in_sync_changes = broker.in_sync_changes = InSyncChanges(
            self.client,
            self.image,
            self.partitions,
            node_id=settings.node_id,
            clock=clocks.steady,
            lag_max_ms=self.partitions.replica_settings.lag_max_ms,
        )
        self.remote_transactions = RemoteTransactions(self.links, self.image)
        self.transactions = broker.transactions = TransactionCoordinators(
            partitions=self.partitions,
            cluster=self.image,
            producer_ids=self.client,
            settings=view(TransactionSettings, settings.values),
            clock=clocks.moment,
            remote=self.remote_transactions,
        )
        self.groups = broker.groups = GroupCoordinators(
            partitions=self.partitions,
            cluster=self.image,
            settings=view(GroupSettings, settings.values),
            clock=clocks.moment,
        )
        self._build_replicas(broker)
        return broker

    def _build_replicas(self, broker: Broker) -> None:
        node_id = self.settings.node_id
        self.reports = ReplicaReports(
            self.client, node_id=node_id, directory_id=self._identity.directory_id
        )
        unusable = UnusableReplicas(self.reports, node_id=node_id, find_topic=self.image.topic)
        broker.unusable = self.partitions.health = self.held.unopened = unusable
        self.replicas = Replicas(
            self.partitions,
            self.image,
            self.links,
            self.clocks.wall,
            broker.suspected_leaders,
            unusable.is_usable,
        )
        unusable.stop_following = self.replicas.drop
        unusable.start_again = self.held.start_again
        self.held.listeners += (
            self.transactions.follow,
            self.groups.follow,
            self.in_sync_changes.follow,
            unusable.follow,
            self.replicas.follow,
        )

    # Starting.

    async def start(self) -> int:
        """Join the cluster and serve; the port that clients connect to."""
        settings = self.settings
        try:
            port = await self.server.listen(settings.host, settings.kafka_port)
        except OSError as error:
            address = settings.host, settings.kafka_port
            raise CannotListenError(error, *address, "--kafka-port") from error
        shown = settings.shown_host, settings.shown_port(port)
        endpoint = Endpoint(settings.node_id, *shown, settings.rack)
        self.image.static["listeners"] = f"{self.server.name}://{bracketed(settings.host)}:{port}"
        self.lifecycle = self._build_lifecycle(endpoint)
        self.lifecycle.on_fenced = self.held.lead_nothing
        self._join_quorum(endpoint)
        self.is_joined = True
        await self.follower.caught_up()
        await self._register()
        self.flusher.start()
        self.lifecycle.start()
        await self.lifecycle.unfenced()
        await self.transactions.producer_ids.prepare()
        self._watch_stalls()
        self.broker.dispatcher.open()
        interval_ms = Millis(settings.values.integer("log.flush.offset.checkpoint.interval.ms"))
        checkpoints = write_checkpoints(self.folder, self.clocks.wall, interval_ms)
        self._tasks += [
            start_background("upkeep", self.upkeep.run()),
            start_background("writing checkpoints", checkpoints),
        ]
        gc.freeze()  # what exists now exists until the end: no collection looks at it again
        gc.set_threshold(GARBAGE_MIN)
        gc.enable()
        return port

    def _join_quorum(self, endpoint: Endpoint) -> None:
        membership = QuorumMembership(
            endpoint=endpoint,
            listener=self.server.name,
            directory_id=self._identity.directory_id,
            voters=self.settings.voters,
            bootstrap=self.settings.join,
        )
        quorum = self.broker.quorum = start_quorum(
            membership,
            self.metadata,
            self.links,
            self,
            clock=self.clocks.moment,
            cluster_id=lambda: self.image.cluster_id or self._identity.cluster_id or None,
            jitter=lambda limit_ms: Millis(random.randrange(limit_ms)),
        )
        self.controller.attach(quorum)
        self.client.attach(quorum)
        self.follower.start(quorum)
        quorum.start()

    def _build_lifecycle(self, endpoint: Endpoint) -> BrokerLifecycle:
        return BrokerLifecycle(
            self.client,
            endpoint=endpoint,
            incarnation=uuid4(),
            log_dir=self._identity.directory_id,
            cluster_id=lambda: self.image.cluster_id or self._identity.cluster_id,
            applied_offset=lambda: self.follower.applied.offset,
            is_alone=lambda: self.controller.is_active and len(self.image.state.brokers) == 1,
            interval_ms=Millis(self.settings.values.integer("broker.heartbeat.interval.ms")),
            session_ms=self._session_ms,
        )

    async def _register(self) -> None:
        """Become a broker of the cluster, then open the partitions that it says are here."""
        boot = boot_id()
        last_epoch = previous_epoch(self.folder.path, boot, was_clean=self.folder.was_clean)
        epoch = await self.lifecycle.register(last_epoch)
        if last_epoch >= 0:  # now: if it is killed while it opens the logs, they are still complete
            await self._save_registration(epoch, boot)
        await self.follower.applied_up_to(Offset(epoch + 1))
        began_s = self.clocks.monotonic_s()
        if not self.folder.was_clean:  # a clean stop leaves none
            set_strays_aside(self.folder, self.image.state, self.clocks.wall())
            await recover_logs(self.folder, self.image.topic_settings, self.clocks.wall())
        self.follower.begin()
        self.transactions.start()
        self.groups.start()
        self.in_sync_changes.start(epoch)
        self.reports.start(epoch)
        self.replicas.start(epoch)
        await self.follower.idle()
        report_recovery(self.folder, self.clocks.monotonic_s() - began_s)
        self.folder.started()
        report_ignored_settings(self.settings.static, self.image.layers.defaults)
        if last_epoch < 0:
            await self._report_complete_logs()
            await self._save_registration(epoch, boot)
        if not self._identity.cluster_id:
            self._identity = self._identity._replace(cluster_id=self.image.cluster_id)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, save_identity, self.folder.path, self._identity)

    async def _save_registration(self, epoch: int, boot: str) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, save_registration, self.folder.path, epoch, boot)

    async def _report_complete_logs(self) -> None:
        """After a power cut, the logs that hold all that they acknowledged count as before."""
        complete = [
            OwnReplica(partition.topic_id, partition.topic_partition.partition)
            for partition in self.partitions
            if partition.log.was_synced and len(partition.leadership.replicas) > 1
        ]
        await self.reports.taken(complete, ReplicaCondition.COMPLETE)

    def _watch_stalls(self) -> None:
        self.stalls = StallRecovery(
            self.broker.dispatcher,
            self.lifecycle,
            self.controller,
            self.follower,
            limit_s=self._session_ms / 1000,
            clock=self.clocks.monotonic_s,
        )
        self.stalls.start()

    # What the quorum reports.

    def on_role(self, change: RoleChange) -> None:
        """Another leader: offsets that are waited for may never be committed."""
        self.controller.on_role(change)

    def on_committed(self, high_watermark: Offset) -> None:
        """More metadata is committed."""
        self.follower.on_committed(high_watermark)

    def on_snapshot_installed(self, snapshot: OffsetAndEpoch) -> None:
        """The metadata was replaced by a snapshot."""
        self.follower.on_snapshot_installed(snapshot)

    def on_fault(self, reason: str) -> None:
        """This broker cannot follow the cluster any more. Alone, it still serves its partitions."""
        logger.critical("%s", reason)
        self.controller.close()
        if not self.broker.quorum.is_alone:
            self.fail(reason)

    def fail(self, reason: str) -> None:
        """It cannot go on: its process ends."""
        if not self.failed.done():
            self.failed.set_result(reason)

    def on_full_disk(self, *, is_full: bool) -> None:
        """Without space for the metadata this broker falls behind: others lead meanwhile."""
        self.lifecycle.wants_fence = is_full and not self.broker.quorum.is_alone

    # Stopping.

    async def stop(self) -> None:
        """Let others take over, stop serving, answer pending requests, close all."""
        if len(self.image.brokers()) > 1:
            await self.lifecycle.stop(HAND_OVER_S)
            self.broker.quorum.resign()
        else:
            self.lifecycle.close()
        if self.stalls is not None:
            self.stalls.close()
        self.lost_brokers.close()
        await self.server.close(STOP_S, self._answer_pending)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._upkeep.stop()
        self.transactions.close()
        self.remote_transactions.close()
        self.controller.close()
        self.in_sync_changes.close()
        self.broker.unusable.close()
        self.reports.close()
        self.replicas.close()
        self.held.close()
        self.follower.close()
        self.broker.quorum.close()
        self.links.close()
        self.flusher.close()
        self.partitions.close()

    def skip_hand_over(self) -> None:
        """Stop without waiting for other brokers: they stop too."""
        self.lifecycle.close()

    def _answer_pending(self) -> None:
        self.partitions.abandon()
        self.groups.close()  # members whose join waits for others


def _new_session_id() -> int:
    return secrets.randbelow(SESSION_IDS_END - 1) + 1
