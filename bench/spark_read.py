"""Avro orders read on Spark, compared with Spark's own source and `from_avro`.

Orders of about 350 bytes, alternating batches of two schema versions, on `local[2]` and a Penstock
broker. Spark's connector and Avro functions are loaded by Maven coordinates; without them there is
no peer. They are given the schema of each version, as their users do. fastavro reads a part of the
orders in `mapInArrow`. The environment variable ORDERS has the number of orders, by default 4
million. Both take turns, each first in every other round, because Spark gets faster; the best round
of each is the result, and all rounds are printed to stderr. After some time no further round
starts. CPU is that of Spark's JVM and workers together.
"""

import io
import itertools
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar
from uuid import UUID

import numpy as np
import psutil
import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from bench.figures import Figure, report
from bench.memory import SettledMemory
from bench.peers import make_topic, penstock
from penstock.client.registry import Registry
from penstock.columns.build_batches import Framing, build_batches
from penstock.columns.partitioner import Unkeyed
from penstock.link.blocking import BlockingCluster
from penstock.link.send_batches import send_batches
from penstock.model import Millis, Offset, TopicId, TopicPartition
from penstock.schemas.avro import parse
from penstock.schemas.model import SchemaText, SchemaType
from penstock.serde.avro.batch import AvroBatchEncoder
from penstock.serde.frame import write_prefix
from penstock.spark import session
from penstock.spark.planning import StreamPosition
from penstock.spark.source import read_schema, stream_reader
from penstock.testing.embedded import EmbeddedRegistry
from tests.support.spark_jars import PeerUnavailableError, spark_jars

ORDERS = int(os.environ.get("ORDERS", "4000000"))
DISTINCT = 20_000  # then the same again
FASTAVRO_SHARE = 20  # it reads one order of this many
PARTITIONS = 4
ROUNDS = 3
SMALL_ROUNDS = 4
ROUNDS_S = 150  # of one comparison: then no further round starts
RANGES = 100_000  # to be planned
SMALL_BATCHES = 30
SMALL_ROWS = 1_000
BATCH_RECORDS = 500
UNIT = "orders/s"
TWO = ("customer_id", "total")
T = TypeVar("T")
_FIELDS = """
  {"name": "order_id", "type": "string"},
  {"name": "customer_id", "type": "long"},
  {"name": "created_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
  {"name": "status", "type": {"type": "enum", "name": "Status",
    "symbols": ["NEW", "PAID", "SHIPPED", "CANCELLED"]}},
  {"name": "currency", "type": "string"},
  {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12,
    "scale": 2}},
  {"name": "coupon", "type": ["null", "string"], "default": null},
  {"name": "shipping_address", "type": "string"},
  {"name": "email", "type": "string"},
  {"name": "express", "type": "boolean"},
  {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item",
    "fields": [
      {"name": "sku", "type": "string"},
      {"name": "quantity", "type": "int"},
      {"name": "price", "type": "double"}]}}}"""
V1 = f'{{"type": "record", "name": "Order", "namespace": "shop", "fields": [{_FIELDS}]}}'
V2 = (
    f'{{"type": "record", "name": "Order", "namespace": "shop", "fields": [{_FIELDS},'
    ' {"name": "note", "type": ["null", "string"], "default": null}]}'
)


def main() -> None:
    report(measure(), __doc__, peer="Spark's source and from_avro")


def measure() -> Iterator[Figure]:
    """All figures, in one Spark session."""
    yield Figure(
        f"planning of {RANGES:,} ranges", planning_s(), None, "s", "", "< 1, pickled for Spark"
    )
    try:
        jars, missing = spark_jars(), ""
    except PeerUnavailableError as why:
        jars, missing = "", f"no peer: {why}"
    with penstock() as broker, EmbeddedRegistry(broker.bootstrap) as registry:
        world = World(broker.bootstrap, registry.url)
        note = f"{world.fill('orders', ORDERS):.0f} B each"
        world.fill("few", SMALL_BATCHES * SMALL_ROWS)
        spark = session(
            "penstock bench",
            master="local[2]",
            settings={
                "spark.ui.enabled": "false",
                "spark.driver.memory": "1g",
                "spark.sql.shuffle.partitions": "2",
                **({"spark.jars": jars} if jars else {}),
            },
        )
        spark.sparkContext.setLogLevel("ERROR")
        try:
            with SettledMemory() as memory:
                yield from compared(Paths(spark, world, memory), bool(jars), missing or note)
        finally:
            spark.stop()


