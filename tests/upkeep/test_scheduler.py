"""The broker's side of upkeep: the choice of partitions, and what becomes of results."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from penstock.log.files import OpenFiles
from penstock.log.indexes import TimeEntry
from penstock.log.partition_log import PartitionLog
from penstock.log.segment import Segment
from penstock.log.settings import RetentionSettings
from penstock.model import LeaderEpoch, Millis, Offset
from penstock.protocol.batch import iterate_headers
from penstock.protocol.records import build_batch, read_records
from penstock.upkeep.jobs import Cleaned, CleanJob, CorruptLog, JobFailed
from penstock.upkeep.scheduler import Upkeep, UpkeepTarget, restart_delay_ms
from penstock.upkeep.settings import INTERVALS, CompactionSettings, Intervals, UpkeepSettings
from penstock.upkeep.worker import run_job
from tests.support.appending import append_batch
from tests.support.settings import default_log_settings, default_settings

START = Millis(1_700_000_000_000)
COMPACT = default_settings(CompactionSettings, compact=True, min_cleanable_dirty_ratio=0.5)
KEEP = default_settings(RetentionSettings, delete=False)


class Inline:
    """Runs jobs in this process, with a change of the log meanwhile."""

    def __init__(self) -> None:
        self.jobs: list[CleanJob] = []
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        self.result: JobFailed | CorruptLog | None = None
        self.stopped = 0

    async def run(self, job: CleanJob) -> Cleaned | CorruptLog | JobFailed:
        self.jobs.append(job)
        done = run_job(job, lambda: None)
        if self.meanwhile is not None:
            await self.meanwhile()
        return self.result or done

    async def stop(self) -> None:
        self.stopped += 1


class Scenario:
    """Partitions under one upkeep, and clocks that the test moves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = START
        self.set_back_ms = 0  # of the time of day
        self.targets: list[UpkeepTarget] = []
        self.worker = Inline()
        self.upkeep = self.new_upkeep()

    def new_upkeep(self) -> Upkeep:
        return Upkeep(
            lambda: self.targets,
            self.worker,
            default_settings(UpkeepSettings),
            clock=lambda: Millis(self.now - self.set_back_ms),
            steady_clock=lambda: self.now,
        )

    def partition(
        self,
        name: str = "topic-0",
        *,
        retention: RetentionSettings = KEEP,
        compaction: CompactionSettings = COMPACT,
    ) -> PartitionLog:
        log = PartitionLog.open(
            self.folder / name, default_log_settings(), OpenFiles(8), now=self.now, clean=True
        )
        self.targets.append(UpkeepTarget(log, retention, compaction))
        return log

    def write(self, log: PartitionLog, *keys: bytes, roll: bool = True) -> None:
        batch = build_batch([(key, b"%d" % log.end_offset) for key in keys], timestamp=self.now)
        append_batch(log, batch, leader_epoch=LeaderEpoch(0), now=self.now)
        log.set_high_watermark(log.end_offset)
        if roll:
            log.roll(self.now)

    def compact(self) -> bool:
        return asyncio.run(self.upkeep.compact_one())


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[Scenario]:
    made = Scenario(tmp_path)
    yield made
    for target in made.targets:
        target.log.close(sync=False)


def offsets(log: PartitionLog) -> list[int]:
    offsets: list[int] = []
    offset = log.start_offset
    while offset < log.end_offset:
        view = log.read(offset, max_bytes=1 << 20).view
        for position, header in iterate_headers(view):
            offsets += [record.offset for record in read_records(view, position)]
            offset = header.end_offset
    return offsets


def leftovers(scenario: Scenario) -> list[str]:
    return [path.name for path in scenario.folder.rglob("*.cleaned")]


def test_a_dirty_partition_is_compacted_once(scenario: Scenario) -> None:
    log = scenario.partition()
    scenario.write(log, b"a", b"b")
    scenario.write(log, b"a")
    scenario.write(log, b"c", roll=False)
    assert scenario.compact()
    assert offsets(log) == [1, 2, 3]
    assert not scenario.compact()
    assert scenario.upkeep.stats.compactions == 1


def test_the_dirtiest_partition_is_compacted_first(scenario: Scenario) -> None:
    half, whole = scenario.partition("half-0"), scenario.partition("whole-0")
    scenario.write(half, b"a")
    assert scenario.compact()
    scenario.write(half, b"b", b"c")
    scenario.write(whole, b"a")
    assert scenario.compact()
    assert scenario.compact()
    assert [Path(job.folder).name for job in scenario.worker.jobs] == [
        "half-0",
        "whole-0",
        "half-0",
    ]


def test_a_topic_without_compaction_is_not_compacted(scenario: Scenario) -> None:
    scenario.write(
        scenario.partition(compaction=default_settings(CompactionSettings, compact=False)),
        b"a",
        b"a",
    )
    assert not scenario.compact()


