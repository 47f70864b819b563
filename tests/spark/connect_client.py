"""A program that uses Penstock over Spark Connect; a process of its own, as Connect clients are.

Called with the step to run and what it needs, as JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.spark import exactly_once, record_batches

STARTS_MAX = 8


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    """Two micro-batches, one for each file."""
    files = spark.readStream.schema("id long, store string").option("maxFilesPerTrigger", 1)
    return files.json(str(folder / "input")).selectExpr("store AS key", "string(id) AS value")


def run(frame: DataFrame, folder: Path, topic: str, sink: Any) -> Any:
    """Start the query, again where Spark gave the function's Python process too little time.

    Spark waits 10 s for it, which no setting changes; on a busy machine it takes longer to start.
    """
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / topic))
    for _ in range(STARTS_MAX - 1):
        try:
            return writer.trigger(availableNow=True).start()
        except PySparkException as failure:
            if "waiting for the Python worker to connect back" not in str(failure):
                raise
    return writer.trigger(availableNow=True).start()


def write_exactly_once(spark: SparkSession, said: dict[str, Any]) -> None:
    """Two queries at once, started twice: the second time after their last commit was lost."""
    folder = Path(said["folder"])
    frame = stream(spark, folder)
    for _ in range(2):
        queries = []
        for topic in said["topics"]:
            sink = exactly_once(
                topic, checkpoint=folder / topic, bootstrap_servers=said["bootstrap"]
            )
            queries.append(run(frame, folder, topic, sink))
        for query in queries:
            query.awaitTermination()
        for topic in said["topics"]:
            commits = folder / topic / "commits"
            (commits / "1").unlink()
            (commits / ".1.crc").unlink(missing_ok=True)


def write_without_a_checkpoint(spark: SparkSession, said: dict[str, Any]) -> None:
    """What the query fails with."""
    folder, (topic,) = Path(said["folder"]), said["topics"]
    sink = exactly_once(topic, bootstrap_servers=said["bootstrap"])
    query = run(stream(spark, folder), folder, topic, sink)
    try:
        query.awaitTermination()
    except PySparkException as failure:
        sys.stdout.write(str(failure))


def write_record_batches(spark: SparkSession, said: dict[str, Any]) -> None:
    """A batch job to the first topic, and a stream to the second."""
    brokers = {"kafka.bootstrap.servers": said["bootstrap"]}
    folder, (first, second) = Path(said["folder"]), said["topics"]
    table = spark.read.schema("id long, store string").json(str(folder / "input"))
    rows = table.repartition(4).selectExpr("store AS key", "string(id) AS value")
    packed = record_batches(rows, first, bootstrap_servers=said["bootstrap"])
    packed.write.format("penstock").options(**brokers).mode("append").save()
    packed = record_batches(stream(spark, folder), second, bootstrap_servers=said["bootstrap"])
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
    told = json.loads(sys.argv[1])
    remote: Any = SparkSession.builder
    STEPS[told["step"]](remote.remote(told["url"]).getOrCreate(), told)
