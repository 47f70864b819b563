"""Rows from Spark into a topic, exactly once, compared with Spark's own sink.

Both write the same stream of files, in micro-batches of the same size, with keys, to a topic of
four partitions, with the same largest record batch and without compression. Penstock's sink writes
each micro-batch in one transaction; Spark's sink is at least once. One session runs both in turns,
and the best round of each is the result; CPU is that of the driver and all its child processes.
Both are configured for such rows: Spark's producer with a linger and a buffer for its batches,
Penstock's with batches to Python that are cut by rows alone (docs/how-to/spark-sink.md, "What it
costs"). The environment variable ROWS has the number of rows, by default 4 million. The note of a
small micro-batch has the steps that Spark reports for it, and the requests of Penstock's driver.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias
from unittest.mock import patch

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.figures import Figure, report
from bench.memory import SettledMemory
from bench.peers import (
    PeerUnavailableError,
    Server,
    apache_kafka,
    delete_topic,
    make_topic,
    penstock,
)
from penstock.link.blocking import BlockingCluster
from penstock.spark import WriteRequest, exactly_once, session
from tests.support.spark_jars import spark_jars

ROWS = int(os.environ.get("ROWS", "4000000"))
FILES = 8  # a micro-batch each
VALUE_BYTES = 350
PARTITIONS = 4
ROUNDS = 3
WARM_ROWS = 400_000  # the JVM compiles during them
BATCH_BYTES = "200000"
SMALL_ROWS = 1_000
Write: TypeAlias = Callable[[DataFrame, str, str, Path], StreamingQuery]
STEPS = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets")
NO_LIMIT = str(2**31 - 1)  # bytes: with this value Spark does not measure its batches
NARROW_ROWS = {"spark.sql.execution.arrow.maxBytesPerBatch": NO_LIMIT}
PRODUCER = {"batch.size": BATCH_BYTES, "linger.ms": "20", "buffer.memory": "67108864"}


def main() -> None:
    report(measure(), __doc__, peer="Spark's sink")


def measure() -> Iterator[Figure]:
    """Into Penstock, then into Apache Kafka if it is available."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        try:
            jars = spark_jars()
        except PeerUnavailableError:
            jars = ""
        spark = session(
            "bench",
            master="local[2]",
            settings={
                "spark.ui.enabled": "false",
                "spark.driver.memory": "2g",
                "spark.local.dir": folder,
                "spark.jars": jars,
                **NARROW_ROWS,
            },
        )
        try:
            with SettledMemory() as memory:
                bench = Bench(spark, Path(folder), memory, has_peer=bool(jars))
                for name, server in (("Penstock", penstock), ("Apache Kafka", apache_kafka)):
                    try:
                        yield from bench.against(name, server)
                    except PeerUnavailableError:
                        continue
        finally:
            spark.stop()


