"""Keeps this broker's partitions as the metadata says: opens, leads, reconfigures, deletes them.

Everything here is repeatable: it compares with what the metadata says now, never with what changed.
Work is done in steps, so that ten thousand partitions do not hold the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from penstock.coordination.controller.events import NO_LEADER
from penstock.log.scan import DamagedLogError
from penstock.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.broker.broker import TopicView
    from penstock.broker.leadership import Leadership
    from penstock.broker.partitions import Partitions
    from penstock.broker.settings import TopicSettings
    from penstock.model import TopicId

logger: Final = logging.getLogger(__name__)

REOPEN_AFTER_S: Final = 1.0  # a disk that refuses is tried again after this
REOPEN_DAMAGED_AFTER_S: Final = 60.0  # one whose bytes are wrong or missing needs a person first


class UnopenedLogs(Protocol):
    """What is done about replicas whose log cannot be opened."""

    def on_not_opened(self, name: TopicPartition, topic_id: TopicId, *, is_damaged: bool) -> None:
        """The partition is offline here."""

    def on_opened(self, name: TopicPartition) -> None:
        """The partition is open."""


class HeldPartitions:
    """The partitions that this broker has, as of the last topic that was followed."""

    def __init__(
        self,
        partitions: Partitions,
        find_topic: Callable[[str], TopicView | None],
        settings_of: Callable[[str], TopicSettings],
    ) -> None:
        self._partitions = partitions
        self._find_topic = find_topic
        self._settings_of = settings_of
        self.listeners: list[Callable[[str], None]] = []  # a topic was created, changed or deleted
        # Partitions that the disk refused to open, and the loop's time of the next attempt
        self._offline: dict[TopicPartition, float] = {}
        self._reopening: asyncio.TimerHandle | None = None
        self.unopened: UnopenedLogs | None = None

    def follow(self, name: str) -> Iterator[None]:
        """Bring one topic up to date; others may act at each step."""
        topic = self._find_topic(name)
        held = self._partitions.topics.get(name)
        if held is not None and (topic is None or topic.topic_id != held.topic_id):
            self._delete(name)
        if topic is not None:
            settings = self._settings_of(name)
            held = self._partitions.topics.get(name)
            known = {} if held is None else held.partitions
            for index, leadership in enumerate(topic.partitions):
                if index in known and known[index].leadership == leadership:
                    continue  # as most: a change is of one partition or a few
                if self._partitions.node_id in leadership.replicas:
                    self._open(TopicPartition(name, index), topic.topic_id, leadership, settings)
                    yield
        for listener in self.listeners:
            listener(name)
        yield

    def reconfigure(self, name: str) -> None:
        """A topic's settings changed: they take effect with the next request."""
        self._partitions.replace_settings(name, self._settings_of(name))

    def lead_nothing(self) -> None:
        """This broker is fenced, and does not know yet which others lead instead."""
        for name, held in tuple(self._partitions.topics.items()):
            led = [partition for partition in held.partitions.values() if partition.is_leader]
            for partition in led:
                partition.lead(partition.leadership._replace(leader=NO_LEADER))
            for listener in self.listeners if led else ():
                listener(name)

    def close(self) -> None:
        """Try nothing again."""
        if self._reopening is not None:
            self._reopening.cancel()

    def _delete(self, name: str) -> None:
        try:
            self._partitions.delete(name)
        except OSError:  # the next start sets aside what belongs to no topic
            logger.exception("the files of %s could not be removed", name)

    def _open(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        leadership: Leadership,
        settings: TopicSettings,
    ) -> None:
        try:
            self._partitions.create(topic_partition, topic_id, leadership, settings)
        except OSError as error:  # the partition is offline; the others serve
            if topic_partition not in self._offline:
                logger.error("%s could not be opened and is offline: %s", topic_partition, error)
            is_damaged = isinstance(error, DamagedLogError)
            delay_s = REOPEN_DAMAGED_AFTER_S if is_damaged else REOPEN_AFTER_S
            loop = asyncio.get_running_loop()
            self._offline[topic_partition] = loop.time() + delay_s
            if self._reopening is None:
                self._reopening = loop.call_later(REOPEN_AFTER_S, self._reopen)
            if self.unopened is not None:
                self.unopened.on_not_opened(topic_partition, topic_id, is_damaged=is_damaged)
        else:
            if self._offline.pop(topic_partition, None) is not None and self.unopened is not None:
                self.unopened.on_opened(topic_partition)

    def start_again(self, topic_partition: TopicPartition) -> None:
        """Keep a damaged log under another name, and begin with an empty one."""
        topic = self._find_topic(topic_partition.topic)
        if topic is None:
            return
        try:
            aside = self._partitions.set_aside(topic_partition)
        except OSError:  # it is opened as it is
            logger.exception("%s could not be set aside", topic_partition)
        else:
            logger.warning(
                "%s was damaged: set aside as %s; its records are copied from the leader",
                topic_partition,
                aside,
            )
        leadership = topic.partitions[topic_partition.partition]
        self._open(topic_partition, topic.topic_id, leadership, self._settings_of(topic.name))
        for listener in self.listeners:
            listener(topic.name)

    def _reopen(self) -> None:
        """A disk that refused may have space now."""
        self._reopening = None
        loop = asyncio.get_running_loop()
        for topic_partition, at in tuple(self._offline.items()):
            topic = self._find_topic(topic_partition.topic)
            if topic is None or topic_partition.partition >= len(topic.partitions):
                del self._offline[topic_partition]
            elif at <= loop.time():
                leadership = topic.partitions[topic_partition.partition]
                settings = self._settings_of(topic.name)
                self._open(topic_partition, topic.topic_id, leadership, settings)
                if topic_partition not in self._offline:
                    logger.info("%s is open again", topic_partition)
                    for listener in self.listeners:
                        listener(topic.name)
        if self._offline and self._reopening is None:
            self._reopening = loop.call_later(REOPEN_AFTER_S, self._reopen)
