"""Runs this broker's Raft replica: carries out effects, keeps its timer, syncs off the event loop.

The core decides; this carries out what it returns, in order, before it calls the core again. The
log and the quorum state are synced in one thread; the core holds messages back until then.
A sync that fails ends this replica: what is on disk is unknown until the next start. On a full disk
it waits, as a paused process would: a step that could not be written is tried again until
there is space, and no other one is made before. A leader lets another replica lead.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.quorum.quorum_state_file import save_quorum_state
from penstock.broker.quorum.snapshot_files import SnapshotDownload, fill_chunk
from penstock.consensus.raft import (
    Effects,
    OffsetAndEpoch,
    QuorumFetchReply,
    Role,
    SnapshotFetch,
    SnapshotFetchReply,
)
from penstock.errors import ErrorCode, Malformed, Refused
from penstock.log.flush import disk_failure
from penstock.machine import CallerId, Deferred

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.broker.quorum.metadata_log import MetadataLog
    from penstock.broker.quorum.ports import Peers, QuorumListener
    from penstock.consensus.raft import (
        QuorumState,
        RaftNode,
        Reply,
        Request,
        SnapshotChunk,
        SyncPoint,
        VoterChange,
    )
    from penstock.log.flush import FlushWork
    from penstock.machine import JournalRecord
    from penstock.model import LeaderEpoch, Millis, Moment, NodeId, Offset

logger: Final = logging.getLogger(__name__)

SPACE_RETRY_S: Final = 0.25  # a full disk is tried again after this


class QuorumNode:
    """One replica of the metadata quorum, on the event loop of its broker."""

    def __init__(
        self,
        raft: RaftNode,
        log: MetadataLog,
        folder: Path,
        peers: Peers,
        listener: QuorumListener,
        clock: Callable[[], Moment],
    ) -> None:
        self.raft = raft
        self.log = log
        self._folder = folder
        self._peers = peers
        self._listener = listener
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="quorum")
        self._callers: dict[CallerId, tuple[Request, Deferred[Reply]]] = {}
        self._last_caller = 0
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at: Millis | None = None
        self._is_syncing = False
        self._is_saving = False
        self._unsaved: QuorumState | None = None
        self._download: SnapshotDownload | None = None
        self._queue: deque[Callable[[], Effects]] = deque()
        self._unwritten: Effects | None = None  # a step that waits for space on the disk
        self._is_full = False
        self._is_working = False
        self._is_stopped = False

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads its epoch."""
        return self.raft.role == Role.LEADER

    def start(self) -> None:
        """Take part. Needs the running event loop."""
        self._call(lambda: self.raft.start(self._now))

    def close(self) -> None:
        """Take part no more; the log is closed by its owner."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._peers.close()
        self._thread.shutdown(wait=True)
        self._callers.clear()

    def resign(self) -> None:
        """Before a stop: let another replica lead without waiting for a time-out."""
        self._call(lambda: self.raft.resign(self._now))

    # What others ask of it.

    def request(self, request: Request) -> Deferred[Reply]:
        """Another replica's request; the reply comes when the core gives it."""
        if self._unwritten is not None:
            refused: Deferred[Reply] = Deferred()
            refused.resolve(self.raft.not_now(request))
            return refused
        self._last_caller += 1
        caller = CallerId(self._last_caller)
        deferred: Deferred[Reply] = Deferred(partial(self._callers.pop, caller, None))
        self._callers[caller] = request, deferred
        self._call(lambda: self.raft.on_request(request, caller, self._now))
        return deferred

    def append(self, records: Sequence[JournalRecord], epoch: LeaderEpoch) -> Offset:
        """The active controller's append, in the epoch that it leads; the new end offset.

        OSError leaves the log as it was; another replica, which may have space, leads then.
        """
        assert self.is_leader, "only the leader appends"
        assert epoch == self.raft.epoch, "a controller is dropped with its epoch"
        try:
            end_offset = self.log.append_records(records, epoch, self._clock().wall)
        except OSError:
            if not self.is_alone:
                asyncio.get_running_loop().call_soon(self.resign)
            raise
        self._call(lambda: self.raft.on_appended(self._now))
        return end_offset

    def propose_voters(self, change: VoterChange) -> Offset:
        """Change the voter set; the offset to wait for. Refused when it may not change now."""
        last_end = self.log.end_offset
        if self._unwritten is None:
            effects = self.raft.propose_voters(change, self._now)
            self._call(lambda: effects)
        if self.log.end_offset == last_end or not self.is_leader:
            raise Refused(ErrorCode.not_controller, "the change could not be written; try again")
        return self.log.end_offset

    def snapshot_stored(self, snapshot: OffsetAndEpoch) -> None:
        """The broker has written a snapshot of what is committed."""
        self.log.snapshot_stored(snapshot, self._clock().wall)

    # Carrying out.

    @property
    def _now(self) -> Millis:
        return self._clock().steady

    def _call(self, step: Callable[[], Effects]) -> None:
        """Call the core and carry out what follows, one step after the other."""
        self._queue.append(step)
        self._work()

    def _call_unless_full(self, step: Callable[[], Effects]) -> None:
        """For what may be lost: a message, or a moment at which nothing was done."""
        if self._unwritten is None:
            self._call(step)

    def _work(self) -> None:
        if self._is_working:
            return
        self._is_working = True
        try:
            while self._queue and self._unwritten is None and not self._is_stopped:
                self._carry_out(self._queue.popleft()())
        finally:
            self._is_working = False
        if not self._is_stopped:
            self._start_sync()
            self._set_timer()

    def _carry_out(self, effects: Effects) -> None:
        if effects.fault is not None:
            self.fail(effects.fault)
            return
        if effects.state is not None:
            self._save_state(effects.state)
        try:
            self._change_log(effects)
        except OSError as error:
            if not self._may_go_on(effects, error):
                return
        if effects.role is not None:
            self._listener.on_role(effects.role)
        if effects.high_watermark is not None:
            self.log.set_high_watermark(effects.high_watermark)
            self._listener.on_committed(effects.high_watermark)
        for node_id, request in effects.requests:
            self._send(node_id, request)
        for caller, reply in effects.replies:
            waiting = self._callers.pop(caller, None)
            if waiting is not None:
                request, deferred = waiting
                deferred.resolve(self._filled(request, reply))

    def _change_log(self, effects: Effects) -> None:
        raft, queue = self.raft, self._queue
        if effects.truncate_to is not None:
            self.log.truncate_to(effects.truncate_to)
            queue.append(lambda: raft.on_truncated(self._now))
        if effects.append_records is not None:
            self._append_fetched(effects.append_records)
        if effects.append_control:
            sets = self.log.append_control(
                effects.append_control, self.raft.epoch, self._clock().wall
            )
            queue.append(lambda: raft.on_appended(self._now, sets))
        if effects.write_snapshot is not None:
            self._write_snapshot(effects.write_snapshot)
        if effects.install_snapshot is not None:
            snapshot = effects.install_snapshot
            voters = self.log.install_snapshot(snapshot)
            self._listener.on_snapshot_installed(snapshot)
            queue.append(lambda: raft.on_snapshot_installed(snapshot, voters, self._now))

    # A full disk.

    @property
    def is_alone(self) -> bool:
        """Whether no other replica votes."""
        return len(self.raft.voters.voters) == 1

    def _may_go_on(self, effects: Effects, error: OSError) -> bool:
        """The log could not be changed. One that cannot begin its epoch as leader gives it up."""
        if disk_failure(error) is not None:
            self.fail(f"the metadata log cannot be written: {error}")
            return False
        if effects.append_control and not self.is_alone:
            self._queue.append(lambda: self.raft.resign(self._now))
            return True
        self._unwritten = effects._replace(state=None)
        self._on_no_space(error, self._write_again)
        return False

    def _on_no_space(self, error: OSError, retry: Callable[[], None]) -> None:
        if not self._is_full:
            self._is_full = True
            logger.error("the metadata log waits for space on the disk: %s", error)
            self._listener.on_full_disk(is_full=True)
        asyncio.get_running_loop().call_later(SPACE_RETRY_S, retry)

    def _write_again(self) -> None:
        effects, self._unwritten = self._unwritten, None
        if effects is not None and not self._is_stopped:
            self._queue.appendleft(lambda: effects)
            self._work()
            self._on_written()

    def _on_written(self) -> None:
        """If nothing waits for space any more, this replica goes on."""
        if self._is_full and self._unwritten is None and not self._is_saving:
            self._is_full = False
            logger.info("there is space for the metadata log again")
            self._listener.on_full_disk(is_full=False)

    def _append_fetched(self, records: object) -> None:
        assert isinstance(records, bytes | bytearray | memoryview)
        try:
            sets = self.log.append_fetched(
                records, leader_epoch=self.raft.epoch, now=self._clock().wall
            )
        except (Malformed, Refused) as error:
            logger.warning("the metadata leader sent records that cannot be appended: %s", error)
            self._queue.append(lambda: self.raft.on_records_refused(self._now))
        else:
            self._queue.append(lambda: self.raft.on_appended(self._now, sets))

    def _filled(self, request: Request, reply: Reply) -> Reply:
        """What the core leaves to the shell: bytes of the log and of snapshots."""
        if isinstance(reply, QuorumFetchReply) and reply.read_at is not None:
            return reply._replace(records=self.log.read_raw(reply.read_at))
        if isinstance(reply, SnapshotFetchReply) and isinstance(request, SnapshotFetch):
            return fill_chunk(self._folder, request, reply)
        return reply

    def _send(self, node_id: NodeId | None, request: Request) -> None:
        self._peers.send(
            node_id,
            request,
            lambda reply: self._call_unless_full(
                lambda: self.raft.on_reply(node_id, request, reply, self._now)
            ),
            lambda: self._on_lost(node_id),
        )

    def _on_lost(self, node_id: NodeId | None) -> None:
        if node_id is not None:
            self._call_unless_full(lambda: self.raft.on_peer_lost(node_id, self._now))

    # Disk.

    def _save_state(self, state: QuorumState) -> None:
        """Only the newest state must be on disk; one that is replaced meanwhile is skipped."""
        self._unsaved = state
        if not self._is_saving:
            self._is_saving = True
            self._save()

    def _save(self) -> None:
        state = self._unsaved
        if state is None or self._is_stopped:
            return
        save = partial(save_quorum_state, self._folder, state)
        self._in_thread(
            save,
            lambda _: self._on_saved(state),
            lambda error: self._on_no_space(error, self._save),
        )

    def _on_saved(self, state: QuorumState) -> None:
        if self._unsaved != state:
            self._save()
            return
        self._is_saving = False
        self._unsaved = None
        self._on_written()
        self._call(lambda: self.raft.on_state_saved(state, self._now))

    def _start_sync(self) -> None:
        if self._is_syncing:
            return
        work = self.log.pending_sync()
        if work is None:
            return
        self._is_syncing = True
        point = self.raft.sync_point()
        self._in_thread(work.run, lambda _: self._on_synced(work, point))

    def _on_synced(self, work: FlushWork, point: SyncPoint) -> None:
        self._is_syncing = False
        self.log.synced(work, self._clock().wall)
        self._call(lambda: self.raft.on_synced(point, self._now))

    def _write_snapshot(self, part: SnapshotChunk) -> None:
        if self._download is None or self._download.snapshot != part.snapshot:
            self._download = SnapshotDownload(self._folder, part.snapshot)
        download = self._download
        download.write(part.position, part.chunk)
        if part.is_last:
            self._download = None
            self._in_thread(
                download.finish,
                partial(self._on_downloaded, part.snapshot),
                lambda _: self._on_downloaded(part.snapshot, False),
            )

    def _on_downloaded(self, snapshot: OffsetAndEpoch, is_valid: bool) -> None:
        self._call(lambda: self.raft.on_snapshot_stored(snapshot, self._now, is_valid=is_valid))

    def _in_thread(
        self,
        work: Callable[[], Any],
        on_done: Callable[[Any], None],
        on_no_space: Callable[[OSError], None] | None = None,
    ) -> None:
        """Run in the thread of the disk; an error there ends this replica, unless it may end."""

        def finish(done: asyncio.Future[Any]) -> None:
            if self._is_stopped or done.cancelled():
                return
            error = done.exception()
            if error is None:
                on_done(done.result())
            elif (
                on_no_space is not None
                and isinstance(error, OSError)
                and disk_failure(error) is None
            ):
                on_no_space(error)
            else:
                self.fail(f"the disk of the metadata log failed: {error}")

        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._thread, work).add_done_callback(finish)

    def fail(self, reason: str) -> None:
        """Say nothing more to others: what this replica promised may not be on disk."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._peers.close()
        self._listener.on_fault(reason)

    # Time.

    def _set_timer(self) -> None:
        wake_at = self.raft.wake_at() if self._unwritten is None else None
        if wake_at == self._wakes_at and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wakes_at = wake_at
        if wake_at is not None:
            delay_s = max(0, wake_at - self._now) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._call(lambda: self.raft.on_tick(self._now))
