"""A Spark query that reports to the console: `reported_query BOOTSTRAP TOPIC FOLDER`.

Counts the records of a topic by minute until the process is killed.
"""

import sys
from pathlib import Path

from pyspark.sql.functions import window

from penstock.spark import report_pipelines, session

NAME = "clicks-by-minute"


def main(bootstrap: str, topic: str, folder: Path) -> None:
    """Run until the process ends."""
    spark = session(
        "reported query",
        master="local[1]",
        settings={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.local.dir": str(folder / "local"),
        },
    )
    report_pipelines(spark, bootstrap)
    stream = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    records = stream.option("subscribe", topic).option("startingOffsets", "earliest").load()
    counts = records.withWatermark("timestamp", "1 minute").groupBy(window("timestamp", "1 minute"))
    query = (
        counts.count()
        .writeStream.format("noop")
        .outputMode("update")
        .queryName(NAME)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