def compared(paths: "Paths", has_peer: bool, note: str) -> Iterator[Figure]:
    """The figures, one after another."""

    two, their_two = compared_rounds(paths, paths.two_columns, has_peer and paths.spark_two_columns)
    yield from figures("two columns", two, their_two, ">= 2.0", note)
    whole, their_whole = compared_rounds(
        paths, paths.all_columns, has_peer and paths.spark_all_columns
    )
    yield from figures("all columns", whole, their_whole, ">= 1.4", note)
    slow = max(paths.measured(paths.fastavro_two_columns) for _ in range(2)) if has_peer else None
    name = "mapInArrow and fastavro"
    yield from figures(f"two columns, compared with {name}", two, slow, ">= 6", note, name)
    now, their_now = compared_rounds(
        paths, paths.available_now, has_peer and paths.spark_available_now
    )
    yield from figures("AvailableNow, two columns", now, their_now, ">= 1.3", note)
    small, their_small = by_turns(
        paths.small_batches, has_peer and paths.spark_small_batches, SMALL_ROUNDS
    )
    yield Figure(
        f"micro-batch of {SMALL_ROWS} rows", min(small), min(their_small, default=None), "ms",
        "<= 1.0", note,
    )  # fmt: skip
    memory = f"< 300; its share where pages are shared: {paths.worker_share_bytes / 1e6:.0f}"
    yield Figure("peak of the largest worker", paths.worker_bytes / 1e6, None, "MB", "", memory)


class Round(NamedTuple):
    """One read of all orders."""

    orders_per_s: float
    cpu_us: float  # of each order


def compared_rounds(
    paths: "Paths", ours: Callable[[], int], theirs: Callable[[], int] | Literal[False]
) -> tuple[Round, Round | None]:
    """The best round of both."""
    mine, peer = by_turns(
        lambda: paths.measured(ours), theirs and (lambda: paths.measured(theirs)), ROUNDS
    )
    return max(mine), max(peer, default=None)


def by_turns(
    ours: Callable[[], T], theirs: Callable[[], T] | Literal[False], rounds: int
) -> tuple[list[T], list[T]]:
    """All rounds of both."""
    mine: list[T] = []
    peer: list[T] = []
    turns = [(ours, mine), (theirs, peer)] if theirs else [(ours, mine)]
    start = time.perf_counter()
    while len(mine) < rounds and (not mine or time.perf_counter() - start < ROUNDS_S):
        for work, results in turns:
            results.append(work())
        turns.reverse()
    print(f"ours {mine}\npeer {peer}", file=sys.stderr)
    return mine, peer


def figures(
    name: str, ours: Round, peer: Round | None, target: str, note: str, peer_name: str = ""
) -> Iterator[Figure]:
    """The rate, which has the target, and the CPU time."""
    rate, cpu_us = peer and peer.orders_per_s, peer and peer.cpu_us
    yield Figure(name, ours.orders_per_s, rate, UNIT, target, note, peer_name)
    yield Figure(f"CPU of {name}", ours.cpu_us, cpu_us, "us/order", "", note, peer_name)


def cpu_s() -> float:
    """CPU seconds of all processes of Spark; ended ones are in the times of their parent."""
    spent = 0.0
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            times = one.cpu_times()
            spent += times.user + times.system + times.children_user + times.children_system
    return spent


def planning_s() -> float:
    """CPU seconds to plan the tasks between two positions."""
    options = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "orders"}
    reader = stream_reader(options, read_schema(options))
    start, end = (
        StreamPosition(
            {TopicPartition("orders", index): Offset(offset) for index in range(RANGES)},
            {"orders": TopicId(UUID(int=1))},
        ).to_spark()
        for offset in (0, 1_000_000)
    )
    make_serializer: Any = CloudPickleSerializer  # untyped
    serializer = make_serializer()

    begin_s = time.process_time()
    for partition in reader.partitions(start, end):
        serializer.dumps(partition)
    return time.process_time() - begin_s


class World:
    """A broker and a registry with two versions of the order."""

    def __init__(self, bootstrap: str, registry_url: str) -> None:
        self.bootstrap = bootstrap
        self.registry_url = registry_url
        self._frames: list[list[bytes]] = []
        orders = [order(random.Random(number), number) for number in range(DISTINCT)]
        self.ids: list[int] = []
        with Registry(registry_url) as registry:
            for text in (V1, V2):
                for topic in ("orders", "few"):
                    source = SchemaText(SchemaType.AVRO, text)
                    registered = registry.register(f"{topic}-value", source)
                self.ids.append(registered.id)
                self._frames.append(framed(text, write_prefix(registered.id), orders))

    def fill(self, topic: str, count: int) -> float:
        """Write `count` orders to a new topic; their mean size in bytes."""
        make_topic(self.bootstrap, topic, partitions=PARTITIONS)
        first, second = self._frames
        cut = np.arange(DISTINCT) // BATCH_RECORDS % 2 == 0  # alternating batches of the versions
        values = [
            one if is_first else other
            for one, other, is_first in zip(first, second, cut, strict=True)
        ]
        keys = [b"%010d" % number for number in range(DISTINCT)]
        framing = Framing(batch_records_max=BATCH_RECORDS)
        cluster = BlockingCluster(self.bootstrap)
        for start in range(0, count, DISTINCT):
            part = min(DISTINCT, count - start)
            records = pa.RecordBatch.from_pydict(
                {
                    "key": keys[:part],
                    "value": values[:part],
                    "partition": np.arange(part, dtype=np.int32) // BATCH_RECORDS // 2 % PARTITIONS,
                }
            )
            built = build_batches(
                records,
                partition_count=PARTITIONS,
                now=Millis(int(time.time() * 1000)),  # retention would delete older ones
                unkeyed=Unkeyed.round_robin(),
                framing=framing,
            )
            cluster.run(
                send_batches(
                    {
                        TopicPartition(topic, index): [one.content for one in some.batches]
                        for index, some in built.items()
                    }
                )
            )
        cluster.close()
        return sum(map(len, values)) / len(values)


