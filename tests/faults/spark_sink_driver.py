"""A Spark driver to be killed: streams files or a topic into a topic, and stops at a given point.

It has one JSON argument. It prints `batch N` when a batch starts, and `at POINT` where it waits to
be killed. Run by test_spark_exactly_once.py.
"""

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from penstock.spark import WriteRequest, batch_transaction, exactly_once, session

if TYPE_CHECKING:
    from collections.abc import Callable


def main(arguments: dict[str, Any]) -> None:
    spark = session(
        "faults",
        master=arguments["master"],
        settings={
            "spark.ui.enabled": "false",
            "spark.driver.memory": "1g",
            "spark.executor.memory": "512m",
            "spark.local.dir": arguments["folder"],
            "spark.sql.shuffle.partitions": str(arguments["shuffles"]),
            "spark.sql.adaptive.enabled": str(arguments["adaptive"]).lower(),
        },
    )
    stop_at(arguments["point"], arguments["batch"])
    request = WriteRequest(arguments["topic"], bootstrap=arguments["bootstrap"])
    sink = exactly_once(request, timeout_ms=arguments["timeout_ms"])

    def write(frame: DataFrame, batch_id: int) -> None:
        tell(f"batch {batch_id}")
        sink(frame.repartition("key"), batch_id)  # a shuffle, so that the layout is not the files'

    rows = files(spark, arguments) if arguments["source"] is None else records(spark, arguments)
    query = (
        rows.writeStream.foreachBatch(write)
        .option("checkpointLocation", arguments["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    tell("done")
    spark.stop()


def files(spark: SparkSession, arguments: dict[str, Any]) -> DataFrame:
    reader = spark.readStream.schema("key string, value string")
    return reader.option("maxFilesPerTrigger", 1).parquet(arguments["input"])


def records(spark: SparkSession, arguments: dict[str, Any]) -> DataFrame:
    reader = spark.readStream.format("penstock").option("subscribe", arguments["source"])
    return (
        reader.option("kafka.bootstrap.servers", arguments["bootstrap"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", arguments["offsets_max"])
        .load()
        .selectExpr("CAST(key AS string) AS key", "CAST(value AS string) AS value")
    )


def stop_at(point: str | None, batch: int) -> None:
    """Wait for the end before or after one of the steps of a batch."""
    if point is None:
        return
    step = {"before the marker": "add_marker", "after the marker": "add_marker"}.get(
        point, "commit"
    )
    own: Callable[..., Any] = getattr(batch_transaction, step)

    def stepping(cluster: Any, transaction: Any, *rest: Any) -> Any:
        is_it = transaction.name.batch_id == batch
        if is_it and point.startswith("before"):
            wait(point)
        outcome = own(cluster, transaction, *rest)
        if is_it and point.startswith("after"):
            wait(point)
        return outcome

    setattr(batch_transaction, step, stepping)


def wait(point: str) -> None:
    tell(f"at {point}")
    time.sleep(600)


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
