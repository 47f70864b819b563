"""The shop's pipelines, declared: Spark works out the dependencies and runs them in order.

One table has every order, good and bad; other tables are derived from it. Tables that need a
watermark are derived from the topics: Spark needs a frame's columns for that, and learns those of
its own tables later.
"""

import os
from typing import TypeVar

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.readwriter import DataStreamReader

from penstock.spark import TimedStream, join_within, tumbling

BOOTSTRAP = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
REGISTRY = os.environ.get("PENSTOCK_REGISTRY", "http://127.0.0.1:8081")
LATENESS = "10 minutes"
ReaderT = TypeVar("ReaderT", DataFrameReader, DataStreamReader)


def topic(name: str, columns: str) -> DataFrame:
    """A topic as a stream from its start."""
    return configured(SparkSession.active().readStream, name, columns).load()


def topic_now(name: str, columns: str) -> DataFrame:
    """A topic as a table: its present content."""
    return configured(SparkSession.active().read, name, columns).load()


def configured(reader: ReaderT, name: str, columns: str) -> ReaderT:
    """The options that both kinds of read have in common."""
    reader = reader.format("penstock").option("kafka.bootstrap.servers", BOOTSTRAP)
    reader = reader.option("registry", REGISTRY).option("columns", columns)
    return reader.option("subscribe", name).option("startingOffsets", "earliest")


@dp.table
def all_orders() -> DataFrame:
    """Orders of all schema versions; those that cannot be decoded have an `_error`."""
    record_columns = "_topic,_partition,_offset,_timestamp,_schema_id,_value,_error"
    return topic("orders", f"order_id,customer,country,cents,at,{record_columns}")


@dp.table
def payments() -> DataFrame:
    """All payments."""
    return topic("payments", "payment_id,order_id,method,paid_at")


@dp.table
def quarantine() -> DataFrame:
    """Events that could not be decoded: the reason, their position, and their bytes."""
    bad = SparkSession.active().readStream.table("all_orders").where("_error is not null")
    return bad.select("_error.reason", "_error.detail", "_topic", "_partition", "_offset", "_value")


@dp.materialized_view
def windowed_revenue() -> DataFrame:
    """Revenue by hour and country."""
    return tumbling(
        topic_now("orders", "country,cents,at,_error").where("_error is null"),
        "at",
        "1 hour",
        lateness=LATENESS,
        by=["country"],
        orders=sf.count("*"),
        cents=sf.sum("cents"),
    )


# A join analyses the columns of both streams, which Spark refuses within a declared function.
_orders = topic("orders", "order_id,customer,country,cents,at,_error").where("_error is null")
_paid = join_within(
    TimedStream(_orders.drop("_error"), "at", LATENESS),
    TimedStream(topic("payments", "order_id,payment_id,method,paid_at"), "paid_at", LATENESS),
    on=["order_id"],
    within="1 hour",
)


@dp.table
def paid_orders() -> DataFrame:
    """Orders joined with the payments that came within an hour."""
    wait = sf.unix_millis("paid_at") - sf.unix_millis("at")
    return _paid.withColumn("wait_ms", wait).drop("at", "paid_at")


@dp.materialized_view
def customers() -> DataFrame:
    """A row for each customer, always up to date."""
    orders = SparkSession.active().read.table("all_orders").where("_error is null")
    return orders.groupBy("customer").agg(
        sf.count("*").alias("orders"), sf.sum("cents").alias("cents")
    )