def framed(schema: str, prefix: bytes, orders: list[dict[str, Any]]) -> list[bytes]:
    """Orders written with one version of the schema."""
    names = {one["name"] for one in json.loads(schema)["fields"]}
    rows = [{name: value for name, value in one.items() if name in names} for one in orders]
    buffer, offsets, errors = AvroBatchEncoder(parse(schema)).encode_rows(rows, prefix)
    assert not errors.any()
    whole = buffer.tobytes()
    return [whole[start:end] for start, end in itertools.pairwise(offsets)]


def order(rng: random.Random, number: int) -> dict[str, Any]:
    """One order of the second version."""
    return {
        "order_id": f"order-{number:010d}",
        "customer_id": rng.randrange(1 << 40),
        "created_at": 1_700_000_000_000 + number,
        "status": rng.choice(("NEW", "PAID", "SHIPPED", "CANCELLED")),
        "currency": "EUR",
        "total": Decimal(rng.randrange(10**7)).scaleb(-2),
        "coupon": None if number % 3 else "AUTUMN-10",
        "shipping_address": f"{number} Long Street, 12345 Some Town, Somewhere",
        "email": f"customer.{number}@example.com",
        "express": number % 2 == 0,
        "note": "leave it with the neighbours, please" if number % 2 else None,
        "items": [
            {
                "sku": f"SKU-{rng.randrange(10**8):08d}",
                "quantity": rng.randrange(1, 10),
                "price": rng.randrange(10_000) / 100,
            }
            for _ in range(8)
        ],
    }


