"""The link: a partition read completely and batches written, compared with confluent-kafka.

Both use the same broker. The link reads batches as bytes, with every CRC checked, and writes
prepared batches; confluent-kafka has one Python object per record, which a Python program would use
instead. CPU is that of this process.
"""

import time
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

from bench.figures import Figure, report
from bench.peers import make_topic, penstock
from penstock.link import blocking
from penstock.link.fetch_range import FetchSettings, fetch_range
from penstock.link.offsets import end_offsets
from penstock.link.send_batches import send_batches
from penstock.link.transactions import TransactionHandle, init_producer_id
from penstock.model import Millis, Offset, SequenceNumber, TopicPartition
from penstock.protocol.records import build_batch

RECORDS, VALUE_BYTES, BATCH_RECORDS = 1_000_000, 200, 2_000
OURS, THEIRS = TopicPartition("ours", 0), TopicPartition("theirs", 0)


def measure() -> Iterator[Figure]:
    """Write with both, then read with both what the link wrote."""
    with penstock() as broker:
        for place in (OURS, THEIRS):
            make_topic(broker.bootstrap, place.topic, partitions=1)
        with blocking.BlockingCluster(broker.bootstrap) as cluster:
            batches = prepared(cluster.run(init_producer_id()))
            wrote = timed(lambda: len(cluster.run(send_batches({OURS: batches}))[OURS]))
        yield from figures("write", wrote, timed(lambda: write_by_client(broker.bootstrap)))
        read = timed(lambda: read_by_link(broker.bootstrap))
        yield from figures("read", read, timed(lambda: read_by_client(broker.bootstrap)))
        yield Figure("read", read[2] / read[0] / 1e9, None, "GB/s")


def figures(
    name: str, ours: tuple[float, float, int], theirs: tuple[float, float, int]
) -> Iterator[Figure]:
    """Rate and CPU of both."""
    yield Figure(name, RECORDS / ours[0], RECORDS / theirs[0], "records/s", ">= 2")
    costs = (1e6 * cpu / RECORDS for _, cpu, _ in (ours, theirs))
    yield Figure(f"{name}: CPU", next(costs), next(costs), "us/record", "<= 0.5")


def timed(work: Callable[[], int]) -> tuple[float, float, int]:
    """Seconds, CPU seconds, and the result."""
    wall, cpu = time.perf_counter(), time.process_time()
    count = work()
    return time.perf_counter() - wall, time.process_time() - cpu, count


def read_by_link(bootstrap: str) -> int:
    with blocking.BlockingCluster(bootstrap) as cluster:
        end = cluster.run(end_offsets([OURS]))[OURS]
        settings = FetchSettings(checks_crc=True)
        return sum(
            len(chunk.records)
            for chunk in cluster.stream(fetch_range(OURS, Offset(0), end, settings=settings))
        )


def read_by_client(bootstrap: str) -> int:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    )
    consumer.assign([ClientPartition(*OURS, 0)])
    size = seen = 0
    while seen < RECORDS:
        for message in consumer.consume(10_000, 1.0):
            size += len(message.value() or b"")
            seen += 1
    consumer.close()
    return size


def prepared(handle: TransactionHandle) -> list[bytes]:
    now = Millis(int(time.time() * 1000))
    return [
        bytes(
            build_batch(
                [(None, b"x" * VALUE_BYTES)] * BATCH_RECORDS,
                producer_id=handle.producer_id,
                producer_epoch=handle.producer_epoch,
                base_sequence=SequenceNumber(first),
                timestamp=now,
            )
        )
        for first in range(0, RECORDS, BATCH_RECORDS)
    ]


def write_by_client(bootstrap: str) -> int:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "batch.num.messages": BATCH_RECORDS,
            "queue.buffering.max.messages": 1_000_000,
            "linger.ms": 5,
        }
    )
    value = b"x" * VALUE_BYTES
    for number in range(RECORDS):
        producer.produce(THEIRS.topic, value, partition=0)
        if number % BATCH_RECORDS == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    return RECORDS


if __name__ == "__main__":
    report(measure(), __doc__, peer="confluent-kafka")
