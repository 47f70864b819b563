"""Two replicas of a partition that take turns as leader, beside a model that is two lists.

Elections are unclean: any replica may lead, whatever it lacks, so histories diverge all the time. A
follower finds the common history by leader epochs, and must then hold exactly the leader's batches.
"""

import shutil
import tempfile
from pathlib import Path
from uuid import UUID

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.log import LogDirectory, OpenFiles, PartitionLog
from penstock.log.truncation import Truncation
from penstock.model import NO_EPOCH, LeaderEpoch, Millis, Offset, TopicId, TopicPartition
from penstock.protocol.records import build_batch
from tests.support.appending import append_batch, replicate
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

ORDERS = TopicPartition("orders", 0)
REPLICAS = st.integers(0, 1)
ROUNDS_MAX = 50
MAPPED_BYTES = 140_000  # more than is copied: a view of the page cache


class Replica:
    """One broker's log of the partition, and the list of batches that it must hold."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.batches: list[StoredBatch] = []  # since the log was last empty; also deleted ones
        self.start = 0
        self.views: list[tuple[memoryview, bytes]] = []

    def open(self, segment_bytes: int) -> None:
        self.segment_bytes = segment_bytes
        self.views.clear()  # a new process has none
        self.folder = LogDirectory.open(self.path, OpenFiles(4))
        self.log: PartitionLog = self.folder.open_partition(
            ORDERS,
            default_log_settings(
                segment_bytes=segment_bytes,
                index_interval_bytes=300,
                file_delete_delay_ms=Millis(0),
            ),
            topic_id=TopicId(UUID(int=5)),
            now=Millis(0),
        )
        self.folder.started()

    def restart(self, *, is_killed: bool) -> None:
        if is_killed:
            self.folder.release()
            self.folder.files.close_all()
        else:
            self.folder.close()
        self.open(self.segment_bytes)

    @property
    def end(self) -> int:
        return self.batches[-1].header.end_offset if self.batches else self.start

    @property
    def last_epoch(self) -> LeaderEpoch:
        """The epoch of the last batch, as a follower's fetch reports it."""
        if self.log.end_offset == self.log.start_offset:
            return NO_EPOCH
        return self.log.epochs.epoch_at(Offset(self.log.end_offset - 1))

    def visible(self) -> list[StoredBatch]:
        return [batch for batch in self.batches if batch.header.end_offset > self.start]

    def cut(self, offset: int, *, is_reset: bool) -> None:
        """What a truncation does to the list."""
        if is_reset:
            self.batches, self.start = [], offset
        self.batches = [batch for batch in self.batches if batch.header.end_offset <= offset]

    def check(self) -> None:
        log = self.log
        assert (log.start_offset, log.end_offset) == (self.start, self.end)
        assert log.start_offset <= log.last_stable_offset <= log.high_watermark <= log.end_offset
        assert log.recovery_point <= log.end_offset
        assert read_all(log, max_bytes=900) == [batch.content for batch in self.visible()]
        table, aborted = replay(self.batches)
        assert log.producers.producers == table.producers
        listed = log.aborted_transactions(Offset(self.start), Offset(self.end))
        assert {each[:3] for each in listed} == {
            each[:3] for each in aborted if each.last_offset >= self.start
        }
        # An epoch that starts at the end has no batch yet. After a kill the log may start earlier
        # than its first epoch.
        known = [entry for entry in log.epochs.entries if entry.start_offset < self.end]
        start = max(self.start, known[0].start_offset if known else self.start)
        expected = epoch_starts(self.batches, start)
        assert known == [entry for entry in expected if entry.start_offset < self.end]
        assert all(bytes(view) == content for view, content in self.views)


