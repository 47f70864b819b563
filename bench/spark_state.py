"""Windowed sums on Spark with state in a topic, compared with Spark's own state.

Avro sales of 200 stores over ten hours, `local[2]`, in micro-batches of a million and of 250 000;
both read with Penstock's source. Its changelog keeps the state of each window with
`transformWithState` and writes every change to a compacted topic with the offsets, in a transaction
per micro-batch; Spark's own window aggregation writes nothing. The environment variable SALES has
the number of sales, by default 4 million.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from itertools import count as numbers
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.figures import Figure, report
from bench.peers import make_topic, penstock
from penstock.client.registry import Registry
from penstock.columns.build_batches import Framing, build_batches
from penstock.columns.partitioner import Unkeyed
from penstock.link.blocking import BlockingCluster
from penstock.link.send_batches import send_batches
from penstock.model import Millis, TopicPartition
from penstock.schemas.avro import parse
from penstock.schemas.model import SchemaText, SchemaType
from penstock.serde.avro.batch import AvroBatchEncoder
from penstock.serde.frame import write_prefix
from penstock.spark import Changelog, count, session, total, tumbling
from penstock.testing.embedded import EmbeddedRegistry

SALES = int(os.environ.get("SALES", "4000000"))
STORES = 200
HOURS = 10
PARTITIONS = 2
PART = 100_000
BATCH_RECORDS = 1_000
START_MS = 1_767_225_600_000
COLUMNS = "store,cents,at,_topic,_partition,_offset"
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Sale",
        "fields": [
            {"name": "store", "type": "string"},
            {"name": "cents", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
)
_runs = numbers(1)


def main() -> None:
    report(measure(), __doc__, peer="Spark's own state")


def measure() -> Iterator[Figure]:
    """Both take turns; the first turn of each is a warm-up."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    with penstock() as broker, EmbeddedRegistry(broker.bootstrap) as registry:
        fill(broker.bootstrap, registry.url)
        spark = session(
            "penstock bench",
            master="local[2]",
            settings={
                "spark.ui.enabled": "false",
                "spark.driver.memory": "1g",
                "spark.sql.shuffle.partitions": "2",
            },
        )
        spark.sparkContext.setLogLevel("ERROR")
        try:
            bench = Bench(spark, broker.bootstrap, registry.url, folder)
            bench.ours(SALES)
            bench.theirs(SALES)
            for offsets in (1_000_000, 250_000):
                ours, theirs = bench.ours(offsets), bench.theirs(offsets)
                name = f"windows, micro-batches of {offsets:,}"
                yield Figure(name, ours, theirs, "records/s", ">= 0.25")
        finally:
            spark.stop()
            shutil.rmtree(folder, ignore_errors=True)


class Bench:
    """The same sums, computed in two ways."""

    def __init__(self, spark: SparkSession, bootstrap: str, registry: str, folder: Path) -> None:
        self.spark = spark
        self.options = {"kafka.bootstrap.servers": bootstrap}
        self.registry = registry
        self.folder = folder

    def ours(self, offsets: int) -> float:
        """Records per second with state in a topic."""
        run = next(_runs)
        log = Changelog(self.spark, f"state-{run}", query=f"run-{run}", options=self.options)
        sales = log.read(
            subscribe="sales",
            registry=self.registry,
            columns=COLUMNS,
            maxOffsetsPerTrigger=str(offsets),
        )
        states = log.windows(
            sales, "at", "1 hour", lateness="1 hour", by=["store"], n=count(), cents=total("cents")
        )
        started_s = time.perf_counter()
        query = states.start(self.folder / str(run), trigger={"availableNow": True})
        query.awaitTermination()
        return SALES / (time.perf_counter() - started_s)

    def theirs(self, offsets: int) -> float:
        """Records per second with Spark's own windows, without storing the result."""
        reader = self.spark.readStream.format("penstock").options(**self.options)
        reader = reader.option("subscribe", "sales").option("startingOffsets", "earliest")
        reader = reader.option("registry", self.registry).option("columns", "store,cents,at")
        sales = reader.option("maxOffsetsPerTrigger", str(offsets)).load()
        windows = tumbling(
            sales, "at", "1 hour", lateness="1 hour", by=["store"],
            n=F.count("*"), cents=F.sum("cents"),
        )  # fmt: skip
        started_s = time.perf_counter()
        query = (
            windows.writeStream.outputMode("update")
            .foreachBatch(_thrown_away)
            .option("checkpointLocation", str(self.folder / str(next(_runs))))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return SALES / (time.perf_counter() - started_s)


def _thrown_away(batch: DataFrame, _: int) -> None:
    batch.write.format("noop").mode("overwrite").save()


def fill(bootstrap: str, registry_url: str) -> None:
    """All sales, a little out of order."""
    make_topic(bootstrap, "sales", partitions=PARTITIONS)
    with Registry(registry_url, client="bench") as registry:
        registered = registry.register("sales-value", SchemaText(SchemaType.AVRO, SCHEMA))
    encoder, rng = AvroBatchEncoder(parse(SCHEMA)), np.random.default_rng(7)
    stores = np.array([f"store-{number:03}" for number in range(STORES)])
    with BlockingCluster(bootstrap) as cluster:
        for start in range(0, SALES, PART):
            times = START_MS + (start + np.arange(PART)) * HOURS * 3_600_000 // SALES
            rows = pa.RecordBatch.from_pydict(
                {
                    "store": stores[rng.integers(0, STORES, PART)],
                    "cents": rng.integers(1, 10_000, PART),
                    "at": pa.array(times + rng.integers(0, 60_000, PART)).cast(
                        pa.timestamp("ms", tz="UTC")
                    ),
                }
            )
            buffer, offsets, errors = encoder.encode(rows, write_prefix(registered.id))
            assert not errors.any()
            values = pa.LargeBinaryArray.from_buffers(
                pa.large_binary(),
                PART,
                [None, pa.py_buffer(offsets.data), pa.py_buffer(buffer.data)],
            )
            built = build_batches(
                pa.RecordBatch.from_arrays([values], names=["value"]),
                partition_count=PARTITIONS,
                now=Millis(int(time.time() * 1000)),
                unkeyed=Unkeyed.round_robin(),
                framing=Framing(batch_records_max=BATCH_RECORDS),
            )
            places = {
                TopicPartition("sales", index): [one.content for one in some.batches]
                for index, some in built.items()
            }
            cluster.run(send_batches(places))


if __name__ == "__main__":
    main()
