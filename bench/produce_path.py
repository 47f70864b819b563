"""CPU time of the broker for one request: from its bytes to the response, without a socket.

Request bytes are passed to a connection with a substitute for its transport, as if they came in one
read. So the figures include neither a client nor the network: only the CPU time of this process, in
the best of several rounds. The peer is the minimum that any broker must do with the same bytes: a
checksum and a write for a produce, a read for a fetch.
"""

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvloop
from crc32c import crc32c

from bench.figures import Figure, report
from penstock.broker.group_coordinators import OFFSETS_TOPIC
from penstock.broker.handler import result_of
from penstock.broker.leadership import Leadership
from penstock.broker.new_topics import new_topic_id
from penstock.coordination.controller.commands import CreateTopics, NewTopic
from penstock.log import PartitionLog
from penstock.model import LeaderEpoch, Millis, NodeId
from penstock.node.data_folder import open_folder
from penstock.node.run_broker import RunningBroker
from penstock.node.settings import node_settings
from penstock.protocol.batch import CRC_FROM
from penstock.protocol.records import build_batch
from tests.support.socketless import SocketlessConnection
from tests.support.wire import frame

PRODUCE, PRODUCE_VERSION = 0, 10  # what librdkafka sends
FETCH, FETCH_VERSION = 1, 16
COMMIT, COMMIT_VERSION = 8, 9
FIND_COORDINATOR, FIND_VERSION = 10, 4
TOPIC = "bench"
LOG_APPEND_TIME_TOPIC = "bench-log-append-time"
REPLICATED_TOPIC = "bench-replicated"
FOLLOWER = NodeId(2)
GROUP = "bench"
PARTITIONS = 4
ROUNDS = 15  # the best is the result: noise only adds
READ_BYTES = 128 << 10  # one read of a busy connection
ROUND_BYTES_MAX = 16 << 20


def produce_frame(batch: bytes | bytearray, partition: int = 0, topic: str = TOPIC) -> bytes:
    """A produce request for one partition, as librdkafka sends it."""
    partitions = [{"index": partition, "records": bytes(batch)}]
    return frame(
        7,
        PRODUCE,
        PRODUCE_VERSION,
        client_id="rdkafka",
        transactional_id=None,
        acks=-1,
        timeout=30_000,
        topic_data=[{"name": topic, "partition_data": partitions}],
    )


def fetch_frame(topic_id: Any, offset: int, max_bytes: int, wait_ms: int = 0) -> bytes:
    """A fetch without a session, as librdkafka sends it; all partitions except the first are empty.

    The isolation level is read_committed, its default.
    """
    partitions = [
        {
            "partition": index,
            "fetch_offset": offset if index == 0 else 0,
            "current_leader_epoch": 0,
            "partition_max_bytes": max_bytes,
        }
        for index in range(PARTITIONS)
    ]
    return frame(
        7,
        FETCH,
        FETCH_VERSION,
        client_id="rdkafka",
        max_wait=wait_ms,
        min_bytes=1,
        max_bytes=52_428_800,
        isolation_level=1,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic_id": topic_id, "partitions": partitions}],
    )


def a_batch(records: int, size: int, **fields: Any) -> bytearray:
    return build_batch([(None, os.urandom(size))] * records, timestamp=_now(), **fields)


def _now() -> Millis:
    return Millis(int(time.time() * 1000))


def best_us(work: Callable[[], None], count: int) -> float:
    """CPU microseconds per request, in the best round of `count` requests."""
    spent = []
    for _ in range(ROUNDS):
        before = time.process_time()
        work()
        spent.append(time.process_time() - before)
    return min(spent) / count * 1e6


