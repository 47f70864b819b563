"""A program that uses Penstock over Spark Connect, in its own process as Connect clients are.

Called with the step to run and its arguments, as JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.spark import WriteRequest, exactly_once, record_batches

STARTS_MAX = 8


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    """Two micro-batches, one for each file."""
    files = spark.readStream.schema("id long, store string").option("maxFilesPerTrigger", 1)
    return files.json(str(folder / "input")).selectExpr("store AS key", "string(id) AS value")


def run(frame: DataFrame, folder: Path, topic: str, sink: Any) -> Any:
    """Start the query, again if the Python process of the function took too long to start.

    Spark waits 10 s for it, which no setting changes; on a busy machine it takes longer.
    """
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / topic))
    for _ in range(STARTS_MAX - 1):
        try:
            return writer.trigger(availableNow=True).start()
        except PySparkException as failure:
            if "waiting for the Python worker to connect back" not in str(failure):
                raise
    return writer.trigger(availableNow=True).start()


def write_exactly_once(spark: SparkSession, arguments: dict[str, Any]) -> None:
    """Two concurrent queries, started twice: the second time after their last commit was lost."""
    folder = Path(arguments["folder"])
    frame = stream(spark, folder)
    for _ in range(2):
        queries = []
        for topic in arguments["topics"]:
            request = WriteRequest(topic, bootstrap=arguments["bootstrap"])
            sink = exactly_once(request, checkpoint=folder / topic)
            queries.append(run(frame, folder, topic, sink))
        for query in queries:
            query.awaitTermination()
        for topic in arguments["topics"]:
            commits = folder / topic / "commits"
            (commits / "1").unlink()
            (commits / ".1.crc").unlink(missing_ok=True)


def write_without_a_checkpoint(spark: SparkSession, arguments: dict[str, Any]) -> None:
    """Print what the query fails with."""
    folder, (topic,) = Path(arguments["folder"]), arguments["topics"]
    sink = exactly_once(WriteRequest(topic, bootstrap=arguments["bootstrap"]))
    query = run(stream(spark, folder), folder, topic, sink)
    try:
        query.awaitTermination()
    except PySparkException as failure:
        sys.stdout.write(str(failure))


def write_record_batches(spark: SparkSession, arguments: dict[str, Any]) -> None:
    """A batch job to the first topic, and a stream to the second."""
    brokers = {"kafka.bootstrap.servers": arguments["bootstrap"]}
    folder, (first, second) = Path(arguments["folder"]), arguments["topics"]
    table = spark.read.schema("id long, store string").json(str(folder / "input"))
    rows = table.repartition(4).selectExpr("store AS key", "string(id) AS value")
    bootstrap = arguments["bootstrap"]
    packed = record_batches(rows, WriteRequest(first, bootstrap=bootstrap))
    packed.write.format("penstock").options(**brokers).mode("append").save()
    packed = record_batches(stream(spark, folder), WriteRequest(second, bootstrap=bootstrap))
    writer = packed.writeStream.format("penstock").options(**brokers)
    checkpoint = str(folder / second)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


STEPS = {
    "exactly_once": write_exactly_once,
    "no_checkpoint": write_without_a_checkpoint,
    "record_batches": write_record_batches,
}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    remote: Any = SparkSession.builder
    STEPS[given["step"]](remote.remote(given["url"]).getOrCreate(), given)