class Paths:
    """The measured ways of reading; each checks that it has read all orders."""

    def __init__(self, spark: SparkSession, world: World, memory: SettledMemory) -> None:
        self._spark = spark
        self._world = world
        self._memory = memory
        self.worker_bytes = 0
        self.worker_share_bytes = 0

    def measured(self, work: Callable[[], int]) -> Round:
        self._memory.settle()
        start, cpu = time.perf_counter(), cpu_s()
        count = work()
        return Round(count / (time.perf_counter() - start), 1e6 * (cpu_s() - cpu) / count)

    def two_columns(self) -> int:
        return self._weighed(self._sums(self._ours(columns=",".join(TWO)).load()))

    def spark_two_columns(self) -> int:
        return self._sums(decoded(self._theirs().load(), self._world.ids).select("value.*"))

    def all_columns(self) -> int:
        return self._weighed(self._hashes(self._ours(columns=",".join(field_names())).load()))

    def spark_all_columns(self) -> int:
        return self._hashes(decoded(self._theirs().load(), self._world.ids).select("value.*"))

    def fastavro_two_columns(self) -> int:
        per_partition = ORDERS // FASTAVRO_SHARE // PARTITIONS
        ending = {"orders": {str(index): per_partition for index in range(PARTITIONS)}}
        frame = self._theirs(endingOffsets=json.dumps(ending)).load()
        schemas = dict(zip(self._world.ids, (V1, V2), strict=True))
        rows = frame.select("value").mapInArrow(
            lambda batches: read_with_fastavro(batches, schemas),
            "customer_id long, total decimal(12, 2)",
        )
        return self._sums(rows, per_partition * PARTITIONS)

    def available_now(self) -> int:
        source = self._stream("penstock", "orders", registry=self._world.registry_url,
                              columns=",".join(TWO))  # fmt: skip
        return self._drained(source.load())

    def spark_available_now(self) -> int:
        frame = self._stream("kafka", "orders").load()
        return self._drained(decoded(frame, self._world.ids).select("value.*"))

    def small_batches(self) -> float:
        source = self._stream(
            "penstock",
            "few",
            registry=self._world.registry_url,
            columns=",".join(TWO),
            maxOffsetsPerTrigger=str(SMALL_ROWS),
        )
        return self._batch_ms(source.load())

    def spark_small_batches(self) -> float:
        source = self._stream("kafka", "few", maxOffsetsPerTrigger=str(SMALL_ROWS))
        return self._batch_ms(decoded(source.load(), self._world.ids).select("value.*"))

    def _ours(self, **options: str) -> Any:
        return (
            self._spark.read.format("penstock")
            .option("kafka.bootstrap.servers", self._world.bootstrap)
            .option("subscribe", "orders")
            .option("registry", self._world.registry_url)
            .options(**options)
        )

    def _theirs(self, **options: str) -> Any:
        return (
            self._spark.read.format("kafka")
            .option("kafka.bootstrap.servers", self._world.bootstrap)
            .option("subscribe", "orders")
            .options(**options)
        )

    def _stream(self, source: str, topic: str, **options: str) -> Any:
        return (
            self._spark.readStream.format(source)
            .option("kafka.bootstrap.servers", self._world.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .options(**options)
        )

    def _sums(self, frame: DataFrame, expected: int = ORDERS) -> int:
        row = frame.agg(F.count("total"), F.sum("total"), F.max("customer_id")).collect()[0]
        assert row[0] == expected, f"{row[0]} orders, not {expected}"
        return expected

    def _hashes(self, frame: DataFrame) -> int:
        columns = [F.col(name) for name in field_names()]
        row = frame.agg(F.count("order_id"), F.sum(F.xxhash64(*columns) % 1000)).collect()[0]
        assert row[0] == ORDERS, f"{row[0]} orders, not {ORDERS}"
        return ORDERS

    def _drained(self, frame: DataFrame) -> int:
        """Read the stream to its end, and sum up each micro-batch."""
        counts: list[int] = []

        def sum_up(batch: DataFrame, _number: int) -> None:
            counts.append(batch.agg(F.count("total"), F.sum("total")).collect()[0][0])

        folder = tempfile.mkdtemp(prefix="bench-checkpoint-")
        writer = frame.writeStream.foreachBatch(sum_up).option("checkpointLocation", folder)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        shutil.rmtree(folder, ignore_errors=True)
        assert sum(counts) == ORDERS, f"{sum(counts)} orders, not {ORDERS}"
        return ORDERS

    def _batch_ms(self, frame: DataFrame) -> float:
        """The median time of a micro-batch, without the first ones."""
        self._memory.settle()
        folder = tempfile.mkdtemp(prefix="bench-checkpoint-")
        writer = frame.writeStream.format("noop").option("checkpointLocation", folder)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        shutil.rmtree(folder, ignore_errors=True)
        times = [one.durationMs["triggerExecution"] for one in query.recentProgress
                 if one.numInputRows]  # fmt: skip
        assert len(times) >= SMALL_BATCHES, f"{len(times)} batches"
        return statistics.median(times[5:])

    def _weighed(self, count: int) -> int:
        """The memory of workers that have read only this."""
        for one in psutil.Process().children(recursive=True):
            with suppress(OSError, psutil.Error):  # it has just ended
                if "pyspark.worker" not in " ".join(one.cmdline()):
                    continue
                status = Path(f"/proc/{one.pid}/status").read_text()
                peak = 1024 * int(status.partition("VmHWM:")[2].split()[0])
                self.worker_bytes = max(self.worker_bytes, peak)
                self.worker_share_bytes = max(self.worker_share_bytes, one.memory_full_info().pss)
        return count


def field_names() -> list[str]:
    return [one["name"] for one in json.loads(V2)["fields"]]


def decoded(frame: DataFrame, ids: list[int]) -> DataFrame:
    """As with Spark's connector: each version by its schema, selected by the id in the frame."""
    schema_id = F.conv(F.hex(F.substring("value", 2, 4)), 16, 10).cast("int")
    payload = F.expr("substring(value, 6, length(value) - 5)")
    first, second = (from_avro(payload, text, {"avroSchema": V2}) for text in (V1, V2))
    return frame.select(F.when(schema_id == ids[0], first).otherwise(second).alias("value"))


def read_with_fastavro(batches: Any, schemas: dict[int, str]) -> Iterator[pa.RecordBatch]:
    """Read two columns of each order, one by one, in a Spark worker."""
    import fastavro

    parsed = {one: fastavro.parse_schema(json.loads(text)) for one, text in schemas.items()}
    for batch in batches:
        customers, totals = [], []
        for value in batch.column(0).to_pylist():
            writer = parsed[int.from_bytes(value[1:5], "big")]
            one: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), writer)
            customers.append(one["customer_id"])
            totals.append(one["total"])
        yield pa.RecordBatch.from_pydict(
            {"customer_id": customers, "total": pa.array(totals, pa.decimal128(12, 2))}
        )


if __name__ == "__main__":
    main()
