"""Moves events from the cache to the streams, a feed at a time.

A stream belongs to exactly one feed, or it is stalled: it cannot take more now, and nothing is
fetched for it. Feeds that come to the same position are merged, so streams share chunks again after
any of them was slow. Never awaits: what it writes goes into buffers that `send_limit` bounds.
"""

import asyncio
from typing import Final, Protocol

from penstock.gateway.streams.block_cache import Block, BlockCache
from penstock.gateway.streams.feed import CHUNK_LIMIT, Feed, FeedKey, Subscription
from penstock.gateway.streams.partition_fetcher import Gap, PartitionFetcher
from penstock.gateway.streams.stream_credit import SendLimit
from penstock.gateway.streams.stream_frames import StreamChunk
from penstock.model import Offset, TopicPartition

STALLED_CHECK_S: Final = 0.03
CHUNKS_PER_TURN: Final = 4  # of one feed, before the others have their turn


class PushStream(Protocol):
    """One client's stream, as the pump sees it."""

    subscription: Subscription
    offsets: tuple[Offset, ...]  # the position after what was written to it

    def send_limit(self) -> SendLimit:
        """What it can take now."""

    def write_chunk(self, chunk: StreamChunk) -> None:
        """Write events, or note that the position moved past events that are not for it."""

    def write_gap(self, gap: Gap, position_id: str) -> None:
        """Say that events are missing."""

    def fail(self, failure: Exception) -> None:
        """End the stream: it cannot go on."""


class _SharedFeed(Feed):
    """A feed and the streams that are at its position."""

    def __init__(self, subscription: Subscription, offsets: tuple[Offset, ...]) -> None:
        super().__init__(subscription, offsets)
        self.streams: dict[PushStream, None] = {}


