"""kill -9 while topics come, widen, go and are compacted, and transactions end: what was
acknowledged is there, what was deleted stays deleted, and the next start needs no help."""

import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.errors import ErrorCode
from penstock.protocol.batch import iterate_headers
from penstock.protocol.records import read_records
from penstock.testing.embedded import EmbeddedBroker
from tests.support.wire import Wire, batch

KILLS = 8
SEED = int(os.environ.get("PENSTOCK_SEED", "20"))
KEYS = 20
VALUE_BYTES = 30_000
NONE = ErrorCode.none


class Worker(threading.Thread):
    """Does one kind of work over and over until the broker is gone."""

    def __init__(self, port: int, work: Callable[[Wire], None]) -> None:
        super().__init__()
        self.failure: BaseException | None = None
        self._port = port
        self._work = work

    def run(self) -> None:
        try:
            with Wire(self._port) as wire:
                while True:
                    self._work(wire)
        except (ConnectionError, TimeoutError):
            return  # killed
        except BaseException as failure:  # noqa: BLE001 - raised again by the test
            self.failure = failure


class Topics:
    """Topics made, widened and deleted in turn; `promised` is what was acknowledged last."""

    def __init__(self, chance: random.Random) -> None:
        self.promised: dict[str, int] = {}  # partitions; 0: deleted
        self.doubtful: set[str] = set()  # asked for, not answered
        self._chance = chance
        self._made = 0

    def work(self, wire: Wire) -> None:
        standing = [n for n, count in self.promised.items() if count and n not in self.doubtful]
        choice = self._chance.random()
        if choice < 0.5 or not standing:
            self._made += 1
            self._ask(wire, f"topic-{self._made}", 2, 19)
        elif choice < 0.7:
            name = self._chance.choice(standing)
            self._ask(wire, name, self.promised[name] + 1, 37)
        else:
            self._ask(wire, self._chance.choice(standing), 0, 20)

    def _ask(self, wire: Wire, name: str, partitions: int, api_key: int) -> None:
        self.doubtful.add(name)
        if api_key == 19:
            topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
            (row,) = wire.call(19, 7, topics=[topic], timeout=5000).topics
        elif api_key == 37:
            more = {"name": name, "count": partitions, "assignments": None}
            (row,) = wire.call(37, 3, topics=[more], timeout=5000).results
        else:
            (row,) = wire.call(20, 6, topics=[{"name": name}], timeout=5000).responses
        assert row.error_code == NONE, row
        self.promised[name] = partitions
        self.doubtful.discard(name)

    def check(self, wire: Wire) -> None:
        found = {row.name: len(row.partitions) for row in wire.call(3, 12, topics=None).topics}
        for name, count in self.promised.items():
            if name not in self.doubtful:
                assert found.get(name, 0) == count, name
        for name, count in found.items():
            for index in range(count if name.startswith("topic-") else 0):
                assert wire.produce(name, batch(), partition=index).error_code == NONE
        for name in self.doubtful:  # either way is right; from now on it is known
            self.promised[name] = found.get(name, 0)
        self.doubtful.clear()


class Updates:
    """A compacted topic whose every key counts up; the last acknowledged count must be there."""

    def __init__(self) -> None:
        self.acknowledged: dict[bytes, int] = {}
        self.count = 0

    def work(self, wire: Wire) -> None:
        self.count += 1
        key = b"%d" % (self.count % KEYS)
        value = b"%d" % self.count + bytes(VALUE_BYTES)
        row = wire.produce("compacted", batch((key, value)))
        assert row.error_code == NONE, row
        self.acknowledged[key] = self.count

    def check(self, wire: Wire) -> None:
        found: dict[bytes, int] = {}
        offset, end = 0, wire.fetch("compacted", 0, partition_max_bytes=1).high_watermark
        while offset < end:
            row = wire.fetch("compacted", offset, partition_max_bytes=1 << 20)
            assert row.error_code == NONE
            if not row.records:
                break
            for _, header in iterate_headers(row.records):
                offset = max(offset, header.end_offset)
            found |= dict(_counts(row.records))
        for key, count in self.acknowledged.items():
            assert found.get(key, 0) >= count, key


def _counts(raw: bytes) -> list[tuple[bytes, int]]:
    return [
        (record.key or b"", int((record.value or b"0").rstrip(b"\0")))
        for position, header in iterate_headers(raw)
        if header.record_count
        for record in read_records(raw, position)
    ]


@pytest.mark.slow
@pytest.mark.timeout(900)  # kills and starts on a busy machine
def test_whatever_changed_when_the_broker_was_killed_is_as_it_was_promised() -> None:
    chance = random.Random(SEED)
    topics, updates = Topics(chance), Updates()
    settings = {"log.cleaner.backoff.ms": "10", "log.segment.delete.delay.ms": "50"}
    with EmbeddedBroker(settings=settings) as broker:
        port = int(broker.bootstrap.rpartition(":")[2])
        with Wire(port) as wire:
            _make_compacted(wire)
        for _ in range(KILLS):
            workers = [Worker(port, topics.work), Worker(port, updates.work)]
            for worker in workers:
                worker.start()
            time.sleep(chance.uniform(0.2, 6.0))  # the cleaner needs some to begin
            broker.kill()
            for worker in workers:
                worker.join(30)
                if worker.failure is not None:
                    raise worker.failure
            broker.start()
            with Wire(port) as wire:
                topics.check(wire)
                updates.check(wire)
        _await_compacted(broker, updates.count)
        strange = [p.name for p in broker.folder.rglob("*") if p.suffix in (".tmp", ".cut")]
        assert strange == []


def _await_compacted(broker: EmbeddedBroker, count: int) -> None:
    """What the kills interrupted is done in the end."""
    give_up_at = time.monotonic() + 60
    while _log_bytes(broker.folder) > count * VALUE_BYTES // 2:
        assert time.monotonic() < give_up_at, "the log stays as large as it was"
        time.sleep(0.1)


def _log_bytes(folder: Path) -> int:
    size_bytes = 0
    for path in folder.glob("**/compacted-0/*.log"):
        with suppress(FileNotFoundError):  # compaction has just replaced it
            size_bytes += path.stat().st_size
    return size_bytes


def _make_compacted(wire: Wire) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(1 << 20),
        "min.cleanable.dirty.ratio": "0.01",
    }
    topic = {
        "name": "compacted",
        "num_partitions": 1,
        "replication_factor": 1,
        "configs": [{"name": name, "value": value} for name, value in config.items()],
    }
    assert wire.call(19, 7, topics=[topic], timeout=5000).topics[0].error_code == NONE