class Bench:
    """The input of the stream, and the two sinks."""

    def __init__(
        self, spark: SparkSession, folder: Path, memory: SettledMemory, *, has_peer: bool
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._memory = memory
        self._has_peer = has_peer
        self._runs = 0
        self._steps: dict[Write, str] = {}  # of the last run
        self._large = self._input("large", ROWS)
        self._warm = self._input("warm", min(WARM_ROWS, ROWS))
        self._small = self._input("small", SMALL_ROWS * FILES)

    def _input(self, name: str, rows: int) -> Path:
        folder = self._folder / name
        folder.mkdir()
        filler = "x" * (VALUE_BYTES - 20)
        for part in range(FILES):
            numbers = range(part * rows // FILES, (part + 1) * rows // FILES)
            table = pa.table(
                {
                    "key": [f"customer-{number % 50_000}" for number in numbers],
                    "value": [f"{number:020d}{filler}" for number in numbers],
                }
            )
            pq.write_table(table, folder / f"{part}.parquet", row_group_size=50_000)
        return folder

    def against(self, name: str, server: Callable[[], Server]) -> Iterator[Figure]:
        """Both sinks into one server."""
        ways: list[Write] = [self._ours, self._theirs] if self._has_peer else [self._ours]
        with server() as broker:
            self._rounds(self._warm, broker.bootstrap, ways, rounds=1)
            large = self._rounds(self._large, broker.bootstrap, ways, rounds=ROUNDS)
            small = self._rounds(self._small, broker.bootstrap, ways, rounds=2)
        walls = [min(wall for wall, _ in rounds) for rounds in large]
        cpus = [min(cpu for _, cpu in rounds) for rounds in large]
        small_walls = [min(wall for wall, _ in rounds) for rounds in small]
        yield Figure(
            f"rows into {name}",
            *_with_peer([ROWS / wall for wall in walls]),
            "rows/s",
            ">= 1.0",
            note=_rounds_text(large),
        )
        yield Figure(
            f"CPU per row into {name}",
            *_with_peer([cpu / ROWS * 1e6 for cpu in cpus]),
            "us",
            "<= 1.0",
        )
        yield Figure(
            f"micro-batch of {SMALL_ROWS} rows into {name}",
            *_with_peer([wall / FILES * 1e3 for wall in small_walls]),
            "ms",
            note="with the start of the query; " + " | ".join(self._steps[way] for way in ways),
        )

    def _rounds(
        self, source: Path, bootstrap: str, ways: list[Write], *, rounds: int
    ) -> list[list[tuple[float, float]]]:
        """Wall and CPU seconds of all rounds of both sinks.

        They take turns, each first in every other round, because Spark gets faster.
        """
        taken: list[list[tuple[float, float]]] = [[] for _ in ways]
        turns = list(zip(ways, taken, strict=True))
        for _ in range(rounds):
            for write, times in turns:
                times.append(self._run(source, bootstrap, write))
            turns.reverse()
        return taken

    def _run(self, source: Path, bootstrap: str, write: Write) -> tuple[float, float]:
        """One query over all files, into a fresh topic: wall and CPU seconds."""
        self._runs += 1
        topic = f"sink-{self._runs}"
        make_topic(bootstrap, topic, partitions=PARTITIONS)
        frame = (
            self._spark.readStream.schema("key string, value string")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(source))
        )
        self._memory.settle()
        cpu, start = _cpu_seconds(), time.perf_counter()
        with _driver_requests() as requests_s:
            query = write(frame, bootstrap, topic, self._folder / f"checkpoint-{self._runs}")
            query.awaitTermination()
        taken = time.perf_counter() - start, _cpu_seconds() - cpu
        self._steps[write] = _steps_text(query, sum(requests_s))
        delete_topic(bootstrap, topic)
        return taken

    def _ours(
        self, frame: DataFrame, bootstrap: str, topic: str, checkpoint: Path
    ) -> StreamingQuery:
        kafka = {"batch.size": str(BATCH_BYTES)}
        sink = exactly_once(WriteRequest(topic, bootstrap=bootstrap, kafka=kafka))
        return (
            frame.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    def _theirs(
        self, frame: DataFrame, bootstrap: str, topic: str, checkpoint: Path
    ) -> StreamingQuery:
        writer = frame.writeStream.format("kafka").option("topic", topic)
        writer = writer.option("kafka.bootstrap.servers", bootstrap)
        for name, value in PRODUCER.items():
            writer = writer.option(f"kafka.{name}", value)
        return (
            writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        )


@contextmanager
def _driver_requests() -> Iterator[list[float]]:
    """The seconds of each operation of Penstock's driver with the brokers."""
    seconds: list[float] = []
    run = BlockingCluster.run

    def timed(cluster: BlockingCluster, operation: Any) -> Any:
        start = time.perf_counter()
        try:
            return run(cluster, operation)
        finally:
            seconds.append(time.perf_counter() - start)

    with patch.object(BlockingCluster, "run", timed):
        yield seconds


def _steps_text(query: StreamingQuery, requests_s: float) -> str:
    """The median of each step over the micro-batches, in milliseconds."""
    batches = [each.durationMs for each in query.recentProgress if "addBatch" in each.durationMs]
    steps = [f"{step} {median(each.get(step, 0) for each in batches):.0f}" for step in STEPS]
    requests_ms = requests_s * 1000 / max(len(batches), 1)
    return ", ".join([*steps, *([f"requests {requests_ms:.0f}"] if requests_s else [])])


def _with_peer(figures: list[float]) -> tuple[float, float | None]:
    """Both results; without a peer, Penstock's alone."""
    ours, *peers = figures
    return ours, peers[0] if peers else None


def _rounds_text(large: list[list[tuple[float, float]]]) -> str:
    """Thousands of rows per second of all rounds: Penstock, then the peer."""
    return " | ".join(
        " ".join(f"{ROWS / wall / 1e3:.0f}" for wall, _ in rounds) for rounds in large
    )


def _cpu_seconds() -> float:
    """CPU seconds of this process, the JVM and its Python workers, without the broker."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        try:
            if not _is_sparks(process):
                continue
            times = process.cpu_times()
        except psutil.Error:  # it has just ended: a worker's time is then in its parent's children
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _is_sparks(process: psutil.Process) -> bool:
    command = " ".join(process.cmdline())
    return "pyspark" in command or "spark_sink" in command


if __name__ == "__main__":
    main()
