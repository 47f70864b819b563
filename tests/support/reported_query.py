"""A Spark query that reports to the console: `reported_query BOOTSTRAP TOPIC FOLDER`.

Reads a topic, with a watermark, until the process is killed.
"""

import sys
from pathlib import Path

from penstock.spark import session

NAME = "clicks-by-time"


def main(bootstrap: str, topic: str, folder: Path) -> None:
    """Run until the process ends."""
    spark = session(
        "reported query",
        master="local[1]",
        settings={
            "spark.ui.enabled": "false",
            "spark.local.dir": str(folder / "local"),
        },
        report_to=bootstrap,
    )
    stream = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    records = stream.option("subscribe", topic).option("startingOffsets", "earliest").load()
    query = (
        records.withWatermark("timestamp", "1 minute")
        .writeStream.format("noop")
        .queryName(NAME)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
