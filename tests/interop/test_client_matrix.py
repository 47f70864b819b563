"""Each client reads what each other client wrote: plain, keyed, headers, nulls, every codec.

Every writer fills one topic; every reader reads all of them. A record is what all clients agree on:
key, value and headers as bytes or null, in order.
"""

import asyncio
import base64
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition

from penstock.testing.embedded import EmbeddedBroker
from tests.support.apache_kafka import java_command

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MANY = 10_000
JAVA_SOURCE = Path(__file__).parent / "java" / "Bridge.java"
pytestmark = [pytest.mark.interop]


class Row(NamedTuple):
    """One record as every client can give it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


SINGLES = (
    Row(None, b"plain"),
    Row(b"key", b"keyed"),
    Row(b"key", b"with headers", (("a", b"1"), ("a", b"2"), ("empty", b""), ("b", b"\x00\xff"))),
    Row(b"tombstone", None),
    Row(b"", b""),
    Row(None, bytes(range(256))),
)
BATCHES: dict[str, tuple[Row, ...]] = {
    **dict.fromkeys(CODECS, SINGLES),
    "lz4": (*SINGLES, *(Row(f"{i % 100}".encode(), f"{i}".encode() * 3) for i in range(MANY))),
}
WRITTEN = [row for codec in CODECS for row in BATCHES[codec]]
# kcat cannot write headers per record or a null beside an empty value.
KCAT_WRITTEN = [Row(f"{codec}".encode(), b"x" * size) for codec in CODECS for size in (1, 1000)]
Bridge = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap


def write_with_confluent(bootstrap: str, topic: str) -> None:
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20}
        )
        for row in BATCHES[codec]:
            producer.produce(
                topic, row.value, row.key, partition=0, headers=list(row.headers) or None
            )
        assert producer.flush(30) == 0


def write_with_kafka_python(bootstrap: str, topic: str) -> None:
    for codec in CODECS:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
            batch_size=500_000,
        )
        for row in BATCHES[codec]:
            producer.send(topic, row.value, row.key, list(row.headers), partition=0)
        producer.flush(30)
        producer.close()


def write_with_aiokafka(bootstrap: str, topic: str) -> None:
    async def write() -> None:
        for codec in CODECS:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                linger_ms=20,
                max_batch_size=500_000,
            )
            await producer.start()
            rows = BATCHES[codec]
            sent = [
                await producer.send(
                    topic, row.value, row.key, partition=0, headers=list(row.headers)
                )
                for row in rows
            ]
            await asyncio.gather(*sent)
            await producer.stop()

    asyncio.run(write())


def write_with_kcat(bootstrap: str, topic: str) -> None:
    for codec in CODECS:
        rows = [row for row in KCAT_WRITTEN if row.key == codec.encode()]
        lines = "".join(f"{codec}|{(row.value or b'').decode()}\n" for row in rows)
        subprocess.run(
            ["kcat", "-P", "-b", bootstrap, "-t", topic, "-p", "0", "-K|", "-z", codec],
            input=lines,
            text=True,
            check=True,
            timeout=30,
        )


def read_with_confluent(bootstrap: str, topic: str, count: int) -> list[Row]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "matrix"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    rows: list[Row] = []
    while len(rows) < count:
        messages = consumer.consume(min(count - len(rows), 1000), timeout=10)
        assert messages, f"only {len(rows)} of {count} records came"
        for message in messages:
            assert message.error() is None
            headers = pairs_of(message.headers())
            rows.append(Row(message.key(), message.value(), headers))
    consumer.close()
    return rows


def pairs_of(headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Headers as pairs in order: a name may come twice."""
    return tuple((name, value) for name, value in headers or ())


def read_with_kafka_python(bootstrap: str, topic: str, count: int) -> list[Row]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=10_000)
    partition = PythonTopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    rows: list[Row] = []
    for record in consumer:
        rows.append(Row(record.key, record.value, pairs_of(record.headers)))
        if len(rows) == count:
            break
    consumer.close()
    return rows


def read_with_aiokafka(bootstrap: str, topic: str, count: int) -> list[Row]:
    async def read() -> list[Row]:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
        )
        await consumer.start()
        rows: list[Row] = []
        try:
            while len(rows) < count:
                record = await asyncio.wait_for(consumer.getone(), 10)
                rows.append(Row(record.key, record.value, pairs_of(record.headers)))
        finally:
            await consumer.stop()
        return rows

    return asyncio.run(read())


