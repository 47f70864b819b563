"""Random histories and crashes: the log has the last value of each key, and what is not expired."""

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log.files import OpenFiles
from penstock.log.partition_log import PartitionLog
from penstock.log.settings import RetentionSettings
from penstock.model import LeaderEpoch, Millis, Offset, ProducerEpoch, ProducerId, SequenceNumber
from penstock.protocol.batch import BatchHeader, iterate_headers
from penstock.protocol.compression import Codec
from penstock.protocol.control_records import build_marker, read_marker
from penstock.protocol.records import Record, build_batch, read_records
from penstock.upkeep import cleaned_files
from penstock.upkeep.jobs import Cleaned, CleanJob, CorruptLog, JobFailed
from penstock.upkeep.scheduler import Upkeep, UpkeepTarget
from penstock.upkeep.settings import CompactionSettings, Intervals, UpkeepSettings
from penstock.upkeep.worker import run_job
from tests.support.appending import append_batch
from tests.support.settings import default_log_settings, default_settings

START = Millis(1_700_000_000_000)
GRACE = Millis(1000)
KEYS = (b"a", b"b", b"c", b"d")
PRODUCERS = (ProducerId(1), ProducerId(2))


class Killed(BaseException):
    """The process was killed."""


class Inline:
    """Runs jobs in this process; remembers its last job and how far it got."""

    job: CleanJob | None = None
    clean_end = 0

    async def run(self, job: CleanJob) -> Cleaned | CorruptLog | JobFailed:
        self.job = job
        result = run_job(job, lambda: None)
        if isinstance(result, Cleaned):
            self.clean_end = int(result.end_offset)
        return result

    async def stop(self) -> None:
        return


class Written(NamedTuple):
    """A record of the history and the transaction it belongs to."""

    offset: int
    key: bytes | None
    value: bytes | None
    transaction: int | None