class PairMachine(RuleBasedStateMachine):
    """A leader that writes, and a follower that copies it."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="penstock-pair-"))
        self.replicas = [Replica(self.root / name) for name in ("a", "b")]
        self.leading = 0
        self.epoch = 0
        self.clock = 1_000

    @initialize(segment_bytes=st.sampled_from([600, 3_000, 400_000]))
    def begin(self, segment_bytes: int) -> None:
        for replica in self.replicas:
            replica.open(segment_bytes)
        self.leader.log.start_epoch(LeaderEpoch(self.epoch))

    @property
    def leader(self) -> Replica:
        return self.replicas[self.leading]

    @property
    def follower(self) -> Replica:
        return self.replicas[1 - self.leading]

    # The leader

    def append(self, content: bytearray, *, is_marker: bool = False) -> None:
        self.clock += 10
        append_batch(
            self.leader.log,
            content,
            leader_epoch=LeaderEpoch(self.epoch),
            now=Millis(self.clock),
            origin="marker" if is_marker else "client",
        )
        self.leader.batches.append(stored(content))
        self.leader.log.set_high_watermark(self.leader.log.end_offset)

    @rule(records=st.integers(1, 5), size=st.sampled_from([0, 90, 300]))
    def produce(self, records: int, size: int) -> None:
        values = [(b"k", bytes(size))] * records
        self.append(build_batch(values, timestamp=Millis(self.clock)))

    @rule(producer=st.integers(1, 2), records=st.integers(1, 3), transactional=st.booleans())
    def produce_in_sequence(self, producer: int, records: int, transactional: bool) -> None:
        known = known_producer(self.leader.batches, producer)
        batch = next_batch(
            known,
            records,
            raises_epoch=False,
            timestamp=self.clock,
            transactional=transactional or is_open(known),
        )
        self.append(batch)

    @rule(producer=st.integers(1, 2), commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        known = known_producer(self.leader.batches, producer)
        if known.producer_epoch >= 0:
            self.append(end_marker(known, commit=commit, timestamp=self.clock), is_marker=True)

    @precondition(lambda self: len(self.leader.batches) < 5)
    @rule()
    def produce_much(self) -> None:
        for _ in range(4):
            self.append(build_batch([(b"k", bytes(MAPPED_BYTES))], timestamp=Millis(self.clock)))

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        replica = self.leader
        replica.start += int((replica.end - replica.start) * share)
        replica.log.advance_start_offset(Offset(replica.start), Millis(self.clock))

    @rule(number=REPLICAS)
    def elect(self, number: int) -> None:
        self.epoch += 1
        self.leading = number
        self.leader.log.start_epoch(LeaderEpoch(self.epoch))
        self.leader.log.set_high_watermark(self.leader.log.end_offset)
        assert self.leader.log.epochs.end_offset_for(
            LeaderEpoch(self.epoch), self.leader.log.end_offset
        ) == (self.epoch, self.leader.log.end_offset)

    @rule(first=st.integers(1, 4), second=st.integers(1, 4))
    def diverge(self, first: int, second: int) -> None:
        """Both write where the other one has not been."""
        for count in (first, second):
            self.elect(1 - self.leading)
            for number in range(count):
                self.produce_in_sequence(1, number + 1, transactional=True)

    # The follower

    def truncate(self, truncation: Truncation | None, *, killed_after: str = "") -> None:
        """With a kill after a step of it, the follower finds out again from the start."""
        follower = self.follower
        if truncation is None or killed_after == "plan":
            return
        truncation.run()
        if killed_after != "run":
            assert follower.log.finish_truncation(truncation, Millis(self.clock))
            follower.cut(truncation.end_offset, is_reset=truncation.cut is None)

    def fetch(self, max_bytes: int, *, killed_after: str = "") -> bool:
        """One fetch; whether the follower's log has changed or must be looked at again."""
        leader, follower = self.leader.log, self.follower.log
        offset, last_epoch = follower.end_offset, self.follower.last_epoch
        if last_epoch != NO_EPOCH and leader.start_offset <= offset <= leader.end_offset:
            end = leader.epochs.end_offset_for(last_epoch, leader.end_offset)
            if end.epoch != NO_EPOCH and (end.epoch < last_epoch or end.end_offset < offset):
                own = follower.epochs.end_offset_for(end.epoch, offset)
                target = (
                    min(own.end_offset, end.end_offset)
                    if own.epoch == end.epoch
                    else (own.end_offset if own.epoch >= 0 else end.end_offset)
                )
                truncation = follower.plan_truncation(min(target, offset))
                self.truncate(truncation, killed_after=killed_after)
                return True
        if offset > leader.end_offset:
            truncation = follower.plan_truncation(leader.end_offset)
            self.truncate(truncation, killed_after=killed_after)
            return True
        if follower.is_before(leader.start_offset):
            truncation = follower.plan_reset(leader.start_offset)
            self.truncate(truncation, killed_after=killed_after)
            return True
        view = leader.read(offset, max_bytes=max_bytes).view
        replicate(follower, view, leader_epoch=self.epoch)
        missing = [b for b in self.leader.batches if b.header.end_offset > offset]
        sent = bytes(view)
        while sent:
            self.follower.batches.append(missing.pop(0))
            sent = sent[self.follower.batches[-1].header.size_bytes :]
        return len(view) > 0

    @rule(max_bytes=st.sampled_from([1, 500, 1 << 20]))
    def fetch_once(self, max_bytes: int) -> None:
        self.fetch(max_bytes)
        self.follow_offsets()

    @rule()
    def catch_up(self) -> None:
        rounds = 0
        while self.fetch(1 << 20):
            rounds += 1
            assert rounds < ROUNDS_MAX, "the two histories never meet"
        self.follow_offsets()
        leader = {b.base_offset: b.content for b in self.leader.visible()}
        follower = {b.base_offset: b.content for b in self.follower.visible()}
        assert follower.items() <= leader.items()
        assert self.follower.end == self.leader.end

    def follow_offsets(self) -> None:
        """The leader's high watermark and log start, wherever they are."""
        leader, follower = self.leader.log, self.follower.log
        follower.set_high_watermark(leader.high_watermark)
        if self.follower.start < leader.start_offset <= follower.high_watermark:
            follower.advance_start_offset(leader.start_offset, Millis(self.clock))
            self.follower.start = leader.start_offset

    @rule(step=st.sampled_from(["plan", "run"]))
    def die_while_truncating(self, step: str) -> None:
        self.fetch(1, killed_after=step)
        self.follower.restart(is_killed=True)
        # Without a checkpoint a log starts with its first segment again.
        assert self.follower.log.start_offset <= self.follower.start
        self.follower.start = self.follower.log.start_offset

    # Both

    @rule(number=REPLICAS, is_killed=st.booleans())
    def restart(self, number: int, is_killed: bool) -> None:
        replica = self.replicas[number]
        replica.folder.plan_checkpoint().run()
        replica.restart(is_killed=is_killed)
        if number == self.leading:
            replica.log.start_epoch(LeaderEpoch(self.epoch))
            replica.log.set_high_watermark(replica.log.end_offset)

    @rule(number=REPLICAS)
    def flush(self, number: int) -> None:
        log = self.replicas[number].log
        assert log.flush() == log.end_offset

    @rule(number=REPLICAS)
    def roll(self, number: int) -> None:
        self.replicas[number].log.roll(Millis(self.clock))

    @rule(number=REPLICAS, share=st.floats(0, 1))
    def read(self, number: int, share: float) -> None:
        """A slow reader keeps what it was given."""
        replica = self.replicas[number]
        offset = replica.start + int((replica.end - replica.start) * share)
        view = replica.log.read(Offset(offset), max_bytes=1 << 20).view
        replica.views.append((view, bytes(view)))
        del view
        del replica.views[:-3]

    @invariant()
    def every_log_holds_its_list(self) -> None:
        for replica in self.replicas:
            if hasattr(replica, "log"):
                replica.check()

    def teardown(self) -> None:
        for replica in self.replicas:
            replica.views.clear()
            if hasattr(replica, "folder"):
                replica.folder.release()
                replica.folder.files.close_all()
        shutil.rmtree(self.root)


TestPairMachine = PairMachine.TestCase
TestPairMachine.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
