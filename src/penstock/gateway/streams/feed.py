"""A feed: a position in some partitions, read on behalf of all streams that are there.

`take` turns what is cached after the position into one framed chunk and moves the position past it.
Partitions take turns. Nothing is skipped but what the stream's key excludes. Pure.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.gateway.streams.block_cache import Block
from penstock.gateway.streams.resume_id import ResumeIdWriter
from penstock.gateway.streams.stream_credit import SendLimit
from penstock.gateway.streams.stream_frames import (
    FramedEvent,
    StreamChunk,
    StreamForm,
    UnreadableRow,
    frame_events,
)
from penstock.model import Offset, TopicPartition

CHUNK_BYTES: Final = 64 << 10
CHUNK_RECORDS: Final = 1_000
CHUNK_LIMIT: Final = SendLimit(CHUNK_RECORDS, CHUNK_BYTES)
_SCANNED_MAX: Final = 10_000  # events that a key excludes, in one chunk

Find: TypeAlias = Callable[[TopicPartition, Offset], Block | None]
FeedKey: TypeAlias = tuple["Subscription", tuple[Offset, ...]]


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a stream reads: streams with equal ones can share chunks."""

    form: StreamForm
    partitions: tuple[TopicPartition, ...]  # sorted
    key: bytes | None = None  # only events with this key
    hides_unreadable: bool = False  # events that cannot be decoded are beside the chunk, not in it


class Feed:
    """The position of some streams of one subscription."""

    def __init__(self, subscription: Subscription, offsets: Iterable[Offset]) -> None:
        self.subscription: Final = subscription
        self.offsets: list[Offset] = list(offsets)
        self._ids = ResumeIdWriter(subscription.partitions, self.offsets)
        self._index = {each: index for index, each in enumerate(subscription.partitions)}
        self._turn = 0  # the partition that is first in the next chunk

    @property
    def key(self) -> FeedKey:
        """Feeds with equal keys can be merged."""
        return self.subscription, tuple(self.offsets)

    @property
    def id(self) -> str:
        """The resume id of the position."""
        return self._ids.text()

    def offset_of(self, partition: TopicPartition) -> Offset:
        """The position in one partition."""
        return self.offsets[self._index[partition]]

    def move(self, partition: TopicPartition, offset: Offset) -> None:
        """Continue a partition at another offset."""
        self._advance(self._index[partition], offset)

    def _advance(self, index: int, offset: Offset) -> None:
        self.offsets[index] = offset
        self._ids.advance(index, offset)

    def has_more(self, find: Find) -> bool:
        """Whether something after the position is cached."""
        return any(find(*place) is not None for place in self._places())

    def _places(self) -> Iterator[tuple[TopicPartition, Offset]]:
        return zip(self.subscription.partitions, self.offsets, strict=True)

    def requested(self, find: Find) -> Iterator[tuple[TopicPartition, Offset]]:
        """Where to fetch: what is missing at the position, and what follows a cached block."""
        for partition, offset in self._places():
            block = find(partition, offset)
            if block is None:
                yield partition, offset
            elif find(partition, block.end_offset) is None:
                yield partition, block.end_offset

    def take(self, find: Find, limit: SendLimit) -> StreamChunk | None:
        """What is cached after the position, as far as it fits; None if nothing is."""
        before = tuple(self.offsets)
        collected = _Collected(limit)
        count = len(self.offsets)
        for turn in range(count):
            index = (self._turn + turn) % count
            if not self._collect(index, find, collected):
                break
        self._turn = (index + 1) % count  # a partition that has more lets the others go first
        after = tuple(self.offsets)
        if before == after:
            return None
        events = collected.events
        payload = frame_events(self.subscription.form, events) if events else b""
        return StreamChunk(
            payload,
            len(events),
            collected.size_bytes,
            before,
            after,
            self._ids.text(),
            tuple(collected.unreadable),
        )

    def _collect(self, index: int, find: Find, collected: "_Collected") -> bool:
        """Take the events of one partition; False if there are more than fit."""
        subscription = self.subscription
        partition, key = subscription.partitions[index], subscription.key
        while (block := find(partition, self.offsets[index])) is not None:
            events = block.events
            for at in range(block.index_of(self.offsets[index]), len(events)):
                event = events[at]
                is_hidden = subscription.hides_unreadable and event.unreadable is not None
                is_match = not is_hidden and (key is None or event.key == key)
                if not collected.fits(len(event.text) if is_match else 0):
                    return False
                self._advance(index, Offset(event.offset + 1))
                if is_match:
                    collected.add(FramedEvent(self._ids.text(), event.text))
                elif is_hidden and event.unreadable is not None:
                    collected.unreadable.append((partition, event.unreadable))
            self._advance(index, block.end_offset)
        return True


class _Collected:
    """The events of a chunk that is being made."""

    def __init__(self, limit: SendLimit) -> None:
        self.events: list[FramedEvent] = []
        self.unreadable: list[UnreadableRow] = []
        self.size_bytes = 0
        self._limit = limit
        self._scanned = 0

    def fits(self, size_bytes: int) -> bool:
        """Whether one more event may be looked at: one always, more within the limit."""
        self._scanned += 1
        if self._scanned > _SCANNED_MAX:
            return False
        if not self.events or not size_bytes:
            return bool(self._limit)
        return (
            len(self.events) < self._limit.records
            and self.size_bytes + size_bytes <= self._limit.size_bytes
        )

    def add(self, event: FramedEvent) -> None:
        """Take an event."""
        self.events.append(event)
        self.size_bytes += len(event.text)
