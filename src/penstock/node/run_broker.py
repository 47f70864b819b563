"""One broker process: builds its parts, serves until told to stop, and stops in good order.

The order of a stop is the reverse of what depends on what: no new requests, everybody who waits is
answered, the services close, then the logs, and last the mark that says the stop was clean.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
import signal
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import uvloop

from penstock.broker.broker import Broker, Endpoint
from penstock.broker.dispatch import Dispatcher
from penstock.broker.fetch_sessions import FetchSessions
from penstock.broker.flusher import Flusher
from penstock.broker.group_coordinators import GroupCoordinators
from penstock.broker.handler import result_of
from penstock.broker.handlers import API_TABLE
from penstock.broker.handlers.api_versions import FEATURES
from penstock.broker.listener import Listener
from penstock.broker.metadata_image import (
    METADATA_PARTITION,
    METADATA_TOPIC_ID,
    ClusterController,
    kafka_id,
)
from penstock.broker.partition import Leadership, Partition
from penstock.broker.partitions import Partitions
from penstock.broker.quotas import Quotas
from penstock.broker.settings import topic_settings
from penstock.broker.transaction_coordinators import TransactionCoordinators
from penstock.config.resolve import NO_LAYERS, view
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.transactions import TransactionSettings
from penstock.log import LogDirectory, LogDirectoryError, LogDirectoryIdentity, OpenFiles
from penstock.log.log_dir import PartitionLogStore
from penstock.log.log_dir_identity import load_identity, load_topic_id, stores_topic_id
from penstock.model import LeaderEpoch, Millis, Moment, NodeId
from penstock.node.listen_address import CannotListenError, bracketed
from penstock.node.record_inspector import Inspector
from penstock.node.settings import (
    NodeSettings,
    broker_view,
    controller_view,
)
from penstock.node.upkeep_status import remove_status, write_status
from penstock.upkeep.scheduler import Upkeep, UpkeepTarget
from penstock.upkeep.settings import UpkeepSettings
from penstock.upkeep.worker_process import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from penstock.coordination.controller import ClusterState

logger: Final = logging.getLogger(__name__)

SESSION_IDS_END: Final = 1 << 31
STATUS_INTERVAL_S: Final = 1.0  # at most so often, however short the rounds of upkeep are
STOP_S: Final = 4.0  # a graceful stop waits this long for pending responses
FETCH_SESSION_IDLE_MS: Final = Millis(120_000)  # then a session may be evicted
METADATA_SETTINGS: Final = topic_settings(
    {
        "cleanup.policy": "compact",
        "segment.bytes": str(4 << 20),  # small, so that its history is compacted soon
        "max.message.bytes": str(64 << 20),  # the events of a command are one batch
        "flush.messages": "1",  # acknowledged metadata survives a power cut, as in Kafka
    },
    NO_LAYERS,
)


class RunningBroker:
    """The parts of one broker, from the folder on disk to the listener."""

    def __init__(self, settings: NodeSettings, folder: LogDirectory, cluster_id: str) -> None:
        self.settings = settings
        self.folder = folder
        self._cluster_id = cluster_id
        views = broker_view(settings)
        self.partitions: Partitions = Partitions(settings.node_id, PartitionLogStore(folder, clock))
        self.flusher: Flusher = Flusher(self._all_partitions(), clock=steady_clock)
        self.partitions.flush = self.flusher
        self.metadata: Partition = _open_metadata(folder, settings.node_id, self.flusher)
        quotas = Quotas(time.monotonic)
        self.cluster: ClusterController = ClusterController(
            self.metadata,
            self.partitions,
            quotas,
            rules=controller_view(settings),
            features=dict(FEATURES),
            clock=moment,
        )
        self.broker: Broker = Broker(
            settings=views,
            clock=clock,
            steady_clock=steady_clock,
            partitions=self.partitions,
            cluster=self.cluster,
            quotas=quotas,
            api_table=API_TABLE,
            inspector=Inspector(),
            fetch_sessions=FetchSessions(
                sessions_max=views.fetch_sessions_max,
                idle_ms=FETCH_SESSION_IDLE_MS,
                new_id=lambda: secrets.randbelow(SESSION_IDS_END - 1) + 1,
            ),
        )
        self.transactions: TransactionCoordinators = TransactionCoordinators(
            partitions=self.partitions,
            cluster=self.cluster,
            producer_ids=self.cluster,
            settings=view(TransactionSettings, settings.values),
            clock=moment,
        )
        self.groups: GroupCoordinators = GroupCoordinators(
            partitions=self.partitions,
            cluster=self.cluster,
            settings=view(GroupSettings, settings.values),
            clock=moment,
        )
        self.broker.transactions, self.broker.groups = self.transactions, self.groups
        self.cluster.topic_listeners += (self.transactions.follow, self.groups.follow)
        self.server: Listener = Listener(Dispatcher(self.broker), views.network)
        self._worker = WorkerProcess()
        self.upkeep: Upkeep = Upkeep(
            self._kept,
            self._worker,
            view(UpkeepSettings, settings.values),
            clock=clock,
            steady_clock=steady_clock,
            on_round=self._write_upkeep_status,
        )
        self._status_due_at = 0.0
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> int:
        """Serve; the port that clients connect to."""
        settings = self.settings
        try:
            port = await self.server.listen(settings.host, settings.kafka_port)
        except OSError as error:
            wanted = settings.host, settings.kafka_port
            raise CannotListenError(error, *wanted, "--kafka-port") from error
        endpoint = Endpoint(
            settings.node_id, settings.shown_host, settings.shown_port(port), settings.rack
        )
        where = f"{bracketed(settings.host)}:{port}"
        self.cluster.static["listeners"] = f"{self.server.name}://{where}"
        if not self.folder.was_clean:  # a stop in good order leaves none
            _set_strays_aside(self.folder, self.cluster.state)
            _report_recovery(self.folder)
        registered = self.cluster.start(
            endpoint, stopped_cleanly=self.folder.was_clean, cluster_id=self._cluster_id
        )
        self.folder.started()
        self.transactions.start()
        self.groups.start()
        self.flusher.start()
        await result_of(registered)
        await self.transactions.producer_ids.prepare()
        self._keep_running("upkeep", self.upkeep.run())
        self._keep_running("checkpoints", self._checkpoint_for_ever())
        gc.freeze()  # what stands now stands until the end: no collection looks at it again
        gc.enable()
        return port

    def _keep_running(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(_tell_death)
        self._tasks.append(task)

    async def stop(self) -> None:
        """Stop serving, answer who waits, close all."""
        await self.server.close(STOP_S, self._answer_who_waits)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._worker.stop()
        self.transactions.close()
        self.cluster.close()
        self.flusher.close()
        self.partitions.close()
        with suppress(OSError):
            remove_status(self.folder.path)

    def _answer_who_waits(self) -> None:
        self.partitions.abandon()
        self.groups.close()  # members whose join waits for others

    def _all_partitions(self) -> _Everything:
        return _Everything(self)

    def _kept(self) -> Iterator[UpkeepTarget]:
        for partition in self._all_partitions():
            settings = partition.settings
            yield UpkeepTarget(partition.log, settings.retention, settings.compaction)

    def _write_upkeep_status(self) -> None:
        now = time.monotonic()
        if now < self._status_due_at:
            return
        self._status_due_at = now + STATUS_INTERVAL_S
        try:
            write_status(self.folder.path, self.upkeep, clock())
        except OSError as error:  # nothing depends on it
            logger.debug("the upkeep status could not be written: %s", error)

    async def _checkpoint_for_ever(self) -> None:
        interval_ms = self.settings.values.integer("log.flush.offset.checkpoint.interval.ms")
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(max(interval_ms, 1000) / 1000)
            try:
                await loop.run_in_executor(None, self.folder.plan_checkpoint().run)
            except OSError as error:  # only makes the next recovery longer
                logger.warning("the checkpoints could not be written: %s", error)
            remove = partial(
                self.folder.remove_folders,
                self.folder.take_deleted(clock()),
                keep_names=self.folder.has_deleted_rows,
            )
            await loop.run_in_executor(None, remove)


class _Everything:
    """Every partition of the broker, its own metadata first, as of each time it is asked."""

    def __init__(self, running: RunningBroker) -> None:
        self._running = running

    def __iter__(self) -> Iterator[Partition]:
        yield self._running.metadata
        yield from tuple(self._running.partitions)


def _tell_death(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.critical("%s ended", task.get_name(), exc_info=task.exception())


def clock() -> Millis:
    """The time of day."""
    return Millis(time.time_ns() // 1_000_000)


def steady_clock() -> Millis:
    """For time-outs: it goes on when the time of day is set."""
    return Millis(time.monotonic_ns() // 1_000_000)


def moment() -> Moment:
    """Now, on both clocks. Without calls in between: every commit needs it."""
    steady_ms, wall_ms = time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000
    return Moment(Millis(steady_ms), Millis(wall_ms))


def open_folder(settings: NodeSettings) -> tuple[LogDirectory, str]:
    """Lock the node's folder and learn the cluster's id, minting one on the first day."""
    known = load_identity(settings.folder) if settings.folder.exists() else None
    cluster_id = kafka_id(uuid4()) if known is None else known.cluster_id
    directory_id = uuid4() if known is None else known.directory_id
    identity = LogDirectoryIdentity(cluster_id, settings.node_id, directory_id)
    files = OpenFiles(settings.values.integer("penstock.open.files.max"))
    return LogDirectory.open(settings.folder, files, identity=identity), cluster_id


def _open_metadata(folder: LogDirectory, node_id: NodeId, flusher: Flusher) -> Partition:
    """The controller's own log, which no client reaches: it is in no table of topics."""
    _check_metadata_is_there(folder)
    log = folder.open_partition(
        METADATA_PARTITION, METADATA_SETTINGS.log, topic_id=METADATA_TOPIC_ID, now=clock()
    )
    return Partition(
        log,
        topic_id=METADATA_TOPIC_ID,
        node_id=node_id,
        leadership=Leadership(node_id, LeaderEpoch(0), (node_id,), (node_id,)),
        settings=METADATA_SETTINGS,
        flush=flusher,
    )


