"""Random histories of appends, rolls, kills and lost files, compared with a list of batches."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.errors import ErrorCode, Refused
from penstock.log import OpenFiles, PartitionLog
from penstock.log.producer_state import ProducerState
from penstock.model import LeaderEpoch, Millis, Offset
from penstock.protocol.batch import iterate_headers
from penstock.protocol.records import build_batch, read_records
from tests.support.appending import append_batch
from tests.support.log_model import (
    StoredBatch,
    end_marker,
    epoch_starts,
    is_open,
    known_producer,
    next_batch,
    read_all,
    replay,
    stored,
)
from tests.support.settings import default_log_settings

PRODUCERS = st.integers(1, 3)


class LogMachine(RuleBasedStateMachine):
    """The log on disk, and the list of acknowledged batches."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="penstock-model-"))
        self.folder = self.root / "orders-0"
        self.files = OpenFiles(2)  # the minimum, so that files are closed and opened all the time
        self.batches: list[StoredBatch] = []
        self.end = 0
        self.start = 0
        self.flushed = 0
        self.epoch = 0
        self.clock = 1_000

    @initialize(
        segment_bytes=st.sampled_from([400, 1_500, 6_000]),
        interval_bytes=st.sampled_from([0, 100, 1_000]),
        index_bytes=st.sampled_from([40, 10_000]),
        segment_ms=st.sampled_from([300, 10_000_000]),
    )
    def begin(
        self, segment_bytes: int, interval_bytes: int, index_bytes: int, segment_ms: int
    ) -> None:
        self.settings = default_log_settings(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval_bytes,
            segment_index_bytes=index_bytes,
            segment_ms=Millis(segment_ms),
            file_delete_delay_ms=Millis(0),
        )
        self.reopen(clean=True)

    def reopen(self, *, clean: bool) -> None:
        self.log = PartitionLog.open(
            self.folder,
            self.settings,
            self.files,
            now=Millis(self.clock),
            clean=clean,
            recovery_point=Offset(self.flushed),
            start_offset=Offset(self.start),
        )
        self.log.set_high_watermark(self.log.end_offset)

    # The model

    def keep(self, content: bytearray) -> None:
        self.batches.append(stored(content))
        self.end = self.batches[-1].header.end_offset

    def visible(self) -> list[StoredBatch]:
        return [batch for batch in self.batches if batch.header.end_offset > self.start]

    # Operations

    def append(self, batch: bytearray, origin: str = "client") -> None:
        appended = append_batch(
            self.log,
            batch,
            leader_epoch=LeaderEpoch(self.epoch),
            now=Millis(self.clock),
            origin="marker" if origin == "marker" else "client",
        )
        assert (appended.base_offset, appended.is_duplicate) == (self.end, False)
        self.keep(batch)
        self.log.set_high_watermark(self.log.end_offset)

    @rule(records=st.integers(1, 4), size=st.integers(0, 700), codec=st.integers(0, 4))
    def append_without_producer(self, records: int, size: int, codec: int) -> None:
        self.clock += 10
        values = [(b"k%d" % i, bytes(size)) for i in range(records)]
        self.append(build_batch(values, timestamp=Millis(self.clock), codec=codec))

    @rule(earlier=st.integers(0, 2_000))
    def append_late(self, earlier: int) -> None:
        """A record whose timestamp is older than the last one."""
        self.append(build_batch([(b"late", b"")], timestamp=Millis(max(0, self.clock - earlier))))

    @rule(producer=PRODUCERS, records=st.integers(1, 3), bump=st.booleans())
    def append_in_transaction(self, producer: int, records: int, bump: bool) -> None:
        self.clock += 10
        known = self.known(producer)
        raises = bump and not is_open(known)
        self.append(
            next_batch(
                known, records, raises_epoch=raises, timestamp=self.clock, transactional=True
            )
        )

    @rule(producer=PRODUCERS, records=st.integers(1, 3), bump=st.booleans())
    def append_idempotent(self, producer: int, records: int, bump: bool) -> None:
        known = self.known(producer)
        if not is_open(known):
            self.clock += 10
            self.append(
                next_batch(
                    known, records, raises_epoch=bump, timestamp=self.clock, transactional=False
                )
            )

    @rule(producer=PRODUCERS, commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        known = self.known(producer)
        if known.producer_epoch >= 0:
            self.append(end_marker(known, commit=commit, timestamp=self.clock), "marker")

    @rule(producer=PRODUCERS, back=st.integers(1, 5))
    def repeat_a_batch(self, producer: int, back: int) -> None:
        """A retry of one of the last five batches of its epoch returns the first offsets."""
        known = self.known(producer)
        if back <= len(known.batches):
            mark = known.batches[-back]
            again = next(b for b in self.batches if b.header.last_offset == mark.last_offset)
            appended = append_batch(
                self.log,
                bytearray(again.content),
                leader_epoch=LeaderEpoch(self.epoch),
                now=Millis(0),
            )
            assert appended.is_duplicate
            assert appended.base_offset == again.header.base_offset
            assert appended.end_offset == again.header.end_offset

    @rule(producer=PRODUCERS)
    def leave_a_gap(self, producer: int) -> None:
        known = self.known(producer)
        if known.producer_epoch >= 0:
            batch = next_batch(
                known, 1, raises_epoch=False, timestamp=self.clock, transactional=True, gap=7
            )
            with pytest.raises(Refused) as refused:
                append_batch(self.log, batch, leader_epoch=LeaderEpoch(self.epoch), now=Millis(0))
            assert refused.value.code is ErrorCode.out_of_order_sequence_number

    def known(self, producer: int) -> ProducerState:
        return known_producer(self.batches, producer)

    @rule()
    def roll(self) -> None:
        self.log.roll(Millis(self.clock))

    @rule()
    def elect(self) -> None:
        self.epoch += 1

    @rule()
    def flush(self) -> None:
        self.flushed = self.log.flush()
        assert self.flushed == self.end

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.start + int((self.end - self.start) * share)
        self.log.advance_start_offset(Offset(offset), Millis(self.clock))
        self.log.sweep(Millis(self.clock))
        self.start = max(self.start, offset)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        """At the boundary of a batch."""
        borders = [batch.header.base_offset for batch in self.visible()] + [self.end]
        offset = borders[int((len(borders) - 1) * share)]
        if offset >= self.start:
            self.log.truncate_to(Offset(offset))
            self.batches = [batch for batch in self.batches if batch.header.base_offset < offset]
            self.end = offset
            self.flushed = min(self.flushed, offset)

    @rule()
    def stop_and_start(self) -> None:
        self.log.close(sync=False)
        self.flushed = self.end
        self.reopen(clean=True)

    @rule()
    def kill_and_start(self) -> None:
        self.log.abandon()
        self.reopen(clean=False)

    @rule(share=st.floats(0, 1), is_corrupt=st.booleans(), size=st.integers(1, 900))
    def kill_while_writing(self, share: float, is_corrupt: bool, size: int) -> None:
        """The next batch was written up to some byte, or one of its bytes is wrong."""
        batch = build_batch([(b"torn", bytes(size))], base_offset=Offset(self.end))
        torn = batch[: int(len(batch) * share)]
        if is_corrupt and len(torn) > 30:
            torn[30] ^= 0xFF
        if len(torn) < len(batch) or is_corrupt:
            with open(self.log.active.log.path, "ab") as file:
                file.write(torn)
        self.log.abandon()
        self.reopen(clean=False)

    @rule(
        suffix=st.sampled_from([".index", ".timeindex"]),
        number=st.integers(0, 9),
        damage=st.sampled_from(["lost", "cut", "emptied"]),
    )
    def lose_an_index(self, suffix: str, number: int, damage: str) -> None:
        """The index of any segment is lost or damaged, and rebuilt."""
        self.log.close(sync=False)
        paths = sorted(path for path in self.folder.iterdir() if path.name.endswith(suffix))
        if paths:
            path = paths[number % len(paths)]
            if damage == "lost":
                path.unlink()
            else:
                os.truncate(path, path.stat().st_size // 2 + 1 if damage == "cut" else 0)
        self.flushed = self.end
        self.reopen(clean=damage == "lost")

    @rule()
    def lose_the_snapshots(self) -> None:
        """Damaged ones are recognised by their checksum, and the log is read instead."""
        if self.log.start_offset == 0:
            self.log.close(sync=False)
            for path in self.folder.glob("*.snapshot"):
                path.write_bytes(path.read_bytes()[:-1] + b"?")
            self.flushed = 0
            self.reopen(clean=False)

    # Invariants

    @invariant()
    def acknowledged_batches_can_be_read(self) -> None:
        assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
        assert read_all(self.log, max_bytes=900) == [batch.content for batch in self.visible()]

    @invariant()
    def producers_are_known(self) -> None:
        expected, _ = replay(self.batches)
        assert self.log.producers.producers == expected.producers
        expected.on_high_watermark(Offset(self.end))
        assert self.log.producers.first_unstable_offset == expected.first_unstable_offset

    @invariant()
    def epochs_are_known(self) -> None:
        # An epoch that starts at the end has no batch: it may stay in the file or not.
        entries = [entry for entry in self.log.epochs.entries if entry.start_offset < self.end]
        assert entries == [
            entry
            for entry in epoch_starts(self.batches, self.start)
            if entry.start_offset < self.end
        ]

    @rule(share=st.floats(0, 1), span=st.integers(1, 30))
    def aborted_transactions_are_listed(self, share: float, span: int) -> None:
        start = self.start + int((self.end - self.start) * share)
        end = start + span
        listed = self.log.aborted_transactions(Offset(start), Offset(end))
        _, aborted = replay(self.batches)
        expected = [a for a in aborted if a.last_offset >= start and a.first_offset < end]
        assert [a[:3] for a in listed] == [a[:3] for a in expected]

    @rule(share=st.floats(0, 1), limit=st.floats(0, 1), max_bytes=st.integers(0, 5_000))
    def every_read_has_whole_batches_within_its_limit(
        self, share: float, limit: float, max_bytes: int
    ) -> None:
        offset = self.start + int((self.end - self.start) * share)
        end = offset + int((self.end - offset) * limit)
        view = self.log.read(Offset(offset), max_bytes=max_bytes, end_offset=Offset(end)).view
        expected = [
            batch
            for batch in self.batches
            if batch.header.end_offset > offset and batch.header.end_offset <= end
        ]
        read = [bytes(view[at : at + h.size_bytes]) for at, h in iterate_headers(view)]
        assert sum(map(len, read)) == len(view)
        assert read == [batch.content for batch in expected[: len(read)]]
        assert bool(read) == bool(expected)
        assert len(view) <= max(max_bytes, len(read[0]) if read else 0)

    @precondition(lambda self: self.end > self.start)
    @rule(ago=st.integers(-50, 2_000))
    def times_can_be_looked_up(self, ago: int) -> None:
        requested = self.clock - ago
        records = [
            record
            for batch in self.visible()
            for record in read_records(batch.content)
            if record.offset >= self.start
        ]
        first = next((r for r in records if r.timestamp >= requested), None)
        read = self.log.offset_by_timestamp(Millis(requested), end_offset=Offset(self.end))
        assert (read and read[:2]) == (first and (first.offset, first.timestamp))

    def teardown(self) -> None:
        self.files.close_all()
        shutil.rmtree(self.root)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
