"""Batches that must be opened: how much memory they may use, and that all of it is freed."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.broker.opening import (
    LARGE_AT_A_TIME_MAX,
    LARGE_BUDGET_BYTES,
    SMALL_BATCH_BYTES_MAX,
    SMALL_BUDGET_BYTES,
    Opening,
    memory_to_open,
)
from penstock.errors import ErrorCode, Malformed, Refused
from penstock.model import Millis
from penstock.protocol import batch as v2
from penstock.protocol.compression import Codec, compress
from penstock.protocol.records import build_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.broker.conftest import RunningBroker
    from tests.support.wire import Wire

PACKED = [Codec.GZIP, Codec.LZ4, Codec.ZSTD]  # those that a bomb of less than 1 MB can be made of
MB = 1 << 20
GROWN_MAX = 50 * MB
SETTLES_S = 10.0


def now() -> Millis:
    return Millis(int(time.time() * 1000))


def make_bomb(codec: Codec, *, opened_bytes: int, records: int) -> bytearray:
    """A batch with a valid checksum whose records are all zeros."""
    packed = compress(codec, bytes(opened_bytes))
    header = v2.read_header(build_batch([(b"k", b"v")], timestamp=now()))._replace(
        length=v2.HEADER_BYTES - v2.LOG_OVERHEAD_BYTES + len(packed),
        attributes=codec,
        last_offset_delta=records - 1,
        record_count=records,
    )
    bomb = bytearray(v2.HEADER_BYTES)
    v2.write_header(bomb, 0, header)
    bomb += packed
    v2.seal(bomb)
    return bomb


def resident_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


class Watched:
    """The resident memory of this process, sampled while something runs."""

    def __init__(self) -> None:
        self.before_bytes = self.peak_bytes = resident_bytes()

    def settled_bytes(self) -> int:
        """How much it grew. The thread that opened a batch may free it just after the response."""
        until_s = time.monotonic() + SETTLES_S
        while (grown := resident_bytes() - self.before_bytes) > GROWN_MAX:
            if time.monotonic() > until_s:
                break
            time.sleep(0.01)
        return grown

    @property
    def peak_grown_bytes(self) -> int:
        return self.peak_bytes - self.before_bytes


@contextmanager
def watched_memory() -> Iterator[Watched]:
    """No garbage collection meanwhile: memory in a reference cycle counts as used."""
    gc.collect()
    watched, is_done = Watched(), threading.Event()

    def sample() -> None:
        while not is_done.wait(0.005):
            watched.peak_bytes = max(watched.peak_bytes, resident_bytes())

    sampling = threading.Thread(target=sample)
    gc.disable()
    sampling.start()
    try:
        yield watched
    finally:
        is_done.set()
        sampling.join()
        gc.enable()


@pytest.mark.parametrize("codec", PACKED)
def test_bombs_from_many_clients_take_bounded_memory_and_leave_nothing(
    broker: RunningBroker, codec: Codec
) -> None:
    broker.create_topic("compacted", cleanup_policy="compact")
    broker.create_topic("warm", cleanup_policy="compact")
    with broker.connect() as wire:  # loads the compiled kernels
        many = build_batch([(b"k", b"v")] * 1000, timestamp=now())
        assert wire.produce("warm", many).error_code == ErrorCode.none
    bomb = make_bomb(codec, opened_bytes=100 * MB, records=100_000)

    def attack(_: int) -> list[Any]:
        with broker.connect() as wire:
            return [wire.produce("compacted", bomb).error_code for _ in range(2)]

    with watched_memory() as watched, ThreadPoolExecutor(6) as clients:
        codes = [code for responses in clients.map(attack, range(6)) for code in responses]
        grown_bytes = watched.settled_bytes()
    assert codes == [ErrorCode.invalid_record] * 12
    assert watched.peak_grown_bytes < SMALL_BUDGET_BYTES + LARGE_BUDGET_BYTES
    assert grown_bytes < 2 * GROWN_MAX
    assert broker.call(lambda: broker.broker.opening.borrowed_bytes) == 0


@pytest.mark.parametrize("codec", PACKED)
def test_what_may_be_opened_follows_max_message_bytes(broker: RunningBroker, codec: Codec) -> None:
    broker.create_topic("narrow", cleanup_policy="compact", max_message_bytes="100000")
    broker.create_topic("wide", cleanup_policy="compact", max_message_bytes="1000000")
    below, above = [
        build_batch([(b"k", bytes(size))], timestamp=now(), codec=codec)
        for size in (1_000_000, 3_300_000)
    ]
    with broker.connect() as wire:
        assert wire.produce("narrow", below).error_code == ErrorCode.none
        assert wire.produce("narrow", above).error_code == ErrorCode.invalid_record
        assert wire.produce("wide", above).error_code == ErrorCode.none


def test_a_recompressed_batch_is_bounded_too(broker: RunningBroker) -> None:
    broker.create_topic("t", compression_type="lz4", max_message_bytes="100000")
    with broker.connect() as wire:
        large = build_batch([(b"k", bytes(3_300_000))], timestamp=now(), codec=Codec.ZSTD)
        assert wire.produce("t", large).error_code == ErrorCode.invalid_record
        small = build_batch([(b"k", bytes(1_000_000))], timestamp=now(), codec=Codec.ZSTD)
        assert wire.produce("t", small).error_code == ErrorCode.none


def test_a_bomb_in_a_plain_topic_is_an_error_of_its_partition_for_who_looks_for_a_time(
    broker: RunningBroker, wire: Wire
) -> None:
    broker.create_topic("plain")
    bomb = make_bomb(Codec.ZSTD, opened_bytes=300 * MB, records=100_000)
    assert wire.produce("plain", bomb).error_code == ErrorCode.none
    with watched_memory() as watched:
        requested = {"partition_index": 0, "timestamp": 1}
        topics = [{"name": "plain", "partitions": [requested]}]
        response = wire.call(2, 7, replica_id=-1, isolation_level=0, topics=topics)
        assert response.topics[0].partitions[0].error_code == ErrorCode.corrupt_message
        assert watched.settled_bytes() < GROWN_MAX
    assert wire.produce("plain", build_batch([(b"k", b"v")])).error_code == ErrorCode.none


def test_a_stored_refusal_refers_to_no_frame() -> None:
    def refuse() -> None:
        try:
            raise Malformed("invalid", 3)
        except Malformed as error:
            raise Refused(ErrorCode.invalid_record, "refused") from error

    with pytest.raises(Refused) as caught:
        refuse()
    retained = caught.value.without_frames()
    assert retained is caught.value
    assert [retained.__traceback__, retained.__cause__, retained.__context__] == [None] * 3


def test_more_records_than_fit_are_refused_before_anything_is_opened() -> None:
    batch = make_bomb(Codec.ZSTD, opened_bytes=7_000, records=1_000_000)
    with pytest.raises(Malformed, match="do not fit"):
        memory_to_open(batch, v2.read_header(batch), 32 * MB)


class _Work:
    """Work that lasts until it is released."""

    def __init__(self) -> None:
        self.began, self._may_end = threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.began.set()
        assert self._may_end.wait(20)
        return "done"

    def end(self) -> None:
        self._may_end.set()


async def _began(work: _Work) -> bool:
    """Whether the work has started, after everything that could start has."""
    for _ in range(50):
        if work.began.is_set():
            return True
        await asyncio.sleep(0.002)
    return False


LARGE = LARGE_BUDGET_BYTES * 2 // 3


def test_work_waits_until_the_budget_has_what_it_takes() -> None:
    async def run() -> None:
        opening, first, second = Opening(), _Work(), _Work()
        tasks = [asyncio.create_task(opening.run(LARGE, work)) for work in (first, second)]
        assert await _began(first)
        assert not await _began(second)
        assert opening.borrowed_bytes == LARGE
        first.end()
        assert await _began(second)
        second.end()
        assert await asyncio.gather(*tasks) == ["done", "done"]
        assert opening.borrowed_bytes == 0

    asyncio.run(run())


def test_small_batches_do_not_wait_behind_large_ones() -> None:
    async def run() -> None:
        opening, large, waiting, small = Opening(), _Work(), _Work(), _Work()
        tasks = [asyncio.create_task(opening.run(LARGE, work)) for work in (large, waiting)]
        assert await _began(large)
        tasks.append(asyncio.create_task(opening.run(SMALL_BATCH_BYTES_MAX, small)))
        assert await _began(small)
        assert not waiting.began.is_set()
        for work in (large, waiting, small):
            work.end()
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_large_batches_leave_a_thread_for_small_ones() -> None:
    async def run() -> None:
        opening = Opening()
        large = [_Work() for _ in range(LARGE_AT_A_TIME_MAX + 1)]
        tasks = [
            asyncio.create_task(opening.run(SMALL_BATCH_BYTES_MAX + 1, work)) for work in large
        ]
        assert all([await _began(work) for work in large[:-1]])
        assert not await _began(large[-1])
        assert await opening.run(1, lambda: "small") == "small"
        for work in large:
            work.end()
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_a_batch_that_can_take_more_than_the_budget_is_opened_alone() -> None:
    async def run() -> None:
        opening, huge, other = Opening(), _Work(), _Work()
        tasks = [
            asyncio.create_task(opening.run(size, work))
            for size, work in ((10 * LARGE_BUDGET_BYTES, huge), (SMALL_BATCH_BYTES_MAX + 1, other))
        ]
        assert await _began(huge)
        assert not await _began(other)
        huge.end()
        other.end()
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_a_client_that_leaves_does_not_free_what_its_thread_still_uses() -> None:
    async def run() -> None:
        opening, first, second, third = Opening(), _Work(), _Work(), _Work()
        running, waiting, last = [
            asyncio.create_task(opening.run(LARGE, work)) for work in (first, second, third)
        ]
        assert await _began(first)
        for task in (running, waiting):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert not await _began(third)
        assert opening.borrowed_bytes == LARGE
        first.end()
        assert await _began(third)
        assert not second.began.is_set()
        third.end()
        assert await last == "done"
        assert opening.borrowed_bytes == 0

    asyncio.run(run())