def _check_metadata_is_there(folder: LogDirectory) -> None:
    """LogDirectoryError when there are partitions and no word of their topics.

    The first record of this log is on disk before the first topic is made. Without it a start would
    make an empty cluster, and clients would make their topics again beside the old data.
    """
    path = folder.path / str(METADATA_PARTITION)
    if any(file.stat().st_size for file in path.glob("*.log*") if file.is_file()):
        return
    others = sum(1 for name in folder.partitions_on_disk() if name != METADATA_PARTITION)
    if others:
        raise LogDirectoryError(
            f"{path} is missing or empty, and {folder.path} holds {others} partitions whose topics "
            "it described: restore it from a copy, or start with another --dir"
        )


def _report_recovery(folder: LogDirectory) -> None:
    partitions = sum(1 for name in folder.partitions_on_disk() if name != METADATA_PARTITION)
    if partitions:  # a new folder has none
        logger.info(
            "the last stop was not clean: checking the ends of %d partitions in %s, and cutting "
            "off batches that were not written completely", partitions, folder.path,
        )  # fmt: skip


def _set_strays_aside(folder: LogDirectory, cluster: ClusterState) -> None:
    """A partition on disk that the controller never knew is kept, under another name.

    One whose topic it has deleted goes: the deletion was interrupted. One with another id than the
    topic of its name is kept too: whether that id was deleted, or rotted, nobody knows any more.
    """
    for topic_partition in folder.partitions_on_disk():
        if topic_partition == METADATA_PARTITION:
            continue
        topic = cluster.topics.get(topic_partition.topic)
        path = folder.path / str(topic_partition)
        if topic is not None and topic_partition.partition < len(topic.partitions):
            if stores_topic_id(path, topic.topic_id):
                continue
            if load_topic_id(path) in (None, topic.topic_id):
                continue
        if topic_partition.topic in cluster.deleted_topics:
            logger.warning("%s belongs to a topic that was deleted: removed", path.name)
            folder.discard(topic_partition, token=uuid4().hex, now=clock())
            continue
        aside = folder.set_aside(topic_partition, uuid4().hex)
        logger.warning("%s belongs to no topic: set aside as %s", path.name, aside.name)


async def serve(settings: NodeSettings, on_ready: Callable[[int], None]) -> None:
    """Run a broker until SIGTERM or SIGINT; `on_ready` is told the port."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    folder, cluster_id = open_folder(settings)
    gc.disable()  # almost nothing that a start makes is garbage, and there is much to look at
    try:
        running = RunningBroker(settings, folder, cluster_id)
        on_ready(await running.start())
    except BaseException:
        _give_back(folder)
        raise
    await stopping.wait()
    logger.info("stopping")
    await running.stop()


def _give_back(folder: LogDirectory) -> None:
    """The start failed: what was clean before is clean still."""
    try:
        folder.close()
    except OSError:
        folder.release()


def run_broker(settings: NodeSettings, on_ready: Callable[[int], None]) -> None:
    """Run a broker in this process until it is told to stop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(settings, on_ready))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # a second one must not end what is in good order