def test_the_checkpoint_has_kafkas_format_and_survives_a_restart(scenario: Scenario) -> None:
    log = scenario.partition()
    scenario.write(log, b"a", b"a")
    scenario.compact()
    checkpoint = scenario.folder / "cleaner-offset-checkpoint"
    assert checkpoint.read_text() == "0\n1\ntopic 0 2\n"
    scenario.upkeep = scenario.new_upkeep()
    scenario.write(log, b"b", b"b", b"b", b"b", b"b", b"b")
    assert scenario.compact()
    assert scenario.worker.jobs[-1].first_dirty_offset == 2


def test_a_topic_that_was_created_again_starts_dirty(scenario: Scenario) -> None:
    log = scenario.partition()
    scenario.write(log, b"a", b"a")
    scenario.compact()
    scenario.targets.clear()
    log.close(sync=False)
    log.folder.rename(scenario.folder / "deleted")
    again = scenario.partition()
    scenario.write(again, b"a", b"b", b"c")
    assert scenario.compact()
    assert scenario.worker.jobs[-1].first_dirty_offset == 0


def test_a_corrupt_partition_is_reported_once_and_not_compacted_again(
    scenario: Scenario, caplog: pytest.LogCaptureFixture
) -> None:
    log = scenario.partition()
    scenario.write(log, b"a", b"a")
    path = log.folder / f"{0:020d}.log"
    corrupt = path.read_bytes()[:-1] + b"?"
    path.write_bytes(corrupt)
    with caplog.at_level(logging.ERROR):
        assert scenario.compact()
        assert not scenario.compact()
    assert len(caplog.records) == 1
    assert path.read_bytes() == corrupt
    assert list(scenario.upkeep.corrupt) == [log.topic_partition]


@pytest.mark.parametrize("set_back_ms", [0, 3_600_000])
def test_a_failed_round_is_retried_later_whatever_the_time_of_day(
    scenario: Scenario, set_back_ms: int
) -> None:
    log = scenario.partition()
    scenario.write(log, b"a", b"a")
    scenario.worker.result = JobFailed("no space")
    assert scenario.compact()
    assert not leftovers(scenario)
    scenario.worker.result = None
    scenario.set_back_ms = set_back_ms
    assert not scenario.compact()
    scenario.now = Millis(scenario.now + INTERVALS.retry_ms)
    assert scenario.compact()
    assert offsets(log) == [1]


def test_a_result_for_a_log_that_changed_is_void(scenario: Scenario) -> None:
    log = scenario.partition()
    scenario.write(log, b"a", b"a")
    scenario.write(log, b"a", b"b")

    async def delete_records() -> None:
        log.advance_start_offset(Offset(2), scenario.now)

    scenario.worker.meanwhile = delete_records
    assert scenario.compact()
    assert scenario.upkeep.stats.failed_compactions == 1
    assert offsets(log) == [2, 3]
    assert not leftovers(scenario)


def test_a_result_for_a_deleted_partition_is_void(scenario: Scenario) -> None:
    log = scenario.partition()
    scenario.write(log, b"a", b"a")

    async def delete_topic() -> None:
        scenario.targets.clear()
        log.close(sync=False)
        log.folder.rename(scenario.folder / "topic-0.uuid-delete")

    scenario.worker.meanwhile = delete_topic
    assert scenario.compact()
    assert scenario.upkeep.stats.compactions == 0


def test_views_stay_valid_during_a_swap(scenario: Scenario) -> None:
    log = scenario.partition()
    scenario.write(log, *[b"a"] * 5000)
    scenario.write(log, b"a")
    view = log.read(Offset(0), max_bytes=1 << 20).view
    before = bytes(view)
    scenario.compact()
    assert bytes(view) == before
    assert offsets(log) == [5000]


def test_retention_skips_the_partition_that_is_being_compacted(scenario: Scenario) -> None:
    day = default_settings(RetentionSettings, delete=True, retention_ms=Millis(1000))
    log = scenario.partition(retention=day)
    scenario.write(log, b"a", b"a")
    scenario.write(log, b"a", roll=False)

    async def a_long_time_passes() -> None:
        scenario.now = Millis(scenario.now + 5000)
        await scenario.upkeep.retain()
        assert log.start_offset == 0

    scenario.worker.meanwhile = a_long_time_passes
    assert scenario.compact()
    asyncio.run(scenario.upkeep.retain())
    assert log.start_offset == 3
    assert scenario.upkeep.stats.deleted_segments == 2


def test_a_partition_whose_folder_is_missing_does_not_affect_the_others(scenario: Scenario) -> None:
    day = default_settings(RetentionSettings, delete=True, retention_ms=Millis(1000))
    missing, other = (
        scenario.partition("missing-0", retention=day),
        scenario.partition(retention=day),
    )
    for log in (missing, other):
        scenario.write(log, b"a")
    missing.folder.rename(scenario.folder / "moved")
    scenario.now = Millis(scenario.now + 5000)
    asyncio.run(scenario.upkeep.retain())
    assert other.start_offset == 1
    (scenario.folder / "moved").rename(missing.folder)


