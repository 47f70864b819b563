"""Replicas whose log cannot be used: others lead, and a damaged log is replaced by a copy.

    the disk failed:     offline; the next start of this broker opens the log again
    the disk is full:    offline, unless no other is in sync; online when there is space
    it does not open:    offline; it is tried again, and online when it opens
    its bytes are wrong: set aside once another replica has all that is committed; then this one
                         starts with an empty log and fetches everything from the leader
Nothing of a log is removed before the controller has committed that the replica does not count.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.broker.replication.replica_reports import OwnReplica
from penstock.coordination.controller.commands import ReplicaCondition
from penstock.log.files import create_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.broker import TopicView
    from penstock.broker.partition import Partition
    from penstock.broker.replication.replica_reports import ReplicaReports
    from penstock.model import LeaderEpoch, NodeId, TopicId, TopicPartition

logger: Final = logging.getLogger(__name__)

SPACE_CHECK_S: Final = 1.0
SPACE_BYTES: Final = 64 << 10  # so much must fit on a disk that was full
_SPACE_FILE: Final = "space-check"


class _Damaged:
    """A replica that is to be set aside."""

    def __init__(self, topic_id: TopicId, leader_epoch: LeaderEpoch) -> None:
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch  # in which the damage was found
        self.is_dispensable = False  # the controller has committed that it does not count


class UnusableReplicas:
    """Implements `partition_ports.ReplicaHealth` and `held_partitions.UnopenedLogs`."""

    def __init__(
        self,
        reports: ReplicaReports,
        *,
        node_id: NodeId,
        find_topic: Callable[[str], TopicView | None],
    ) -> None:
        self._reports = reports
        self._node_id = node_id
        self._find_topic = find_topic
        self._damaged: dict[TopicPartition, _Damaged] = {}
        self._unopened: dict[TopicPartition, TopicId] = {}
        self._failed: set[TopicPartition] = set()  # until a restart
        self._full: dict[TopicPartition, Partition] = {}
        self._space_timer: asyncio.TimerHandle | None = None
        self.stop_following: Callable[[TopicPartition], None] = lambda _: None
        self.start_again: Callable[[TopicPartition], None] = lambda _: None  # with an empty log
        self.set_aside_count: int = 0

    @property
    def offline_count(self) -> int:
        """Replicas of this broker whose log cannot be used."""
        return len(self._failed | self._damaged.keys() | self._unopened.keys() | self._full.keys())

    def is_usable(self, partition: Partition) -> bool:
        """Whether a replica may fetch from its leader."""
        return partition.log.disk_failure is None and partition.topic_partition not in self._damaged

    # What is reported.

    def on_failed(self, partition: Partition) -> None:
        """Its disk refuses: nothing more is written here until a restart."""
        logger.error(
            "%s: the disk failed: %s. Another replica leads, if one is in sync",
            partition.topic_partition,
            partition.log.disk_failure,
        )
        self._failed.add(partition.topic_partition)
        self.stop_following(partition.topic_partition)
        self._reports.add(
            OwnReplica(partition.topic_id, partition.topic_partition.partition),
            ReplicaCondition.OFFLINE,
        )

    def on_full(self, partition: Partition) -> None:
        """Its disk has no space: it can neither lead nor keep up until there is some."""
        name, leadership = partition.topic_partition, partition.leadership
        if self._node_id not in leadership.isr or len(leadership.replicas) == 1:
            return
        if name not in self._full:
            logger.error("%s: the disk is full. Others go on, if one is in sync", name)
        self._full[name] = partition
        replica = OwnReplica(partition.topic_id, name.partition)
        self._reports.add(replica, ReplicaCondition.OFFLINE, is_repeated=False)
        if self._space_timer is None:
            self._check_space_later()

    def _check_space_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._space_timer = loop.call_later(SPACE_CHECK_S, self._check_space)

    def _check_space(self) -> None:
        """Whether there is space again: then these replicas may be elected."""
        self._space_timer = None
        if not self._full:
            return
        path = next(iter(self._full.values())).log.folder.parent / _SPACE_FILE
        try:
            create_file(str(path), bytes(SPACE_BYTES))
        except OSError:
            self._check_space_later()
        else:
            full, self._full = self._full, {}
            for name, partition in full.items():
                replica = OwnReplica(partition.topic_id, name.partition)
                self._reports.add(replica, ReplicaCondition.ONLINE)
        finally:
            with suppress(OSError):
                path.unlink()

    def close(self) -> None:
        """Look for space no more."""
        if self._space_timer is not None:
            self._space_timer.cancel()

    def on_damaged(self, partition: Partition, reason: str) -> None:
        """Its log lacks or has altered what was written."""
        name = partition.topic_partition
        if name in self._damaged or len(partition.leadership.replicas) == 1:
            return
        logger.error("%s is damaged: %s. It is replaced when another replica leads", name, reason)
        self._add(name, partition.topic_id, partition.leader_epoch)
        self.stop_following(name)

    def on_not_opened(self, name: TopicPartition, topic_id: TopicId, *, is_damaged: bool) -> None:
        """A log could not be opened. It is tried again unless it is damaged."""
        topic = self._find_topic(name.topic)
        if topic is None or len(topic.partitions[name.partition].replicas) == 1:
            return
        if is_damaged and name not in self._damaged:
            self._add(name, topic_id, topic.partitions[name.partition].leader_epoch)
        elif not is_damaged and name not in self._unopened:
            self._unopened[name] = topic_id
            self._reports.add(OwnReplica(topic_id, name.partition), ReplicaCondition.OFFLINE)

    def on_opened(self, name: TopicPartition) -> None:
        """A log that could not be opened is open now; a damaged one was restored by a person."""
        topic_id, damaged = self._unopened.pop(name, None), self._damaged.pop(name, None)
        if damaged is not None:
            topic_id = damaged.topic_id
        if topic_id is not None:
            self._reports.add(OwnReplica(topic_id, name.partition), ReplicaCondition.ONLINE)

    # Replacing a log.

    def _add(self, name: TopicPartition, topic_id: TopicId, leader_epoch: LeaderEpoch) -> None:
        damaged = self._damaged[name] = _Damaged(topic_id, leader_epoch)

        def on_taken() -> None:
            damaged.is_dispensable = True
            if self._damaged.get(name) is damaged:
                self._replace(name)

        self._reports.add(OwnReplica(topic_id, name.partition), ReplicaCondition.EMPTY, on_taken)

    def follow(self, name: str) -> None:
        """A topic was created, changed or deleted."""
        if self._find_topic(name) is None:
            self._failed = {each for each in self._failed if each.topic != name}
            self._full = {key: of for key, of in self._full.items() if key.topic != name}
            self._unopened = {key: of for key, of in self._unopened.items() if key.topic != name}
        for topic_partition in tuple(self._damaged):
            if topic_partition.topic == name:
                self._replace(topic_partition)

    def _replace(self, name: TopicPartition) -> None:
        """Set a log aside, if this broker knows that another leads in a later epoch."""
        damaged, topic = self._damaged[name], self._find_topic(name.topic)
        if topic is None or topic.topic_id != damaged.topic_id:
            del self._damaged[name]
            return
        leadership = topic.partitions[name.partition]
        if (
            damaged.is_dispensable
            and leadership.leader_epoch > damaged.leader_epoch
            and leadership.leader not in (self._node_id, -1)
        ):
            del self._damaged[name]
            self.set_aside_count += 1
            self.start_again(name)
