"""The shop of `examples/orders` on a cluster: its addresses, its streams and its sinks."""

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from examples.orders import SCHEMAS, Topics
from penstock.spark import WriteRequest, exactly_once, session, table

LATENESS: Final = "10 minutes"  # of all events of the shop
_ADMIN_WAIT_S: Final = 30


@dataclass(frozen=True)
class Shop:
    """One shop on one cluster; the checkpoints of its queries are in `folder`.

    `suffix` is appended to the names of result topics, to keep results of several runs apart.
    """

    spark: SparkSession
    bootstrap: str
    registry: str
    folder: Path
    topics: Topics = Topics()  # noqa: RUF009 - it is frozen
    suffix: str = ""

    def orders(self, columns: str = "order_id,customer,country,cents,at") -> DataFrame:
        """Orders as a stream, without those that cannot be decoded (see `quarantined`)."""
        events = self.stream(self.topics.orders, f"{columns},_error")
        return events.where("_error is null").drop("_error")

    def payments(self) -> DataFrame:
        """Payments as a stream."""
        return self.stream(self.topics.payments, "payment_id,order_id,method,paid_at")

    def stream(self, topic: str, columns: str | None = None) -> DataFrame:
        """A topic from its start, decoded with the latest schema of the registry."""
        reader = self.spark.readStream.format("penstock").options(**self.options())
        if columns is not None:
            reader = reader.option("columns", columns)
        return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()

    def options(self) -> dict[str, str]:
        """The options of every read."""
        return {"kafka.bootstrap.servers": self.bootstrap, "registry": self.registry}

    def table(self, topic: str) -> DataFrame:
        """The latest value of each key."""
        return table(self.spark, topic + self.suffix, self.options())

    def sink(self, topic: str, schema: str, key: str) -> Callable[[DataFrame, int], None]:
        """A function that writes rows under a schema to a compacted topic, exactly once."""
        self.create_topic(topic + self.suffix)
        request = WriteRequest(
            topic + self.suffix,
            bootstrap=self.bootstrap,
            registry=self.registry,
            key=key,
            schema=SCHEMAS / f"{schema}.avsc",
        )
        return exactly_once(request)

    def create_topic(self, topic: str, partitions: int = 2) -> None:
        """Create a compacted topic unless it exists."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        if topic not in admin.list_topics(timeout=_ADMIN_WAIT_S).topics:
            compacted = NewTopic(topic, partitions, 1, config={"cleanup.policy": "compact"})
            admin.create_topics([compacted])[topic].result(_ADMIN_WAIT_S)

    def start(
        self,
        name: str,
        rows: DataFrame,
        write: Callable[[DataFrame, int], None],
        *,
        mode: str = "append",
        once: bool = True,
    ) -> StreamingQuery:
        """Start a query: up to the present end of its topics, or indefinitely."""
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": "1 second"}
        return (
            rows.writeStream.queryName(name)
            .outputMode(mode)
            .option("checkpointLocation", str(self.folder / name))
            .trigger(**trigger)
            .foreachBatch(write)
            .start()
        )


def add_addresses(parser: argparse.ArgumentParser) -> None:
    """Options for the addresses of the platform, with the defaults of `penstock` commands."""
    kafka = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
    registry = os.environ.get("PENSTOCK_REGISTRY", "http://127.0.0.1:8081")
    parser.add_argument("--kafka", default=kafka, help="address of a broker, as host:port")
    parser.add_argument("--registry", default=registry, help="URL of the registry")


def run(title: str | None, start: Callable[..., StreamingQuery]) -> None:
    """Run a script: `python -m examples.<name> --kafka host:port --registry URL`."""
    parser = argparse.ArgumentParser(description=title)
    add_addresses(parser)
    parser.add_argument("--folder", type=Path, required=True, help="folder for checkpoints")
    parser.add_argument("--once", action="store_true", help="stop at the present end of the topics")
    arguments = parser.parse_args()
    spark = session(parser.prog)
    try:
        shop = Shop(spark, arguments.kafka, arguments.registry, arguments.folder)
        start(shop, once=arguments.once).awaitTermination()
    finally:
        spark.stop()