class History:
    """A partition, and everything that was ever written to it."""

    def __init__(self, folder: Path, map_bytes: int) -> None:
        self.folder = folder / "topic-0"
        self.now = START
        self.records: list[Written] = []
        self.aborted: dict[int, bool] = {}  # by transaction, once it has ended
        self.horizons: dict[int, tuple[int, int | None]] = {}  # offset: earliest, latest
        self.clean_end = self.attempted_end = 0
        self.cleaned_at = START
        self.map_bytes = map_bytes
        self._open_transactions: dict[ProducerId, int] = {}
        self._sequences = dict.fromkeys(PRODUCERS, 0)
        self._epochs = dict.fromkeys(PRODUCERS, 0)
        self._transactions = 0
        self.reopen(clean=True)

    def reopen(self, *, clean: bool) -> None:
        self.log = PartitionLog.open(
            self.folder,
            default_log_settings(segment_bytes=2000),
            OpenFiles(8),
            now=self.now,
            clean=clean,
        )
        self.log.set_high_watermark(self.log.end_offset)
        self.worker = Inline()
        self.upkeep = Upkeep(
            lambda: [
                UpkeepTarget(
                    self.log, default_settings(RetentionSettings, delete=False), COMPACTION
                )
            ],
            self.worker,
            default_settings(UpkeepSettings, map_bytes=self.map_bytes),
            clock=lambda: self.now,
            steady_clock=lambda: self.now,
            intervals=Intervals(retry_ms=Millis(0)),
        )

    def write(
        self,
        pairs: list[tuple[bytes | None, bytes | None]],
        producer: ProducerId | None,
        *,
        transactional: bool,
        codec: Codec,
    ) -> None:
        transaction = None
        fields: dict[str, Any] = {}
        if producer is not None:
            if producer in self._open_transactions:
                transactional = True
            fields = {
                "producer_id": producer,
                "producer_epoch": ProducerEpoch(self._epochs[producer]),
                "base_sequence": SequenceNumber(self._sequences[producer]),
                "transactional": transactional,
            }
            self._sequences[producer] += len(pairs)
            if transactional:
                if producer not in self._open_transactions:
                    self._transactions += 1
                    self._open_transactions[producer] = self._transactions
                transaction = self._open_transactions[producer]
        self.now = Millis(self.now + 1)
        first = self.log.end_offset
        self._append(build_batch(pairs, timestamp=self.now, codec=codec, **fields), "client")
        self.records += [
            Written(first + index, key, value, transaction)
            for index, (key, value) in enumerate(pairs)
        ]

    def end(self, producer: ProducerId, *, commit: bool, bump: bool) -> None:
        transaction = self._open_transactions.pop(producer, None)
        if transaction is None:
            return
        if bump:
            self._epochs[producer] += 1
            self._sequences[producer] = 0
        self.aborted[transaction] = not commit
        marker = build_marker(
            commit=commit,
            producer_id=producer,
            producer_epoch=ProducerEpoch(self._epochs[producer]),
            coordinator_epoch=0,
            timestamp=self.now,
        )
        self._append(marker, "marker")

    def _append(self, batch: bytearray, origin: Any) -> None:
        append_batch(self.log, batch, leader_epoch=LeaderEpoch(0), now=self.now, origin=origin)
        self.log.set_high_watermark(self.log.end_offset)

    def compact(self) -> None:
        """Rounds until nothing is dirty."""
        for _ in range(100):
            self.worker.job = None
            if not asyncio.run(self.upkeep.compact_one()):
                return
            assert self.upkeep.stats.failed_compactions == 0
            self.note_round(done=True)
        raise AssertionError("compaction does not come to an end")

    def note_round(self, *, done: bool) -> None:
        """Tombstones that this round read have a horizon now, or may have when it was killed."""
        job = self.worker.job
        if job is None:
            return
        read_to = max(job.end_offset, self.log.active.base_offset)
        for record in self.records:
            if record.value is None and record.offset < read_to:
                earliest, latest = self.horizons.get(record.offset, (self.now + GRACE, None))
                if done and latest is None and record.offset < self.worker.clean_end:
                    latest = self.now + GRACE
                self.horizons[record.offset] = earliest, latest
        self.attempted_end = int(job.end_offset)
        if done:
            self.clean_end = self.worker.clean_end  # before the job's end if its map was full
            self.cleaned_at = self.now

    def producers(self) -> list[tuple[int, ...]]:
        return sorted(
            (
                producer.producer_id,
                producer.producer_epoch,
                producer.last_sequence,
                producer.batches[-1].last_offset if producer.batches else -1,
                producer.transaction_start,
            )
            for producer in self.log.producers.producers.values()
        )

    # Invariants

    def check(self) -> None:
        shown = self.read_through()
        by_offset = {record.offset: record for record in self.records}
        for record in shown:
            original = by_offset[record.offset]
            assert (record.key, record.value) == (original.key, original.value)
        assert self.state_of(shown) == self.state_of(self.committed())
        assert [r.offset for r in shown] == sorted({r.offset for r in shown})
        # What a finished round left, and what a killed one may have removed.
        finished = self.last_of_each_key(self.clean_end)
        started = self.last_of_each_key(self.attempted_end)
        for record in shown:
            if record.offset < self.clean_end:
                assert record.offset in finished, "an old value, or one without a key, is there"
        offsets = {record.offset for record in shown}
        for record in self.committed():
            if record.offset < self.attempted_end:
                is_in_grace = record.offset in started and (
                    record.value is not None or self.now < self.horizons[record.offset][0]
                )
                assert record.offset in offsets or not is_in_grace, f"{record} is lost"
            else:
                assert record.offset in offsets, f"{record} was never compacted and is lost"

    def last_of_each_key(self, end: int) -> set[int]:
        """The offsets that compaction up to `end` must retain."""
        below = [record for record in self.committed() if record.offset < end]
        last = {record.key: record.offset for record in below if record.key is not None}
        return set(last.values())

    def check_grace_is_over(self) -> None:
        """Whether a round has read it after its horizon."""
        offsets = {record.offset for record in self.read_through()}
        for offset, (_, latest) in self.horizons.items():
            if latest is not None and latest <= self.cleaned_at and offset < self.clean_end:
                assert offset not in offsets

    def committed(self) -> list[Written]:
        """What a read-committed consumer may see of the whole history."""
        end = self.log.last_stable_offset
        return [
            record
            for record in self.records
            if record.offset < end
            and (record.transaction is None or not self.aborted.get(record.transaction, True))
        ]

    @staticmethod
    def state_of(records: list[Written]) -> dict[bytes, bytes]:
        state: dict[bytes, bytes] = {}
        for record in records:
            if record.key is None:
                continue
            if record.value is None:
                state.pop(record.key, None)
            else:
                state[record.key] = record.value
        return state

    def read_through(self) -> list[Written]:
        """As a read-committed consumer does, batch by batch from the start to the end."""
        log, end = self.log, self.log.last_stable_offset
        aborted = sorted(
            log.aborted_transactions(log.start_offset, end), key=lambda a: a.first_offset
        )
        skipped: set[int] = set()
        shown: list[Written] = []
        for header, records, marker in self.batches(end):
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipped.add(aborted.pop(0).producer_id)
            if marker is not None:
                if not marker:
                    skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                shown += [Written(r.offset, r.key, r.value, None) for r in records]
        return shown

    def batches(self, end: Offset) -> Iterator[tuple[BatchHeader, list[Record], bool | None]]:
        offset = self.log.start_offset
        while offset < end:
            view = self.log.read(offset, max_bytes=500, end_offset=end).view
            if not view:
                return  # the last offsets before the end were compacted away
            for position, header in iterate_headers(view):
                assert header.end_offset > offset
                offset = header.end_offset
                marker = read_marker(view, position).commit if header.is_control else None
                yield header, [] if header.is_control else read_records(view, position), marker


