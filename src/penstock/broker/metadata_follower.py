"""Brings committed metadata into the image, in order, in turns of the event loop.

Records are decoded and acted on in steps; a batch is applied to the image whole. A batch counts as
applied when this broker has acted on it. The one exception is the start: until `begin`, the image
is only filled, because a broker that does not know the present must not act on the past.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final

from penstock.broker.background import report_bug
from penstock.broker.quorum.snapshot_files import read_snapshot, write_snapshot
from penstock.consensus.raft import OffsetAndEpoch, VoterSet
from penstock.coordination.controller import ClusterState
from penstock.coordination.controller.apply import apply
from penstock.coordination.controller.codec import read_in_steps, write_event
from penstock.coordination.controller.snapshot import snapshot_events
from penstock.errors import Malformed
from penstock.machine import JournalRecord
from penstock.model import LeaderEpoch, Offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.broker.held_partitions import HeldPartitions
    from penstock.broker.metadata_image import Changes, MetadataImage
    from penstock.broker.quorum.quorum_node import QuorumNode
    from penstock.coordination.controller.events import Event
    from penstock.machine.journal import OnCommitted
    from penstock.model import Millis
    from penstock.protocol.key_values import Pair

logger: Final = logging.getLogger(__name__)

TURN_S: Final = 0.01  # of work per turn of the event loop
DECODED_BYTES_PER_STEP: Final = 20_000  # some 100 records
SNAPSHOT_BYTES: Final = 20 << 20  # of log since the last one
SNAPSHOT_INTERVAL_S: Final = 3600.0


class MetadataFollower:
    """One broker's way from the metadata log to its image."""

    def __init__(
        self,
        image: MetadataImage,
        held: HeldPartitions,
        *,
        clock: Callable[[], Millis],
    ) -> None:
        self.image = image
        self.applied: OffsetAndEpoch = OffsetAndEpoch(Offset(0), LeaderEpoch(0))
        self.listeners: list[Callable[[Changes], None]] = []  # a batch was applied and acted on
        self.before_batch: Callable[[ClusterState, list[Event]], None] = lambda _state, _events: (
            None
        )
        self._held = held
        self._clock = clock
        self._quorum: QuorumNode | None = None
        self._committed = Offset(0)
        self._is_acting = False
        self._work: deque[Iterator[None]] = deque()  # done to its end, one after the other
        self._is_scheduled = False
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._is_current = asyncio.Event()
        self._waiting: list[tuple[Offset, int, OnCommitted]] = []  # a heap
        self._numbers = count()
        self._unsnapshot_bytes = 0
        self._snapshot_at_s = 0.0
        self._is_writing_snapshot = False
        self._is_closed = False

    # The life of a follower.

    def start(self, quorum: QuorumNode) -> None:
        """Read the newest snapshot; then follow what the quorum commits."""
        self._quorum = quorum
        self._snapshot_at_s = asyncio.get_running_loop().time()
        snapshot = quorum.log.latest_snapshot
        if snapshot is not None:
            self._add(self._load_snapshot(snapshot))

    def begin(self) -> None:
        """The image is up to date: act on all of it, and on every batch from now on."""
        self._is_acting = True
        self._add(self._act(self.image.everything()))

    def close(self) -> None:
        """Apply nothing more; those that wait are not called."""
        self._is_closed = True
        self._work.clear()
        self._waiting.clear()

    async def caught_up(self) -> None:
        """Wait until the quorum has committed something, and that is applied."""
        await self._is_current.wait()

    async def applied_up_to(self, end_offset: Offset) -> None:
        """Wait until everything below is applied."""
        applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.call_when_applied(
            end_offset, lambda _refusal: None if applied.done() else applied.set_result(None)
        )
        await applied

    async def idle(self) -> None:
        """Wait until there is nothing to do."""
        await self._is_idle.wait()

    def call_when_applied(self, end_offset: Offset, call: OnCommitted) -> None:
        """Call once everything below `end_offset` is applied: now if it is."""
        if self.applied.offset >= end_offset and not self._work:
            call(None)
        else:
            heappush(self._waiting, (end_offset, next(self._numbers), call))

    # What the quorum reports.

    def on_committed(self, high_watermark: Offset) -> None:
        """More of the log is committed."""
        if high_watermark > self._committed:
            self._committed = high_watermark
            self._add(self._catch_up())

    def on_snapshot_installed(self, snapshot: OffsetAndEpoch) -> None:
        """The log was replaced: read the snapshot and go on from there."""
        self._committed = max(self._committed, snapshot.offset)
        self._add(self._load_snapshot(snapshot))

    # Turns.

    def _add(self, work: Iterator[None]) -> None:
        self._is_idle.clear()
        self._work.append(work)
        if len(self._work) == 1 and not self._is_scheduled:
            self._turn()

    def _turn(self) -> None:
        """Work for a while; the rest follows in the next turn."""
        self._is_scheduled = False
        try:
            self._work_for_a_turn()
        except Exception as bug:  # noqa: BLE001 - without its metadata a broker cannot go on
            report_bug("following the metadata", bug)

    def _work_for_a_turn(self) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + TURN_S
        while self._work and not self._is_closed:
            work = self._work[0]
            for _ in work:
                if loop.time() >= until_s:
                    self._is_scheduled = True
                    loop.call_soon(self._turn)
                    return
            self._work.popleft()
            self._call_waiting()
        if 0 < self._committed <= self.applied.offset:
            self._is_current.set()
        self._is_idle.set()

    def _call_waiting(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.applied.offset:
            heappop(self._waiting)[2](None)

    # Work.

    def _catch_up(self) -> Iterator[None]:
        """Apply what is committed and not applied yet."""
        quorum = self._quorum
        assert quorum is not None
        while self.applied.offset < self._committed:
            before = self.applied
            for end, pairs, size_bytes in quorum.log.read_batches(before.offset, self._committed):
                events: list[Event] = []
                yield from self._decode(pairs, events)
                self.before_batch(self.image.state, events)
                changes = self.image.apply(events)
                if self._is_acting:
                    yield from self._act(changes)
                self.applied = end
                self._unsnapshot_bytes += size_bytes
                self._call_waiting()
            if self.applied == before:
                return
        self._maybe_snapshot()

    def _decode(self, pairs: Iterable[Pair], events: list[Event]) -> Iterator[None]:
        size_bytes = 0
        for key, value in pairs:
            if key is not None:
                events += yield from read_in_steps(JournalRecord(key, value))
                size_bytes += len(key) + len(value or b"")
            if size_bytes >= DECODED_BYTES_PER_STEP:
                size_bytes = 0
                yield

    def _act(self, changes: Changes) -> Iterator[None]:
        for name in changes.topics:
            yield from self._held.follow(name)
        for name in changes.reconfigured:
            self._held.reconfigure(name)
            yield
        for listener in self.listeners:
            listener(changes)

    def _load_snapshot(self, snapshot: OffsetAndEpoch) -> Iterator[None]:
        """Read a snapshot in steps; it is not visible before it is complete."""
        quorum = self._quorum
        assert quorum is not None
        if snapshot.offset <= self.applied.offset:
            return
        state = ClusterState()
        try:
            for chunk in read_snapshot(quorum.log.folder, snapshot):
                if not isinstance(chunk, VoterSet):
                    events: list[Event] = []
                    yield from self._decode(chunk, events)
                    for event in events:
                        apply(state, event)
                    yield
        except (OSError, Malformed) as error:
            quorum.fail(f"the snapshot {snapshot.offset} cannot be read: {error}")
            return
        changes = yield from self.image.replace(state)
        self.applied = snapshot
        if self._is_acting:
            yield from self._act(changes)

    # Snapshots.

    def _maybe_snapshot(self) -> None:
        """Write a snapshot when enough has changed, in a thread, from a fork of the state."""
        loop = asyncio.get_running_loop()
        is_due = self._unsnapshot_bytes >= SNAPSHOT_BYTES or (
            self._unsnapshot_bytes > 0 and loop.time() - self._snapshot_at_s >= SNAPSHOT_INTERVAL_S
        )
        quorum = self._quorum
        if quorum is None or not is_due or self._is_writing_snapshot:
            return
        self._is_writing_snapshot = True
        self._unsnapshot_bytes, self._snapshot_at_s = 0, loop.time()
        snapshot, state = self.applied, self.image.state.fork()
        voters = quorum.raft.voters_at(snapshot.offset)
        folder, now = quorum.log.folder, self._clock()

        def write() -> None:
            write_snapshot(folder, snapshot, voters, map(write_event, snapshot_events(state)), now)

        def on_written(done: asyncio.Future[None]) -> None:
            self._is_writing_snapshot = False
            error = done.exception()
            if error is not None:  # the log grows until the next one
                logger.error("a snapshot of the metadata could not be written: %s", error)
            elif not self._is_closed:
                quorum.snapshot_stored(snapshot)

        loop.run_in_executor(None, write).add_done_callback(on_written)