def test_deleted_files_are_unlinked_after_their_delay(scenario: Scenario) -> None:
    log = scenario.partition()
    scenario.write(log, b"a", b"a")
    scenario.compact()
    assert list(log.folder.glob("*.deleted"))
    asyncio.run(scenario.upkeep.sweep())
    assert list(log.folder.glob("*.deleted"))
    scenario.now = Millis(scenario.now + default_log_settings().file_delete_delay_ms)
    asyncio.run(scenario.upkeep.sweep())
    assert not list(log.folder.glob("*.deleted"))


def test_it_runs_until_cancelled_and_ends_its_worker(scenario: Scenario) -> None:
    log = scenario.partition()
    scenario.write(log, b"a", b"a")

    async def scene() -> None:
        running = asyncio.create_task(scenario.upkeep.run())
        while scenario.upkeep.stats.compactions == 0:
            assert not running.done()
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(scene())
    assert scenario.worker.stopped


def test_a_segment_that_was_emptied_before_a_kill_can_be_compacted_after_a_clean_stop(
    scenario: Scenario,
) -> None:
    log = scenario.partition()
    scenario.write(log, b"a")
    scenario.write(log, b"a")
    scenario.write(log, b"b", roll=False)
    log.close(sync=False)
    for path in log.segments[0].paths():
        Path(path).write_bytes(b"")
    for clean in (False, True):
        scenario.targets.clear()
        log = PartitionLog.open(
            log.folder, default_log_settings(), OpenFiles(8), now=scenario.now, clean=clean
        )
        log.set_high_watermark(log.end_offset)
        scenario.targets.append(UpkeepTarget(log, KEEP, COMPACT))
        if not clean:
            log.close(sync=False)
    assert scenario.compact()
    assert scenario.upkeep.stats.partition_errors == 0
    assert offsets(log) == [1, 2]


def test_a_partition_that_cannot_be_looked_at_does_not_stop_the_compaction_of_others(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, healthy = scenario.partition("broken-0"), scenario.partition("healthy-0")
    for log in (broken, healthy):
        scenario.write(log, b"a", b"a")
    for error in (OSError("bad sector"), ValueError("a bug")):

        def fail(segment: Segment, error: Exception = error) -> TimeEntry:
            if "broken-0" in segment.folder:
                raise error
            return TimeEntry(scenario.now, Offset(0))

        with monkeypatch.context() as patched:
            patched.setattr(Segment, "largest", property(fail))
            assert scenario.compact() is isinstance(error, OSError)
            scenario.now = Millis(scenario.now + INTERVALS.retry_ms)
            assert not scenario.compact()
            scenario.now = Millis(scenario.now + INTERVALS.retry_ms)
    assert scenario.upkeep.stats.partition_errors == 4
    assert offsets(healthy) == [1]
    assert len(caplog.records) == 2, "one line for each error, however often it is met"
    assert list(scenario.upkeep.failing.values()) == ["ValueError('a bug')"]
    assert scenario.compact()
    assert offsets(broken) == [1]
    assert not scenario.upkeep.failing


def test_a_round_that_fails_as_a_whole_is_repeated_after_a_growing_delay(
    scenario: Scenario,
) -> None:
    log = scenario.partition()
    scenario.write(log, b"a", b"a")
    failures = 5

    def partitions() -> list[UpkeepTarget]:
        if upkeep.stats.duties["compaction"].failed_rounds < failures:
            raise RuntimeError("the table is being rebuilt")
        return scenario.targets

    intervals = Intervals(restart_ms=Millis(1), restart_max_ms=Millis(4))
    upkeep = Upkeep(
        partitions,
        scenario.worker,
        default_settings(UpkeepSettings),
        clock=lambda: scenario.now,
        steady_clock=lambda: scenario.now,
        intervals=intervals,
    )

    async def scene() -> None:
        running = asyncio.create_task(upkeep.run())
        while upkeep.stats.duties["compaction"].rounds == 0:
            assert not running.done()
            await asyncio.sleep(0.001)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(scene())
    compaction = upkeep.stats.duties["compaction"]
    assert (compaction.failed_rounds, compaction.failed_in_a_row) == (failures, 0)
    assert compaction.last_error == "RuntimeError: the table is being rebuilt"
    assert offsets(log) == [1]
    assert [restart_delay_ms(intervals, failed) for failed in (0, 1, 2, 3, 900)] == [1, 2, 4, 4, 4]


def test_a_segment_that_lost_batches_is_not_compacted_away(scenario: Scenario) -> None:
    log = scenario.partition()
    scenario.write(log, b"a", b"b")
    scenario.write(log, b"a")
    scenario.write(log, b"c", roll=False)
    log.close(sync=False)
    scenario.targets.clear()
    Path(log.segments[0].log.path).write_bytes(b"")
    again = scenario.partition()
    again.set_high_watermark(again.end_offset)
    assert scenario.compact()
    assert "was closed with" in scenario.upkeep.corrupt[again.topic_partition]
    assert not scenario.worker.jobs
