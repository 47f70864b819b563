"""Records per second of CPU, batches <-> columns, compared with confluent-kafka.

Both start and end with the same data. Opening: stored batches -> Arrow columns (offset, timestamp,
key, value, headers). Building: Arrow columns (key, value) -> batches of 1 MB by Kafka's
partitioner. The peer consumes from, and produces to, librdkafka's mock broker in another process,
so its CPU time is the client's alone; it includes the client's socket work, which Penstock's does
not. The rows named "calling thread" leave out librdkafka's own threads: the most favourable figure
of the peer.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from bench.figures import Figure, report
from penstock.columns.arrow_records import HEADERS_TYPE, records_to_arrow
from penstock.columns.build_batches import build_batches
from penstock.columns.open_batches import open_batches
from penstock.columns.partitioner import Unkeyed
from penstock.model import Millis
from penstock.protocol.batch import read_header, write_leader_fields

VALUE_BYTES = 320
TOPICS = [f"bench-{number}" for number in range(4)]
PARTITIONS = 4  # of a mock topic; each keeps its last 5 MB
RECORDS = 12_000 * len(TOPICS) * PARTITIONS
ROUNDS = 5
ROWS_AT_ONCE = 12_000  # about 4 MB
NOW = Millis(1_700_000_000_000)
UNIT = "records/s per core"


def main() -> None:
    report(measure(), __doc__, peer="confluent-kafka")


def measure() -> Iterator[Figure]:
    """Measure both in each round; the best round of each is the result."""
    records = sample(RECORDS)
    fetched = fetched_batches(records)
    with mock_broker() as address:
        fill(address, records)
        opening, their_opening, their_thread = best(
            lambda: open_all(fetched), lambda: consume_all(address)
        )
        yield Figure("open 320 B", opening, their_opening, UNIT, ">= 3")
        yield Figure("open 320 B, calling thread", opening, their_thread, UNIT)
        building, their_building, their_thread = best(
            lambda: build_all(records), lambda: produce_all(address, records)
        )
        yield Figure("build 320 B", building, their_building, UNIT, ">= 3")
        yield Figure("build 320 B, calling thread", building, their_thread, UNIT)


def best(ours: Callable[[], int], theirs: Callable[[], int]) -> tuple[float, float, float]:
    """Records per CPU second: Penstock, the process of the peer, its calling thread."""
    ours()  # compiled or loaded from the cache; not part of any record's cost
    figures = [(0.0, 0.0, 0.0)]
    for _ in range(ROUNDS):
        mine, _ = rates(ours)
        figures.append((mine, *rates(theirs)))
    mine, process, thread = (max(column) for column in zip(*figures, strict=True))
    return mine, process, thread


def rates(work: Callable[[], int]) -> tuple[float, float]:
    process, thread = time.process_time(), time.thread_time()
    count = work()
    assert count == RECORDS, f"{count} of {RECORDS} records"
    return count / (time.process_time() - process), count / (time.thread_time() - thread)


def sample(count: int) -> pa.RecordBatch:
    """Keys of ten digits; values of 320 bytes that differ."""
    keys = [b"%010d" % number for number in range(count)]
    values = [key * (VALUE_BYTES // len(key)) for key in keys]
    return pa.RecordBatch.from_pydict({"key": keys, "value": values})


def pieces(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(records), ROWS_AT_ONCE):
        yield records.slice(start, ROWS_AT_ONCE)


def fetched_batches(records: pa.RecordBatch) -> list[bytes]:
    """The responses of fetches of one partition: adjacent batches of 1 MB."""
    answers = []
    offset = 0
    for piece in pieces(records):
        built = build_batches(piece, partition_count=1, now=NOW, unkeyed=Unkeyed.sticky(0))
        for batch in built[0].batches:
            length = read_header(batch.content).length
            write_leader_fields(batch.content, 0, offset, length, 0)
            offset += batch.record_count
        answers.append(b"".join(batch.content for batch in built[0].batches))
    return answers


def open_all(fetched: list[bytes]) -> int:
    return sum(records_to_arrow(open_batches(answer)).num_rows for answer in fetched)


def build_all(records: pa.RecordBatch) -> int:
    count = 0
    for piece in pieces(records):
        built = build_batches(piece, partition_count=PARTITIONS, now=NOW, unkeyed=Unkeyed.sticky(0))
        count += sum(batch.record_count for each in built.values() for batch in each.batches)
    return count


def consume_all(address: str) -> int:
    """All records of the mock broker as the same Arrow columns."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 4_000_000,
        }
    )
    consumer.assign(
        [TopicPartition(t, p, OFFSET_BEGINNING) for t in TOPICS for p in range(PARTITIONS)]
    )
    count = 0
    while count < RECORDS and (messages := consumer.consume(ROWS_AT_ONCE, timeout=5)):
        count += columns_of(messages).num_rows
    consumer.close()
    return count


def columns_of(messages: list[Message]) -> pa.RecordBatch:
    pairs: list[Any] = [message.headers() or () for message in messages]
    headers = [[{"key": key, "value": value} for key, value in each] for each in pairs]
    return pa.RecordBatch.from_pydict(
        {
            "offset": pa.array([message.offset() for message in messages], pa.int64()),
            "timestamp": pa.array([message.timestamp()[1] for message in messages], pa.int64()),
            "key": pa.array([message.key() for message in messages], pa.binary()),
            "value": pa.array([message.value() for message in messages], pa.binary()),
            "headers": pa.array(headers, HEADERS_TYPE),
        }
    )


def produce_all(address: str, records: pa.RecordBatch) -> int:
    """Send every row to the first topic; all are acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "partitioner": "murmur2_random",
            "batch.size": 1_000_000,
            "linger.ms": 50,
            "queue.buffering.max.messages": 2 * RECORDS,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    for piece in pieces(records):
        keys, values = piece.column("key").to_pylist(), piece.column("value").to_pylist()
        for key, value in zip(keys, values, strict=True):
            producer.produce(TOPICS[0], value, key)
    left: int = producer.flush(60)
    return len(records) - left


@contextmanager
def mock_broker() -> Iterator[str]:
    """Start librdkafka's mock broker in its own process; its address."""
    spawn = multiprocessing.get_context("spawn")
    ours, its = spawn.Pipe()
    process = spawn.Process(target=serve, args=(its,), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("stop")
        process.join(10)


def serve(connection: Connection) -> None:
    """The other process: runs as long as the producer of the mock cluster."""
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 3})
    brokers = producer.list_topics(timeout=10).brokers
    connection.send(",".join(f"{broker.host}:{broker.port}" for broker in brokers.values()))
    connection.recv()
    producer.purge()


def fill(address: str, records: pa.RecordBatch) -> None:
    """Spread the records evenly over all partitions of all topics."""
    producer = Producer(
        {"bootstrap.servers": address, "linger.ms": 50, "queue.buffering.max.kbytes": 1_000_000}
    )
    places = [(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
    for (topic, partition), piece in zip(places, pieces(records), strict=True):
        keys, values = piece.column("key").to_pylist(), piece.column("value").to_pylist()
        for key, value in zip(keys, values, strict=True):
            producer.produce(topic, value, key, partition=partition)
        producer.flush(60)


if __name__ == "__main__":
    main()
