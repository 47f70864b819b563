"""Retention and compaction of a broker's partitions, scheduled on its loop.

Decides and swaps here; the worker reads and writes segments. Between the result of the worker and
the swap nothing is awaited, and a change meanwhile (a segment or partition was deleted) makes the
result void. Imports no numba.

`cleaner-offset-checkpoint` in the log directory has the offset up to which each partition was
compacted. It only saves work: a partition without a row is compacted from its start again.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from penstock.errors import Malformed
from penstock.log.checkpoints import read_offsets, write_offsets
from penstock.log.partition_log import PartitionLog
from penstock.log.segment_swap import Replacement
from penstock.log.settings import RetentionSettings
from penstock.model import NO_TIMESTAMP, Millis, Offset, TopicPartition
from penstock.upkeep.cleaned_files import remove_leftovers
from penstock.upkeep.compaction_plan import (
    CleanableRange,
    CompactionCandidate,
    LogFacts,
    SegmentFacts,
    cleanable_range,
    dirtiest,
)
from penstock.upkeep.jobs import Cleaned, CleanJob, CorruptLog, JobFailed, LiveProducer
from penstock.upkeep.settings import INTERVALS, CompactionSettings, Intervals, UpkeepSettings

NAME: Final = "cleaner-offset-checkpoint"


class CleanerCheckpoints:
    """The checkpoints of all log directories, each read on first use."""

    def __init__(self) -> None:
        self._by_folder: dict[Path, dict[TopicPartition, Offset]] = {}

    def offset(self, log_folder: Path, partition: TopicPartition) -> Offset | None:
        """Where the dirty part of the partition starts, if it was ever compacted."""
        return self._rows(log_folder).get(partition)

    def advance(self, log_folder: Path, partition: TopicPartition, offset: Offset) -> None:
        """Store that the partition is clean up to here."""
        rows = self._rows(log_folder)
        rows[partition] = offset
        write_offsets(log_folder / NAME, dict(rows))

    def remove(self, log_folder: Path, partitions: Iterable[TopicPartition]) -> None:
        """Remove deleted partitions: new ones of their names start dirty."""
        rows = self._rows(log_folder)
        known = [partition for partition in partitions if partition in rows]
        for partition in known:
            del rows[partition]
        if known:
            write_offsets(log_folder / NAME, rows)

    def _rows(self, log_folder: Path) -> dict[TopicPartition, Offset]:
        if log_folder not in self._by_folder:
            rows = read_offsets(log_folder / NAME)
            self._by_folder[log_folder] = {
                partition: offset
                for partition, offset in rows.items()
                if (log_folder / str(partition)).is_dir()
            }
        return self._by_folder[log_folder]


logger: Final = logging.getLogger(__name__)

DUTIES: Final = ("retention", "sweep", "compaction")
_CHOICE: Final = "the search for dirty segments"
_SEED_BITS: Final = 64


class UpkeepTarget(NamedTuple):
    """A partition and its current settings."""

    log: PartitionLog
    retention: RetentionSettings
    compaction: CompactionSettings


class Worker(Protocol):
    """Runs jobs; in a broker, a process of its own."""

    async def run(self, job: CleanJob) -> Cleaned | CorruptLog | JobFailed: ...

    async def stop(self) -> None: ...


@dataclass(slots=True)
class DutyStats:
    """The rounds of one duty."""

    rounds: int = 0
    failed_rounds: int = 0
    failed_in_a_row: int = 0
    last_error: str = ""  # of the last failed round


@dataclass(slots=True)
class UpkeepStats:
    """Counters, published by the metrics."""

    deleted_segments: int = 0
    compactions: int = 0
    failed_compactions: int = 0
    partition_errors: int = 0  # one partition failed in a round; the others did not
    read_bytes: int = 0
    retained_bytes: int = 0
    duties: dict[str, DutyStats] = field(
        default_factory=lambda: {duty: DutyStats() for duty in DUTIES}
    )


class Upkeep:
    """Retention and compaction of the partitions that `partitions` returns.

    No error ends it: a partition that fails is retried later and does not affect the others, and a
    round that fails as a whole is repeated after a growing delay.
    """

    def __init__(
        self,
        partitions: Callable[[], Iterable[UpkeepTarget]],
        worker: Worker,
        settings: UpkeepSettings,
        *,
        clock: Callable[[], Millis],
        steady_clock: Callable[[], Millis],
        on_round: Callable[[], None] = lambda: None,
        intervals: Intervals = INTERVALS,
    ) -> None:
        self.stats: Final = UpkeepStats()
        self.corrupt: dict[TopicPartition, str] = {}  # not compacted until the broker is restarted
        self.dirty_ratios: dict[str, float] = {}  # of the topics that may be compacted
        self.compacted_at: Millis = NO_TIMESTAMP  # end of the last round of compaction
        self.failing: dict[tuple[TopicPartition, str], str] = {}  # duty, and its last error
        self._partitions = partitions
        self._worker = worker
        self._settings = settings
        self._intervals = intervals
        self._clock = clock
        self._steady_clock = steady_clock
        self._on_round = on_round  # runs after each round, also after one that failed
        self._checkpoints = CleanerCheckpoints()
        self._retry_at: dict[TopicPartition, Millis] = {}
        self._known: dict[TopicPartition, PartitionLog] = {}
        self._in_work: PartitionLog | None = None
        self._worked_at = NO_TIMESTAMP

    async def run(self) -> None:
        """Run until cancelled; the worker ends with it."""
        settings = self._settings
        try:
            async with asyncio.TaskGroup() as tasks:
                for name, run_round, interval_ms in (
                    ("retention", self.retain, settings.retention_interval_ms),
                    ("sweep", self.sweep, self._intervals.sweep_ms),
                    ("compaction", self.compact, settings.compaction_interval_ms),
                ):
                    tasks.create_task(self._repeat(name, run_round, interval_ms))
        finally:
            await self._worker.stop()

    async def _repeat(
        self, name: str, run_round: Callable[[], Awaitable[None]], interval_ms: Millis
    ) -> None:
        duty = self.stats.duties[name]
        while True:
            wait_ms = interval_ms
            try:
                await run_round()
            except Exception as error:  # noqa: BLE001 - after any error there is a next round
                wait_ms = self._note_failed_round(name, duty, error)
            else:
                duty.rounds += 1
                duty.failed_in_a_row = 0
            self._report_round()
            await asyncio.sleep(wait_ms / 1000)

    def _report_round(self) -> None:
        try:
            self._on_round()
        except Exception:
            logger.exception("a round of upkeep could not be reported")

    def _note_failed_round(self, name: str, duty: DutyStats, error: Exception) -> Millis:
        """Count it; returns the delay before the next round."""
        wait_ms = restart_delay_ms(self._intervals, duty.failed_in_a_row)
        duty.failed_rounds += 1
        duty.failed_in_a_row += 1
        duty.last_error = f"{type(error).__name__}: {error}"
        logger.error("%s failed; next attempt in %d ms", name, wait_ms, exc_info=error)
        return wait_ms

    async def retain(self) -> None:
        """One round of retention over all partitions; the loop serves requests in between."""
        for target in list(self._partitions()):
            if target.log is not self._in_work:
                with self._guarded(target.log, "retention"):
                    deleted = target.log.delete_expired(target.retention, self._clock())
                    self.stats.deleted_segments += deleted
            await asyncio.sleep(0)

    async def sweep(self) -> None:
        """Unlink files whose delay has passed, and remove expired producers."""
        for target in list(self._partitions()):
            with self._guarded(target.log, "sweep"):
                target.log.sweep(self._clock())
            await asyncio.sleep(0)

    async def compact(self) -> None:
        """Compact until nothing is dirty; stop a worker that was idle for a while."""
        while await self.compact_one():
            self._worked_at = self._steady_clock()
        self.compacted_at = self._clock()
        if self._steady_clock() - self._worked_at >= self._intervals.worker_idle_ms:
            await self._worker.stop()

    async def compact_one(self) -> bool:
        """One round over the dirtiest partition; False when there is none."""
        chosen = self._choose()
        if chosen is None:
            return False
        self._in_work = chosen.name.log
        try:
            with self._guarded(chosen.name.log, "compaction"):
                await self._compact(chosen.name, chosen.cleanable)
        finally:
            self._in_work = None
        return True

    async def _compact(self, target: UpkeepTarget, cleanable: CleanableRange) -> None:
        job = self._job(target, cleanable)
        try:
            target.log.check_closed_segments(len(job.base_offsets))
        except Malformed as damage:  # compaction would hide that batches are missing
            self._set_aside(target.log, CorruptLog(str(damage)))
            return
        result = await self._worker.run(job)
        if not self._is_current(target.log, job):
            result = JobFailed("the log changed meanwhile")
        failure = self._swap(target.log, result) if isinstance(result, Cleaned) else result
        if isinstance(result, Cleaned) and failure is None:
            await self._note_done(target.log, result)
        elif failure is not None:
            self._set_aside(target.log, failure)

    @contextmanager
    def _guarded(self, log: PartitionLog, duty: str) -> Iterator[None]:
        """An error affects this partition only; a later round retries it."""
        key = log.topic_partition, duty
        try:
            yield
        except Exception as error:
            self.stats.partition_errors += 1
            if duty in (_CHOICE, "compaction"):
                retry_at = Millis(self._steady_clock() + self._intervals.retry_ms)
                self._retry_at[log.topic_partition] = retry_at
            reason = str(error) if isinstance(error, OSError) else repr(error)
            if self.failing.get(key) != reason:  # one line, however often it is retried
                is_bug = not isinstance(error, OSError)
                logger.error(
                    "%s of %s failed and is retried later: %s",
                    duty,
                    log.topic_partition,
                    reason,
                    exc_info=error if is_bug else None,
                )
            self.failing[key] = reason
        else:
            self.failing.pop(key, None)

    def _choose(self) -> CompactionCandidate[UpkeepTarget] | None:
        now, steady_now = self._clock(), self._steady_clock()
        partitions = list(self._partitions())
        self._remove_deleted(partitions)
        candidates = []
        ratios: dict[str, float] = {}
        for target in partitions:
            partition = target.log.topic_partition
            if not target.compaction.compact:
                continue
            ratios.setdefault(partition.topic, 0.0)
            if partition in self.corrupt:
                continue
            if self._retry_at.get(partition, steady_now) > steady_now:
                continue
            with self._guarded(target.log, _CHOICE):
                cleanable = cleanable_range(self._facts(target), target.compaction, now)
                if cleanable is not None:
                    candidates.append(CompactionCandidate(target, cleanable))
                    ratio = max(ratios[partition.topic], cleanable.dirty_ratio)
                    ratios[partition.topic] = ratio
        self.dirty_ratios = ratios
        return dirtiest(candidates)

    def _remove_deleted(self, partitions: Iterable[UpkeepTarget]) -> None:
        """A topic that was deleted and created again is another log with the same name."""
        present = {target.log.topic_partition: target.log for target in partitions}
        deleted: dict[Path, list[TopicPartition]] = {}
        for partition, log in self._known.items():
            if present.get(partition) is not log:
                deleted.setdefault(log.folder.parent, []).append(partition)
                self._retry_at.pop(partition, None)
                self.corrupt.pop(partition, None)
                for duty in (*DUTIES, _CHOICE):
                    self.failing.pop((partition, duty), None)
        self._known = present
        for log_folder, names in deleted.items():
            try:
                self._checkpoints.remove(log_folder, names)
            except OSError as error:  # the next write has no such rows
                logger.warning("%s: %s", log_folder, error)

    def _facts(self, target: UpkeepTarget) -> LogFacts:
        log = target.log
        needs_age = target.compaction.max_compaction_lag_ms is not None  # a read per segment
        return LogFacts(
            segments=[
                SegmentFacts(
                    segment.base_offset,
                    segment.size_bytes,
                    segment.first_timestamp if needs_age else NO_TIMESTAMP,
                    segment.max_timestamp,
                )
                for segment in log.segments
            ],
            start_offset=log.start_offset,
            last_stable_offset=log.last_stable_offset,
            end_offset=log.end_offset,
            checkpoint=self._checkpoints.offset(log.folder.parent, log.topic_partition),
        )

    def _job(self, target: UpkeepTarget, cleanable: CleanableRange) -> CleanJob:
        log, settings = target.log, self._settings
        closed = [s.base_offset for s in log.segments[:-1] if s.base_offset < cleanable.end_offset]
        end_of_closed = log.segments[len(closed)].base_offset
        return CleanJob(
            folder=str(log.folder),
            base_offsets=tuple(closed),
            first_dirty_offset=cleanable.first_dirty_offset,
            end_offset=cleanable.end_offset,
            segment_bytes=log.settings.segment_bytes,
            segment_index_bytes=log.settings.segment_index_bytes,
            index_interval_bytes=log.settings.index_interval_bytes,
            delete_retention_ms=target.compaction.delete_retention_ms,
            now=self._clock(),
            map_bytes=settings.map_bytes,
            bytes_per_second=settings.bytes_per_second,
            seed=(secrets.randbits(_SEED_BITS), secrets.randbits(_SEED_BITS)),
            aborted=tuple(log.aborted_transactions(closed[0], end_of_closed)),
            producers=active_producers(log),
        )

    def _is_current(self, log: PartitionLog, job: CleanJob) -> bool:
        """Whether the log still has the closed segments that the job has read."""
        bases = {segment.base_offset for segment in log.segments[:-1]}
        is_present = any(target.log is log for target in self._partitions())
        return is_present and bases.issuperset(job.base_offsets)

    def _swap(self, log: PartitionLog, cleaned: Cleaned) -> JobFailed | None:
        replacements = [Replacement(new.replaces, (new.base_offset,)) for new in cleaned.segments]
        try:
            log.swap(replacements, self._clock())
        except OSError as error:
            return JobFailed(str(error))
        return None

    async def _note_done(self, log: PartitionLog, cleaned: Cleaned) -> None:
        self.stats.compactions += 1
        self.stats.read_bytes += cleaned.read_bytes
        self.stats.retained_bytes += cleaned.retained_bytes
        log_folder, partition = log.folder.parent, log.topic_partition
        try:
            await asyncio.to_thread(  # it syncs a file
                self._checkpoints.advance, log_folder, partition, cleaned.end_offset
            )
        except OSError as error:
            logger.warning("%s: %s", log_folder, error)  # then the next start compacts it again

    def _set_aside(self, log: PartitionLog, failure: CorruptLog | JobFailed) -> None:
        """Not compacted this time. A corrupt partition is not compacted again."""
        self.stats.failed_compactions += 1
        if isinstance(failure, CorruptLog):
            self.corrupt[log.topic_partition] = failure.reason
            logger.error(
                "%s is corrupt and is not compacted until the broker is restarted: %s; "
                "restore its folder from a copy",
                log.topic_partition,
                failure.reason,
            )
        else:
            retry_at = Millis(self._steady_clock() + self._intervals.retry_ms)
            self._retry_at[log.topic_partition] = retry_at
            logger.warning("%s was not compacted: %s", log.topic_partition, failure.reason)
        if log.folder.is_dir():
            remove_leftovers(str(log.folder))


def restart_delay_ms(intervals: Intervals, failed_before: int) -> Millis:
    """The delay after a failed round that followed `failed_before` failed ones."""
    return Millis(min(intervals.restart_ms << min(failed_before, 30), intervals.restart_max_ms))


def active_producers(log: PartitionLog) -> tuple[LiveProducer, ...]:
    """The producers whose last batch, or else last marker, compaction must retain."""
    return tuple(
        LiveProducer(
            producer.producer_id,
            producer.producer_epoch,
            Offset(producer.batches[-1].last_offset) if producer.batches else None,
        )
        for producer in log.producers.producers.values()
    )