class Pump:
    """All streams of the process."""

    def __init__(self, cache: BlockCache) -> None:
        self._cache = cache
        self._fetcher: PartitionFetcher
        self._loop = asyncio.get_running_loop()
        self._feeds: dict[FeedKey, _SharedFeed] = {}
        self._feed_of: dict[PushStream, _SharedFeed] = {}
        self._by_partition: dict[TopicPartition, dict[_SharedFeed, None]] = {}
        self._ready: dict[_SharedFeed, None] = {}
        self._turn: asyncio.Handle | None = None
        self.stalled: dict[PushStream, None] = {}
        self._stalled_check: asyncio.Handle | None = None
        self.stalls: int = 0
        self.chunks: int = 0

    def start(self, fetcher: PartitionFetcher) -> None:
        """Use this fetcher, which calls the pump with what it fetched."""
        self._fetcher = fetcher

    def stop(self) -> None:
        """Take no more turns."""
        for handle in (self._turn, self._stalled_check):
            if handle is not None:
                handle.cancel()

    @property
    def feeds(self) -> int:
        """How many positions are being read."""
        return len(self._feeds)

    # Streams come, go and change.

    def add(self, stream: PushStream) -> None:
        """Read for a stream from its position on, and no longer from where it was."""
        self.remove(stream)
        key = (stream.subscription, stream.offsets)
        feed = self._feeds.get(key)
        if feed is None:
            feed = _SharedFeed(*key)
            self._feeds[key] = feed
            for partition in stream.subscription.partitions:
                self._by_partition.setdefault(partition, {})[feed] = None
        feed.streams[stream] = None
        self._feed_of[stream] = feed
        self._make_ready(feed)

    def remove(self, stream: PushStream) -> None:
        """Read for a stream no longer."""
        self.stalled.pop(stream, None)
        feed = self._feed_of.pop(stream, None)
        if feed is not None:
            del feed.streams[stream]
            if not feed.streams:
                self._drop(feed)

    def wake(self, stream: PushStream) -> None:
        """A stream may be able to take more."""
        if stream in self.stalled and stream.send_limit():
            del self.stalled[stream]
            self.add(stream)

    def _drop(self, feed: _SharedFeed) -> None:
        del self._feeds[feed.key]
        self._unlink(feed)

    def _unlink(self, feed: _SharedFeed) -> None:
        self._ready.pop(feed, None)
        for partition in feed.subscription.partitions:
            readers = self._by_partition[partition]
            del readers[feed]
            if not readers:
                del self._by_partition[partition]
                self._fetcher.drop(partition)
                self._cache.drop(partition)

    # Called by the fetcher.

    def is_read(self, partition: TopicPartition) -> bool:
        """Whether any stream that is not stalled reads this partition."""
        return partition in self._by_partition

    def on_block(self, block: Block) -> None:
        """Events for the feeds that are at its offsets."""
        self._cache.add(block)
        for feed in self._by_partition.get(block.partition, ()):
            offset = feed.offset_of(block.partition)
            if block.start_offset <= offset < block.end_offset:
                self._make_ready(feed)
                self._fetcher.request(block.partition, block.end_offset)

    def on_log_start(self, partition: TopicPartition, offset: Offset) -> None:
        """Deleted events are not sent any more."""
        self._cache.drop_before(partition, offset)

    def on_recreated(self, partition: TopicPartition) -> None:
        """Events of a deleted topic are not sent any more."""
        self._cache.drop(partition)

    def on_gap(self, gap: Gap) -> None:
        """Streams at this position continue where the log does, and their clients get a message."""
        for feed in list(self._by_partition.get(gap.partition, ())):
            if feed.offset_of(gap.partition) != gap.offset:
                continue
            streams = list(feed.streams)
            moved = _SharedFeed(feed.subscription, tuple(feed.offsets))
            moved.move(gap.partition, gap.resumes_at)
            for stream in streams:
                self.remove(stream)
                stream.offsets = tuple(moved.offsets)
                stream.write_gap(gap, moved.id)
                self.add(stream)

    def on_failed(self, partition: TopicPartition, failure: Exception) -> None:
        """End all streams that read a partition that cannot be read."""
        for feed in list(self._by_partition.get(partition, ())):
            for stream in list(feed.streams):
                stream.fail(failure)

    # Turns.

    def _make_ready(self, feed: _SharedFeed) -> None:
        self._ready[feed] = None
        if self._turn is None:
            self._turn = self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        ready, self._ready = self._ready, {}
        self._turn = None
        for feed in ready:
            if self._feeds.get(feed.key) is feed:  # not dropped or merged meanwhile
                self._advance(feed)

    def _advance(self, feed: _SharedFeed) -> None:
        """Write what is cached to the feed's streams, and request what follows."""
        current: _SharedFeed | None = feed
        for _ in range(CHUNKS_PER_TURN):
            self._stall_full_streams(feed)
            if not feed.streams:
                return
            old_key = feed.key
            chunk = feed.take(self._cache.find, self._limit_of(feed))
            if chunk is None:
                break
            self.chunks += 1
            del self._feeds[old_key]
            self._write(feed, chunk)
            current = self._settle(feed)
            if current is not feed:
                break
        if current is None:
            return
        for place in current.requested(self._cache.find):
            self._fetcher.request(*place)
        if current.has_more(self._cache.find):
            self._make_ready(current)

    def _limit_of(self, feed: _SharedFeed) -> SendLimit:
        """As much as one of the streams can take, so that each chunk is sent to at least one."""
        largest = max(stream.send_limit() for stream in feed.streams)
        return SendLimit(
            min(largest.records, CHUNK_LIMIT.records),
            min(largest.size_bytes, CHUNK_LIMIT.size_bytes),
        )

    def _stall_full_streams(self, feed: _SharedFeed) -> None:
        for stream in [stream for stream in feed.streams if not stream.send_limit()]:
            self.remove(stream)
            self._stall(stream)

    def _stall(self, stream: PushStream) -> None:
        self.stalled[stream] = None
        self.stalls += 1
        if self._stalled_check is None:
            self._stalled_check = self._loop.call_later(STALLED_CHECK_S, self._check_stalled)

    def _check_stalled(self) -> None:
        self._stalled_check = None
        for stream in list(self.stalled):
            self.wake(stream)
        if self.stalled:
            self._stalled_check = self._loop.call_later(STALLED_CHECK_S, self._check_stalled)

    def _write(self, feed: _SharedFeed, chunk: StreamChunk) -> None:
        """Write a chunk to the streams that can take all of it; the others read on alone."""
        for stream in list(feed.streams):
            if chunk.records and not stream.send_limit().fits(chunk.records, chunk.size_bytes):
                del feed.streams[stream], self._feed_of[stream]
                self.add(stream)  # at its own position, which is the chunk's start
            else:
                stream.offsets = chunk.after
                stream.write_chunk(chunk)

    def _settle(self, feed: _SharedFeed) -> _SharedFeed | None:
        """Register a feed at its new position; merges it with one that is there."""
        there = self._feeds.setdefault(feed.key, feed) if feed.streams else None
        if there is feed:
            return feed
        if there is not None:
            there.streams |= feed.streams
            self._feed_of |= dict.fromkeys(feed.streams, there)
        self._unlink(feed)
        return there
