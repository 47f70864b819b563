"""The metadata in a broker's folder: opening its log; what in the folder belongs to no topic."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from penstock.broker.quorum.metadata_log import MetadataLog
from penstock.broker.quorum.wire import METADATA_PARTITION, METADATA_TOPIC_ID
from penstock.broker.settings import topic_settings
from penstock.config.broker_keys import CLUSTER_WIDE_KEYS
from penstock.config.resolve import NO_LAYERS
from penstock.log import LogDirectoryError
from penstock.log.log_dir_identity import load_topic_id, stores_topic_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.broker.settings import TopicSettings
    from penstock.coordination.controller import ClusterState
    from penstock.log import LogDirectory
    from penstock.model import Millis

logger: Final = logging.getLogger(__name__)

METADATA_SETTINGS: Final = topic_settings(
    {
        "segment.bytes": str(4 << 20),  # small: snapshots remove whole segments
        "max.message.bytes": str(64 << 20),  # the events of a command are one batch
        "retention.ms": "-1",
        "flush.messages": "1",  # acknowledged metadata survives a power cut, as in Kafka
    },
    NO_LAYERS,
)


def open_metadata(folder: LogDirectory, now: Millis) -> MetadataLog:
    """The log of the quorum, which no client reaches: it is in no table of topics."""
    _check_metadata_is_present(folder)
    log = folder.open_partition(
        METADATA_PARTITION, METADATA_SETTINGS.log, topic_id=METADATA_TOPIC_ID, now=now
    )
    metadata = MetadataLog(log)
    snapshot = metadata.latest_snapshot
    if metadata.start_offset > (0 if snapshot is None else snapshot.offset):
        raise LogDirectoryError(
            f"{metadata.folder} starts at offset {metadata.start_offset} and has no snapshot "
            "(*.checkpoint) of what came before: restore it from a copy"
        )
    return metadata


def _check_metadata_is_present(folder: LogDirectory) -> None:
    """LogDirectoryError when there are partitions, and nothing that says of which topics.

    The first record of this log is on disk before the first topic is created. Without it a start
    would begin an empty cluster, and clients would create their topics again beside the old data.
    """
    path = folder.path / str(METADATA_PARTITION)
    patterns = ("*.log*", "*.checkpoint")
    files = [file for pattern in patterns for file in path.glob(pattern) if file.is_file()]
    if any(file.stat().st_size for file in files):
        return
    others = sum(1 for name in folder.partitions_on_disk() if name != METADATA_PARTITION)
    if others:
        raise LogDirectoryError(
            f"{path} is missing or empty, and {folder.path} holds {others} partitions whose topics "
            "it described: restore it from a copy, or start with another --dir"
        )


def report_ignored_settings(static: Mapping[str, str], stored: Mapping[str, str]) -> None:
    """Some settings are the cluster's, whatever its brokers are started with."""
    for name in CLUSTER_WIDE_KEYS:
        if name in static and static[name] != stored.get(name):
            logger.warning(
                "%s=%s has no effect: the cluster has %s; change it with `penstock cluster alter`",
                *(name, static[name], stored.get(name)),
            )


async def recover_logs(
    folder: LogDirectory, settings_of: Callable[[str], TopicSettings], now: Millis
) -> None:
    """After an unclean stop, check large logs in a thread; small ones are when they are opened."""
    partitions = sum(1 for name in folder.partitions_on_disk() if name != METADATA_PARTITION)
    if not partitions:  # a new folder
        return
    logger.info(
        "the last stop was not clean: checking the ends of %d partitions in %s, and cutting "
        "off batches that were not written completely", partitions, folder.path,
    )  # fmt: skip
    recovery = folder.plan_recovery(lambda name: settings_of(name.topic).log, now)
    await asyncio.get_running_loop().run_in_executor(None, recovery.run)


def report_recovery(folder: LogDirectory, seconds: float) -> None:
    """After an unclean stop, one line for the operator, once all partitions are open."""
    partitions = [name for name in folder.partitions if name != METADATA_PARTITION]
    if folder.was_clean or not partitions:
        return
    recovered = folder.recovered()
    logger.warning(
        "recovered after an unclean stop: "
        "%d partitions, %d bytes checked, %d bytes cut off, %.1f s",
        *(len(partitions), recovered.checked, recovered.cut, seconds),
    )


def set_strays_aside(folder: LogDirectory, cluster: ClusterState, now: Millis) -> None:
    """A partition on disk that belongs to no topic of the cluster is kept under another name.

    One whose topic was deleted is removed: the deletion was interrupted. One with another id than
    the topic of its name is kept: nothing says whether that topic was deleted, or the id damaged.
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
            folder.discard(topic_partition, token=uuid4().hex, now=now)
            continue
        aside = folder.set_aside(topic_partition, uuid4().hex)
        logger.warning("%s belongs to no topic: set aside as %s", path.name, aside.name)
