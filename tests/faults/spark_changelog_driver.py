"""A driver to be killed: hourly revenue with its state in a topic, as one process.

Called with a JSON document: bootstrap, registry, checkpoint, suffix, batch size, and where to die,
"before:N" or "after:N" the write of batch N. It dies with every process of its group, by kill -9.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from penstock.spark import Changelog, Output, StatefulQuery, WriteRequest, count, session, total


def main(arguments: dict[str, Any]) -> None:
    spark = session(
        "killed",
        master="local[2]",
        settings={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            # Many short lives: the first compiler is enough.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.streaming.minBatchesToRetain": "2",
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    suffix = arguments["suffix"]
    log = Changelog(
        spark,
        f"state{suffix}",
        query=f"revenue{suffix}",
        options={"kafka.bootstrap.servers": arguments["bootstrap"]},
        partitions=2,
    )
    orders = log.read(
        subscribe="orders",
        registry=arguments["registry"],
        columns="at,country,cents,_topic,_partition,_offset,_error",
        maxOffsetsPerTrigger=str(arguments["offsets"]),
    )
    hourly = log.windows(
        orders.where("_error is null"),
        "at",
        "1 hour",
        lateness="1 hour",  # in small batches one partition may be read well ahead of the other
        by=["country"],
        orders=count(),
        cents=total("cents"),
    )
    query = start(hourly, arguments)
    query.awaitTermination()
    spark.stop()


def start(hourly: StatefulQuery, arguments: dict[str, Any]) -> Any:
    suffix = arguments["suffix"]
    outputs = [
        Output(WriteRequest(f"revenue{suffix}"), rows=as_text),
        Output(WriteRequest(f"late{suffix}"), rows=as_text, late=True),
    ]
    write = dying(hourly.writer(outputs), arguments.get("die", ""))
    writer = hourly.changes().writeStream.outputMode("update").foreachBatch(write)
    writer = writer.option("checkpointLocation", arguments["checkpoint"])
    return writer.trigger(availableNow=True).start()


def as_text(changes: DataFrame) -> DataFrame:
    return changes.where("not removed").selectExpr(
        "concat_ws(' ', unix_millis(window_start), country) as key",
        "concat_ws(' ', orders, cents) as value",
    )


def dying(write: Callable[[DataFrame, int], None], die: str) -> Callable[[DataFrame, int], None]:
    when, _, number = die.partition(":")

    def run(frame: DataFrame, batch_id: int) -> None:
        is_it = bool(die) and batch_id == int(number)
        if is_it and when == "before":
            os.killpg(0, signal.SIGKILL)
        write(frame, batch_id)
        if is_it:
            os.killpg(0, signal.SIGKILL)

    return run


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
