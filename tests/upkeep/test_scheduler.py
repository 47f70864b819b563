"""The broker's side of upkeep: who is chosen, what is accepted, what is set aside."""

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
from penstock.upkeep.worker import carry_out
from tests.support.appending import append_batch
from tests.support.settings import default_log_settings, default_settings

START = Millis(1_700_000_000_000)
COMPACT = default_settings(CompactionSettings, compact=True, min_cleanable_dirty_ratio=0.5)
KEEP = default_settings(RetentionSettings, delete=False)


class Inline:
    """The worker's work in this process, with something else happening in the middle."""

    def __init__(self) -> None:
        self.jobs: list[CleanJob] = []
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        self.answer: JobFailed | CorruptLog | None = None
        self.stopped = 0

    async def carry_out(self, job: CleanJob) -> Cleaned | CorruptLog | JobFailed:
        self.jobs.append(job)
        done = carry_out(job, lambda: None)
        if self.meanwhile is not None:
            await self.meanwhile()
        return self.answer or done

    async def stop(self) -> None:
        self.stopped += 1


class House:
    """Some partitions under one upkeep, and a clock that a test moves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = START
        self.kept: list[UpkeepTarget] = []
        self.worker = Inline()
        self.upkeep = self.new_upkeep()

    def new_upkeep(self) -> Upkeep:
        return Upkeep(
            lambda: self.kept,
            self.worker,
            default_settings(UpkeepSettings),
            clock=lambda: self.now,
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
        self.kept.append(UpkeepTarget(log, retention, compaction))
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
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    for kept in made.kept:
        kept.log.close(sync=False)


def offsets(log: PartitionLog) -> list[int]:
    found: list[int] = []
    offset = log.start_offset
    while offset < log.end_offset:
        view = log.read(offset, max_bytes=1 << 20).view
        for position, header in iterate_headers(view):
            found += [record.offset for record in read_records(view, position)]
            offset = header.end_offset
    return found


def leftovers(house: House) -> list[str]:
    return [path.name for path in house.folder.rglob("*.cleaned")]


def test_a_dirty_partition_is_compacted_once(house: House) -> None:
    log = house.partition()
    house.write(log, b"a", b"b")
    house.write(log, b"a")
    house.write(log, b"c", roll=False)
    assert house.compact()
    assert offsets(log) == [1, 2, 3]
    assert not house.compact()
    assert house.upkeep.stats.compactions == 1


def test_the_dirtiest_partition_goes_first(house: House) -> None:
    half, whole = house.partition("half-0"), house.partition("whole-0")
    house.write(half, b"a")
    assert house.compact()
    house.write(half, b"b", b"c")
    house.write(whole, b"a")
    assert house.compact()
    assert house.compact()
    assert [Path(job.folder).name for job in house.worker.jobs] == ["half-0", "whole-0", "half-0"]


def test_a_topic_that_is_not_compacted_is_left_alone(house: House) -> None:
    house.write(
        house.partition(compaction=default_settings(CompactionSettings, compact=False)), b"a", b"a"
    )
    assert not house.compact()


def test_the_checkpoint_is_kafkas_and_survives_a_restart(house: House) -> None:
    log = house.partition()
    house.write(log, b"a", b"a")
    house.compact()
    checkpoint = house.folder / "cleaner-offset-checkpoint"
    assert checkpoint.read_text() == "0\n1\ntopic 0 2\n"
    house.upkeep = house.new_upkeep()
    house.write(log, b"b", b"b", b"b", b"b", b"b", b"b")
    assert house.compact()
    assert house.worker.jobs[-1].first_dirty_offset == 2


def test_a_topic_made_again_under_the_same_name_starts_unclean(house: House) -> None:
    log = house.partition()
    house.write(log, b"a", b"a")
    house.compact()
    house.kept.clear()
    log.close(sync=False)
    log.folder.rename(house.folder / "gone")
    again = house.partition()
    house.write(again, b"a", b"b", b"c")
    assert house.compact()
    assert house.worker.jobs[-1].first_dirty_offset == 0


def test_a_damaged_partition_is_set_aside_and_told_once(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    log = house.partition()
    house.write(log, b"a", b"a")
    path = log.folder / f"{0:020d}.log"
    rotten = path.read_bytes()[:-1] + b"?"
    path.write_bytes(rotten)
    with caplog.at_level(logging.ERROR):
        assert house.compact()
        assert not house.compact()
    assert len(caplog.records) == 1
    assert path.read_bytes() == rotten
    assert list(house.upkeep.rotten) == [log.topic_partition]


def test_a_failed_round_is_tried_again_later(house: House) -> None:
    log = house.partition()
    house.write(log, b"a", b"a")
    house.worker.answer = JobFailed("no room")
    assert house.compact()
    assert not leftovers(house)
    house.worker.answer = None
    assert not house.compact()
    house.now = Millis(house.now + INTERVALS.retry_ms)
    assert house.compact()
    assert offsets(log) == [1]


def test_an_answer_about_a_log_that_changed_is_void(house: House) -> None:
    log = house.partition()
    house.write(log, b"a", b"a")
    house.write(log, b"a", b"b")

    async def delete_records() -> None:
        log.advance_start_offset(Offset(2), house.now)

    house.worker.meanwhile = delete_records
    assert house.compact()
    assert house.upkeep.stats.failed_compactions == 1
    assert offsets(log) == [2, 3]
    assert not leftovers(house)


def test_an_answer_about_a_partition_that_is_gone_is_void(house: House) -> None:
    log = house.partition()
    house.write(log, b"a", b"a")

    async def delete_topic() -> None:
        house.kept.clear()
        log.close(sync=False)
        log.folder.rename(house.folder / "topic-0.uuid-delete")

    house.worker.meanwhile = delete_topic
    assert house.compact()
    assert house.upkeep.stats.compactions == 0


def test_readers_in_the_middle_of_a_swap_keep_what_they_see(house: House) -> None:
    log = house.partition()
    house.write(log, *[b"a"] * 5000)
    house.write(log, b"a")
    view = log.read(Offset(0), max_bytes=1 << 20).view
    before = bytes(view)
    house.compact()
    assert bytes(view) == before
    assert offsets(log) == [5000]


def test_retention_deletes_what_is_too_old_and_leaves_what_is_in_work(house: House) -> None:
    day = default_settings(RetentionSettings, delete=True, retention_ms=Millis(1000))
    log = house.partition(retention=day)
    house.write(log, b"a", b"a")
    house.write(log, b"a", roll=False)

    async def a_long_time_passes() -> None:
        house.now = Millis(house.now + 5000)
        await house.upkeep.retain()
        assert log.start_offset == 0

    house.worker.meanwhile = a_long_time_passes
    assert house.compact()
    asyncio.run(house.upkeep.retain())
    assert log.start_offset == 3
    assert house.upkeep.stats.deleted_segments == 2


def test_a_partition_gone_between_two_looks_does_not_stop_the_others(house: House) -> None:
    day = default_settings(RetentionSettings, delete=True, retention_ms=Millis(1000))
    gone, other = house.partition("gone-0", retention=day), house.partition(retention=day)
    for log in (gone, other):
        house.write(log, b"a")
    gone.folder.rename(house.folder / "moved")
    house.now = Millis(house.now + 5000)
    asyncio.run(house.upkeep.retain())
    assert other.start_offset == 1
    (house.folder / "moved").rename(gone.folder)


def test_deleted_files_are_unlinked_after_their_delay(house: House) -> None:
    log = house.partition()
    house.write(log, b"a", b"a")
    house.compact()
    assert list(log.folder.glob("*.deleted"))
    asyncio.run(house.upkeep.sweep())
    assert list(log.folder.glob("*.deleted"))
    house.now = Millis(house.now + default_log_settings().file_delete_delay_ms)
    asyncio.run(house.upkeep.sweep())
    assert not list(log.folder.glob("*.deleted"))


def test_it_runs_until_cancelled_and_ends_its_worker(house: House) -> None:
    log = house.partition()
    house.write(log, b"a", b"a")

    async def scene() -> None:
        running = asyncio.create_task(house.upkeep.run())
        while house.upkeep.stats.compactions == 0:
            assert not running.done()
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(scene())
    assert house.worker.stopped


def test_a_segment_that_was_emptied_before_a_kill_is_no_obstacle_after_a_clean_stop(
    house: House,
) -> None:
    log = house.partition()
    house.write(log, b"a")
    house.write(log, b"a")
    house.write(log, b"b", roll=False)
    log.close(sync=False)
    for path in log.segments[0].paths():
        Path(path).write_bytes(b"")
    for clean in (False, True):
        house.kept.clear()
        log = PartitionLog.open(
            log.folder, default_log_settings(), OpenFiles(8), now=house.now, clean=clean
        )
        log.set_high_watermark(log.end_offset)
        house.kept.append(UpkeepTarget(log, KEEP, COMPACT))
        if not clean:
            log.close(sync=False)
    assert house.compact()
    assert house.upkeep.stats.partition_errors == 0
    assert offsets(log) == [1, 2]


def test_a_partition_that_cannot_be_looked_at_does_not_stop_the_compaction_of_others(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, sound = house.partition("broken-0"), house.partition("sound-0")
    for log in (broken, sound):
        house.write(log, b"a", b"a")
    for error in (OSError("bad sector"), ValueError("a bug")):

        def fail(segment: Segment, error: Exception = error) -> TimeEntry:
            if "broken-0" in segment.folder:
                raise error
            return TimeEntry(house.now, Offset(0))

        with monkeypatch.context() as patched:
            patched.setattr(Segment, "largest", property(fail))
            assert house.compact() is isinstance(error, OSError)
            house.now = Millis(house.now + INTERVALS.retry_ms)
            assert not house.compact()
            house.now = Millis(house.now + INTERVALS.retry_ms)
    assert house.upkeep.stats.partition_errors == 4
    assert offsets(sound) == [1]
    assert len(caplog.records) == 2, "one line for each error, however often it is met"
    assert list(house.upkeep.failing.values()) == ["ValueError('a bug')"]
    assert house.compact()
    assert offsets(broken) == [1]
    assert not house.upkeep.failing


def test_a_round_that_fails_as_a_whole_is_repeated_after_a_growing_delay(house: House) -> None:
    log = house.partition()
    house.write(log, b"a", b"a")
    failures = 5

    def partitions() -> list[UpkeepTarget]:
        if upkeep.stats.duties["compaction"].failed_rounds < failures:
            raise RuntimeError("the table is being rebuilt")
        return house.kept

    intervals = Intervals(restart_ms=Millis(1), restart_max_ms=Millis(4))
    upkeep = Upkeep(
        partitions,
        house.worker,
        default_settings(UpkeepSettings),
        clock=lambda: house.now,
        steady_clock=lambda: house.now,
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


def test_a_segment_that_lost_batches_is_not_compacted_away(house: House) -> None:
    log = house.partition()
    house.write(log, b"a", b"b")
    house.write(log, b"a")
    house.write(log, b"c", roll=False)
    log.close(sync=False)
    house.kept.clear()
    Path(log.segments[0].log.path).write_bytes(b"")
    again = house.partition()
    again.set_high_watermark(again.end_offset)
    assert house.compact()
    assert "was closed with" in house.upkeep.rotten[again.topic_partition]
    assert not house.worker.jobs