def read_with_kcat(bootstrap: str, topic: str, count: int) -> list[Row]:
    """Lengths in front of the bytes tell null (-1) from empty (0); headers are not binary safe."""
    command = ["kcat", "-C", "-b", bootstrap, "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q"]
    done = subprocess.run(
        [*command, "-f", "%K,%S,%k%s"], capture_output=True, check=True, timeout=60
    )
    said, position, rows = done.stdout, 0, []
    while position < len(said):
        key_size, value_size, _ = said[position:].split(b",", 2)
        position += len(key_size) + len(value_size) + 2
        parts: list[bytes | None] = []
        for size in (int(key_size), int(value_size)):
            parts.append(None if size < 0 else said[position : position + size])
            position += max(size, 0)
        rows.append(Row(parts[0], parts[1]))
    assert len(rows) == count
    return rows


WRITERS = {
    "confluent": write_with_confluent,
    "kafka_python": write_with_kafka_python,
    "aiokafka": write_with_aiokafka,
    "kcat": write_with_kcat,
}
READERS = {
    "confluent": read_with_confluent,
    "kafka_python": read_with_kafka_python,
    "aiokafka": read_with_aiokafka,
    "kcat": read_with_kcat,
}


def expected(writer: str) -> list[Row]:
    return KCAT_WRITTEN if writer == "kcat" else WRITTEN


def needs(client: str) -> None:
    if client == "kcat" and shutil.which("kcat") is None:
        pytest.skip("kcat is not installed (make tools)")


@pytest.fixture(scope="module")
def written(bootstrap: str) -> Callable[[str], str]:
    """The topic that a writer filled, filled when first asked for."""
    topics: dict[str, str] = {}

    def fill(writer: str) -> str:
        if writer not in topics:
            WRITERS[writer](bootstrap, f"by-{writer}")
            topics[writer] = f"by-{writer}"
        return topics[writer]

    return fill


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("writer", WRITERS)
def test_one_client_reads_what_another_wrote(
    bootstrap: str, written: Callable[[str], str], writer: str, reader: str
) -> None:
    needs(writer)
    needs(reader)
    rows = READERS[reader](bootstrap, written(writer), len(expected(writer)))
    wanted = expected(writer)
    if reader == "kcat":
        wanted = [row._replace(headers=()) for row in wanted]
    assert rows == wanted


def encoded(raw: bytes | None) -> str:
    return "-" if raw is None else base64.b64encode(raw).decode()


def decoded(text: str) -> bytes | None:
    return None if text == "-" else base64.b64decode(text)


def as_line(codec: str, row: Row) -> str:
    headers = ",".join(f"{name}={encoded(value)}" for name, value in row.headers)
    return f"{codec}\t{encoded(row.key)}\t{encoded(row.value)}\t{headers}\n"


def as_row(line: str) -> Row:
    _, key, value, headers = line.split("\t")
    pairs = (pair.partition("=") for pair in headers.split(",") if pair)
    return Row(decoded(key), decoded(value), tuple((name, decoded(v)) for name, _, v in pairs))


@pytest.fixture(scope="module")
def bridge(bootstrap: str, kafka_libs: Path) -> Bridge:
    def call(what: str, *arguments: str, lines: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            java_command(kafka_libs, str(JAVA_SOURCE), what, bootstrap, *arguments),
            input=lines,
            stdout=subprocess.PIPE,
            text=True,
            timeout=90,
            check=True,
        )

    return call


def test_java_reads_what_the_others_wrote(written: Callable[[str], str], bridge: Bridge) -> None:
    writers = [writer for writer in WRITERS if writer != "kcat" or shutil.which("kcat")]
    wanted = {written(writer): expected(writer) for writer in writers}
    done = bridge("consume", *(f"{topic}:{len(rows)}" for topic, rows in wanted.items()))
    read: dict[str, list[Row]] = {topic: [] for topic in wanted}
    for line in done.stdout.splitlines():
        read[line.partition("\t")[0]].append(as_row(line))
    assert read == wanted


def test_the_others_read_what_java_wrote(bootstrap: str, bridge: Bridge) -> None:
    lines = "".join(as_line(codec, row) for codec in CODECS for row in BATCHES[codec])
    bridge("produce", "by-java", lines=lines)
    for name, read in READERS.items():
        if name != "kcat":
            assert read(bootstrap, "by-java", len(WRITTEN)) == WRITTEN, name
