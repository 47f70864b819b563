"""One event as a program sees it."""

from dataclasses import dataclass
from typing import Any

from penstock.model import Millis, Offset, TopicPartition


@dataclass(frozen=True, slots=True)
class Event:
    """A record that was read: where it is, and its key and value under their contracts."""

    topic: str
    partition: int
    offset: Offset
    timestamp: Millis
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition it is in."""
        return TopicPartition(self.topic, self.partition)
