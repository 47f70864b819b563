"""One partition that this broker follows: from a leader's response to its log.

    fetching -> truncating -> fetching
             -> backing off -> fetching
             -> failed
What a response asks for is decided by `consensus.replica.follower`; this carries it out.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from enum import Enum
from typing import TYPE_CHECKING, Final

from penstock.consensus.replica.follower import (
    Append,
    Fetched,
    FetchState,
    Follow,
    Locate,
    Restart,
    RetryLater,
    Stop,
    Truncate,
    decide_located,
    decide_response,
)
from penstock.errors import Malformed, Refused
from penstock.log.append_plan import read_replicated
from penstock.log.flush import disk_failure
from penstock.model import NO_EPOCH, EpochEnd, LeaderEpoch, Millis, Offset
from penstock.protocol.messages.fetch import FetchPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.partition import Partition
    from penstock.log.truncation import Truncation
    from penstock.protocol.messages.fetch import FetchedPartition

logger: Final = logging.getLogger(__name__)

PARTITION_BYTES_MAX: Final = 1 << 20
RETRY_S: Final = 0.1
FAILED_RETRY_S: Final = 10.0
FULL_RETRY_S: Final = 1.0  # a full disk may have space soon
RECEIVED_RETRY_S: Final = 1.0  # the leader checks what it sent when it is fetched again


class FollowerPhase(Enum):
    """What a followed partition does."""

    FETCHING = "fetching"
    TRUNCATING = "truncating"
    BACKING_OFF = "backing off"
    FLUSHING = "flushing"  # under a flush policy it fetches only past what is on disk
    FAILED = "failed"


class FollowedPartition:
    """A replica of a partition that another broker leads, in one leader epoch."""

    def __init__(
        self,
        partition: Partition,
        on_ready: Callable[[FollowedPartition], None],
        clock: Callable[[], Millis],
    ) -> None:
        self.partition: Partition = partition
        self.leader_epoch: LeaderEpoch = partition.leader_epoch
        self.phase: FollowerPhase = (
            FollowerPhase.FLUSHING if partition.waits_for_flush else FollowerPhase.FETCHING
        )
        partition.on_copy_flushed = self._on_flushed
        self._on_ready = on_ready  # it may be fetched again
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._is_failure_logged = False
        self._is_closed = False
        if partition.log.is_truncating:  # planned in an earlier leader epoch
            self._complete_truncation()

    def close(self) -> None:
        """Do nothing more: the partition has another leader or leader epoch, or is gone."""
        self._is_closed = True
        self.partition.on_copy_flushed = None
        if self._timer is not None:
            self._timer.cancel()

    @property
    def _has_new_leader(self) -> bool:
        """Whether the metadata has moved on, and this object is about to be closed."""
        return self.partition.is_leader or self.partition.leader_epoch != self.leader_epoch

    def _is_over(self) -> bool:
        return self._is_closed or self._has_new_leader

    @property
    def is_fetching(self) -> bool:
        """Whether it may be fetched now."""
        return self.phase is FollowerPhase.FETCHING

    def describe_fetch(self, state: FetchState) -> FetchPartition:
        """What to request of the leader."""
        return FetchPartition(
            self.partition.topic_partition.partition,
            current_leader_epoch=state.leader_epoch,
            fetch_offset=state.fetch_offset,
            last_fetched_epoch=state.last_fetched_epoch,
            log_start_offset=self.partition.log.start_offset,
            partition_max_bytes=PARTITION_BYTES_MAX,
        )

    @property
    def state(self) -> FetchState:
        """Where the next fetch starts."""
        log = self.partition.log
        last_epoch = log.epochs.epoch_at(Offset(log.end_offset - 1))
        if log.end_offset <= log.start_offset:
            last_epoch = NO_EPOCH  # it has no batch
        return FetchState(
            self.partition.leadership.leader, self.leader_epoch, log.end_offset, last_epoch
        )

    # A response.

    def on_fetched(self, row: FetchedPartition, requested: FetchState) -> None:
        """Carry out what follows from the leader's response to a fetch."""
        if self._is_over() or not self.is_fetching:
            return
        try:
            self._carry_out(row, requested)
        except Exception as bug:  # the other partitions must go on
            logger.exception("%s: a response of its leader could not be carried out", self)
            self._fail(f"{type(bug).__name__}: {bug}")

    def _carry_out(self, row: FetchedPartition, requested: FetchState) -> None:
        records = row.records or b""
        diverging = row.diverging_epoch
        fetched = Fetched(
            requested,
            row.error_code,
            Offset(row.high_watermark),
            Offset(row.log_start_offset),
            None
            if diverging is None
            else EpochEnd(LeaderEpoch(diverging.epoch), Offset(diverging.end_offset)),
            has_records=len(records) > 0,
        )
        log = self.partition.log
        step = decide_response(self.state, log.high_watermark, fetched, self._end_of_epoch)
        match step:
            case Append():
                self._append(records, step.high_watermark, step.log_start_offset)
            case Follow():
                if self._follow(step.high_watermark, step.log_start_offset):
                    self._on_ready(self)
            case Truncate(end_offset, is_below_high_watermark):
                self._truncate(end_offset, is_below_high_watermark)
            case Locate():
                self._locate(fetched)
            case RetryLater(reason):
                logger.debug("fetching %s is delayed: %s", self, reason.name)
                self._back_off(RETRY_S)
            case Stop(reason):
                self._fail(reason)

    def _end_of_epoch(self, epoch: LeaderEpoch) -> EpochEnd:
        log = self.partition.log
        entries = log.epochs.entries
        count = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        if count == 0:
            return EpochEnd(NO_EPOCH, log.start_offset)
        end_offset = entries[count].start_offset if count < len(entries) else log.end_offset
        return EpochEnd(entries[count - 1].epoch, end_offset)

    def _append(self, records: object, high_watermark: Offset, start_offset: Offset) -> None:
        assert isinstance(records, bytes | bytearray | memoryview)
        partition = self.partition
        try:
            headers = read_replicated(records)
            partition.append_copies(records, headers, epoch=self.leader_epoch, now=self._clock())
        except (Malformed, Refused) as error:
            self._fail(f"the leader's records cannot be appended: {error}", RECEIVED_RETRY_S)
        except OSError as error:
            self._fail(f"the disk refuses: {error}", _retry_s(error))
        else:
            self._is_failure_logged = False
            self._follow(high_watermark, start_offset)
            self._resume()

    def _on_flushed(self) -> None:
        if self.phase is FollowerPhase.FLUSHING and not self._is_closed:
            self._resume()

    def _follow(self, high_watermark: Offset, start_offset: Offset) -> bool:
        """Whether the log starts at another offset now, which the leader does not know yet."""
        log = self.partition.log
        last_start = log.start_offset
        try:
            self.partition.follow_leader(high_watermark, start_offset, self._clock())
        except OSError as error:
            logger.warning("%s: old segments could not be removed: %s", self.partition, error)
        return log.start_offset != last_start

    def _locate(self, fetched: Fetched) -> None:
        """The fetch offset is outside the leader's log; the response says where that is."""
        fetch_offset = self.partition.log.end_offset
        leader_start, committed = fetched.log_start_offset, fetched.high_watermark
        if leader_start < 0:
            self._back_off(RETRY_S)
            return
        step = decide_located(
            fetch_offset, leader_start, committed, self.partition.log.high_watermark
        )
        match step:
            case Truncate(end_offset, is_below_high_watermark):
                self._truncate(end_offset, is_below_high_watermark)
            case Restart(offset):
                logger.info("%s restarts from the leader's log start offset %d", self, offset)
                self._cut(lambda: self.partition.log.plan_reset(offset))
            case RetryLater():
                self._back_off(RETRY_S)

    # Truncating.

    def _truncate(self, end_offset: Offset, is_below_high_watermark: bool) -> None:
        log = self.partition.log
        if is_below_high_watermark:
            logger.error(
                "%s is truncated to %d, below its high watermark %d: committed records are lost",
                self,
                end_offset,
                log.high_watermark,
            )
        logger.info("%s is truncated from %d to %d", self, log.end_offset, end_offset)
        self._cut(lambda: log.plan_truncation(end_offset))

    def _complete_truncation(self) -> None:
        """End one that failed: until then nothing is appended or flushed. The leader says more."""
        log = self.partition.log
        self._cut(lambda: log.plan_truncation(log.end_offset))

    def _cut(self, plan: Callable[[], Truncation | None]) -> None:
        self.phase = FollowerPhase.TRUNCATING
        partition = self.partition
        running = self._run_truncation(plan, partition.truncating)
        partition.truncating = asyncio.get_running_loop().create_task(running)

    async def _run_truncation(
        self, plan: Callable[[], Truncation | None], last: asyncio.Task[None] | None
    ) -> None:
        """Prepared in a thread, one at a time; planned again if the log changed meanwhile."""
        loop = asyncio.get_running_loop()
        if last is not None and not last.done():  # of an earlier leader epoch
            await asyncio.wait((last,))
        if self._is_over():
            return
        try:
            while (truncation := plan()) is not None:
                await loop.run_in_executor(None, truncation.run)
                if self._is_over():
                    return
                if self.partition.log.finish_truncation(truncation, self._clock()):
                    break
        except Exception as error:  # noqa: BLE001 - the other partitions must go on
            self._on_truncation_failed(error)
        else:
            self._resume()

    def _on_truncation_failed(self, error: Exception) -> None:
        self._fail(f"its log cannot be truncated: {error!r}", _retry_s(error))
        if isinstance(error, OSError):
            self.partition.on_write_failed(error)
        elif isinstance(error, Refused):
            self.partition.on_unreadable(error)
        elif not isinstance(error, Malformed):
            logger.error("%s could not be truncated", self, exc_info=error)

    # Waiting.

    def _back_off(self, delay_s: float) -> None:
        self.phase = FollowerPhase.BACKING_OFF
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._resume)

    def _fail(self, reason: str, retry_s: float = FAILED_RETRY_S) -> None:
        """The other partitions go on. A disk may have space later."""
        if not self._is_closed:
            level = logging.DEBUG if self._is_failure_logged else logging.ERROR
            logger.log(level, "%s cannot follow its leader: %s", self, reason)
            self._is_failure_logged = True
            self.phase = FollowerPhase.FAILED
            self._timer = asyncio.get_running_loop().call_later(retry_s, self._resume)

    def _resume(self) -> None:
        """Fetch again, once all that this would acknowledge is on disk as the topic requires."""
        if self._is_closed:
            return
        if self.partition.log.is_truncating:
            self._complete_truncation()
        elif self.partition.waits_for_flush:
            self.phase = FollowerPhase.FLUSHING
            self.partition.flush_by_policy()
        else:
            self.phase = FollowerPhase.FETCHING
            self._on_ready(self)

    def __str__(self) -> str:
        return str(self.partition.topic_partition)


def _retry_s(error: Exception) -> float:
    """When to try again after an error of the disk."""
    is_passing = isinstance(error, OSError) and disk_failure(error) is None
    return FULL_RETRY_S if is_passing else FAILED_RETRY_S