async def measure_produce(
    running: RunningBroker, name: str, batch: bytearray, topic: str = TOPIC
) -> Figure:
    """Produce requests, as many per read as fit."""
    line = SocketlessConnection(running.server)
    request = produce_frame(batch, topic=topic)
    per_read = max(1, min(READ_BYTES // len(request), 100))
    reads = max(1, min(2000, ROUND_BYTES_MAX // len(request)) // per_read)
    arriving = request * per_read

    spent = []
    for _ in range(ROUNDS):
        before = time.process_time()
        for _ in range(reads):
            line.receive(arriving)
            await line.drain()
        spent.append(time.process_time() - before)
    ours = min(spent) / (reads * per_read) * 1e6
    end_offset = running.partitions.topics[topic].partitions[0].log.end_offset
    assert end_offset >= reads * per_read * ROUNDS, "not everything was appended"
    return Figure(name, ours, floor_us(running, batch, reads * per_read), "us CPU")


async def measure_replicated(running: RunningBroker, name: str, batch: bytearray) -> Figure:
    """Produce requests whose responses wait until a follower has fetched the batch."""
    partition = running.partitions.topics[REPLICATED_TOPIC].partitions[0]
    leader, replicas = partition.node_id, (partition.node_id, FOLLOWER)
    partition.lead(Leadership(leader, LeaderEpoch(0), replicas, replicas))
    line = SocketlessConnection(running.server)
    request = produce_frame(batch, topic=REPLICATED_TOPIC)
    count = 1000
    spent = []
    for _ in range(ROUNDS):
        before = time.process_time()
        for _ in range(count):
            sent_bytes = line.transport.sent_bytes
            line.receive(request)
            await line.drain()
            assert line.transport.sent_bytes == sent_bytes, "it waits for the follower"
            partition.on_replica_fetch(FOLLOWER, partition.log.end_offset)
            while line.transport.sent_bytes == sent_bytes:  # noqa: ASYNC110 - it may take a turn
                await asyncio.sleep(0)
        spent.append(time.process_time() - before)
    return Figure(name, min(spent) / count * 1e6, floor_us(running, batch, count), "us CPU")


async def measure_commit(running: RunningBroker, name: str) -> Figure:
    """Offset commits of a group without members."""
    line = SocketlessConnection(running.server)
    rows = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]
    topics = [{"name": TOPIC, "partitions": rows}]
    fields: dict[str, Any] = {"group_id": GROUP, "member_id": "", "topics": topics}
    request = frame(7, COMMIT, COMMIT_VERSION, client_id="rdkafka", **fields)
    keys = {"key_type": 0, "coordinator_keys": [GROUP]}
    line.receive(frame(7, FIND_COORDINATOR, FIND_VERSION, client_id="rdkafka", **keys))
    log = await _offsets_log(running, line, request)
    stored = bytearray(log.read(log.start_offset, max_bytes=1).view)
    count = 1000
    start_offset = log.end_offset
    spent = []
    for _ in range(ROUNDS):
        before = time.process_time()
        for _ in range(count):
            line.receive(request)
            await line.drain()
        spent.append(time.process_time() - before)
    assert log.end_offset == start_offset + count * ROUNDS, "not everything was committed"
    return Figure(name, min(spent) / count * 1e6, floor_us(running, stored, count), "us CPU")


async def _offsets_log(
    running: RunningBroker, line: SocketlessConnection, request: bytes
) -> PartitionLog:
    """The log of the group's partition, once its coordinator accepts commits."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        line.receive(request)
        await asyncio.sleep(0.02)
        topic = running.partitions.topics.get(OFFSETS_TOPIC)
        for partition in () if topic is None else topic.partitions.values():
            if partition.log.end_offset > 0:
                return partition.log
    raise TimeoutError("no offset was committed")


def floor_us(running: RunningBroker, batch: bytearray, count: int) -> float:
    """The checksum and the write only."""
    path = running.folder.path / "floor"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    view = memoryview(batch)

    def work() -> None:
        os.ftruncate(descriptor, 0)
        for index in range(count):
            crc32c(view[CRC_FROM:])
            os.pwrite(descriptor, batch, index * len(batch))

    try:
        return best_us(work, count)
    finally:
        os.close(descriptor)
        path.unlink()


async def measure_woken(running: RunningBroker, name: str) -> Figure:
    """A fetch that waits, the produce that wakes it, and the response: one message end to end."""
    writer, reader = SocketlessConnection(running.server), SocketlessConnection(running.server)
    batch = a_batch(1, 100)
    request = produce_frame(batch)
    topic = running.partitions.topics[TOPIC]
    log = topic.partitions[0].log
    count = 1000
    spent = []
    for _ in range(ROUNDS):
        fetches = [
            fetch_frame(topic.topic_id, log.end_offset + index, 1 << 20, 500)
            for index in range(count)
        ]
        before = time.process_time()
        for fetch in fetches:
            sent_bytes = reader.transport.sent_bytes
            reader.receive(fetch)
            writer.receive(request)
            while reader.transport.sent_bytes == sent_bytes:  # noqa: ASYNC110 - it takes a turn
                await asyncio.sleep(0)
        spent.append(time.process_time() - before)
    return Figure(name, min(spent) / count * 1e6, floor_us(running, batch, count), "us CPU")


def measure_fetch(running: RunningBroker, name: str, max_bytes: int) -> Figure:
    """Fetch batches that exist."""
    line = SocketlessConnection(running.server)
    topic = running.partitions.topics[TOPIC]
    log = topic.partitions[0].log
    request = fetch_frame(topic.topic_id, log.start_offset, max_bytes)
    count = 1000

    def work() -> None:
        for _ in range(count):
            line.receive(request)

    ours = best_us(work, count)
    view = log.read(log.start_offset, max_bytes=max_bytes).view
    with Path(log.segments[0].log.path).open("rb", buffering=0) as file:

        def read_alone() -> None:
            for _ in range(count):
                os.pread(file.fileno(), len(view), 0)

        return Figure(name, ours, best_us(read_alone, count), "us CPU")


async def start_broker(folder: Path) -> RunningBroker:
    """A broker in this process."""
    settings = node_settings(folder=folder, kafka_port=0, quick=True)
    running = RunningBroker(settings, *open_folder(settings))
    await running.start()
    return running


async def create_topic(running: RunningBroker, name: str, partitions: int, **configs: str) -> None:
    pairs = tuple((key.replace("_", "."), value) for key, value in configs.items())
    topic = NewTopic(name, new_topic_id(), partitions, 1, (), pairs)
    await result_of(running.controller.submit(lambda caller: CreateTopics(caller, (topic,))))
    await running.follower.idle()  # the partitions are open


async def measure_all(folder: Path) -> list[Figure]:
    running = await start_broker(folder)
    try:
        await create_topic(running, TOPIC, PARTITIONS)
        log_append_time = {"message_timestamp_type": "LogAppendTime"}
        await create_topic(running, LOG_APPEND_TIME_TOPIC, 1, **log_append_time)
        await create_topic(running, REPLICATED_TOPIC, 1, min_insync_replicas="2")
        return [
            await measure_produce(running, "produce 1 message of 100 B", a_batch(1, 100)),
            await measure_produce(running, "produce 16 messages of 1 000 B", a_batch(16, 1000)),
            await measure_produce(
                running, "produce 1 000 messages of 1 000 B", a_batch(1000, 1000)
            ),
            await measure_produce(
                running,
                "produce 1 message of 100 B, LogAppendTime",
                a_batch(1, 100),
                LOG_APPEND_TIME_TOPIC,
            ),
            await measure_replicated(
                running, "produce 1 message of 100 B, acks=all with a follower", a_batch(1, 100)
            ),
            await measure_commit(running, "commit 1 offset"),
            measure_fetch(running, "fetch 16 kB", 16_384),
            measure_fetch(running, "fetch 1 MB", 1_000_000),
            await measure_woken(running, "fetch that waits, and the message it waits for"),
        ]
    finally:
        await running.stop()


def measure() -> Iterator[Figure]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            yield from runner.run(measure_all(folder))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    report(measure(), __doc__, peer="checksum, write and read alone")
