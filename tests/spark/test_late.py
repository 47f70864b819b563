"""Late events: each is in its topic once and counted; all others are passed on."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.spark import LateEvents, WriteRequest, late_events
from penstock.spark.late_sink import EventClock

MakeTopic = Callable[..., str]
MINUTE = 60


def test_a_batch_that_is_repeated_has_the_same_watermark() -> None:
    clock = EventClock.load(EventClock("one", 7, before_us=100, after_us=200, late=3).dump())
    assert clock.watermark("one", 7) == 100
    assert clock.watermark("one", 8) == 200
    assert clock.watermark("another checkpoint", 0) == 200
    assert EventClock().watermark("one", 0) is None


class DiedError(Exception):
    """As if the process had ended."""


class Pipeline:
    """A stream of numbered events with times, one file per batch."""

    def __init__(self, spark: SparkSession, folder: Path, bootstrap: str, topic: str) -> None:
        self.spark = spark
        self.folder = folder
        self.bootstrap = bootstrap
        self.topic = topic
        self.on_time: list[int] = []
        self.dies_once = False
        (folder / "events").mkdir()

    def put(self, **times: int | None) -> None:
        """Add a batch of events: their names and the minutes at which they happened."""
        number = len(list((self.folder / "events").iterdir()))
        lines = [
            json.dumps({"id": int(name[1:]), "at": None if at is None else at * MINUTE})
            for name, at in times.items()
        ]
        file = self.folder / "events" / f"{number:04}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (number, number))

    def sink(self) -> LateEvents:
        def then(frame: DataFrame, _: int) -> None:
            ids = [row["id"] for row in frame.collect()]
            if self.dies_once:
                self.dies_once = False
                raise DiedError
            self.on_time += ids

        request = WriteRequest(self.topic, bootstrap=self.bootstrap, key="id_text", value="id_text")
        return late_events(
            request, time="at", lateness="10 minutes", query=f"late-{self.topic}", then=then
        )

    def run(self) -> LateEvents:
        events = self.spark.readStream.schema("id long, at long").option("maxFilesPerTrigger", "1")
        rows = events.json(str(self.folder / "events")).selectExpr(
            "id", "string(id) as id_text", "timestamp_seconds(at) as at"
        )
        sink = self.sink()
        query = (
            rows.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sink

    def late(self) -> list[int]:
        rows = self.spark.read.format("penstock").option("subscribe", self.topic)
        rows = rows.option("kafka.bootstrap.servers", self.bootstrap)
        return sorted(int(row["value"]) for row in rows.load().collect())


@pytest.mark.slow
def test_late_events_are_in_their_topic_once_and_counted(
    spark: SparkSession, tmp_path: Path, bootstrap: str, make_topic: MakeTopic
) -> None:
    pipeline = Pipeline(spark, tmp_path, bootstrap, make_topic(1))
    pipeline.put(e1=1, e2=60, e3=2)  # no event is late in the first batch
    pipeline.put(e4=49, e5=51, e6=100, e7=None)  # the watermark is at minute 50
    pipeline.dies_once = False
    assert pipeline.run().late_total == 1
    assert pipeline.on_time == [1, 2, 3, 5, 6, 7]

    pipeline.put(e8=89, e9=90)  # now at 90; the batch is written, then the driver dies
    pipeline.dies_once = True
    with pytest.raises(Exception, match="DiedError"):
        pipeline.run()
    assert pipeline.run().late_total == 2
    assert pipeline.on_time[6:] == [9]

    shutil.rmtree(tmp_path / "checkpoint")  # a new one has the stored watermark
    for file in (tmp_path / "events").iterdir():
        file.unlink()
    pipeline.put(e10=80, e11=200)
    assert pipeline.run().late_total == 3
    assert pipeline.on_time[7:] == [11]
    assert pipeline.late() == [4, 8, 10]