COMPACTION = default_settings(
    CompactionSettings, compact=True, min_cleanable_dirty_ratio=0.0, delete_retention_ms=GRACE
)


@contextmanager
def killed_at(step: int) -> Iterator[Callable[[], int]]:
    """Be killed at the given change of the disk."""
    taken = 0

    def killing(real: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*arguments: Any, **fields: Any) -> Any:
            nonlocal taken
            taken += 1
            if taken > step:
                raise Killed
            return real(*arguments, **fields)

        return stepping

    with (
        mock.patch.object(os, "rename", killing(os.rename)),
        mock.patch.object(os, "unlink", killing(os.unlink)),
        mock.patch.object(os, "fsync", killing(os.fsync)),
        mock.patch.object(os, "utime", killing(os.utime)),
        mock.patch.object(
            cleaned_files,
            "_write_all",
            killing(cleaned_files._write_all),  # noqa: SLF001 - all bytes are written by it
        ),
    ):
        yield lambda: taken


pairs = st.lists(
    st.tuples(st.sampled_from((*KEYS, None)), st.one_of(st.none(), st.binary(max_size=3))),
    min_size=1,
    max_size=4,
)
writes = st.tuples(
    st.just("write"),
    pairs,
    st.sampled_from((None, *PRODUCERS)),
    st.booleans(),
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD]),
)
ends = st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans(), st.booleans())
steps = st.one_of(
    writes,
    writes,
    writes,
    ends,
    st.just(("roll",)),
    st.just(("compact",)),
    st.tuples(st.just("crash"), st.integers(0, 60)),
    st.tuples(st.just("wait"), st.sampled_from([1, GRACE])),
    st.tuples(st.just("reopen"), st.booleans()),
)


@settings(deadline=None, max_examples=100)
@given(st.lists(steps, max_size=40), st.sampled_from([24 * 4, 1 << 20]))
def test_any_history_and_any_crash_leave_the_last_value_of_each_key(
    history: list[Any], map_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = History(Path(folder), map_bytes)
        for step in [*history, ("roll",), ("compact",), ("wait", GRACE)]:
            take(model, step)
            model.check()
        model.write([(b"z", b"last")], None, transactional=False, codec=Codec.NONE)
        model.log.roll(model.now)
        model.compact()
        model.check()
        model.check_grace_is_over()
        model.log.close(sync=False)


def take(model: History, step: Any) -> None:
    match step:
        case ("write", records, producer, transactional, codec):
            model.write(records, producer, transactional=transactional, codec=codec)
        case ("end", producer, commit, bump):
            model.end(producer, commit=commit, bump=bump)
        case ("roll",):
            model.log.roll(model.now)
        case ("compact",):
            model.compact()
        case ("wait", wait_ms):
            model.now = Millis(model.now + wait_ms)
        case ("reopen", clean):
            reopen(model, clean=clean)
        case ("crash", at):
            crash(model, at)


def reopen(model: History, *, clean: bool) -> None:
    before, end = model.producers(), model.log.end_offset
    if clean:
        model.log.close(sync=False)
    model.reopen(clean=clean)
    assert model.log.end_offset == end
    assert model.producers() == before


def crash(model: History, at: int) -> None:
    before, end = model.producers(), model.log.end_offset
    model.log.roll(model.now)
    model.worker.job = None
    with killed_at(at):
        try:
            asyncio.run(model.upkeep.compact_one())
        except Killed:
            model.note_round(done=False)
        else:
            model.note_round(done=model.upkeep.stats.compactions > 0)
    model.reopen(clean=False)
    assert model.log.end_offset == end
    assert model.producers() == before
    leftovers = [p.name for p in model.folder.iterdir() if p.suffix in (".cleaned", ".swap")]
    assert not leftovers
