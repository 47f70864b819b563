"""Transactions of 100 records of 1 kB: rate and server CPU, compared with Apache Kafka.

librdkafka adds partitions itself and ends with the same epoch (version 1 of the protocol); the Java
client lets the broker do both (version 2). One server runs at a time; both are warmed up first.
"""

import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from bench.figures import Figure, report
from bench.peers import PeerUnavailableError, Server, apache_kafka, cost_of, make_topic, penstock
from tests.support.apache_kafka import VERSION, fetch_libraries

TOPIC: Final = "transactions"
PARTITIONS: Final = 8
RECORDS: Final = 100
VALUE: Final = b"v" * 1000
WARM_UP: Final = 100
JAVA_LOAD: Final = Path(__file__).parent / "java" / "TransactionLoad.java"


@dataclass(frozen=True, slots=True)
class Load:
    """Concurrent producers, each with its own transactional id."""

    name: str
    client: str
    producers: int
    transactions: int  # of each producer


LOADS: Final = (
    Load("librdkafka, 1 producer", "librdkafka", 1, 1500),
    Load("librdkafka, 8 producers", "librdkafka", 8, 400),
    Load("Java, 1 producer", "java", 1, 3000),
    Load("Java, 8 producers", "java", 8, 1000),
)


@dataclass(frozen=True, slots=True)
class Run:
    """The results of one server under one load."""

    per_second: float
    cpu_ms_per_transaction: float


def measure() -> Iterator[Figure]:
    """Measure both servers, one after the other, then compare."""
    ours = measure_server(penstock())
    try:
        theirs = measure_server(apache_kafka())
    except PeerUnavailableError as reason:
        for load in LOADS:
            rate = ours[load.name].per_second
            yield Figure(load.name, rate, None, "transactions/s", note=str(reason))
        return
    for load in LOADS:
        mine, peer = ours[load.name], theirs[load.name]
        yield Figure(load.name, mine.per_second, peer.per_second, "transactions/s", ">= 1.0")
        yield Figure(
            f"{load.name}: server CPU",
            mine.cpu_ms_per_transaction,
            peer.cpu_ms_per_transaction,
            "ms/transaction",
        )


def measure_server(server: Server) -> dict[str, Run]:
    """Every load on one server."""
    with server, tempfile.TemporaryDirectory() as folder:
        make_topic(server.bootstrap, TOPIC, partitions=PARTITIONS)
        classes = compiled_java(Path(folder))
        runs = {}
        for load in LOADS:
            drive(server.bootstrap, load, WARM_UP, classes)
            with cost_of(server.pid) as cost:
                seconds = drive(server.bootstrap, load, load.transactions, classes)
            count = load.producers * load.transactions
            runs[load.name] = Run(count / seconds, 1000 * cost.cpu_seconds / count)
        return runs


def drive(bootstrap: str, load: Load, transactions: int, classes: str) -> float:
    """Run all producers; the seconds from the first begin to the last commit."""
    if load.client == "java":
        return drive_java(bootstrap, load, transactions, classes)
    gate = threading.Barrier(load.producers + 1)
    threads = [
        threading.Thread(
            target=commit_many, args=(bootstrap, f"bench-{number}", transactions, gate)
        )
        for number in range(load.producers)
    ]
    for thread in threads:
        thread.start()
    gate.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def commit_many(
    bootstrap: str, transactional_id: str, transactions: int, gate: threading.Barrier
) -> None:
    """One producer: transactions, one after the other."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    gate.wait()
    for number in range(transactions):
        producer.begin_transaction()
        for _ in range(RECORDS):
            producer.produce(TOPIC, VALUE, partition=number % PARTITIONS)
        producer.commit_transaction(30)


def compiled_java(folder: Path) -> str:
    """The class path of the Java load."""
    libraries = f"{fetch_libraries()}/*"
    subprocess.run(
        ["javac", "-cp", libraries, "-d", str(folder), str(JAVA_LOAD)], check=True, timeout=120
    )
    return f"{folder}:{libraries}"


def drive_java(bootstrap: str, load: Load, transactions: int, classes: str) -> float:
    """The same with Java's producers."""
    numbers = (load.producers, transactions, RECORDS, len(VALUE), PARTITIONS)
    done = subprocess.run(
        ["java", "-Xmx512m", "-cp", classes, "TransactionLoad", bootstrap, TOPIC]
        + [str(number) for number in numbers],
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    report(measure(), __doc__, peer=f"Apache Kafka {VERSION}")
