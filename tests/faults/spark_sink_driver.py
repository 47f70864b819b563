"""A Spark driver that is made to be killed: streams files into a topic, and stops where told.

Told by one JSON argument; tells on standard output, a line each: `batch N` when one begins, and
`at POINT` where it waits for its end. Run by test_spark_exactly_once.py.
"""

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from penstock.spark import WriteRequest, batch_transaction, exactly_once, session

if TYPE_CHECKING:
    from collections.abc import Callable


def main(told: dict[str, Any]) -> None:
    spark = session(
        "faults",
        master=told["master"],
        settings={
            "spark.ui.enabled": "false",
            "spark.driver.memory": "1g",
            "spark.executor.memory": "512m",
            "spark.local.dir": told["folder"],
            "spark.sql.shuffle.partitions": str(told["shuffles"]),
            "spark.sql.adaptive.enabled": str(told["adaptive"]).lower(),
        },
    )
    stop_at(told["point"], told["batch"])
    request = WriteRequest(told["topic"], bootstrap=told["bootstrap"])
    sink = exactly_once(request, timeout_ms=told["timeout_ms"])

    def write(frame: DataFrame, batch_id: int) -> None:
        tell(f"batch {batch_id}")
        sink(frame.repartition("key"), batch_id)  # a shuffle, so that the layout is not the files'

    query = (
        spark.readStream.schema("key string, value string")
        .option("maxFilesPerTrigger", 1)
        .parquet(told["input"])
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", told["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    tell("done")
    spark.stop()


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
